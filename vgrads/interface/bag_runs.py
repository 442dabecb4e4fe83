"""Runs of bags: a dispatcher in a thread of this process, and what became of the tasks."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from vgrads.api.bags.answers import results
from vgrads.api.bags.execution import BagWork, ControlRequests, submit_bag
from vgrads.api.bags.reuse import MOST_EARLIER, EarlierBag, is_recorded, record_and_reuse
from vgrads.api.bags.virtual import VirtualBagWork, choose_clock
from vgrads.api.config import make_home
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.storage.folder import list_bags, open_bag
from vgrads.dispatch.storage.status import exclusive, read_json, read_status
from vgrads.interface.html import bare_table, box_html, text_html
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, format_duration
from vgrads.vgrid.catalog import Catalog

StatusCallback = Callable[[Mapping[str, Any]], None]
_NUMBER = 0
_MOST_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTask:
    """A task that failed for good. ``attempts``: how many; ``reason``, ``stdout``, ``stderr``: of
    the last one."""

    task: int
    command: str
    attempts: int
    reason: str
    stdout: str
    stderr: str


@dataclass(frozen=True, kw_only=True, repr=False)
class BagResult:
    """How a bag ended.

    ``state``: done, failed (some tasks failed), cancelled or interrupted (with a ``reason``).
    ``done``, ``failed``: numbers of tasks; ``reused``: of those that an earlier run has done.
    ``retried``: number of further attempts. ``seconds``:
    from submission to the last task, in virtual time at simulated sites. ``rate``: tasks done in a
    second. ``folder``: of the run; ``results``: folder of the outputs.
    """

    name: str
    state: str
    tasks: int
    done: int
    failed: int
    reused: int
    retried: int
    seconds: float
    rate: float
    reason: str
    folder: Path
    results: Path

    @property
    def outputs(self) -> tuple[Path, ...]:
        """The output files of all tasks."""
        return tuple(sorted(path for path in self.results.rglob("*") if path.is_file()))

    @cached_property
    def failures(self) -> tuple[FailedTask, ...]:
        """The tasks that failed for good, in order."""
        final: dict[int, FailedTask] = {}
        for row in results(self.folder, _NUMBER, failed=True):
            if row["final"]:
                final[row["task"]] = FailedTask(
                    task=row["task"],
                    command=row["command"],
                    attempts=row["attempt"],
                    reason=row["how"],
                    stdout=row["out"],
                    stderr=row["err"],
                )
        return tuple(final[task] for task in sorted(final))

    def printed(self, *tasks: int) -> dict[int, str]:
        """Task number → standard output of its successful attempt; of all tasks, or of some."""
        rows = results(self.folder, _NUMBER, tasks)
        texts = {row["task"]: str(row["out"]) for row in rows if row["code"] == 0}
        return dict(sorted(texts.items()))

    @property
    def sentence(self) -> str:
        """The result in words."""
        failed = f", {self.failed:,} failed" if self.failed else ""
        return (
            f"{self.done:,} of {format_count(self.tasks, 'task')} done in "
            f"{_format_duration(self.seconds)}{failed}, {self.rate:,.1f} per second: {self.state}"
        )

    def __repr__(self) -> str:
        reason = f"\n  {self.reason}" if self.reason else ""
        return f"BagResult '{self.name}': {self.sentence}{reason}\n  in {self.folder}"

    def _repr_html_(self) -> str:
        rows = [
            (str(failure.task), failure.command, failure.reason, failure.stderr[-200:])
            for failure in self.failures[:_MOST_SHOWN]
        ]
        table = bare_table(("task", "command", "reason", "stderr"), rows) if rows else ""
        title = text_html(f"Bag {self.name}: {self.sentence}", bold=True)
        return box_html(title, text_html(self.reason) if self.reason else "", table)


@dataclass(frozen=True, slots=True)
class BagOptions:
    """How a bag is run. ``policy``: ordering of bags; ``on_status``: called with the status;
    ``rerun``: its tasks are done again that earlier runs of the bag have done."""

    policy: str
    on_status: StatusCallback | None
    rerun: bool


def run_bag(
    document: BagDocument, source: Path, catalog: Catalog, folder: Path | None, how: BagOptions
) -> BagResult:
    """Run a bag to the end."""
    run, runs = f"bag-{secrets.token_hex(5)}", make_home() / "bags"
    place = folder or runs / run
    with exclusive(place):
        earlier = () if how.rerun else _list_earlier_bags(runs, document.name)
        _store(document, source, catalog, place, earlier)
        work = _carry_out(place, catalog, run, how)
        unfinished = _run_in_thread(work)
    return _make_result(document.name, place, unfinished)


def _list_earlier_bags(runs: Path, name: str) -> Iterator[EarlierBag]:
    """Return the newest earlier runs of a bag whose tasks can be reused."""
    stored: list[tuple[float, EarlierBag]] = []
    for folder in runs.iterdir() if runs.is_dir() else ():
        earlier = EarlierBag(folder, _NUMBER)
        # the folder may be removed meanwhile, or be no run of a bag
        with suppress(OSError):
            stored.append(((earlier.bag / "document.json").stat().st_mtime, earlier))
    bags = (earlier for _, earlier in sorted(stored, key=itemgetter(0), reverse=True))
    same = (bag for bag in bags if is_recorded(bag) and _name_of(bag) == name)
    return islice(same, MOST_EARLIER)


def _name_of(bag: EarlierBag) -> str:
    return str(read_json(bag.bag / "document.json", {}).get("document", {}).get("name"))


def _store(
    document: BagDocument,
    source: Path,
    catalog: Catalog,
    folder: Path,
    earlier: Iterable[EarlierBag],
) -> None:
    """Put the bag into the folder, with what earlier runs have done, or go on with the same one;
    InputError for another."""
    if not list_bags(folder):
        bag = submit_bag(folder, _NUMBER, document, source, catalog)
        record_and_reuse(folder, bag, catalog, True, earlier)
        return
    stored = open_bag(folder, _NUMBER).document
    files = ("table", "commands_file", "policy_file", "parameters")
    if stored.model_dump(exclude=set(files)) != document.model_dump(exclude=set(files)):
        raise InputError(
            f"holds another bag, '{stored.name}'", where=str(folder), fix="choose another folder"
        )


def _carry_out(
    folder: Path, catalog: Catalog, run: str, how: BagOptions
) -> BagWork | VirtualBagWork:
    def watch(status: Mapping[str, Any]) -> None:
        if how.on_status is not None and status["bags"]:
            how.on_status({**status["bags"][_NUMBER], "nodes": status["host_count"]})

    rules = Rules(policy=how.policy)
    return choose_clock(BagWork(folder, catalog, run, ControlRequests, watch, rules, own=True))


def _run_in_thread(work: BagWork | VirtualBagWork) -> str:
    """Carry out in a thread: a notebook has an event loop of its own in this one. Ctrl-C releases
    the nodes first. Return why work is left; empty where none is."""
    with ThreadPoolExecutor(1, "vgrads-bag") as pool:
        ended: Future[Any] = pool.submit(work.carry_out)
        try:
            return str(ended.result().unfinished)
        except KeyboardInterrupt:
            work.end()
            ended.result()
            raise


def _make_result(name: str, folder: Path, reason: str) -> BagResult:
    whole = read_status(folder)
    status = whole["bags"][_NUMBER]
    seconds = max(0.0, (status["ended_s"] or whole["now_s"]) - status["came_s"])
    return BagResult(
        name=name,
        state="interrupted" if reason else status["state"],
        tasks=status["tasks"],
        done=status["done"],
        failed=status["failed"],
        reused=status.get("reused", 0),
        retried=status["tried_again"],
        seconds=seconds,
        rate=status["done"] / seconds if seconds > 0 else 0.0,
        reason=reason or status["reason"],
        folder=folder,
        results=folder / "bags" / f"{_NUMBER:04d}" / "results",
    )


def _format_duration(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds < 10 else format_duration(seconds)
