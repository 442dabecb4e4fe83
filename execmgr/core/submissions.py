"""When slots of batch queues are submitted: planned again during a run, by the queue as it is now.

The plan submits a slot at the latest instant that loses no probability of its start. Queues change
until then, so as long as a slot is not submitted that instant is planned again
(:func:`vgrads.vgrid.varq.move`) from a new forecast: earlier where the queue has grown, later where
it has shrunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import RunState
from vgrads.kernel.clock import Clock
from vgrads.kernel.units import format_duration
from vgrads.planner.plan import SlotUse
from vgrads.vgrid.binding import LOSS
from vgrads.vgrid.varq import Move, QueueFutures, Reservation, move

CHECK_S = 60.0
"""Shortest time between checks."""
_SILENT_S = 300.0  # until the next check of queues without a current forecast
_SHORTFALL = 0.05  # of the planned probability: such a slot is submitted without more waiting

Futures = Callable[[SlotUse, int], QueueFutures | None]
"""The queue of a slot as it is now, with so many of our jobs submitted before the slot; None
without a current forecast. Probabilities are those of being ready, not of lasting to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionCheck:
    """The execution plan with other submissions, None if they are unchanged, and the reason;
    ``again_s``: when to check again, on the run's clock."""

    execution: ExecutionPlan | None = None
    reason: str = ""
    again_s: float


SubmissionPlanner = Callable[[ExecutionPlan, RunState, float], SubmissionCheck]
"""Plans the submissions that are still ahead again, at an instant of the run's clock; a changed
execution plan is stored where execution plans are stored."""


def no_submission_planner(_: ExecutionPlan, __: RunState, ___: float) -> SubmissionCheck:
    """Leave all submissions as planned."""
    return SubmissionCheck(again_s=float("inf"))


class SubmissionChecks:
    """When submissions are planned again. Checks that change nothing leave no trace: a later
    manager checks at once."""

    def __init__(self, plan: SubmissionPlanner, clock: Clock) -> None:
        self._plan, self._clock, self.again_s = plan, clock, 0.0

    def due(self, execution: ExecutionPlan, state: RunState) -> tuple[ExecutionPlan, str] | None:
        """Check where that is due; return a changed execution plan and the reason, else None."""
        now_s = self._clock.now()
        if now_s < self.again_s or state.cancelled:
            return None
        check = self._plan(execution, state, now_s)
        self.again_s = check.again_s
        return None if check.execution is None else (check.execution, check.reason)


def list_unsubmitted(execution: ExecutionPlan, state: RunState, now_s: float) -> list[SlotUse]:
    """Return the free slots of batch queues whose submission is still ahead, in its order. Slots
    that are paid for stay as planned: an earlier one would cost more than the plan says."""
    uses = (
        execution.uses[slot]
        for slot, record in state.slots.items()
        if record.state is None and not record.closing
    )
    pending = [
        use
        for use in uses
        if use.slot.kind == "batch"
        and not use.slot.fixed
        and not use.slot.paid
        and use.submit_s > now_s
    ]
    return sorted(pending, key=lambda use: (use.submit_s, use.slot.id))


def plan_submissions(
    execution: ExecutionPlan, state: RunState, now_s: float, futures: Futures
) -> SubmissionCheck:
    """Plan the submissions that are still ahead again. A slot is submitted now if waiting loses
    probability, and later than planned if that loses none of the planned one. Queues without a
    current forecast keep their planned instants."""
    pending = list_unsubmitted(execution, state, now_s)
    if not pending:
        return SubmissionCheck(again_s=now_s + CHECK_S)
    ahead: dict[str, int] = {}
    queues: dict[str, QueueFutures] = {}
    moves: dict[str, Move] = {}
    for use in pending:
        # our slots that are submitted before it wait ahead of it in the same queue
        before = ahead.get(use.slot.shared, 0)
        ahead[use.slot.shared] = before + 1
        queue = futures(use, before)
        if queue is not None:
            queues[use.slot.id] = queue
            moves[use.slot.id] = _move(use, now_s, queue)
    waits_s = [m.again_in_s for m in moves.values() if not m.submit]
    pause_s = max(CHECK_S, min(waits_s, default=CHECK_S)) if moves else _SILENT_S
    changes: dict[str, SlotUse] = {}
    reasons = []
    for use in pending:
        slot = use.slot.id
        submit_s = _choose_instant(use, moves.get(slot), now_s, now_s + pause_s)
        if submit_s != use.submit_s:
            changes[slot] = replace(use, submit_s=submit_s)
            reasons.append(
                _explain_submission(
                    use, submit_s, _compute_chance(use, now_s, submit_s, queues[slot])
                )
            )
    if not changes:
        return SubmissionCheck(again_s=now_s + pause_s)
    uses = {slot: changes.get(slot, use) for slot, use in execution.uses.items()}
    plan = replace(execution.plan, uses=tuple(uses[use.slot.id] for use in execution.plan.uses))
    return SubmissionCheck(
        execution=replace(execution, plan=plan, uses=uses),
        reason="; ".join(reasons),
        again_s=now_s + pause_s,
    )


def _choose_instant(use: SlotUse, choice: Move | None, now_s: float, check_s: float) -> float:
    """Return when to submit; only what would happen before the next check is changed."""
    if choice is None:
        return use.submit_s
    if choice.submit or choice.latest_s is None:
        return now_s
    suffices = choice.probability >= _find_planned(use) - LOSS
    return now_s + choice.latest_s if suffices and use.submit_s <= check_s else use.submit_s


def _find_planned(use: SlotUse) -> float:
    """Return the planned probability of being ready in time, without that of lasting."""
    return min(1.0, use.probability / use.slot.up) if use.slot.up > 0 else 0.0


def _compute_chance(use: SlotUse, now_s: float, submit_s: float, queue: QueueFutures) -> float:
    """Return P(ready in time) if the slot is submitted at an instant of the run's clock."""
    # a job that starts at once must still last until the end of the slot
    walltime_s = use.slot.end_s - submit_s
    return queue.chance(use.slot.procs, walltime_s, submit_s - now_s, use.start_s - now_s)


def _move(use: SlotUse, now_s: float, queue: QueueFutures) -> Move:
    """Require what was planned, or what a submission now reaches if that is little less; no margin:
    later instants lose nothing, and the plan was made without one. If it is much less, the slot is
    submitted now: it is then late by the least."""
    best, required = _compute_chance(use, now_s, now_s, queue), _find_planned(use)
    if best >= required - _SHORTFALL:
        required = max(0.0, min(required, best) - LOSS)
    reservation = Reservation(
        procs=use.slot.procs,
        walltime_s=use.slot.end_s - use.start_s,
        start_by_s=use.start_s - now_s,
        probability=required,
    )
    return move(queue, reservation, margin=0.0)


def _explain_submission(use: SlotUse, submit_s: float, chance: float) -> str:
    before, after = format_duration(use.submit_s), format_duration(submit_s)
    return (
        f"submission of slot {use.slot.id} moved from {before} to {after}: "
        f"probability {chance:.3f}, planned {_find_planned(use):.3f}"
    )
