"""When is there cause to think again? Questions about a run, answered from the book and what
happened."""

from __future__ import annotations

from collections.abc import Mapping

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.states import SlotRecord
from vgrads.planner.snapshot import TaskKey

_UNREADY = (SlotState.REQUESTED, SlotState.QUEUED, SlotState.GRANTED)


def shortfall(book: Book, lost: Mapping[TaskKey, str]) -> str:
    """Why the promise is broken unless something is done; empty while enough workflows are left."""
    if not lost:
        return ""
    broken = {workflow for workflow, _ in lost}
    left, needed = sum(name not in broken for name in book.scheduled), book.plan.needed
    if left >= needed:
        return ""
    (workflow, task), why = min(lost.items(), key=lambda one: (one[1].startswith("its input"), one))
    return f"{left} workflows are left, {needed} are needed; {workflow}/{task}: {why}"


def beyond_help(book: Book, faulty: Mapping[TaskKey, str]) -> bool:
    """True where too many workflows have a task that fails by itself: no plan can keep the promise
    any more."""
    if not faulty:
        return False
    broken = {workflow for workflow, _ in faulty}
    wanted = book.snapshot.wanted
    return len(wanted.workflows) - len(broken) < wanted.needed


def overdue(book: Book, slots: Mapping[str, SlotRecord], now_s: float) -> list[str]:
    """Slots that should be ready by now and are not, as far as nobody has noticed yet."""
    return [
        slot
        for slot, record in slots.items()
        if record.state in _UNREADY
        and not record.overdue
        and not record.closing
        and now_s >= book.overdue_s[slot]
    ]
