"""What follows from the rules for exit codes that a task was given: tries, and what each is given
more of. Pure.

Failures count for the task, whichever copy failed; so does what they multiply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.states import CopyEnded, CopyRecord
from vgrads.planner.snapshot import CopyKey, TaskKey
from vgrads.workflows.manner import ErrorRule

Copies = Mapping[CopyKey, CopyRecord]


class Grown(NamedTuple):
    """By how much failures have multiplied the memory and the expected run time of a task."""

    memory: float = 1.0
    time: float = 1.0


_NOT = Grown()


def grown(book: Book, copies: Copies, key: CopyKey) -> Grown:
    """What the failures of a copy and its twins come to."""
    if not book.snapshot.task(key[:2]).manner.errors:
        return _NOT
    mine = [copies[twin] for twin in book.copies[key[:2]] if twin in copies]
    return Grown(math.prod(one.memory for one in mine), math.prod(one.time for one in mine))


def grown_tasks(book: Book, copies: Copies) -> dict[TaskKey, tuple[float, float]]:
    """The tasks of a run for which something has grown."""
    keys = {key for key, record in copies.items() if record.failures}
    return {key[:2]: grown(book, copies, key) for key in keys}


def after_failure(record: CopyRecord, rule: ErrorRule) -> CopyRecord:
    """A copy that has failed once more by a rule."""
    return replace(
        record,
        failures=record.failures + 1,
        memory=record.memory * rule.memory,
        time=record.time * rule.time,
    )


def exhausted(book: Book, copies: Copies, key: CopyKey, rule: ErrorRule, reason: str) -> str:
    """Why a task is not tried again after one more failure; empty where it may be."""
    before = sum(copies[twin].failures for twin in book.copies[key[:2]])
    if before < rule.retries:
        return ""
    if not rule.retries:
        return f"{reason}; not tried again, as its errors say"
    return f"{reason}; tried {rule.retries} times more, as its errors say"


def too_much(book: Book, copies: Copies, event: CopyEnded) -> str:
    """Why no slot that is known could hold a task that has grown; empty where one could."""
    key, task = event.key, book.snapshot.task(event.key[:2])
    needed_mib = task.memory_mib * grown(book, copies, key).memory
    able = [slot for slot in book.snapshot.slots if slot.holds(task.needs._replace(memory_mib=0.0))]
    most_mib = max((slot.memory_for(task.procs) for slot in able), default=0.0)
    if needed_mib <= most_mib or needed_mib <= task.memory_mib:
        return ""
    return (
        f"{event.reason}; needs {needed_mib:.0f} MiB of memory by its errors, the slot with "
        f"most of it has {most_mib:.0f}"
    )


def fits(book: Book, copies: Copies, key: CopyKey) -> bool:
    """True where a task that has grown still fits into the slot of this copy."""
    task, slot = book.snapshot.task(key[:2]), book.uses[book.slot_of(key)].slot
    return slot.holds(
        task.needs._replace(memory_mib=task.memory_mib * grown(book, copies, key).memory)
    )
