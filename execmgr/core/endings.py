"""What has come to its end, and what an end means for others. Questions only: nothing is changed
here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.states import CopyEnded, CopyRecord, RunState, SlotRecord
from vgrads.planner.snapshot import CopyKey


def over(state: RunState) -> bool:
    """True when no copy waits or runs, every slot has ended or was never asked for, and no plan is
    awaited."""
    return not state.replanning and all(
        record.state is not None and record.state.ended for record in state.slots.values()
    )


def workflows_done(book: Book, state: RunState) -> dict[str, float]:
    """Workflow → when its last task was done, for those that are done as a whole."""
    found = {}
    for workflow in book.snapshot.wanted.workflows:
        ends = [state.done.get((workflow.name, task_id)) for task_id in workflow.tasks]
        if all(end is not None for end in ends):
            found[workflow.name] = max(end.at_s for end in ends if end is not None)
    return found


def fault_of(book: Book, copies: Mapping[CopyKey, CopyRecord], event: CopyEnded) -> str:
    """How a task fails by itself: the same exit code from the same command twice. Empty while it
    may be bad luck."""
    if event.ok or event.code is None:
        return ""
    if not any(copies[twin].code == event.code for twin in book.copies[event.key[:2]]):
        return ""
    return f"{event.reason}; it fails so each time"


def alike(book: Book, slots: Mapping[str, SlotRecord], slot: str) -> Iterator[str]:
    """Slots of the same queue that were not asked for yet: what is wrong with one is wrong with
    them."""
    where = queue_of(book, slot)
    for other, record in slots.items():
        if other != slot and record.state is None and queue_of(book, other) == where:
            yield other


def refused_queues(book: Book, slots: Mapping[str, SlotRecord]) -> frozenset[tuple[str, str]]:
    """Queues (site, queue) where slots fail for what is written down wrong."""
    return frozenset(
        queue_of(book, slot)
        for slot, record in slots.items()
        if record.permanent and record.state == SlotState.FAILED
    )


def queue_of(book: Book, slot: str) -> tuple[str, str]:
    """The site and queue of a slot."""
    found = book.uses[slot].slot
    return found.site, found.queue
