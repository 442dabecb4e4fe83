"""Progress of a run on the command line: a line for each event, and on a terminal a status line."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.console import Console
from rich.live import Live
from rich.text import Text

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.completion import find_done_workflows
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.promise_record import describe_failure, find_failing_tasks, judge_promise
from vgrads.execmgr.core.states import (
    Cancelled,
    Event,
    PromiseChecked,
    Replanned,
    ReplicaEnded,
    ReplicaState,
    RunState,
    SiteSilent,
    SlotRequestedAgain,
    SlotUpdate,
)
from vgrads.kernel.promise_state import PromiseState
from vgrads.kernel.text_table import pad
from vgrads.kernel.units import format_count, format_duration
from vgrads.planner.replan import conditional_curve

_MOST_LATER = 3  # slots listed one by one
_PENDING = (SlotState.REQUESTED, SlotState.QUEUED, SlotState.GRANTED)


class RunReporter:
    """Reports the steps of a run as lines: slots that start and end, finished workflows, errors."""

    def __init__(self, out: Console, execution: ExecutionPlan) -> None:
        self._console = out
        self._done: set[str] = set()
        self._version, self._promise_state = 0, PromiseState.ON_TRACK
        self._tasks = len({p.task_key for p in execution.plan.placements})

    def __call__(self, execution: ExecutionPlan, state: RunState, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, SlotUpdate):
                self._slot(execution, event)
            elif isinstance(event, ReplicaEnded):
                self._replica(execution, event, state)
            elif isinstance(event, Replanned):
                verb = "planned again" if event.version > self._version else "the planner ran"
                self._version = event.version
                self._line(event.at_s, f"{verb}: {event.reason}", "yellow")
            elif isinstance(event, PromiseChecked):
                self._promise(execution, state, event)
            elif isinstance(event, SlotRequestedAgain):
                self._line(event.at_s, f"slot {event.slot} {event.reason}", "yellow")
            elif isinstance(event, SiteSilent):
                self._line(event.at_s, f"{event.reason}; the site is queried again later", "yellow")
            elif isinstance(event, Cancelled):
                self._line(event.at_s, f"stopping: {event.reason}", "yellow")

    def _promise(self, execution: ExecutionPlan, state: RunState, event: PromiseChecked) -> None:
        now = judge_promise(execution, state)
        if now != self._promise_state:
            tone = "green" if now == PromiseState.ON_TRACK else "yellow"
            text = f"{now}: the promise is {event.probability:.3f} now"
            failing = describe_failure(dict(find_failing_tasks(state)))
            self._line(event.at_s, f"{text}; {failing}" if failing else text, tone)
            self._promise_state = now

    def _slot(self, execution: ExecutionPlan, news: SlotUpdate) -> None:
        if news.state == SlotState.QUEUED and news.reason:
            use = execution.uses[news.slot]
            duration = format_duration(execution.slot_duration_s(news.slot))
            size = f"{format_count(use.slot.procs, 'processor')} for {duration}"
            value = expected_s(execution, news.slot, news.at_s, news.at_s)
            when = f", expected in {format_duration(value)}" if value is not None else ""
            self._line(
                news.at_s,
                f"slot {news.slot}: submitted as {news.reason} ({size}), pending{when}",
                "",
            )
        elif news.state == SlotState.READY:
            self._line(news.at_s, f"slot {news.slot} is ready", "green")
        elif news.state == SlotState.FAILED:
            self._line(news.at_s, f"slot {news.slot} failed: {news.reason}", "red")
            if news.permanent:
                site = execution.uses[news.slot].slot.site
                self._line(
                    news.at_s,
                    "this is a permanent error: the queue is not used again in this run, and "
                    "nothing is learned from it; "
                    f"correct the entry of '{site}' and try 'vgrads sites check'",
                    "yellow",
                )

    def _replica(self, execution: ExecutionPlan, event: ReplicaEnded, state: RunState) -> None:
        workflow, task, replica = event.key
        if not event.ok:
            self._line(
                event.at_s, f"{workflow}: {task} (replica {replica}) failed: {event.reason}", "red"
            )
            if event.key[:2] in state.faulty:
                self._line(
                    event.at_s,
                    "the task fails by itself, whatever its slot: it is not retried",
                    "yellow",
                )
        tasks = execution.snapshot.workflow_by_name[workflow].tasks
        if workflow not in self._done and all((workflow, name) in state.done for name in tasks):
            self._done.add(workflow)
            late = event.at_s > execution.plan.deadline_s
            share = f"{len(state.done)}/{format_count(self._tasks, 'task')}"
            self._line(
                event.at_s,
                f"workflow {workflow} is done{' LATE' if late else ''}  [{share}]",
                "cyan",
            )

    def _line(self, at_s: float, text: str, style: str) -> None:
        self._console.print(
            f"  {pad(format_duration(at_s), 8, right=True)}  {text}",
            style=style,
            highlight=False,
            markup=False,
        )


def later(execution: ExecutionPlan, elapsed_s: float) -> list[str]:
    """Return the slots that the plan requests later than now: without a line about them a run seems
    to hang."""
    waits = sorted(
        (u.submit_s, u.slot.id) for u in execution.uses.values() if u.submit_s > elapsed_s
    )
    lines = [
        f"slot {slot}: will be requested at {format_duration(at_s)}, as planned"
        for at_s, slot in waits[:_MOST_LATER]
    ]
    more = len(waits) - _MOST_LATER
    return (
        [*lines, f"{format_count(more, 'more slot', 'are')} requested after that"]
        if more > 0
        else lines
    )


def expected_s(
    execution: ExecutionPlan, slot: str, requested_s: float, now_s: float
) -> float | None:
    """Return the seconds until a requested slot has started with probability one half; None where
    that is not to be expected."""
    of = execution.uses[slot].slot
    curve = conditional_curve(of.curve, now_s - of.zero_s(requested_s))
    value = float(curve.ready_at(0.5 * curve.best)) if curve.best > 0 else float("inf")
    return max(0.0, value) if value < float("inf") else None


@dataclass
class _RunProgress:
    """The last report of a run."""

    execution: ExecutionPlan
    state: RunState | None = None
    last_message_s: float = 0.0  # by the monotonic clock


class LiveLine:
    """A status line of the run.

    ``speed``: seconds of the run per real second, since its time advances between two events.
    """

    def __init__(
        self, out: Console, execution: ExecutionPlan, began: datetime, speed: float = 1.0
    ) -> None:
        self._progress, self._began, self._console = _RunProgress(execution), began, out
        self._speed = speed

    def __call__(self, execution: ExecutionPlan, state: RunState, _: list[Event]) -> None:
        self._progress = _RunProgress(execution, state, time.monotonic())

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line while the block runs."""
        with Live(
            get_renderable=self._text,
            console=self._console,
            transient=True,
            refresh_per_second=2,
        ):
            yield

    def _text(self) -> Text:
        progress = self._progress
        if progress.state is None:
            elapsed_s = (datetime.now().astimezone() - self._began).total_seconds()
            due = _list_due(progress.execution, self._began)
            text = f"{format_duration(elapsed_s)} · due {due} · starting"
        else:
            now_s = (
                progress.state.now_s + (time.monotonic() - progress.last_message_s) * self._speed
            )
            parts = status_parts(progress.execution, progress.state, now_s, self._began)
            text = fitting(parts, self._console.width - 1)
        return Text(text, style="bold", overflow="ellipsis", no_wrap=True)


