"""One bag as a dispatcher knows it: part of the state that
:meth:`vgrads.dispatch.core.state.State.apply` changes in place."""

from __future__ import annotations

from dataclasses import dataclass

from vgrads.dispatch.core.tasks import Tasks

MOST_ATTEMPTS = 60_000
"""Attempts of a task after which it fails for good, since two bytes count them."""


@dataclass(slots=True)
class BagState:
    """A bag as it stands. ``open``: more tasks may come; ``fault``: the exception that failed it;
    ``typical_s``: how long one runs, as far as is known; ``tail``: its last part has begun, where
    that is to stay so; ``right`` and ``wrong``: attempts that succeeded and failed, aged."""

    number: int
    name: str
    owner: str
    weight: float
    procs: int
    retries: int
    tasks: Tasks
    sites: tuple[str, ...] = ()
    failover: tuple[str, ...] = ()
    open: bool = False
    cancelled: str = ""
    fault: str = ""
    typical_s: float | None = None
    stated_s: float | None = None
    had: float = 0.0
    came_s: float = 0.0
    first_s: float | None = None
    ended_s: float | None = None
    ran_s: float = 0.0
    tried_again: int = 0
    copied: int = 0
    tail: bool = False
    right: float = 0.0
    wrong: float = 0.0

    @property
    def over(self) -> bool:
        """True when no task is left, and none can come."""
        return not self.open and self.tasks.over

    def may_have_more(self, task: int) -> bool:
        """True for a task that runs and may be given to one more host."""
        tasks = self.tasks
        return (
            task in tasks.where
            and tasks.failures.get(task, 0) <= self.retries
            and tasks.attempts[task] <= MOST_ATTEMPTS
        )

    def in_flight(self, now_s: float) -> float:
        """Processor seconds that hosts have in hand, divided by weight. While none has ended each
        counts for as long as the first has run: else who has long ones would have all hosts until
        then."""
        first_s = now_s if self.first_s is None else self.first_s
        each_s = self.typical_s or max(1.0, now_s - first_s)
        return len(self.tasks.where) * each_s * self.procs / self.weight
