"""Tasks of a bag that need not run again: an earlier run of the bag has done them, with the same
command, environment and inputs, and their outputs still exist unchanged.

A record per bag, ``provenance.json``, has digests of what its tasks have in common, of all their
definitions, and fingerprints of the files with absolute names that its commands name, as in
:mod:`vgrads.execmgr.tasks.provenance`; null for a file that could not be read: tasks that name it
run again. Which tasks are done is in the journal; inputs and outputs are in
:mod:`vgrads.dispatch.storage.file_records`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vgrads.api.bags.sites import select_usable_sites
from vgrads.api.wiring import are_all_simulated, read_own_values
from vgrads.bags.bag import BagSpec, Listed, Template, split_template
from vgrads.dispatch.parameters import RangeSteps
from vgrads.dispatch.storage.carried import (
    DoneTasks,
    read_done_tasks,
    write_carried,
)
from vgrads.dispatch.storage.file_records import (
    FileRecords,
    read_committed_outputs,
    read_sent_inputs,
)
from vgrads.dispatch.storage.folder import StoredBag, open_bag
from vgrads.dispatch.storage.status import read_json
from vgrads.exchange.messages import PrintedOutput
from vgrads.execmgr.tasks.file_reader import FileReader
from vgrads.execmgr.tasks.provenance import (
    FileFingerprint,
    absolute_names,
    link_file,
    look,
    writes_elsewhere,
)
from vgrads.kernel.errors import InputError
from vgrads.kernel.files import write_whole
from vgrads.kernel.user_files import Answer
from vgrads.vgrid.catalog import Catalog

MOST_EARLIER = 5
"""Earlier runs of a bag that are searched for done tasks: each has what those before it had."""
_RECORD = "provenance.json"
_OWN_S, _SERVED_S = 600.0, 15.0  # to read files for its own user, and while a request waits
_PLACE = "\1"  # a parameter in the text of a template

_log = logging.getLogger("vgrads.bags")


@dataclass(frozen=True, slots=True)
class EarlierBag:
    """An earlier run of a bag: its dispatcher's folder, and its number there."""

    folder: Path
    number: int

    @property
    def bag(self) -> Path:
        """Return the folder of the bag."""
        return self.folder / "bags" / f"{self.number:04d}"


def is_recorded(earlier: EarlierBag) -> bool:
    """Return whether the tasks of a bag may be reused at all."""
    return (earlier.bag / _RECORD).exists()


def record_and_reuse(
    folder: Path, stored: StoredBag, catalog: Catalog, own: bool, earlier: Iterable[EarlierBag]
) -> int:
    """Store the record of a bag that has not started, and carry the results of earlier runs (newest
    first) over to it; return the number of its tasks that are done by them. Raise InputError where
    that fails.

    ``catalog``: of its dispatcher; ``own``: its tasks get variables of this process.
    """
    limit_s = _OWN_S if own else _SERVED_S
    with FileReader(stored.bag.account, limit_s) as files:
        _record(folder, stored, catalog, own, files)
        reused = _carry_over(folder, stored, earlier, files)
    if note := files.note():
        _log.warning("bag '%s': %s", stored.document.name, note)
    return reused


def _record(
    folder: Path, stored: StoredBag, catalog: Catalog, own: bool, files: FileReader
) -> None:
    """Store the record of a bag. Nothing is stored where its tasks cannot be reused: simulated
    ones, those of open bags, and those that write to absolute names."""
    spec = stored.bag
    if stored.document.open or are_all_simulated(
        select_usable_sites(catalog, stored.document).sites
    ):
        return
    if not isinstance(spec.commands, Listed | Template):
        return  # blocks of a matrix, which has its own record
    texts = _name_files(spec)
    if any(map(writes_elsewhere, texts)):
        return
    names = sorted({name for text in texts for name in absolute_names(text)})
    values = read_own_values(spec.pass_env) if own else {}
    common = [sorted(spec.env.items()), sorted(spec.pass_env), sorted(values.items())]
    common += [spec.inputs, spec.outputs, spec.account]
    record = {
        "common": _digest(common),
        "tasks": _digest_of_tasks(stored, folder),
        "reads": {
            name: _convert_to_list(of) for name, of in files.read(names).items() if of is not None
        },
    }
    write_whole(_resolve_folder(folder, stored) / _RECORD, json.dumps(record).encode())


