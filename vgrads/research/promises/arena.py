"""A recorded machine, another like it and a paid cloud: what every strategy of a study finds there.

The second machine is the same log at another instant, so both are real and neither knows of the
other. Whatever a strategy submits meets the jobs that were there and those that came
(:mod:`vgrads.simulator.load`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vgrads.api.plans.planning import Grid
from vgrads.kernel.errors import InputError
from vgrads.kernel.streams import stream
from vgrads.kernel.units import format_duration
from vgrads.qbets.forecast import freeze
from vgrads.qbets.predictor import Settings
from vgrads.qbets.replay import Learner, Replay, make_predictor, run_times
from vgrads.qbets.state_forecast import Known, freeze_state
from vgrads.qbets.state_predictor import StatePredictor
from vgrads.simulator.cluster import BatchCluster
from vgrads.simulator.load import load_background
from vgrads.simulator.replay import Workload, replay_starts
from vgrads.traces.records import JobLog
from vgrads.vgrid.catalog import Catalog, NodeType, Queue, Site
from vgrads.vgrid.varq import WaitOracle
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import WorkflowSet

MACHINES = ("one", "two")
CLOUD = "cloud"
BOOT_S, CLOUD_PROCS, CORES, USD_PER_HOUR = 480.0, 32, 8, 0.68
GRANTED, LIVES = 0.95, 0.98
"""Share of the cloud's slots that are granted, and that live to their end. It has room for two of
LEAD."""
WARM = 0.2
"""Share of a history before the first instant."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One set, handed over at an instant of each machine."""

    number: int
    wanted: WorkflowSet
    instants: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Arena:
    """A log with what was known of it at every instant that a case begins at."""

    log: JobLog
    procs: int
    forecasts: Mapping[float, Known]
    cloud_procs: int = CLOUD_PROCS

    def catalog(self) -> Catalog:
        """Both machines and the cloud; jobs as wide as a machine and as long as a week are
        taken."""
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
            slot_up=LIVES,
        )
        return Catalog(sites=(*machines, cloud), links={})

    def grid(self, case: Case) -> Grid:
        """What a planner knows at the case's instants."""
        catalog = self.catalog()
        keys = [(name, "q") for name in MACHINES]
        return Grid(
            catalog=catalog,
            logs={key: replace(self.log, name=key[0]) for key in keys},
            instants=dict(zip(keys, case.instants, strict=True)),
            forecasts={
                key: self.forecasts[at] for key, at in zip(keys, case.instants, strict=True)
            },
        )

    def oracle(self, case: Case, machine: int) -> WaitOracle:
        """GETPROB of a machine at the case's instant."""
        return self.forecasts[case.instants[machine]]

    def cluster(self, case: Case, machine: int, until_s: float) -> BatchCluster:
        """A machine under its load; zero is the case's instant."""
        cluster = BatchCluster(self.procs)
        load_background(cluster, self.log, case.instants[machine], until_s)
        cluster.advance(0.0)
        return cluster


def most_busy(log: JobLog) -> int:
    """Processors of the machine: what its header says, or the most that were ever busy at once."""
    if log.max_procs > 0:
        return int(log.max_procs)
    started = log.started
    times = np.concatenate([log.start_s[started], (log.start_s + run_times(log))[started]])
    steps = np.concatenate([log.procs[started], -log.procs[started]])
    return int(np.cumsum(steps[np.lexsort((steps, times))]).max())


def rescheduled(log: JobLog) -> JobLog:
    """The same jobs as EASY would have started them: history and future from one scheduler.

    Sites ran by rules of their own (priorities, fair shares, partitions) that no log tells. A
    history made by one rule says little about a future that is played by another.
    """
    procs = most_busy(log)
    kept = log.select(log.started)
    run_s = run_times(kept)
    load = Workload(
        submit_s=kept.submit_s,
        procs=np.maximum(1, np.minimum(kept.procs, procs)),
        run_s=run_s,
        request_s=np.where(kept.request_s > 0, kept.request_s, run_s),
    )
    start_s = replay_starts(load, procs)
    return replace(
        kept,
        wait_s=np.maximum(0.0, start_s - kept.submit_s),
        procs=load.procs,
        run_s=run_s,
        max_procs=procs,
    )


def draw_instants(
    log: JobLog, count: int, seed: int, horizon_s: float
) -> list[tuple[float, float]]:
    """Pairs of instants, after the first fifth of the history and before its end by the horizon."""
    first, last = float(log.submit_s[0]), float(log.submit_s[-1]) - horizon_s
    if last <= first:
        raise InputError(
            (
                f"spans {format_duration(float(log.submit_s[-1]) - first)}, its questions need "
                f"{format_duration(horizon_s)} more"
            ),
            where=log.name,
        )
    begin = first + WARM * (last - first)
    drawn = stream(seed, "instants", log.name).uniform(begin, last, (count, 2)).round()
    return [(float(one), float(two)) for one, two in drawn]


def forecasts_at(log: JobLog, instants: Sequence[float], settings: Settings) -> dict[float, Known]:
    """What was known at each instant, in one pass over the history."""
    return dict(known_along(log, instants, settings))


def known_along(
    log: JobLog, instants: Sequence[float], settings: Settings
) -> Iterator[tuple[float, Known]]:
    """The same one by one, in time order, for those who keep the answers and not the forecasts."""
    passing, first_s = Replay(log, make_predictor(settings, log)), float(log.submit_s[0])
    for at_s in sorted(set(instants)):
        passing.to(at_s)
        yield at_s, freeze_now(passing.predictor, at_s, first_s)


def freeze_now(predictor: Learner, at_s: float, first_s: float) -> Known:
    """What a predictor knows at this instant, by whichever method it learns."""
    if isinstance(predictor, StatePredictor):
        return freeze_state(predictor, at_s, first_s)
    return freeze(predictor, first_s)


def draw_case(
    number: int, seed: int, instants: tuple[float, float], shapes: Sequence[Workflow]
) -> Case:
    """A set of one to eight like workflows; deadline and fraction vary."""
    draws = stream(seed, "case", str(number))
    shape = shapes[int(draws.integers(len(shapes)))]
    count = int(draws.integers(1, 9))
    share = float(draws.choice([0.25, 0.5, 0.75, 1.0]))
    deadline_s = float(draws.choice([1.3, 1.7, 2.5, 4.0])) * max(shape.critical_path_s(), 1800.0)
    wanted = WorkflowSet(
        name=f"case-{number}",
        workflows=tuple(shape.renamed(f"w{n}") for n in range(count)),
        deadline_s=deadline_s,
        needed=max(1, round(share * count)),
        probability=0.9,
    )
    return Case(number=number, wanted=wanted, instants=instants)
