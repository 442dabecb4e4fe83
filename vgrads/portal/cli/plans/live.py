"""A run as a person follows it: a line for what happened, and where somebody looks, one that always
says how it stands."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.console import Console
from rich.live import Live
from rich.text import Text

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.endings import workflows_done
from vgrads.execmgr.core.remainder import progress_of
from vgrads.execmgr.core.states import (
    AskedAgain,
    Cancelled,
    CopyEnded,
    CopyState,
    Event,
    Replanned,
    RunState,
    SiteSilent,
    SlotNews,
)
from vgrads.kernel.units import format_duration
from vgrads.planner.replan import Outlook, given_not_yet, promise_now

_AGAIN_S, _MOST_SHARE = 5.0, 20.0  # between looks ahead, and how much longer than one takes
_MOST_LATER = 3  # slots told one by one
_PENDING = (SlotState.REQUESTED, SlotState.QUEUED, SlotState.GRANTED)


class RunReporter:
    """Turns the steps of a run into lines: slots that come and go, workflows done, what went
    wrong."""

    def __init__(self, out: Console, book: Book) -> None:
        self._console = out
        self._done: set[str] = set()
        self._version = 0
        self._tasks = len({p.task_key for p in book.plan.placements})

    def __call__(self, book: Book, state: RunState, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, SlotNews):
                self._slot(book, event)
            elif isinstance(event, CopyEnded):
                self._copy(book, event, state)
            elif isinstance(event, Replanned):
                verb = "planned anew" if event.version > self._version else "the planner was asked"
                self._version = event.version
                self._line(event.at_s, f"{verb}: {event.reason}", "yellow")
            elif isinstance(event, AskedAgain):
                self._line(event.at_s, f"slot {event.slot} {event.reason}", "yellow")
            elif isinstance(event, SiteSilent):
                self._line(event.at_s, f"{event.reason}; asked again later", "yellow")
            elif isinstance(event, Cancelled):
                self._line(event.at_s, f"stopping: {event.reason}", "yellow")

    def _slot(self, book: Book, news: SlotNews) -> None:
        if news.state == SlotState.QUEUED and news.reason:
            use = book.uses[news.slot]
            asked = f"{use.slot.procs} processors for {format_duration(book.held_s(news.slot))}"
            found = expected_s(book, news.slot, news.at_s, news.at_s)
            when = f", expected in {format_duration(found)}" if found is not None else ""
            self._line(
                news.at_s,
                f"slot {news.slot}: submitted as {news.reason} ({asked}), pending{when}",
                "",
            )
        elif news.state == SlotState.READY:
            self._line(news.at_s, f"slot {news.slot} is ready", "green")
        elif news.state == SlotState.FAILED:
            self._line(news.at_s, f"slot {news.slot} failed: {news.reason}", "red")
            if news.permanent:
                site = book.uses[news.slot].slot.site
                self._line(
                    news.at_s,
                    "that is no bad luck: its queue is asked no more in this run, and "
                    "nothing is learned from it; "
                    f"mend the entry of '{site}' and try 'vgrads sites check'",
                    "yellow",
                )

    def _copy(self, book: Book, event: CopyEnded, state: RunState) -> None:
        workflow, task, copy = event.key
        if not event.ok:
            self._line(
                event.at_s, f"{workflow}: {task} (copy {copy}) failed: {event.reason}", "red"
            )
            if event.key[:2] in state.faulty:
                self._line(
                    event.at_s,
                    "that twice is the task's own fault: it is not tried again",
                    "yellow",
                )
        tasks = book.snapshot.workflow_by_name[workflow].tasks
        if workflow not in self._done and all((workflow, name) in state.done for name in tasks):
            self._done.add(workflow)
            late = event.at_s > book.plan.deadline_s
            share = f"{len(state.done)}/{self._tasks} tasks"
            self._line(
                event.at_s,
                f"workflow {workflow} is done{' LATE' if late else ''}  [{share}]",
                "cyan",
            )

    def _line(self, at_s: float, text: str, style: str) -> None:
        self._console.print(
            f"  {format_duration(at_s):>8}  {text}", style=style, highlight=False, markup=False
        )


def later(book: Book, passed_s: float) -> list[str]:
    """Slots that the plan asks for later than now: without a word of it a run seems to hang."""
    waits = sorted((u.submit_s, u.slot.id) for u in book.uses.values() if u.submit_s > passed_s)
    told = [
        f"slot {slot}: is asked for at {format_duration(at_s)}, as planned"
        for at_s, slot in waits[:_MOST_LATER]
    ]
    more = len(waits) - _MOST_LATER
    return [*told, f"{more} more slots are asked for after that"] if more > 0 else told


def expected_s(book: Book, slot: str, asked_s: float, now_s: float) -> float | None:
    """Seconds until a slot that is asked for is as likely there as not; None where that is not to
    be expected."""
    curve = given_not_yet(book.uses[slot].slot.curve, now_s - asked_s)
    found = float(curve.ready_at(0.5 * curve.best)) if curve.best > 0 else float("inf")
    return max(0.0, found) if found < float("inf") else None


@dataclass
class _Standing:
    """What was told last of a run, and what a look ahead has found."""

    book: Book
    state: RunState | None = None
    outlook: Outlook | None = None
    heard: float = 0.0  # by the monotonic clock


class LiveLine:
    """One line that always says how the run stands; looks ahead in a thread of its own, and not too
    often.

    ``speed``: seconds of the run in one of ours, for its time goes on between two events.
    """

    def __init__(self, out: Console, book: Book, began: datetime, speed: float = 1.0) -> None:
        self._standing, self._began, self._console = _Standing(book), began, out
        self._speed = speed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_ahead, daemon=True)

    def __call__(self, book: Book, state: RunState, _: list[Event]) -> None:
        self._standing = _Standing(book, state, self._standing.outlook, time.monotonic())

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line while the block runs."""
        self._thread.start()
        try:
            with Live(
                get_renderable=self._text,
                console=self._console,
                transient=True,
                refresh_per_second=2,
            ):
                yield
        finally:
            self._stop.set()

    def _look_ahead(self) -> None:
        pause_s = 0.0
        while not self._stop.wait(pause_s):
            begin, seen = time.monotonic(), self._standing
            if seen.state is not None:
                progress = progress_of(seen.book, seen.state)
                self._standing.outlook = promise_now(seen.book.plan, seen.book.snapshot, progress)
            pause_s = max(_AGAIN_S if seen.state else 0.5, _MOST_SHARE * (time.monotonic() - begin))

    def _text(self) -> Text:
        seen = self._standing
        if seen.state is None:
            passed_s = (datetime.now().astimezone() - self._began).total_seconds()
            told = f"{format_duration(passed_s)} · due {_due(seen.book, self._began)} · beginning"
        else:
            now_s = seen.state.now_s + (time.monotonic() - seen.heard) * self._speed
            parts = standing_parts(seen.book, seen.state, now_s, seen.outlook, self._began)
            told = fitting(parts, self._console.width - 1)
        return Text(told, style="bold", overflow="ellipsis", no_wrap=True)


