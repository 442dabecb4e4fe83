"""Probability of a run's promise over time: computed from its journal, afterwards or so far."""

from __future__ import annotations

from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.journal import advance, event_from_json
from vgrads.execmgr.core.remainder import progress_of
from vgrads.execmgr.core.states import Replanned, RunState
from vgrads.execmgr.core.step import begin
from vgrads.planner.replan import promise_now
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store

_POINTS = 24


def promise_over_time(url: str, run_id: str) -> list[dict[str, float]]:
    """Return, for up to two dozen instants of a run, the probability that the promise is kept, and
    the finished workflows."""
    with Store(url) as store:
        executions = RunRecord(store.engine, run_id).executions()
        events = [event_from_json(body) for body in store.events(run_id)]
    if not executions:
        return []
    every = max(1, len(events) // _POINTS)
    state = begin(executions[0])
    results = [_point(executions[0], state, executions[0].plan.promise.probability)]
    for number, event in enumerate(events, start=1):
        state = advance(executions, state, event)
        if number % every == 0 or number == len(events) or isinstance(event, Replanned):
            results.append(_point(executions[state.version], state))
    return results


def _point(
    execution: ExecutionPlan, state: RunState, probability: float | None = None
) -> dict[str, float]:
    chance = probability
    if chance is None:
        chance = promise_now(
            execution.plan, execution.snapshot, progress_of(execution, state)
        ).probability
    done = sum(
        all((w.name, task) in state.done for task in w.tasks)
        for w in execution.snapshot.workflow_set.workflows
    )
    return {"at_s": state.now_s, "probability": chance, "done": done}
