"""What a run does not need any more, by the plan's own rule (:mod:`vgrads.planner.rules`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.states import CopyRecord, Delivery, SlotRecord
from vgrads.planner.rules import EVERYTHING, needless
from vgrads.planner.snapshot import CopyKey, TaskKey


class Standing(Protocol):
    """How a run stands."""

    @property
    def slots(self) -> Mapping[str, SlotRecord]:
        """Slots by name."""

    @property
    def copies(self) -> Mapping[CopyKey, CopyRecord]:
        """Copies by key."""

    @property
    def done(self) -> Mapping[TaskKey, Delivery]:
        """Tasks that are done."""


def withdrawn(book: Book, run: Standing, whole: int) -> tuple[list[CopyKey], str]:
    """Copies that wait or run and are not needed, and why in words; ``whole``: workflows that are
    done."""
    plan, deadline_s = book.plan, book.plan.deadline_s
    if whole < plan.needed and plan.spare >= EVERYTHING:
        return [], ""
    schedule, keys = book.schedule
    ready = np.array([run.slots[slot].state == SlotState.READY for slot in book.uses])
    late_s = np.zeros(len(ready))
    for n, slot in enumerate(book.uses):
        came_s = run.slots[slot].ready_s
        if ready[n] and came_s is not None:
            first = schedule.copies[schedule.slots[n].first_at]
            late_s[n] = max(0.0, came_s - first.start_s)
    live = np.array([not run.copies[key].state.settled for key in keys])
    done = np.array([task in run.done for task in book.tasks])
    spare = np.zeros(len(keys), np.bool_)
    limits = np.array([whole, plan.needed, plan.spare, deadline_s])
    judge = needless.after(len(keys) * (len(ready) + 2))
    if not judge(schedule, ready, live, done, late_s, limits, spare):
        return [], ""
    if whole >= plan.needed:
        words = f"{whole} workflows are done, {plan.needed} are needed: the rest is given back"
    else:
        words = (
            f"{plan.needed + plan.spare} workflows stand in slots that are there, "
            f"{plan.needed} are needed: "
            "the rest is withdrawn; with this rule the plan promised "
            f"{plan.promise.probability:.3f}"
        )
    return [key for key, one in zip(keys, spare, strict=True) if one], words