def _carry_over(
    folder: Path, stored: StoredBag, earlier: Iterable[EarlierBag], files: FileReader
) -> int:
    """Carry the results of earlier runs over; return the number of tasks that are done by them."""
    bag = _resolve_folder(folder, stored)
    record = read_json(bag / _RECORD, None)
    if not isinstance(record, dict):
        return 0
    left = np.ones(len(stored.bag.commands), bool)
    parts = []
    for other in earlier:
        before = read_json(other.bag / _RECORD, {})
        if left.any() and record["common"] == before.get("common"):
            same = record["tasks"] == before["tasks"]
            part = _find_fitting(
                stored, other, left, same, _list_changed_files(before["reads"], files)
            )
            left[part.tasks] = False
            parts.append(part)
    parts = [part for part in parts if len(part.tasks)]
    if parts:
        try:
            _carry(bag, stored, parts)
        except OSError as error:
            raise InputError(
                f"results of earlier runs cannot be copied there: {error}",
                where=str(bag),
                fix="run all tasks again with --rerun",
            ) from error
    return int(len(left) - left.sum())


@dataclass(frozen=True, eq=False)
class _ReusedPart:
    """Results of one earlier run: ``tasks`` of the new bag, and ``rows`` of the done tasks."""

    done: DoneTasks
    tasks: np.ndarray
    rows: np.ndarray

    @property
    def ends(self) -> np.ndarray:
        ends: np.ndarray = self.done.ends[self.rows].copy()
        ends["task"], ends["at_cs"] = self.tasks, 0  # that clock was another one
        return ends

    def printed(self) -> Iterator[PrintedOutput]:
        number = dict(
            zip(self.done.ends["task"][self.rows].tolist(), self.tasks.tolist(), strict=True)
        )
        for output in self.done.printed():
            if output.task in number:
                yield replace(output, task=number[output.task])


def _find_fitting(
    stored: StoredBag, other: EarlierBag, left: np.ndarray, same: bool, changed: set[str]
) -> _ReusedPart:
    """Return the tasks that an earlier run has done alike. ``left``: those without results so far;
    ``same``: both have the same tasks in the same order; ``changed``: files that it has read."""
    done = read_done_tasks(other.folder, other.number)
    before = done.ends["task"].astype(np.int64)
    if same:
        tasks, rows = before, np.arange(len(before))
    else:
        try:
            old = open_bag(other.folder, other.number).bag
        except InputError:  # of another version
            return _ReusedPart(done, before[:0], before[:0])
        missing = np.flatnonzero(left)
        tasks, rows = _matched(_number_keys(stored.bag, missing), _number_keys(old, before))
        tasks = missing[tasks]
    some = left[tasks]
    tasks, rows = tasks[some], rows[some]
    if changed and len(tasks):
        command = stored.bag.commands.command
        fits = np.array([changed.isdisjoint(absolute_names(command(t))) for t in tasks.tolist()])
        tasks, rows = tasks[fits], rows[fits]
    if stored.bag.inputs and len(tasks):
        fits = _select_same_inputs(stored, other, tasks)
        tasks, rows = tasks[fits], rows[fits]
    if stored.bag.outputs and len(tasks):
        fits = _select_with_outputs(stored, other, tasks, before[rows])
        tasks, rows = tasks[fits], rows[fits]
    return _ReusedPart(done, tasks, rows)


def _number_keys(spec: BagSpec, tasks: np.ndarray) -> np.ndarray:
    """Return a number for each task that is equal for equal commands and file names."""
    commands, names = spec.commands, (*spec.inputs, *spec.outputs)
    if not names:
        # compared within this process only: hashes of texts differ between processes
        return np.fromiter((hash(commands.command(t)) for t in tasks.tolist()), np.int64)
    both = (hash((commands.command(t), *commands.filled(names, t))) for t in tasks.tolist())
    return np.fromiter(both, np.int64)


