"""State of one bag: part of the state that :meth:`vgrads.dispatch.core.fold.apply` changes
in place."""

from __future__ import annotations

from dataclasses import dataclass, field

from vgrads.bags.bag import BagGoal
from vgrads.dispatch.core.events import GoalChanged
from vgrads.dispatch.core.exits import FailedExits
from vgrads.dispatch.core.tasks import TaskColumns

MOST_ATTEMPTS = 60_000
"""Attempts of a task after which it fails for good: the counter has two bytes."""


@dataclass(slots=True)
class BagState:
    """State of a bag. ``open``: tasks may be added; ``why_closed``: where its user did not close
    it; ``fault``: the exception that failed it; ``retried``: applied requests to retry tasks;
    ``reused``: tasks whose results existed before;
    ``typical_s``: estimated run time of a task; ``tail``: its tail has begun, where that is
    latched; ``right`` and ``wrong``: attempts that succeeded and failed, aged; ``shortest_s``: run
    time of the quickest task; ``exits``: how tasks fail by their own command; ``goal_changes``:
    the requests to change its goal that were applied or refused, in their order."""

    number: int
    name: str
    owner: str
    weight: float
    procs: int
    retries: int
    tasks: TaskColumns
    sites: tuple[str, ...] = ()
    failover: tuple[str, ...] = ()
    open: bool = False
    cancelled: str = ""
    fault: str = ""
    why_closed: str = ""
    retried: int = 0
    reused: int = 0
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
    shortest_s: float | None = None
    exits: FailedExits = field(default_factory=FailedExits)
    goal_changes: list[GoalChanged] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Return True when no task is left, and none can be added."""
        return not self.open and self.tasks.over

    @property
    def last_change(self) -> GoalChanged | None:
        """Return the last change of its goal that was not refused."""
        return next((c for c in reversed(self.goal_changes) if c.after is not None), None)

    @property
    def changed_goal(self) -> BagGoal | None:
        """Return the goal after all changes; None where it is that of the document."""
        change = self.last_change
        return None if change is None or change.after is None else BagGoal(**change.after)

    def may_replicate(self, task: int) -> bool:
        """Return True for a running task that may be assigned to one more agent."""
        tasks = self.tasks
        return (
            task in tasks.where
            and tasks.failures.get(task, 0) <= self.retries
            and tasks.attempts[task] <= MOST_ATTEMPTS
        )

    def in_flight(self, now_s: float) -> float:
        """Return the processor seconds in progress at agents, divided by weight. Until the first
        task has ended, each counts for as long as the first has run: otherwise an owner of long
        tasks would get all agents until then."""
        first_s = now_s if self.first_s is None else self.first_s
        each_s = self.typical_s or max(1.0, now_s - first_s)
        return len(self.tasks.where) * each_s * self.procs / self.weight
