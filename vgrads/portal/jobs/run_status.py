"""Status of runs: progress, the promise as its manager last computed it, state of every task."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from vgrads.portal.jobs.live_gantt import LiveGantt
from vgrads.portal.jobs.run_clock import elapsed_s, started_at
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.tables import RunRow

if TYPE_CHECKING:
    from vgrads.execmgr.core.execution_plan import ExecutionPlan
    from vgrads.execmgr.core.states import RunState

Json = dict[str, Any]
PATIENCE_S = 0.7
"""How long a page waits for a computation in the service's processes, where planning may occupy all
of them, in seconds."""


def run_status(live: LiveGantt, run: RunRow) -> Json | None:
    """Return the progress of a run, its cost and its promise; None where it has not started."""
    result = live.folded(run.id)
    if result is None:
        return None
    return status_json(run, *result, live.simulated(run.id))


def promise_points(run: RunRow, execution: ExecutionPlan, state: RunState) -> list[Json]:
    """Return the probability of a run's promise over time: as promised, as its manager computed it,
    and, at the end, whether it was kept."""
    points = [(0.0, execution.plan.promise.probability, 0), *state.promise.points]
    if run.state not in GOES_ON:
        points.append((state.now_s, float(run.state == "kept"), state.whole))
    return [
        {"at_s": at_s, "probability": probability, "done": done}
        for at_s, probability, done in points
    ]


def status_json(run: RunRow, execution: ExecutionPlan, state: RunState, simulated: bool) -> Json:
    """Return the status of a run; instants are RFC 3339, on the clock of the run. ``simulated``:
    its clock is that of a simulation, which stands still between events."""
    # imported late: the journal of the run was read before
    from vgrads.execmgr.core.alarms import alarms_json
    from vgrads.execmgr.core.completion import find_done_workflows
    from vgrads.execmgr.core.delays import describe_delays
    from vgrads.execmgr.core.promise_record import promise_json
    from vgrads.execmgr.core.spending import sum_spent_usd
    from vgrads.execmgr.core.states import ReplicaState

    began = started_at(run)

    def instant(at_s: float | None) -> str | None:
        return None if at_s is None else (began + timedelta(seconds=at_s)).isoformat()

    # imported late, as before
    from vgrads.drivers.api import SlotState

    replicas = [record.state for record in state.replicas.values()]
    slots = [record.state for record in state.slots.values() if record.state is not None]
    ended = run.state not in GOES_ON
    return {
        "tasks": {
            "done": len(state.done),
            "of": len({p.task_key for p in execution.plan.placements}),
            "running": replicas.count(ReplicaState.RUNNING),
            "before": len(execution.plan.done),
        },
        "workflows": {
            "done": len(find_done_workflows(execution, state)),
            "needed": execution.plan.needed,
            "of": len(execution.snapshot.workflow_set.workflows),
        },
        "slots": {
            "ready": slots.count(SlotState.READY),
            "waiting": sum(slot < SlotState.READY for slot in slots),
            "lost": slots.count(SlotState.FAILED),
            "of": len(execution.uses),
        },
        "now_s": state.now_s,
        "deadline_s": execution.plan.deadline_s,
        "spent_usd": sum_spent_usd(execution, state),
        "cost_usd": execution.plan.cost_usd,
        "started": instant(0.0),
        "now": instant(state.now_s),
        "due": instant(execution.plan.deadline_s),
        "ended": instant(state.now_s) if ended else None,
        **promise_json(execution, state, elapsed_s(run, state, simulated), ended),
        "expected_end": None if ended else instant(state.promise.end_s),
        "delays": describe_delays(execution, state),
        "alarms": alarms_json(state, instant),
        "simulated": simulated,
    }
