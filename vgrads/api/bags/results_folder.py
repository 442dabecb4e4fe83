"""Results of a bag as files for people: outputs of its tasks, a table of all tasks, and what they
printed."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TextIO

import numpy as np

from vgrads.api.bags.answers import exit_text
from vgrads.api.bags.matrices import lines_of
from vgrads.bags.bag import BagSpec
from vgrads.dispatch.core.records import END
from vgrads.dispatch.core.tasks import DONE, WORDS
from vgrads.dispatch.storage.block_files import Blocks, is_of_blocks
from vgrads.dispatch.storage.carried import DoneTasks, read_done_tasks
from vgrads.dispatch.storage.folder import StoredBag, open_bag
from vgrads.dispatch.storage.journal import read_ends, read_state
from vgrads.dispatch.storage.matrix_store import MatrixStore
from vgrads.dispatch.storage.outputs import OutputReader
from vgrads.exchange.values import COULD_NOT
from vgrads.execmgr.tasks.provenance import link_file
from vgrads.kernel.errors import InputError

TABLE, OUT, ERR, SEPARATE = "results.csv", "stdout.txt", "stderr.txt", "printed"
CELLS = "cells.txt"
_BUNDLE = 10_000
MOST_BY_ITSELF = 10_000
"""Tasks up to which a bag's own folder of results gets a table without a request."""
_COLUMNS = (
    "command",
    "state",
    "exit_code",
    "result",
    "attempts",
    "run_s",
    "wait_s",
    "cpu_s",
    "peak_mib",
    "node",
    "site",
    "reused",
)
_KINDS = {"exit_code": "Int64", **dict.fromkeys(("run_s", "wait_s", "cpu_s", "peak_mib"), "float")}
"""Types of columns without values where a task was not run: those of tables in which all were."""
_TABLES = (".csv", ".parquet")


def is_table(path: Path) -> bool:
    """Return whether a path names a table; otherwise it names a folder."""
    return path.suffix.lower() in _TABLES and not path.is_dir()


def check_target(path: Path) -> None:
    """Raise InputError where results could not be written: before anything runs."""
    if path.suffix.lower() == ".parquet" and not (find_spec("pyarrow") or find_spec("fastparquet")):
        raise InputError(
            f"'{path.name}' needs a package that writes Parquet",
            where="--out",
            fix="install pyarrow, or name a .csv file",
        )
    folder = path.parent if is_table(path) else path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # tried, because permissions do not tell of full or read-only file systems
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=f"--out {folder}") from error


def write_results(folder: Path, number: int, target: Path, separate: bool = False) -> None:
    """Write the results of a bag so far: to a folder, or only the table where ``target`` names one.
    Existing files of the same names are replaced. ``separate``: a file for what each task printed.
    Raise InputError where that fails."""
    results = BagResults(folder, number)
    try:
        if is_table(target):
            results.write_table(target)
            return
        check_names(results.bag)
        target.mkdir(parents=True, exist_ok=True)
        results.link_outputs(target)
        results.write_table(target / TABLE)
        results.write_printed(target, separate)
        place = folder / "bags" / f"{number:04d}"
        if is_of_blocks(place):
            _write_cells(place, target / CELLS)
    except OSError as error:
        raise InputError(
            f"the results cannot be written: {error.strerror}", where=str(target)
        ) from error


def _write_cells(place: Path, target: Path) -> None:
    """Write the computed cells of a matrix, a line for each; nothing where its sites are simulated,
    which write no matrix file."""
    matrix = Path(Blocks.read(place).matrix)
    if not matrix.is_file():
        return
    with closing(MatrixStore(matrix)) as store, target.open("w") as file:
        file.writelines(lines_of(store))


