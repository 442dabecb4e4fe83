"""Matrix commands: measure F, choose blocks, run them, resume an interrupted run."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgrads.api.bags.matrices import (
    Digests,
    MatrixProblem,
    about,
    check_same,
    lay_out,
    lines_of,
    measure,
)
from vgrads.api.bags.sites import places_of
from vgrads.api.config import dispatcher_folder
from vgrads.api.queues.sites import this_machine
from vgrads.api.wiring import all_simulated
from vgrads.dispatch.core.tasks import DONE
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.storage.block_files import is_of_blocks
from vgrads.dispatch.storage.journal import look
from vgrads.dispatch.storage.matrix_store import MatrixStore
from vgrads.dispatch.storage.status import is_worked_on, read_latest
from vgrads.kernel.errors import InputError
from vgrads.portal.cli.bags.run import HowToWork, work_on
from vgrads.portal.cli.terminal import console
from vgrads.portal.jobs.bags import resumable, submit
from vgrads.portal.records.bags import BagStore
from vgrads.portal.records.reading.bags import BagEntry
from vgrads.portal.records.reading.sites import choose_catalog
from vgrads.portal.records.store import Store, new_id
from vgrads.vgrid.catalog import Catalog
from vgrads.workflows.generated.blocks import BlockGrid, block_of


@dataclass(frozen=True, kw_only=True)
class HowToCompute:
    """Options of both commands. ``block``: cells of a side, None: chosen by the time of F."""

    matrix: Path
    out: Path | None
    block: int | None
    retries: int
    work: HowToWork


def compute(problem: MatrixProblem, how: HowToCompute) -> int:
    """Compute the missing cells of a matrix file; return the exit code."""
    catalog = choose_catalog(how.work.sites) if how.work.sites else this_machine()
    digests = Digests.of(problem)
    simulated = all_simulated(catalog.sites)
    fresh = simulated or not how.matrix.exists() or not how.matrix.stat().st_size
    grid, cell_s = (
        _chosen(problem, digests, how, catalog) if fresh else _measured(problem, digests, how)
    )
    if simulated:
        _print(
            how,
            ("All sites are simulated: nothing is computed, and no matrix file is written."),
        )
        return _carry_out(problem, digests, grid, cell_s, how, catalog)
    began = about(problem, digests, grid, cell_s)
    with closing(MatrixStore(how.matrix, began, write=True)) as store:
        whole, last = store.whole, store.run
    code = 0
    if not whole:
        rows = [] if fresh else _unfinished(last, how.matrix)
        code = (
            _go_on(rows, how, catalog)
            if rows
            else _carry_out(problem, digests, grid, cell_s, how, catalog)
        )
    return code or _conclude(how)


def _chosen(
    problem: MatrixProblem, digests: Digests, how: HowToCompute, catalog: Catalog
) -> tuple[BlockGrid, float]:
    measured = measure(problem, digests)
    hosts = places_of(catalog, [_document(problem, how, measured.cell_s)])
    places = max(1, sum(site.limits.most * (site.procs // problem.procs) for site in hosts))
    cell_s = measured.cell_s / problem.procs
    side = how.block or block_of(problem.grid(1), cell_s, places, problem.most_side)
    grid = problem.grid(side)
    takes = (
        f"more than {measured.seconds:.0f} s"
        if measured.more
        else f"{measured.cell_s * 1000:,.3g} ms"
    )
    _print(
        how,
        (
            f"F takes {takes} per cell here ({measured.cells} measured): {grid.cells:,} cells in "
            f"{grid.order.size:,} blocks of {grid.high} × {grid.wide}"
        ),
    )
    return grid, measured.cell_s


def _measured(
    problem: MatrixProblem, digests: Digests, how: HowToCompute
) -> tuple[BlockGrid, float]:
    """Return the blocks of an existing matrix file. Raise InputError where it has another
    description."""
    with closing(MatrixStore(how.matrix)) as store:
        check_same(store, about(problem, digests, store.grid, 0.0)["what"])
        grid = store.grid
        _print(
            how,
            (
                f"{how.matrix} has {store.done:,} of {grid.cells:,} cells, in "
                f"{grid.order.size:,} blocks of {grid.high} × {grid.wide}"
            ),
        )
        if how.block not in (None, grid.high):
            _print(how, f"--block {how.block} is ignored: a matrix keeps its blocks")
        return grid, float(store.about["cell_s"])


def _unfinished(bag_id: str, matrix: Path) -> list[BagEntry]:
    """Return the last bag that worked on a matrix file, where it can be resumed. Raise InputError
    where it is running."""
    if not bag_id:
        return []
    with Store() as records:
        try:
            row = BagStore(records.engine).get(bag_id)
        except InputError:
            return []
        folder = dispatcher_folder(row.dispatcher)
        if is_worked_on(folder):
            raise InputError(f"is being computed by {bag_id}", where=str(matrix))
        if not is_of_blocks(folder / "bags" / f"{row.number:04d}") or not _has_all(
            folder, row, matrix
        ):
            return []
        try:
            return list(resumable(records, bag_id))
        except InputError:  # terminal: failed blocks are retried in a new bag
            return []


def _has_all(folder: Path, row: BagEntry, matrix: Path) -> bool:
    """Return True where the matrix contains all blocks that the bag's journal records as done. An
    older copy of the file lacks some."""
    bag = look(folder / "journal").bags.get(row.number)
    with closing(MatrixStore(matrix)) as store:
        status = bag.tasks.status if bag is not None else ()
        return all(kind != DONE or store.has(task) for task, kind in enumerate(status))


def _go_on(rows: list[BagEntry], how: HowToCompute, catalog: Catalog) -> int:
    with Store() as records:
        return _print_outcome(
            work_on(records, rows[0].dispatcher, catalog, rows, how.work), rows[0], how
        )


def _carry_out(
    problem: MatrixProblem,
    digests: Digests,
    grid: BlockGrid,
    cell_s: float,
    how: HowToCompute,
    catalog: Catalog,
) -> int:
    dispatcher = new_id("bag")
    lay_out(dispatcher_folder(dispatcher) / "bags" / "0000", problem, digests, grid, how.matrix)
    document = _document(problem, how, cell_s * grid.high * grid.wide)
    with Store() as records:
        row = submit(records, dispatcher, document, Path.cwd(), catalog)
        if not all_simulated(catalog.sites):
            with closing(MatrixStore(how.matrix, write=True)) as store:
                store.note_run(row.id)
        return _print_outcome(work_on(records, dispatcher, catalog, [row], how.work), row, how)


_LEAST_S = 1e-3  # least stated run time of a block


def _document(problem: MatrixProblem, how: HowToCompute, alone_s: float) -> BagDocument:
    """Return the rules of the bag; ``alone_s``: time of a block on one processor."""
    return BagDocument(
        name=how.matrix.name,
        command="block",
        procs=problem.procs,
        retries=how.retries,
        runtime_s=max(_LEAST_S, alone_s / problem.procs),
    )


def _print_outcome(code: int, row: BagEntry, how: HowToCompute) -> int:
    """Print the last error, as reported by its block."""
    wrong = read_latest(dispatcher_folder(row.dispatcher), row.number)["wrong"] if code else []
    for text in {end["text"].strip() for end in wrong[:3]}:
        _print(how, text)
    return code


def _conclude(how: HowToCompute) -> int:
    with closing(MatrixStore(how.matrix)) as store:
        if how.out is not None:
            with how.out.open("w") as file:
                file.writelines(lines_of(store))
        _print(
            how,
            f"{how.matrix}: {store.done:,} of {store.grid.cells:,} cells"
            + (
                f", as lines in {how.out}"
                if how.out
                else f"; 'vgrads matrix {how.matrix}' prints them"
            ),
        )
    return 0


def _print(how: HowToCompute, text: str) -> None:
    console(stderr=how.work.as_json).print(text, highlight=False, markup=False, soft_wrap=True)


def show(path: Path, as_json: bool) -> None:
    """Print a matrix file: its cells as lines, or its status as JSON."""
    with closing(MatrixStore(path)) as store:
        if as_json:
            sys.stdout.write(json.dumps(_status_of(store)) + "\n")
        else:
            sys.stdout.writelines(lines_of(store))


def _status_of(store: MatrixStore) -> dict[str, Any]:
    what = store.about["what"]
    return {
        **what,
        "cells": store.grid.cells,
        "done": store.done,
        "blocks": store.grid.order.size,
        "bag": store.run,
    }
