"""When the promise of a run is computed: regularly, and when slots or commands have failed."""

from __future__ import annotations

from collections.abc import Callable

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import Event, PromiseChecked, RunState
from vgrads.kernel.clock import Clock
from vgrads.planner.outlook import Outlook

_EVERY_S, _OFTEN, _SELDOM = 60.0, 60, 200
"""Time between checks without a cause, at most; the most and the fewest of them until the
deadline."""
_MANY = 5_000  # replicas from which checks, which take as long as there are many, are rarer

PromiseNow = Callable[[ExecutionPlan, RunState], Outlook]
"""The promise if the plan continues unchanged."""


class PromiseChecks:
    """Computes the promise where that is due. Each result is an event of the journal, which every
    interface shows."""

    def __init__(self, promise_now: PromiseNow | None, clock: Clock) -> None:
        self._promise_now, self._clock = promise_now, clock
        self.again_s = float("inf") if promise_now is None else 0.0
        self._failed, self._version = (0, 0), 0

    def due(self, execution: ExecutionPlan, state: RunState) -> list[Event]:
        """Check where that is due; return the result as an event."""
        now_s = self._clock.now()
        if self._promise_now is None or state.promise.lost_s is not None:
            self.again_s = float("inf")
            return []
        failed = _count_failures(state)
        urgent = failed != self._failed or state.version != self._version
        if now_s < self.again_s and not urgent:
            return []
        self._failed, self._version = failed, state.version
        if state.cancelled or now_s >= execution.plan.deadline_s:
            self.again_s = float("inf")
            return []
        self.again_s = now_s + _choose_interval_s(execution)
        # the state has the time of its last event, which may be long ago
        outlook = self._promise_now(execution, state._replace(now_s=now_s))
        return [
            PromiseChecked(
                at_s=now_s,
                probability=outlook.probability,
                end_s=outlook.end_s,
                possible=outlook.possible,
            )
        ]


def _count_failures(state: RunState) -> tuple[int, int]:
    """Return how many slots were lost, and how often commands failed."""
    slots = sum(record.state == SlotState.FAILED for record in state.slots.values())
    return slots, sum(failures.times for failures in state.failures.values())


def _choose_interval_s(execution: ExecutionPlan) -> float:
    deadline_s, replicas = execution.plan.deadline_s, len(execution.placements)
    usual_s = max(min(_EVERY_S, deadline_s / _OFTEN), deadline_s / _SELDOM)
    return usual_s * max(1.0, replicas / _MANY)