def standing_parts(
    book: Book, state: RunState, now_s: float, outlook: Outlook | None, began: datetime
) -> list[str]:
    """How a run stands ``now_s`` seconds after its beginning, the weightiest first."""
    copies = [record.state for record in state.copies.values()]
    tasks = len({p.task_key for p in book.plan.placements})
    parts = [format_duration(now_s), f"due {_due(book, began)}"]
    if outlook is not None:
        parts.append(f"promise now {outlook.probability:.2f}")
    parts += [
        f"{len(workflows_done(book, state))} of {book.plan.needed} workflows",
        *_slots(book, state, now_s),
        f"tasks {len(state.done)}/{tasks}, {copies.count(CopyState.RUNNING)} running",
    ]
    if outlook is not None and outlook.end_s is not None:
        parts.append(f"expected end {(began + timedelta(seconds=outlook.end_s)):%H:%M}")
    return parts


def _due(book: Book, began: datetime) -> str:
    return f"{began + timedelta(seconds=book.plan.deadline_s):%H:%M}"


def fitting(parts: Sequence[str], width: int) -> str:
    """As many parts in a line as there is room for; never none."""
    kept, *more = parts
    for part in more:
        longer = f"{kept} · {part}"
        if len(longer) <= width:
            kept = longer
    return kept


def _slots(book: Book, state: RunState, now_s: float) -> list[str]:
    ready = sum(record.state == SlotState.READY for record in state.slots.values())
    pending = [
        (s, r) for s, r in state.slots.items() if r.state in _PENDING and r.asked_s is not None
    ]
    told = [f"{ready} slots ready"] if ready else []
    if pending:
        waits = [expected_s(book, s, r.asked_s or 0.0, now_s) for s, r in pending]
        soonest = min((w for w in waits if w is not None), default=None)
        when = f", the first in {format_duration(soonest)}" if soonest is not None else ""
        told.append(f"{len(pending)} pending{when}")
    return told