@dataclass(frozen=True)
class BagResults:
    """Results of a bag, from its dispatcher's folder."""

    folder: Path
    number: int

    @cached_property
    def _stored(self) -> StoredBag:
        return open_bag(self.folder, self.number)

    @property
    def bag(self) -> BagSpec:
        """Return the bag."""
        return self._stored.bag

    @cached_property
    def _done(self) -> DoneTasks:
        return read_done_tasks(self.folder, self.number)

    @cached_property
    def _last(self) -> np.ndarray:
        """The last end of each task that is not done and has ended, by task."""
        # newest first: `unique` below keeps the first one of each task
        ends = np.concatenate([np.zeros(0, END), *read_ends(self.folder / "journal", self.number)])[
            ::-1
        ]
        ends = ends[~np.isin(ends["task"], self._done.ends["task"])]
        return ends[np.unique(ends["task"], return_index=True)[1]]

    @cached_property
    def _states(self) -> Sequence[int]:
        """The state of each task; the journal is read again only where some are not done."""
        count = len(self._stored.bag.commands)
        if len(self._done.ends) == count:
            return bytes([DONE]) * count
        bag = read_state(self.folder / "journal").bags.get(self.number)
        status = bytes(bag.tasks.status) if bag is not None else b""
        return status.ljust(count, b"\0")

    def link_outputs(self, target: Path) -> None:
        """Link, or copy, the outputs of all tasks that are done."""
        names, commands = self._stored.bag.outputs, self._stored.bag.commands
        source = self._stored.files.folder / "results"
        if not names or source.resolve() == target.resolve():
            return
        for task in self._done.ends["task"].tolist():
            for name in commands.filled(names, task):
                file = target / name
                file.parent.mkdir(parents=True, exist_ok=True)
                # a link cannot replace a file
                file.unlink(missing_ok=True)
                if (source / name).exists():
                    link_file(source / name, file)

    def write_table(self, path: Path) -> None:
        """Write a row for each task, as CSV or Parquet; a table that exists is replaced whole."""
        draft = path.with_name(f".{path.name}.draft")
        try:
            if path.suffix.lower() == ".parquet":
                import pandas as pd

                frame = pd.DataFrame(list(self._rows()), columns=self._columns())
                frame.astype(_KINDS).to_parquet(draft)
            else:
                with draft.open("w", newline="", encoding="utf-8") as file:
                    writer = csv.writer(file)
                    writer.writerow(self._columns())
                    writer.writerows(self._rows())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    @cached_property
    def _parameters(self) -> list[str]:
        commands = self._stored.bag.commands
        return [name for name in commands.values(0) if name != "task"] if len(commands) else []

    def _columns(self) -> list[str]:
        own = {"task", *_COLUMNS}
        names = [f"parameter_{name}" if name in own else name for name in self._parameters]
        return ["task", *names, *_COLUMNS]

    def _ends(self) -> Iterator[tuple[dict[str, Any], bool]]:
        """Return the end that decided each task, or its last one, by task; and whether an earlier
        run has done it."""
        ends = np.concatenate([self._done.ends, self._last])
        carried = np.concatenate([self._done.carried, np.zeros(len(self._last), bool)])
        order, names = np.argsort(ends["task"], kind="stable"), END.names or ()
        # in bundles: as Python objects, the ends of millions of tasks would not fit into memory
        for at in range(0, len(ends), _BUNDLE):
            some = order[at : at + _BUNDLE]
            for end, before in zip(ends[some].tolist(), carried[some].tolist(), strict=True):
                yield dict(zip(names, end, strict=True)), before

    def _rows(self) -> Iterator[list[Any]]:
        commands, ends = self._stored.bag.commands, self._ends()
        end, before = next(ends, (None, False))
        for task, state in enumerate(self._states):
            values = commands.values(task)
            row = [task, *(values[name] for name in self._parameters), commands.command(task)]
            if end is None or end["task"] != task:
                yield [*row, WORDS[state], None, "", 0, *[None] * 4, "", "", False]
                continue
            yield [*row, WORDS[state], *self._of_end(end), before]
            end, before = next(ends, (None, False))

    def _of_end(self, end: Mapping[str, Any]) -> list[Any]:
        """Return the columns from the exit code to the site."""
        code, agent, agents = end["code"], end["host"], self._done.agents
        return [
            None if code == COULD_NOT else code,
            exit_text(code),
            end["attempt"],
            *(round(end[name], 6) for name in ("ran_s", "waited_s", "cpu_s")),
            round(end["peak_gib"] * 1024.0, 1),
            *(agents[agent] if agent < len(agents) else ("", "")),
        ]

    def write_printed(self, target: Path, separate: bool) -> None:
        """Write what the last attempt of each task printed: to two files, with a line before each
        task, or to two files for each."""
        texts = self._printed()
        if separate:
            (target / SEPARATE).mkdir(exist_ok=True)
            for task, out, err in texts:
                for text, kind in ((out, "out"), (err, "err")):
                    if text:
                        (target / SEPARATE / f"{task}.{kind}").write_text(text)
            return
        with ExitStack() as files:
            opened = [
                files.enter_context((target / name).open("w", encoding="utf-8"))
                for name in (OUT, ERR)
            ]
            for task, *both in texts:
                for text, file in zip(both, opened, strict=True):
                    _add(file, task, text)

    def _printed(self) -> Iterator[tuple[int, str, str]]:
        """Return what tasks printed, in the order in which they ended."""
        for output in self._done.printed():
            yield output.task, output.out, output.err
        last = dict(zip(self._last["task"].tolist(), self._last["attempt"].tolist(), strict=True))
        if last:
            for output in OutputReader(self._stored.files.folder / "printed.bin").more():
                # the file has what all attempts printed
                if last.get(output.task) == output.attempt:
                    yield output.task, output.out, output.err

    @property
    def may_have_table(self) -> bool:
        """Return whether the table may be written to the folder of outputs: the bag is not large,
        and none of its outputs has such a name."""
        bag = self._stored.bag
        return len(bag.commands) <= MOST_BY_ITSELF and not _find_own_name(bag)


def check_names(bag: BagSpec) -> None:
    """Raise InputError where a task of a bag has an output that a table would replace."""
    if name := _find_own_name(bag):
        raise InputError(
            f"every folder of results has a file '{name}' of its own",
            where="outputs",
            fix="give the output another name, or name a table: --out FILE.csv",
        )


def _find_own_name(bag: BagSpec) -> str:
    """Return an output of a task that is also the name of a file of results; empty where there is
    none."""
    names, commands = bag.outputs, bag.commands
    taken = (
        os.path.normpath(name).partition("/")[0]
        for task in range(len(commands) if names else 0)
        for name in commands.filled(names, task)
    )
    return next((name for name in taken if name in (TABLE, OUT, ERR, SEPARATE)), "")


def _add(file: TextIO, task: int, text: str) -> None:
    if text:
        file.write(f"==> task {task} <==\n{text}" + ("" if text.endswith("\n") else "\n"))
