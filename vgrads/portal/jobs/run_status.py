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
_MOST_POINTS = 64
PATIENCE_S = 0.7
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
        self._tasks: set[asyncio.Task[None]] = set()
        self._points: dict[str, list[tuple[float, float]]] = {}

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
        """Compute the probability of an active run's promise again, unless it is recent. Returns
        when it is computed, or after a moment: the computation then goes on."""
        observed, now_s = self._last.get(run.id), time.monotonic()
        if run.state not in GOES_ON or (
            observed is not None and now_s - observed.at_s < self._again_s
        ):
            return
        if len(self._last) > _REMEMBERED:
            self._last.clear()
            self._points.clear()
        last = (
            replace(observed, at_s=now_s)
            if observed is not None
            else _LastForecast(now_s, "", None)
        )
        self._last[run.id] = last  # no other call waits
        task = asyncio.create_task(self._forecast(run, last, now_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait({task}, timeout=PATIENCE_S)

    async def _forecast(self, run: RunRow, last: _LastForecast, now_s: float) -> None:
        result, version = await asyncio.to_thread(self._now, run)
        if result is None or last.version == version:
            return
        # imported late: the journal of a run was read before
        from vgrads.execmgr.core.remainder import progress_of

        execution, state = result
        with suppress(SiteError):  # a process died: the next call retries
            outlook = await self._think(
                children.promise_now,
                execution.plan,
                execution.snapshot,
                progress_of(execution, state),
            )
            self._last[run.id] = _LastForecast(now_s, version, outlook)
            self._add_point(run.id, state.now_s, outlook.probability)

    def points(self, run_id: str) -> list[tuple[float, float]]:
        """Return the forecasts of a run so far: instants in seconds of the run, probabilities."""
        return list(self._points.get(run_id, ()))

    def _add_point(self, run_id: str, at_s: float, probability: float) -> None:
        points = self._points.setdefault(run_id, [])
        points.append((at_s, probability))
        if len(points) > _MOST_POINTS:  # half the resolution from here on
            del points[1:-1:2]

    def _now(self, run: RunRow) -> tuple[tuple[ExecutionPlan, RunState] | None, str]:
        return self._live.folded(run.id), self._live.version(run)


def status_json(
    run: RunRow, execution: ExecutionPlan, state: RunState, outlook: Outlook | None = None
) -> Json:
    """Return the status of a run; instants are RFC 3339, on the clock of the run."""
    # imported late: the journal of the run was read before
    from vgrads.execmgr.core.completion import workflows_done
    from vgrads.execmgr.core.delays import delays
    from vgrads.execmgr.core.states import ReplicaState

    began = run.started if run.started.tzinfo else run.started.replace(tzinfo=UTC)

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
            "done": len(workflows_done(execution, state)),
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
        "delays": delays(execution, state),
    }
