"""How a run stands, as the planner needs it to plan the rest; and its answer as the next book."""

from __future__ import annotations

from collections.abc import Sequence

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.book import Book, amend
from vgrads.execmgr.core.endings import refused_queues
from vgrads.execmgr.core.growth import grown_tasks
from vgrads.execmgr.core.states import CopyState, RunState
from vgrads.planner.plan import SlotUse
from vgrads.planner.replan import Amended, Offers, OpenSlot, Progress, grow, replan
from vgrads.workflows.task import Task


def progress_of(book: Book, state: RunState) -> Progress:
    """What is done, what runs until when, what waits, which slots are open, what was spent."""
    running = {
        key: record.start_s
        for key, record in state.copies.items()
        if record.state == CopyState.RUNNING
    }
    ended = {
        key: record.end_s - record.start_s
        for key, record in state.copies.items()
        if record.state == CopyState.DONE
    }
    waiting = [key for key, record in state.copies.items() if record.state == CopyState.WAITING]
    spent = sum(
        book.uses[slot].cost_usd
        for slot, record in state.slots.items()
        if record.asked_s is not None
    )
    return Progress(
        now_s=state.now_s,
        done=frozenset(state.done),
        running=running,
        ended=ended,
        waiting=frozenset(waiting),
        open_slots=_open_slots(book, state),
        spent_usd=spent,
        version=state.version,
        coming=_coming(book, state),
        broken=frozenset(workflow for workflow, _ in state.faulty),
        closed=refused_queues(book, state.slots),
        grown=grown_tasks(book, state.copies),
    )


def _coming(book: Book, state: RunState) -> tuple[SlotUse, ...]:
    """Slots of the plan that were not asked for yet and are still wanted."""
    return tuple(
        book.uses[slot]
        for slot, record in sorted(state.slots.items())
        if record.asked_s is None and record.state is None and not record.closing
    )


def _open_slots(book: Book, state: RunState) -> tuple[OpenSlot, ...]:
    found = []
    for slot, record in sorted(state.slots.items()):
        if record.state is None or record.state.ended or record.closing:
            continue
        ready_s = state.now_s if record.ready_s is None else record.ready_s
        ready = record.state == SlotState.READY
        found.append(OpenSlot(use=book.uses[slot], ready=ready, end_s=ready_s + book.held_s(slot)))
    return tuple(found)


def plan_remainder(book: Book, state: RunState, offers: Offers) -> tuple[Book | None, str]:
    """The book that does the rest better, or None; and the numbers that decided."""
    amended, reason = replan(book.plan, book.snapshot, progress_of(book, state), offers)
    return _amended(book, state, amended), reason


def plan_growth(
    book: Book, state: RunState, offers: Offers, added: Sequence[tuple[str, Task]]
) -> tuple[Book | None, str]:
    """The book with more tasks, or None where they cannot be placed; and why. InputError where they
    do not fit."""
    amended, reason = grow(book.plan, book.snapshot, progress_of(book, state), offers, added)
    return _amended(book, state, amended), reason


def _amended(book: Book, state: RunState, amended: Amended | None) -> Book | None:
    if amended is None:
        return None
    settled = frozenset(
        key for key, record in state.copies.items() if record.state != CopyState.WAITING
    )
    return amend(book, amended.plan, amended.snapshot, settled)
