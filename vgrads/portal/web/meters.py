"""Metrics for Prometheus: counted requests, and results of runs that are read once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from vgrads.portal.records.tables import RunRow

RUNS = 100
"""The newest runs, whose bounds are evaluated."""


class Meters:
    """Number and duration of requests, by route."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "vgrads_http_requests",
            "Requests",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "vgrads_http_seconds",
            "Duration of requests in seconds",
            ["method", "route"],
            registry=self.registry,
        )
        self._bounds: dict[str, dict[tuple[str, str], int]] = {}

    def bounds_of(self, run: RunRow) -> dict[tuple[str, str], int]:
        """Return the results of an ended run's wait bounds; read once."""
        if run.id not in self._bounds:
            if len(self._bounds) > 10 * RUNS:
                self._bounds.clear()
            self._bounds[run.id] = _count_slots_by_state(json.loads(run.gantt))
        return self._bounds[run.id]


def _count_slots_by_state(chart: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Return (site, yes or no) → slots of a run's chart that had a bound and were requested."""
    counts: dict[tuple[str, str], int] = {}
    for slot in chart.get("slots", ()):
        actual, bound_s = slot.get("actual"), slot.get("ready_p95_s")
        if actual and bound_s is not None:
            ready_s = actual["ready_s"]
            key = slot["site"], "yes" if ready_s is not None and ready_s <= bound_s else "no"
            counts[key] = counts.get(key, 0) + 1
    return counts
