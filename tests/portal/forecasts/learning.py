"""The states that a service learns of its queues, waited for."""

from __future__ import annotations

from tests.waiting import until
from vgrads.portal.jobs.learned_states import LearnedStates
from vgrads.qbets.views import BEST
from vgrads.vgrid.catalog import Queue


def learn(learned: LearnedStates, queue: Queue, view: str = BEST) -> None:
    """Return when the state of a queue in a view is learned, or cannot be: answers change then."""
    history = queue.history or ""
    learned.find(history, queue.of_log, view)
    until(lambda: learned.settled(history, queue.of_log, view), f"the state of {queue.name}", 120.0)
