"""The resources of a study's strategies: a recorded machine, a second one and a paid cloud.

The second machine is the same log at another instant, so both are real and independent. All
submissions of a strategy compete with the jobs that were queued and those that arrived
(:mod:`vgrads.simulator.load`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vgrads.api.plans.planning import GridSnapshot
from vgrads.kernel.errors import InputError
from vgrads.kernel.streams import stream
from vgrads.kernel.units import format_duration
from vgrads.qbets.forecast import freeze
from vgrads.qbets.predictor import Settings
from vgrads.qbets.replay import HistoryReplay, Learner, make_predictor
from vgrads.qbets.state_forecast import AnyForecast, freeze_state
from vgrads.qbets.state_predictor import StatePredictor
from vgrads.qbets.viewed_log import run_times
from vgrads.simulator.cluster import BatchCluster
from vgrads.simulator.load import load_background
from vgrads.simulator.replay import Workload, replay_starts
from vgrads.traces.history import history_name
from vgrads.traces.records import JobLog
from vgrads.vgrid.catalog import Catalog, NodeType, Queue, Site
from vgrads.vgrid.varq import WaitOracle
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import WorkflowSet

MACHINES = ("one", "two")
CLOUD = "cloud"
BOOT_S, CLOUD_PROCS, CORES, USD_PER_HOUR = 480.0, 32, 8, 0.68
GRANTED, LIFETIMES = 0.95, 0.98
"""Share of the cloud's slots that are granted, and that live to their end. Its capacity is two LEAD
workflows."""
WARM = 0.2
"""Share of a history before the first instant."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One set, submitted at an instant of each machine."""

    number: int
    workflow_set: WorkflowSet
    instants: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Arena:
    """A log with the forecasts at the start of every case."""

    log: JobLog
    procs: int
    forecasts: Mapping[float, AnyForecast]
    cloud_procs: int = CLOUD_PROCS

    def catalog(self) -> Catalog:
        """Return both machines and the cloud; jobs as wide as a machine and as long as a week are
        accepted."""
        queue = Queue(
            name="q",
            history=None,
            log_queue=None,
            max_procs=self.procs,
            max_walltime_s=7 * 86400.0,
            max_jobs=8,
        )
        machines = tuple(
            Site(name=name, kind="batch", procs=self.procs, queues=(queue,)) for name in MACHINES
        )
        node = NodeType(name="m", cores=CORES, price_usd_per_hour=USD_PER_HOUR)
        cloud = Site(
            name=CLOUD,
            kind="cloud",
            procs=self.cloud_procs,
            nodes=(node,),
            boot_s=BOOT_S,
            slot_acquire=GRANTED,
            slot_up=LIFETIMES,
        )
        return Catalog(sites=(*machines, cloud), links={})

    def grid(self, case: Case) -> GridSnapshot:
        """Return the planner's information at the case's instants."""
        catalog = self.catalog()
        keys = [(name, "q") for name in MACHINES]
        return GridSnapshot(
            catalog=catalog,
            logs={key: replace(self.log, name=key[0]) for key in keys},
            instants=dict(zip(keys, case.instants, strict=True)),
            forecasts={
                key: self.forecasts[at] for key, at in zip(keys, case.instants, strict=True)
            },
        )

    def oracle(self, case: Case, machine: int) -> WaitOracle:
        """Return GETPROB of a machine at the case's instant."""
        return self.forecasts[case.instants[machine]]

    def cluster(self, case: Case, machine: int, until_s: float) -> BatchCluster:
        """Return a machine under its load; zero is the case's instant."""
        cluster = BatchCluster(self.procs)
        load_background(cluster, self.log, case.instants[machine], until_s)
        cluster.advance(0.0)
        return cluster


def most_busy(log: JobLog) -> int:
    """Return the processors of the machine: from its header, or the maximum ever busy at once."""
    if log.max_procs > 0:
        return int(log.max_procs)
    started = log.started
    times = np.concatenate([log.start_s[started], (log.start_s + run_times(log))[started]])
    steps = np.concatenate([log.procs[started], -log.procs[started]])
    return int(np.cumsum(steps[np.lexsort((steps, times))]).max())


def rescheduled(log: JobLog) -> JobLog:
    """Return the same jobs as EASY would have started them: history and future from one scheduler.

    Sites used rules of their own (priorities, fair shares, partitions) that are not in the log. A
    history made by one rule predicts little about a future simulated by another.
    """
    procs = most_busy(log)
    started = log.select(log.started)
    run_s = run_times(started)
    load = Workload(
        submit_s=started.submit_s,
        procs=np.maximum(1, np.minimum(started.procs, procs)),
        run_s=run_s,
        request_s=np.where(started.request_s > 0, started.request_s, run_s),
    )
    start_s = replay_starts(load, procs)
    return replace(
        started,
        wait_s=np.maximum(0.0, start_s - started.submit_s),
        procs=load.procs,
        run_s=run_s,
        max_procs=procs,
    )


def draw_instants(
    log: JobLog, count: int, seed: int, horizon_s: float
) -> list[tuple[float, float]]:
    """Draw pairs of instants, after the first fifth of the history and before its end by the
    horizon."""
    first, last = float(log.submit_s[0]), float(log.submit_s[-1]) - horizon_s
    if last <= first:
        raise InputError(
            (
                f"covers {format_duration(float(log.submit_s[-1]) - first)}; the queries need "
                f"{format_duration(horizon_s)} more"
            ),
            where=log.name,
        )
    begin = first + WARM * (last - first)
    draws = stream(seed, "instants", history_name(log.name))
    drawn = draws.uniform(begin, last, (count, 2)).round()
    return [(float(item), float(two)) for item, two in drawn]


def forecasts_at(
    log: JobLog, instants: Sequence[float], settings: Settings
) -> dict[float, AnyForecast]:
    """Return the forecasts at each instant, in one pass over the history."""
    return dict(forecasts_along(log, instants, settings))


def forecasts_along(
    log: JobLog, instants: Sequence[float], settings: Settings
) -> Iterator[tuple[float, AnyForecast]]:
    """Yield the same one by one, in time order, for callers that keep the answers and not the
    forecasts."""
    passing, first_s = HistoryReplay(log, make_predictor(settings, log)), float(log.submit_s[0])
    for at_s in sorted(set(instants)):
        passing.to(at_s)
        yield at_s, freeze_now(passing.predictor, at_s, first_s)


def freeze_now(predictor: Learner, at_s: float, first_s: float) -> AnyForecast:
    """Return a predictor's state at this instant, by any learning method."""
    if isinstance(predictor, StatePredictor):
        return freeze_state(predictor, at_s, first_s)
    return freeze(predictor, first_s)


def draw_case(
    number: int, seed: int, instants: tuple[float, float], shapes: Sequence[Workflow]
) -> Case:
    """Draw a set of one to eight similar workflows; deadline and fraction vary."""
    draws = stream(seed, "case", str(number))
    shape = shapes[int(draws.integers(len(shapes)))]
    count = int(draws.integers(1, 9))
    share = float(draws.choice([0.25, 0.5, 0.75, 1.0]))
    deadline_s = float(draws.choice([1.3, 1.7, 2.5, 4.0])) * max(shape.critical_path_s(), 1800.0)
    workflow_set = WorkflowSet(
        name=f"case-{number}",
        workflows=tuple(shape.renamed(f"w{n}") for n in range(count)),
        deadline_s=deadline_s,
        needed=max(1, round(share * count)),
        probability=0.9,
    )
    return Case(number=number, workflow_set=workflow_set, instants=instants)