def status_parts(
    execution: ExecutionPlan,
    state: RunState,
    now_s: float,
    began: datetime,
) -> list[str]:
    """Return the status of a run ``now_s`` seconds after its start, the most important part
    first."""
    replicas = [record.state for record in state.replicas.values()]
    tasks = len({p.task_key for p in execution.plan.placements})
    parts = [format_duration(now_s), f"due {_list_due(execution, began)}"]
    promise = state.promise
    if promise.probability is not None and promise.at_s is not None:
        age = f", {format_duration(age_s)} ago" if (age_s := now_s - promise.at_s) >= 60 else ""
        parts.append(f"{judge_promise(execution, state)}, promise {promise.probability:.2f}{age}")
    parts += [
        f"{len(find_done_workflows(execution, state))} of "
        f"{format_count(execution.plan.needed, 'workflow')}",
        *_list_slots(execution, state, now_s),
        f"tasks {len(state.done)}/{tasks}, {replicas.count(ReplicaState.RUNNING)} running",
    ]
    if promise.end_s is not None:
        parts.append(f"expected end {(began + timedelta(seconds=promise.end_s)):%H:%M}")
    return parts


def _list_due(execution: ExecutionPlan, began: datetime) -> str:
    return f"{began + timedelta(seconds=execution.plan.deadline_s):%H:%M}"


def fitting(parts: Sequence[str], width: int) -> str:
    """Return as many parts as fit into a line, at least one."""
    first, *more = parts
    for part in more:
        longer = f"{first} · {part}"
        if len(longer) <= width:
            first = longer
    return first


def _list_slots(execution: ExecutionPlan, state: RunState, now_s: float) -> list[str]:
    ready = sum(record.state == SlotState.READY for record in state.slots.values())
    pending = [
        (s, r) for s, r in state.slots.items() if r.state in _PENDING and r.requested_s is not None
    ]
    lines = [f"{format_count(ready, 'slot')} ready"] if ready else []
    if pending:
        waits = [expected_s(execution, s, r.requested_s or 0.0, now_s) for s, r in pending]
        soonest = min((w for w in waits if w is not None), default=None)
        when = f", the first in {format_duration(soonest)}" if soonest is not None else ""
        lines.append(f"{len(pending)} pending{when}")
    return lines