def _matched(new: np.ndarray, old: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of equal keys, each used once: of several equal ones, the first with the
    first."""
    order, before = np.argsort(new, kind="stable"), np.argsort(old, kind="stable")
    keys, olds = new[order], old[before]
    # of equal keys, the n-th takes the n-th of the other side
    rank = np.arange(len(keys)) - np.searchsorted(keys, keys)
    at = np.searchsorted(olds, keys) + rank
    fits = at < len(olds)
    fits[fits] = olds[at[fits]] == keys[fits]
    return order[fits], before[at[fits]]


def _select_same_inputs(stored: StoredBag, other: EarlierBag, tasks: np.ndarray) -> np.ndarray:
    sent, files, commands = read_sent_inputs(other.bag), stored.files, stored.bag.commands
    same: dict[str, bool] = {}

    def is_same(name: str) -> bool:
        if name not in same:
            was = sent.get(name, "")
            same[name] = bool(was) and files.digest(name) == was
        return same[name]

    fits = (all(map(is_same, commands.filled(stored.bag.inputs, t))) for t in tasks.tolist())
    return np.fromiter(fits, bool)


def _select_with_outputs(
    stored: StoredBag, other: EarlierBag, tasks: np.ndarray, before: np.ndarray
) -> np.ndarray:
    results, commands = other.bag / "results", stored.bag.commands
    records = read_committed_outputs(other.bag)
    were = {(r[0], r[1]): FileFingerprint(r[2], r[3]) for r in records.tolist()}

    def is_whole(task: int, old: int) -> bool:
        names = commands.filled(stored.bag.outputs, task)
        return all(
            _is_unchanged(results / name, were.get((old, at))) for at, name in enumerate(names)
        )

    pairs = zip(tasks.tolist(), before.tolist(), strict=True)
    return np.fromiter((is_whole(*pair) for pair in pairs), bool)


def _is_unchanged(path: Path, was: FileFingerprint | None) -> bool:
    try:
        return was is not None and look(path) == was
    except OSError:
        return False


def _carry(bag: Path, stored: StoredBag, parts: Sequence[_ReusedPart]) -> None:
    agents: list[tuple[str, str]] = []
    ends = []
    for part in parts:
        some = part.ends
        # agents are numbered in each part by itself
        some["host"] += len(agents)
        ends.append(some)
        agents += part.done.agents
    if stored.bag.outputs:
        records = FileRecords(bag)
        for part in parts:
            _link_outputs(bag, stored, part, records)
        records.close()
    printed = (output for part in parts for output in part.printed())
    # last, because it makes the tasks count as done
    write_carried(bag, np.concatenate(ends), agents, printed)


def _link_outputs(bag: Path, stored: StoredBag, part: _ReusedPart, records: FileRecords) -> None:
    old, new = part.done.folder / "results", bag / "results"
    for task in part.tasks.tolist():
        names = stored.bag.commands.filled(stored.bag.outputs, task)
        for name in names:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            link_file(old / name, new / name)
        records.committed(task, [new / name for name in names])


def _list_changed_files(reads: Mapping[str, Sequence[Any] | None], files: FileReader) -> set[str]:
    """Return the files with absolute names that are no longer as an earlier run has read them, or
    could not be read: then or now."""
    were = {name: FileFingerprint(*was) for name, was in reads.items() if was is not None}
    are = files.read({name: (was.size, was.changed_ns, was.digest) for name, was in were.items()})
    same = {
        name
        for name, now in are.items()
        if isinstance(now, tuple) and were[name].same(FileFingerprint(*now))
    }
    return reads.keys() - same


def _name_files(spec: BagSpec) -> list[str]:
    """Return texts that name the files that its commands name; of a template that joins names with
    parameters, each command."""
    commands = spec.commands
    if isinstance(commands, Listed):
        return ["\n".join(commands.lines[n] for n in range(len(commands.lines)))]
    if not isinstance(commands, Template):
        return []
    used = {name for _, name, _ in split_template(commands.text) if name}
    axes = [axis for axis in commands.axes if used & set(axis.names)]
    plain = all(isinstance(axis.rows, RangeSteps) or not _has_paths(axis.rows) for axis in axes)
    text = "".join(
        before + (_PLACE if name else "") for before, name, _ in split_template(commands.text)
    )
    if plain and not any("/" in word for word in text.split() if _PLACE in word):
        return [text]
    return ["\n".join(commands.command(task) for task in range(len(commands)))]


def _has_paths(rows: Sequence[tuple[str, ...]]) -> bool:
    return any("/" in value for n in range(len(rows)) for value in rows[n])


def _digest_of_tasks(stored: StoredBag, folder: Path) -> str:
    document = stored.document
    whole = hashlib.sha256()
    parameters = {name: _strip_value(value) for name, value in document.parameters.items()}
    whole.update(
        json.dumps([document.command, document.commands, list(parameters.items())]).encode()
    )
    given = _resolve_folder(folder, stored) / "given"
    # sorted, because folders list their files in any order
    for path in sorted(given.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def _strip_value(value: object) -> object:
    dumped = getattr(value, "model_dump", None)
    return dumped(mode="json") if dumped else value


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _convert_to_list(answer: Answer) -> list[object] | None:
    """Return the values of a file; None where it could not be read."""
    return list(answer) if isinstance(answer, tuple) else None


def _resolve_folder(folder: Path, stored: StoredBag) -> Path:
    return folder / "bags" / f"{stored.number:04d}"
