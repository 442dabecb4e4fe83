"""Metrics for Prometheus: values read from the database on request."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from vgrads.kernel.promise_state import PromiseState
from vgrads.portal.jobs.live_gantt import LiveGantt
from vgrads.portal.jobs.run_status import run_status
from vgrads.portal.records.bags import BagStore
from vgrads.portal.records.store import Store
from vgrads.portal.records.work import Works
from vgrads.portal.web.forecasts.metrics import forecast_families
from vgrads.portal.web.meters import RUNS, Meters
from vgrads.vgrid.acquisition import Acquisition

Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily
_WAITS_S = (10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 86400.0)
_MOST_SLOTS = 100_000


class ServiceMetrics:
    """Runs by state, the promise record, slots by site and availability, waits, bounds that held,
    queued work, scores of forecasts."""

    def __init__(
        self,
        store: Store,
        live: LiveGantt,
        meters: Meters,
        scores: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._store, self._live, self._meters, self._scores = store, live, meters, scores

    def collect(self) -> Iterator[Family]:
        """Compute all metric families."""
        yield self._runs()
        yield from self._promises()
        yield self._states()
        slots = self._store.acquisitions(limit=_MOST_SLOTS)
        yield _count_fates(slots)
        yield _list_waits(slots)
        yield self._bounds()
        yield self._times()
        queue = GaugeMetricFamily(
            "vgrads_work", "Work items that are queued or running", labels=["kind"]
        )
        for kind, count in Works(self._store.engine).open_kinds().items():
            queue.add_metric([kind], count)
        yield queue
        yield from forecast_families(self._scores())

    def _runs(self) -> Family:
        runs = GaugeMetricFamily("vgrads_runs", "Runs by state", labels=["state"])
        for state, count in sorted(self._store.count_runs().items()):
            runs.add_metric([state], count)
        return runs

    def _states(self) -> Family:
        """Return how many active runs are in each state of their promise."""
        family = GaugeMetricFamily(
            "vgrads_set_state", "Active runs by the state of their promise", labels=["state"]
        )
        counts = Counter(self._states_now())
        # also states without a run, so that a series does not end when its last run leaves a state
        for state in PromiseState:
            family.add_metric([state.value], counts[state.value])
        return family

    def _states_now(self) -> Iterator[str]:
        for run in self._store.list_runs(limit=RUNS):
            if run.state == "running" and (status := run_status(self._live, run)) is not None:
                yield status["promise_state"]

    def _bounds(self) -> Family:
        """Return, for the newest runs' slots, how many were ready within the 95 % bound that the
        plan stated, and not."""
        family = CounterMetricFamily(
            "vgrads_slot_bounds",
            "Slots of the newest runs, by whether the 95 % bound held",
            labels=["site", "held"],
        )
        counts: dict[tuple[str, str], int] = {}
        for run in self._store.list_runs(limit=RUNS):
            if run.state in ("kept", "broken"):
                for key, count in self._meters.bounds_of(run).items():
                    counts[key] = counts.get(key, 0) + count
        for labels, count in sorted(counts.items()):
            family.add_metric(list(labels), count)
        return family

    def _times(self) -> Family:
        """Return the time of tasks by phase: of the newest terminal runs, and of the newest
        bags."""
        family = CounterMetricFamily(
            "vgrads_task_seconds",
            "Seconds of the tasks of the newest runs and bags, by use",
            labels=["of", "part"],
        )
        spent: dict[tuple[str, str], float] = {}
        for run in self._store.list_runs(limit=RUNS):
            for name, seconds in (json.loads(run.outcome).get("times") or {}).items():
                if name.endswith("_s"):
                    spent["runs", name[:-2]] = spent.get(("runs", name[:-2]), 0.0) + seconds
        for bag in BagStore(self._store.engine).newest():
            message = json.loads(bag.summary)
            ended = message.get("done", 0) + message.get("failed", 0)
            for name, mean_s in (message.get("times") or {}).items():
                # bags state means, so that the sum follows from the number of ends
                spent["bags", name[:-2]] = spent.get(("bags", name[:-2]), 0.0) + mean_s * ended
        for labels, seconds in sorted(spent.items()):
            family.add_metric(list(labels), seconds)
        return family

    def _promises(self) -> Iterator[Family]:
        """Return promised probabilities and kept promises: over many runs the two sums must
        agree."""
        record = self._store.promise_record()
        promised = GaugeMetricFamily(
            "vgrads_promised", "Sum of the promises of runs that have ended", labels=[]
        )
        promised.add_metric([], sum(p for p, _ in record))
        yield promised
        gauge = GaugeMetricFamily(
            "vgrads_kept", "Number of these promises that were kept", labels=[]
        )
        gauge.add_metric([], sum(k for _, k in record))
        yield gauge


def _count_fates(slots: list[Acquisition]) -> Family:
    family = CounterMetricFamily(
        "vgrads_slots", "Requested slots, by site and outcome", labels=["site", "fate"]
    )
    counts: dict[tuple[str, str], int] = {}
    for slot in slots:
        outcome = "refused" if slot.refused else "broken" if slot.broken else "granted"
        counts[slot.site, outcome] = counts.get((slot.site, outcome), 0) + 1
    for labels, count in sorted(counts.items()):
        family.add_metric(list(labels), count)
    return family


def _list_waits(slots: list[Acquisition]) -> Family:
    family = HistogramMetricFamily(
        "vgrads_slot_wait_seconds",
        "Time from the request of a slot until it is ready",
        labels=["site"],
    )
    by_site: dict[str, list[float]] = {}
    for slot in slots:
        if slot.ready_s is not None:
            by_site.setdefault(slot.site, []).append(slot.ready_s - slot.requested_s)
    for site, waits in sorted(by_site.items()):
        buckets = [(str(top), sum(w <= top for w in waits)) for top in _WAITS_S]
        family.add_metric([site], [*buckets, ("+Inf", len(waits))], sum(waits))
    return family
