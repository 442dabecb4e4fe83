"""When the promise of a run is checked, and whether it has fallen since the last plan."""

from __future__ import annotations

from collections.abc import Callable

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import Event, PromiseFallen, RunState
from vgrads.kernel.clock import Clock

_EVERY_S, _OFTEN = 60.0, 200
"""Shortest time between checks without a cause; at most so many of them until the deadline."""
_FALL = 0.1  # of the promise, that leads to replanning
_MOST = 5_000  # replicas up to which a run waits for a check

PromiseNow = Callable[[ExecutionPlan, RunState], float]
"""P(the promise is kept) if the plan continues unchanged."""


class PromiseChecks:
    """Compares the promise with the highest since the last plan: regularly, and when slots have
    failed. Checks that find no fall leave no trace: a later manager begins with the promise as it
    is then."""

    def __init__(self, promise_now: PromiseNow | None, clock: Clock) -> None:
        self._promise_now, self._clock = promise_now, clock
        self.again_s = float("inf") if promise_now is None else 0.0
        self._slots: object = None
        self._failed, self._replans, self._highest = 0, -1, 0.0

    def fallen(self, execution: ExecutionPlan, state: RunState) -> list[Event]:
        """Check where that is due; return an event if the promise has fallen."""
        now_s = self._clock.now()
        if self._promise_now is None or (now_s < self.again_s and state.slots is self._slots):
            return []
        failed = sum(1 for record in state.slots.values() if record.state == SlotState.FAILED)
        due, self._slots = now_s >= self.again_s or failed > self._failed, state.slots
        many = len(execution.placements) > _MOST
        over = bool(state.cancelled) or now_s >= execution.plan.deadline_s
        if over or execution.released or many:
            self.again_s = float("inf")
        elif due and now_s < state.replan_from_s:
            self.again_s = state.replan_from_s
        elif due:
            self._failed = failed
            self.again_s = now_s + max(_EVERY_S, execution.plan.deadline_s / _OFTEN)
            promise = self._promise_now(execution, state._replace(now_s=now_s))
            before = self._before(execution, state, promise)
            self._highest = promise if promise <= before - _FALL else max(before, promise)
            if self._highest < before:
                reason = f"the promise has fallen from {before:.3f} to {promise:.3f}"
                return [PromiseFallen(at_s=now_s, reason=reason)]
        return []

    def _before(self, execution: ExecutionPlan, state: RunState, promise: float) -> float:
        """Return the highest promise since the last plan or fall; ``promise`` for a new plan."""
        if state.replans == self._replans:
            return self._highest
        self._replans = state.replans
        return promise if state.replans else execution.plan.promise.probability
