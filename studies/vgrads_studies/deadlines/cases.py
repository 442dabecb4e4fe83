"""Random bags with deadlines: on recorded queues, clouds on demand, and recorded spot zones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vgrads.dispatch.core.state import name_source
from vgrads.kernel.errors import InputError
from vgrads.kernel.streams import stream
from vgrads.kernel.units import billed_usd
from vgrads.pool.spot.prior import PRIOR
from vgrads.pool.spot.survival import STEP_S, LifeTable
from vgrads.traces.records import JobLog
from vgrads_studies.report import read_enough
from vgrads_studies.spot.traces import SpotTrace, prior_for, read_traces

_PRICES = ((3.06, 0.9731), (3.06, 0.918), (3.79, 0.35), (4.03, 1.8515))
"""Dollars per hour on demand and on the spot market."""
_LEAST_JOBS, _BUDGETS = 400, 0.2
SPOT = "spot"


@dataclass(frozen=True, eq=False, kw_only=True)
class StudySource:
    """A source of nodes. ``queue``: its recorded waits; ``spot``: for each step of
    :data:`~vgrads.pool.spot.survival.STEP_S` from the start on whether spot nodes were available;
    ``prior``: life tables of other dates and zones, which is all that decisions know of them;
    ``waits_s``: forecast, ascending. Other fields as in
    :class:`vgrads.pool.deadline.values.NodeSource`."""

    name: str
    workers: int
    most: int
    price: float = 0.0
    billing_s: float = 0.0
    boot_s: float = 0.0
    length_s: float = math.inf
    waits_s: tuple[float, ...] = ()
    queue: QueueWaits | None = None
    spot: NDArray[np.bool_] | None = None
    spot_price: float = math.inf
    prior: tuple[LifeTable, ...] = PRIOR

    @property
    def cloud(self) -> bool:
        """Return whether these are nodes of a cloud."""
        return self.queue is None

    @property
    def spot_name(self) -> str:
        """Return the name of its spot nodes."""
        return name_source(self.name, SPOT)

    @property
    def expected_s(self) -> float:
        """Return the median time until a requested node runs tasks."""
        return self.boot_s if self.cloud else self.waits_s[len(self.waits_s) // 2]

    def is_available(self, at_s: float) -> bool:
        """Return whether spot nodes are available at an instant."""
        return self.spot is not None and bool(self.spot[int(at_s // STEP_S) % len(self.spot)])


@dataclass(frozen=True, eq=False, kw_only=True)
class StudyCase:
    """A bag: ``run_s``: the true run time of each task; ``stated_s``: the estimate of their mean;
    ``budget_usd``: the most that its nodes may cost; ``began_s``: the instant of its submission in
    the logs."""

    number: int
    run_s: NDArray[np.float64]
    stated_s: float
    deadline_s: float
    probability: float
    sources: tuple[StudySource, ...]
    began_s: Mapping[str, float]
    budget_usd: float | None = None

    @property
    def workers(self) -> int:
        """Return the tasks that a node runs at once."""
        return self.sources[0].workers

    @property
    def least_hours(self) -> float:
        """Return the node hours that the work itself needs: no rule can use fewer."""
        return float(self.run_s.sum()) / self.workers / 3600.0


def read_folder(folder: Path) -> tuple[list[JobLog], list[SpotTrace]]:
    """Read the logs in ``swf`` and the traces in ``spot``. Raise InputError where one lacks."""
    paths = sorted((folder / "swf").glob("*.swf*"))
    if not paths:
        raise InputError("has no logs (*.swf, *.swf.gz)", where=str(folder / "swf"))
    return [read_enough(path) for path in paths], read_traces(folder / "spot")


def cases_of(
    logs: Sequence[JobLog], traces: Sequence[SpotTrace], count: int, seed: int
) -> list[StudyCase]:
    """Draw cases: a third has queues only, a third clouds only, a third both."""
    queues: dict[tuple[str, int], QueueWaits] = {}
    priors = {trace.name: prior_for(trace, list(traces)) or PRIOR for trace in traces}
    return [_case(number, logs, traces, priors, queues, seed) for number in range(count)]


def _case(
    number: int,
    logs: Sequence[JobLog],
    traces: Sequence[SpotTrace],
    priors: Mapping[str, tuple[LifeTable, ...]],
    queues: dict[tuple[str, int], QueueWaits],
    seed: int,
) -> StudyCase:
    draws = stream(seed, "deadlines", number)
    sources, began_s, kind = list[StudySource](), dict[str, float](), number % 3
    workers = int(2 ** draws.integers(0, 4))
    if kind != 1:
        for position in range(int(draws.integers(1, 3))):
            source, at_s = _queue_source(position, logs, queues, draws, workers)
            sources.append(source)
            began_s[source.name] = at_s
    if kind:
        sources.append(_cloud_source(traces, priors, draws, workers))
    stated_s = _between(draws, 60.0, 900.0)
    most = sum(source.most * source.workers for source in sources)
    tasks = int(np.clip(most * _between(draws, 2.0, 20.0), 100, 4000))
    error, spread = draws.uniform(0.1, 0.5), draws.uniform(0.1, 0.5)
    mean_s = stated_s * math.exp(error * draws.standard_normal() - error**2 / 2.0)
    return StudyCase(
        number=number,
        run_s=mean_s * draws.lognormal(-(spread**2) / 2.0, spread, tasks),
        stated_s=stated_s,
        deadline_s=least_s(sources, tasks, stated_s) * draws.uniform(1.2, 4.0),
        probability=float(draws.uniform(0.5, 0.99)),
        sources=tuple(sources),
        began_s=began_s,
        budget_usd=_budget_usd(number, tasks * stated_s, sources, seed),
    )


def _budget_usd(
    number: int, work_s: float, sources: Sequence[StudySource], seed: int
) -> float | None:
    """Return a budget for a part of the bags that may use a cloud: less or more than its nodes on
    demand cost by the estimates."""
    draws = stream(seed, "deadline budgets", number)
    cloud = next((source for source in sources if source.cloud), None)
    if cloud is None or draws.random() >= _BUDGETS:
        return None
    paid_s = _between(draws, 0.4, 2.0) * work_s / cloud.workers
    return billed_usd(1, paid_s, 0.0, cloud.price)


def least_s(sources: Sequence[StudySource], tasks: int, stated_s: float) -> float:
    """Return the least possible time by the estimates: all nodes come after their median waits."""
    end_s = math.inf
    begin_s = sorted((source.expected_s, source.most * source.workers) for source in sources)
    workers, work_s = 0, tasks * stated_s
    for position, (at_s, more) in enumerate(begin_s):
        workers += more
        work_s += at_s * more
        end_s = work_s / workers
        if position + 1 < len(begin_s) and end_s <= begin_s[position + 1][0]:
            break
    return end_s + stated_s


def _queue_source(
    position: int,
    logs: Sequence[JobLog],
    queues: dict[tuple[str, int], QueueWaits],
    draws: np.random.Generator,
    workers: int,
) -> tuple[StudySource, float]:
    while True:
        log = logs[int(draws.integers(len(logs)))]
        width = int(2 ** draws.integers(0, 5))
        key = (log.name, width)
        if key not in queues:
            queues[key] = QueueWaits(log, width * max(1.0, float(np.quantile(log.procs, 0.1))))
        queue = queues[key]
        if len(queue) < _LEAST_JOBS:
            continue
        at_s = queue.instant_s(draws.uniform(0.3, 0.9))
        waits_s = queue.past_s(at_s)
        if waits_s and waits_s[len(waits_s) // 2] < 6 * 3600.0:
            break
    source = StudySource(
        name=f"queue{position}",
        workers=workers,
        most=max(4, 2 * width),
        price=float(draws.choice([0.0, 0.0, 0.5])),
        length_s=float(draws.choice([2.0, 6.0, 24.0])) * 3600.0,
        waits_s=waits_s,
        queue=queue,
    )
    return source, at_s


def _cloud_source(
    traces: Sequence[SpotTrace],
    priors: Mapping[str, tuple[LifeTable, ...]],
    draws: np.random.Generator,
    workers: int,
) -> StudySource:
    price, spot_price = _PRICES[int(draws.integers(len(_PRICES)))]
    trace = traces[int(draws.integers(len(traces)))]
    start = int(draws.integers(len(trace.available)))
    return StudySource(
        name="cloud",
        workers=workers,
        most=int(draws.integers(8, 41)),
        price=price,
        billing_s=float(draws.choice([1.0, 3600.0])),
        boot_s=_between(draws, 60.0, 300.0),
        spot=np.roll(trace.available, -start) if draws.random() < 0.7 else None,
        spot_price=spot_price,
        prior=priors[trace.name],
    )


def _between(draws: np.random.Generator, low: float, high: float) -> float:
    return float(low * (high / low) ** draws.random())


_NEAR, _RECENT = 3.0, 100


class QueueWaits:
    """The started jobs of a log of about one width."""

    def __init__(self, log: JobLog, procs: float) -> None:
        near = log.started & (log.procs >= procs / _NEAR) & (log.procs <= procs * _NEAR)
        self.name = log.name
        self._submit_s, self._wait_s = log.submit_s[near], log.wait_s[near]
        self._start_s = self._submit_s + self._wait_s
        self._by_start = np.argsort(self._start_s, kind="stable")
        self._sorted_start_s = self._start_s[self._by_start]

    def __len__(self) -> int:
        return len(self._submit_s)

    def instant_s(self, share: float) -> float:
        """Return the instant at which this share of the jobs has been submitted."""
        return float(self._submit_s[int(share * (len(self) - 1))])

    def wait_s(self, at_s: float) -> float:
        """Return the wait of the next job submitted at an instant or later."""
        position = int(np.searchsorted(self._submit_s, at_s))
        return float(self._wait_s[min(position, len(self) - 1)])

    def past_s(self, at_s: float) -> tuple[float, ...]:
        """Return a forecast from what was seen before an instant: waits of the last jobs that had
        started, as many of all earlier ones, and those of the jobs that wait, whose ends are
        expected as those of jobs that waited as long. Ascending."""
        count = int(np.searchsorted(self._sorted_start_s, at_s))
        before = self._wait_s[self._by_start[:count]]
        recent = before[-_RECENT:]
        earlier = before[:: max(1, len(before) // len(recent))] if len(recent) else recent
        earlier_s = np.sort(np.concatenate([recent, earlier]))
        is_waiting = (self._submit_s <= at_s) & (self._start_s > at_s)
        lasting = []
        for elapsed_s in at_s - self._submit_s[is_waiting][-_RECENT:]:
            longer = earlier_s[np.searchsorted(earlier_s, elapsed_s, side="right") :]
            lasting.append(float(np.median(longer)) if len(longer) else 2.0 * float(elapsed_s))
        return tuple(np.sort(np.concatenate([earlier_s, lasting])).tolist())
