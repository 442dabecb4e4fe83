"""Status of runs: progress, current probability of the promise, expected completion, state of every
task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

from vgrads.kernel.errors import SiteError
from vgrads.portal.jobs import children
from vgrads.portal.jobs.live_gantt import LiveGantt
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.tables import RunRow

if TYPE_CHECKING:
    from vgrads.execmgr.core.execution_plan import ExecutionPlan
    from vgrads.execmgr.core.states import RunState
    from vgrads.planner.replan import Outlook

Json = dict[str, Any]
_AGAIN_S = 3.0  # between forecasts of a run, for any number of viewers
_REMEMBERED = 256
PATIENCE_S = 2.0
"""How long a page waits for a computation in the service's processes, where planning may occupy all
of them, in seconds."""


@dataclass(frozen=True, slots=True)
class _LastForecast:
    """The last forecast of a run, and its version; None: none yet."""

    at_s: float
    version: str
    outlook: Outlook | None


class RunStatuses:
    """Current status of runs. ``think``: runs a computation in another process of the service."""

    def __init__(
        self, live: LiveGantt, think: Callable[..., Awaitable[Any]], again_s: float = _AGAIN_S
    ) -> None:
        self._live, self._think, self._again_s = live, think, again_s
        self._last: dict[str, _LastForecast] = {}

    def of(self, run: RunRow) -> Json | None:
        """Return the progress of a run, its cost, and the last forecast; None where it has not
        started."""
        result = self._live.folded(run.id)
        if result is None:
            return None
        observed = self._last.get(run.id)
        ahead = observed.outlook if observed is not None and run.state in GOES_ON else None
        return status_json(run, *result, ahead) | {"simulated": self._live.simulated(run.id)}

    async def look_ahead(self, run: RunRow) -> None:
        """Compute the probability of an active run's promise again, unless it is recent."""
        observed, now_s = self._last.get(run.id), time.monotonic()
        if run.state not in GOES_ON or (
            observed is not None and now_s - observed.at_s < self._again_s
        ):
            return
        if len(self._last) > _REMEMBERED:
            self._last.clear()
        last = (
            replace(observed, at_s=now_s)
            if observed is not None
            else _LastForecast(now_s, "", None)
        )
        self._last[run.id] = last  # no other call waits
        result, version = await asyncio.to_thread(self._now, run)
        if result is None or last.version == version:
            return
        # imported late: the journal of a run was read before
        from vgrads.execmgr.core.remainder import progress_of

        execution, state = result
        looking = self._think(
            children.promise_now,
            execution.plan,
            execution.snapshot,
            progress_of(execution, state),
        )
        with suppress(TimeoutError, SiteError):  # all processes are busy: the next call retries
            outlook = await asyncio.wait_for(looking, PATIENCE_S)
            self._last[run.id] = _LastForecast(now_s, version, outlook)

    def _now(self, run: RunRow) -> tuple[tuple[ExecutionPlan, RunState] | None, str]:
        return self._live.folded(run.id), self._live.version(run)


def status_json(
    run: RunRow, execution: ExecutionPlan, state: RunState, outlook: Outlook | None = None
) -> Json:
    """Return the status of a run; instants are RFC 3339, on the clock of the run."""
    # imported late: the journal of the run was read before
    from vgrads.execmgr.core.completion import workflows_done
    from vgrads.execmgr.core.states import ReplicaState

    began = run.started if run.started.tzinfo else run.started.replace(tzinfo=UTC)

    def instant(at_s: float | None) -> str | None:
        return None if at_s is None else (began + timedelta(seconds=at_s)).isoformat()

    replicas = [record.state for record in state.replicas.values()]
    ended = run.state not in GOES_ON
    return {
        "tasks": {
            "done": len(state.done),
            "of": len({p.task_key for p in execution.plan.placements}),
            "running": replicas.count(ReplicaState.RUNNING),
            "before": len(execution.plan.done),
        },
        "workflows": {
            "done": len(workflows_done(execution, state)),
            "needed": execution.plan.needed,
            "of": len(execution.snapshot.workflow_set.workflows),
        },
        "spent_usd": sum(
            execution.uses[slot].cost_usd
            for slot, record in state.slots.items()
            if record.ready_s is not None
        ),
        "cost_usd": execution.plan.cost_usd,
        "started": instant(0.0),
        "now": instant(state.now_s),
        "due": instant(execution.plan.deadline_s),
        "ended": instant(state.now_s) if ended else None,
        "promise_now": outlook.probability if outlook else None,
        "expected_end": instant(outlook.end_s) if outlook else None,
    }
