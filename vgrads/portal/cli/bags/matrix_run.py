"""Matrix commands: measure F, choose blocks, run them, resume an interrupted run."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from dataclasses import dataclass, replace
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
from vgrads.api.bags.matrix_goals import MatrixGoal
from vgrads.api.bags.sites import find_places
from vgrads.api.config import dispatcher_folder
from vgrads.api.wiring import are_all_simulated
from vgrads.dispatch.core.tasks import DONE
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.storage.block_files import is_of_blocks
from vgrads.dispatch.storage.journal import read_state
from vgrads.dispatch.storage.matrix_store import MatrixStore
from vgrads.dispatch.storage.status import is_worked_on, read_latest
from vgrads.kernel.errors import InputError
from vgrads.kernel.files import refuse_database
from vgrads.kernel.units import format_count
from vgrads.portal.cli.bags.run import HowToWork, cancel_bag, work_on
from vgrads.portal.cli.terminal import console
from vgrads.portal.jobs.bags import resumable, submit
from vgrads.portal.records.bags import BagStore
from vgrads.portal.records.reader import new_id
from vgrads.portal.records.reading.bags import ENDED, BagEntry, read_bag_status
from vgrads.portal.records.reading.sites import choose_catalog
from vgrads.portal.records.store import Store
from vgrads.vgrid.catalog import Catalog, describe_this_machine
from vgrads.workflows.generated.blocks import DISPATCH_S, BlockGrid, block_of


@dataclass(frozen=True, kw_only=True)
class HowToCompute:
    """Options of both commands. ``block``: cells of a side, None: chosen by the time of F;
    ``goal``: as stated, None: that of the matrix file, if any."""

    matrix: Path
    out: Path | None
    block: int | None
    retries: int
    work: HowToWork
    goal: MatrixGoal | None = None


def compute(problem: MatrixProblem, how: HowToCompute) -> int:
    """Compute the missing cells of a matrix file; return the exit code."""
    catalog = choose_catalog(how.work.sites) if how.work.sites else describe_this_machine()
    digests = Digests.of(problem)
    simulated = are_all_simulated(catalog.sites)
    fresh = simulated or not how.matrix.exists() or not how.matrix.stat().st_size
    grid, cell_s = (
        _choose_matrix(problem, digests, how, catalog)
        if fresh
        else _measure_blocks(problem, digests, how)
    )
    if simulated:
        _print(
            how,
            ("All sites are simulated: nothing is computed, and no matrix file is written."),
        )
        return _carry_out(problem, digests, grid, cell_s, how, catalog)
    began = about(problem, digests, grid, cell_s)
    # closed before the work begins: the dispatcher opens it, and there is one writer at a time
    with closing(MatrixStore(how.matrix, began, write=True)) as store:
        whole, last, before = store.whole, store.run, MatrixGoal.read(store.goal)
    code = 0
    if not whole:
        rows = [] if fresh else _find_unfinished(last, how.matrix)
        is_new = how.goal is not None and not how.goal.is_same(before)
        if before is not None and not is_new:
            before = _add_spent(before, last)
            _print(how, f"{how.matrix}: {before.describe(time.time())}")
            how = replace(how, goal=before)
        if is_new and rows and rows[0].state not in ENDED:
            cancel_bag(rows[0].id, how.work)
            _print(how, f"{rows[0].id} was cancelled: another bag goes on with the new goal")
            rows = []
        code = (
            _go_on(rows, how, catalog)
            if rows
            else _carry_out(problem, digests, grid, cell_s, how, catalog)
        )
    return code or _conclude(how)


def _choose_matrix(
    problem: MatrixProblem, digests: Digests, how: HowToCompute, catalog: Catalog
) -> tuple[BlockGrid, float]:
    measured = measure(problem, digests)
    hosts = find_places(catalog, [_make_document(problem, how, measured.cell_s)])
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
            f"F takes {takes} per cell here ({measured.cells} measured): "
            f"{format_count(grid.cells, 'cell')} in "
            f"{format_count(grid.order.size, 'block')} of {grid.high} × {grid.wide}"
        ),
    )
    return grid, measured.cell_s


def _measure_blocks(
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
                f"{how.matrix} has {store.done:,} of {format_count(grid.cells, 'cell')}, in "
                f"{format_count(grid.order.size, 'block')} of {grid.high} × {grid.wide}"
            ),
        )
        if how.block not in (None, grid.high):
            _print(how, f"--block {how.block} is ignored: a matrix keeps its blocks")
        return grid, float(store.about["cell_s"])


def _find_unfinished(bag_id: str, matrix: Path) -> list[BagEntry]:
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


def _add_spent(goal: MatrixGoal, bag_id: str) -> MatrixGoal:
    """Return a goal with what the last bag of its matrix has cost, where that is still here: the
    run may have been killed, or resumed by another command."""
    with Store() as records:
        try:
            row = BagStore(records.engine).get(bag_id)
        except InputError:
            return goal
    return goal.with_spent(bag_id, _sum_spent_usd(row))


def _sum_spent_usd(row: BagEntry) -> float:
    return float((read_bag_status(row).get("goal") or {}).get("spent_usd", 0.0))


def _has_all(folder: Path, row: BagEntry, matrix: Path) -> bool:
    """Return True where the matrix contains all blocks that the bag's journal records as done. An
    older copy of the file lacks some."""
    bag = read_state(folder / "journal").bags.get(row.number)
    with closing(MatrixStore(matrix)) as store:
        status = bag.tasks.status if bag is not None else ()
        return all(kind != DONE or store.has(task) for task, kind in enumerate(status))


def _go_on(rows: list[BagEntry], how: HowToCompute, catalog: Catalog) -> int:
    with Store() as records:
        code = work_on(records, rows[0].dispatcher, catalog, rows, how.work)
        return _record_cost(code, rows[0], how)


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
    document = _make_document(problem, how, cell_s * grid.cells / grid.order.size, how.goal)
    with Store() as records:
        row, _ = submit(records, dispatcher, document, Path.cwd(), catalog)
        if are_all_simulated(catalog.sites):
            # there is no matrix file in which a cost could be recorded
            how = replace(how, goal=None)
        else:
            with closing(MatrixStore(how.matrix, write=True)) as store:
                store.note_run(row.id)
                if how.goal is not None:
                    store.note_goal(how.goal.as_json())
        return _record_cost(work_on(records, dispatcher, catalog, [row], how.work), row, how)


def _make_document(
    problem: MatrixProblem, how: HowToCompute, alone_s: float, goal: MatrixGoal | None = None
) -> BagDocument:
    """Return the rules of the bag; ``alone_s``: mean time of a block on one processor."""
    fields = {} if goal is None else goal.fields(time.time())
    return BagDocument(
        name=how.matrix.name,
        command="block",
        procs=problem.procs,
        retries=how.retries,
        runtime_s=alone_s / problem.procs + DISPATCH_S,
        **fields,
    )


def _record_cost(code: int, row: BagEntry, how: HowToCompute) -> int:
    """Record what a bag has cost, where its matrix has a goal, and print its last error, as
    reported by its block."""
    if how.goal is not None:
        with closing(MatrixStore(how.matrix, write=True)) as store:
            store.note_goal(how.goal.with_spent(row.id, _sum_spent_usd(row)).as_json())
    wrong = read_latest(dispatcher_folder(row.dispatcher), row.number)["wrong"] if code else []
    for text in {end["text"].strip() for end in wrong[:3]}:
        _print(how, text)
    return code


def _conclude(how: HowToCompute) -> int:
    with closing(MatrixStore(how.matrix)) as store:
        if how.out is not None:
            refuse_database(how.out)
            with how.out.open("w") as file:
                file.writelines(lines_of(store))
        _print(
            how,
            f"{how.matrix}: {store.done:,} of {format_count(store.grid.cells, 'cell')}"
            + (
                f", as lines in {how.out}"
                if how.out
                else f"; 'vgrads matrix {how.matrix}' prints them"
            ),
        )
    return 0


def _print(how: HowToCompute, text: str) -> None:
    console(stderr=how.work.as_json).print(text, highlight=False, markup=False)


def show(path: Path, as_json: bool) -> None:
    """Print a matrix file: its cells as lines, or its status as JSON."""
    with closing(MatrixStore(path)) as store:
        if as_json:
            sys.stdout.write(json.dumps(_read_status(store)) + "\n")
        else:
            sys.stdout.writelines(lines_of(store))


def _read_status(store: MatrixStore) -> dict[str, Any]:
    what = store.about["what"]
    return {
        **what,
        "cells": store.grid.cells,
        "done": store.done,
        "blocks": store.grid.order.size,
        "bag": store.run,
        "goal": store.goal or None,
    }
