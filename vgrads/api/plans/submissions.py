"""Forecasts for the submissions of a run that are still ahead: its queues as they are now."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from vgrads.api.plans.planning import GridSnapshot, QueueKey
from vgrads.api.plans.replanners import StorePlan
from vgrads.api.queues.live_queue import make_present_forecast
from vgrads.api.queues.site_snapshots import refresh_snapshot
from vgrads.api.wiring import is_real
from vgrads.execmgr.core.acquisitions import list_acquisitions
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import RunState
from vgrads.execmgr.core.submissions import (
    SubmissionCheck,
    SubmissionPlanner,
    plan_submissions,
)
from vgrads.planner.plan import SlotUse
from vgrads.qbets.state_forecast import StateForecast
from vgrads.vgrid.binding import Binding, learn_binding
from vgrads.vgrid.closures import ALWAYS, closed
from vgrads.vgrid.varq import QueueFutures, WaitOracle


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNow:
    """A queue as its site reports it, with ``ahead`` of our jobs submitted before the slot."""

    forecast: WaitOracle
    binding: Binding
    ahead: int

    def chance(self, procs: int, walltime_s: float, submit_in_s: float, by_s: float) -> float:
        """Return P(a slot submitted in ``submit_in_s`` is ready by ``by_s``)."""
        within_s = by_s - submit_in_s - self.binding.delays_s
        chances = self.forecast.probability(
            procs,
            walltime_s,
            np.maximum(within_s, 0.0),
            ahead=self.ahead,
            submit_in_s=submit_in_s,
        )
        # a delay longer than the time left gives no chance, even without a wait
        return float(np.where(within_s >= 0, chances, 0.0).mean()) * self.binding.acquire


def make_submission_planner(grid: GridSnapshot, store: StorePlan) -> SubmissionPlanner:
    """Return what plans the submissions of a run again; changed execution plans are stored before
    they become valid. Simulated queues, those without history and those of sites that do not list
    their queue now, or did not when they were learned, have no current forecast."""

    def check(execution: ExecutionPlan, state: RunState, now_s: float) -> SubmissionCheck:
        observed = (*grid.observed, *list_acquisitions(execution, state))
        forecasts: dict[QueueKey, StateForecast | None] = {}

        def current(key: QueueKey) -> StateForecast | None:
            site = grid.catalog.site(key[0])
            if key not in grid.forecasts or not is_real(site):
                return None
            snapshot = refresh_snapshot(site)
            if snapshot.problem or not grid.forecasts[key].settings.sees_waiting:
                return None
            result, view = make_present_forecast(
                grid.forecasts[key], grid.logs[key], key[1], snapshot
            )
            if view.source != "site" or not isinstance(result, StateForecast):
                return None
            return result

        def futures(use: SlotUse, ahead: int) -> QueueFutures | None:
            key = (use.slot.site, use.slot.queue)
            # a site is asked once in a check, however many slots wait there
            if key not in forecasts:
                forecasts[key] = current(key)
            forecast = forecasts[key]
            if forecast is None:
                return None
            binding = learn_binding(grid.catalog.site(key[0]), key[1], observed)
            availability = grid.availabilities.get(key, ALWAYS).at(time.time())
            return QueueNow(forecast=closed(forecast, availability), binding=binding, ahead=ahead)

        result = plan_submissions(execution, state, now_s, futures)
        if result.execution is not None:
            store(state.version + 1, result.execution)
        return result

    return check
