"""Wait bounds of configured job shapes as gauges for Prometheus, computed in a thread of their own:
no scrape waits for a forecast."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Annotated

from prometheus_client.core import GaugeMetricFamily
from pydantic import BaseModel, ConfigDict, Field, field_validator

from vgrads.kernel.documents import Count
from vgrads.kernel.errors import InputError, VgradsError
from vgrads.kernel.units import parse_duration
from vgrads.operations.questions import JobQuestion
from vgrads.portal.jobs.forecasts.service_queues import ServiceQueues

REFRESH_S = 60.0
"""Interval at which the bounds are computed: histories change at most that often."""
MOST_GAUGES = 100
"""Shapes; with ten quantiles of each, a scrape has a thousand values."""
_NAME = "vgrads_wait_bound_seconds"
_LABELS = ("site", "queue", "procs", "walltime", "quantile")
_Labels = tuple[str, ...]
_log = logging.getLogger("vgrads.gauges")


class WaitGauge(BaseModel):
    """A job shape whose wait bounds are gauges: processors and wall time in a queue."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    site: Annotated[str, Field(min_length=1)]
    queue: Annotated[str, Field(min_length=1)]
    procs: Count = 1
    walltime: str = "1h"
    quantiles: Annotated[
        tuple[Annotated[float, Field(gt=0, lt=1)], ...], Field(min_length=1, max_length=10)
    ] = (0.5, 0.95)

    @field_validator("walltime")
    @classmethod
    def _walltime(cls, value: str) -> str:
        try:
            parse_duration(value, "")
        except InputError as error:
            raise ValueError(error.what) from error
        return value

    @property
    def walltime_s(self) -> float:
        """Return the wall time in seconds."""
        return parse_duration(self.walltime, "walltime")


class WaitGauges:
    """Gauges of these shapes, for a registry of Prometheus. Thread-safe."""

    def __init__(
        self,
        shapes: Sequence[WaitGauge],
        queues: ServiceQueues,
    ) -> None:
        self._shapes, self._queues = shapes, queues
        self._bounds: dict[_Labels, float] = {}
        self._computed_unix_s: float | None = None
        self._failed: set[WaitGauge] = set()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Compute now, and then at intervals."""
        if self._shapes:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._repeat, daemon=True, name="wait gauges")
            self._thread.start()

    def stop(self) -> None:
        """Stop; a forecast that is being computed is not waited for."""
        self._stopping.set()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the newest bounds; a shape without a bound has no value."""
        family = GaugeMetricFamily(
            _NAME, "Upper bound on the wait of a job that is submitted now", labels=_LABELS
        )
        for labels, bound_s in self._bounds.items():
            family.add_metric(labels, bound_s)
        yield family
        if self._computed_unix_s is not None:
            yield GaugeMetricFamily(
                "vgrads_wait_bound_computed_timestamp_seconds",
                "Time at which these bounds were computed",
                value=self._computed_unix_s,
            )

    def refresh(self) -> None:
        """Compute all bounds."""
        bounds: dict[_Labels, float] = {}
        for shape in self._shapes:
            if self._stopping.is_set():
                return
            try:
                bounds |= self._bounds_of(shape)
            except Exception as error:
                self._report(shape, error)
            else:
                self._failed.discard(shape)
        # replaced as a whole: whoever reads them meanwhile gets those of one time
        self._bounds, self._computed_unix_s = bounds, time.time()

    def _repeat(self) -> None:
        self.refresh()
        while not self._stopping.wait(REFRESH_S):
            self.refresh()

    def _bounds_of(self, shape: WaitGauge) -> dict[_Labels, float]:
        # imported late: the service starts without forecasts
        from vgrads.api.queues.issuing import compute_stated_bounds
        from vgrads.operations.queue_questions import open_queue

        procs, walltime_s = shape.procs, shape.walltime_s
        job = JobQuestion(site=shape.site, queue=shape.queue, procs=procs, walltime_s=walltime_s)
        query = open_queue(job, self._queues.context()).query
        return {
            (shape.site, shape.queue, str(procs), f"{walltime_s:g}", f"{quantile:g}"): bound_s
            for quantile, bound_s in compute_stated_bounds(
                query, procs, walltime_s, shape.quantiles
            )
            if bound_s is not None
        }

    def _report(self, shape: WaitGauge, error: Exception) -> None:
        """Log the first failure of a shape; an unexpected error with its traceback."""
        if shape not in self._failed:
            self._failed.add(shape)
            is_expected = isinstance(error, VgradsError)
            where = f"{shape.site}/{shape.queue}"
            _log.warning("no wait bound of %s: %s", where, error, exc_info=not is_expected)
