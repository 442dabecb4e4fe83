"""Slots from real jobs: the request, the forecast at that time, and the real start.

At the instant at which some job of a log was submitted, the jobs submitted in the next quarter of
an hour are used as our requests: their processors, their requested times, their submission
instants. Their forecast is a curve; their starts are in the log. No simulator of the queue is
involved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.errors import InputError
from vgrads.kernel.streams import stream
from vgrads.qbets.predictor import Settings
from vgrads.traces.history import history_name
from vgrads.traces.records import JobLog
from vgrads.vgrid.slot import Slot, StartCurve
from vgrads.vgrid.varq import WaitOracle
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads_studies.promises.arena import MACHINES, WARM, forecasts_along

Floats = NDArray[np.float64]
GATHER_S = 900.0
"""How long after the first job others are collected."""
MOST = 8
"""Maximum number of jobs for a set, of all machines together."""
LONGEST_S = 86_400.0
"""Maximum length of a slot, for any requested time; also its length where that is not recorded."""
_POINTS = 500
_NEWEST = 1000  # recent waits, from which the slack is drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class Jobs:
    """Real jobs of one machine. Seconds after ``at_s``, an instant of the log; ``request_s`` −1
    where not recorded."""

    machine: str
    at_s: float
    submit_s: Floats
    procs: NDArray[np.int64]
    request_s: Floats
    start_s: Floats

    @property
    def before_s(self) -> float:
        """Return the last instant before any of them was submitted."""
        return float(np.nextafter(self.at_s, -np.inf))

    @property
    def length_s(self) -> Floats:
        """Return how long each is held as a slot."""
        return np.where(self.request_s > 0, np.minimum(self.request_s, LONGEST_S), LONGEST_S)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of these jobs' slots."""
        return tuple(f"{self.machine}-{n + 1}" for n in range(len(self.submit_s)))


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedSet:
    """A set on real jobs of one machine or of two."""

    number: int
    jobs: tuple[Jobs, ...]
    workflow_set: WorkflowSet

    @property
    def starts_s(self) -> dict[str, float]:
        """Return slot → real start of its job."""
        return {
            name: float(start_s)
            for job in self.jobs
            for name, start_s in zip(job.names, job.start_s, strict=True)
        }


def slots_of(oracle: WaitOracle, jobs: Jobs, until_s: float) -> tuple[Slot, ...]:
    """Return the offer: each job as a slot that is requested at its submission, with its current
    forecast, up to an instant. The only place where forecasts become slots."""
    waits_s = np.append(0.0, np.geomspace(1.0, max(2.0, until_s), _POINTS))
    results = []
    rows = zip(
        jobs.names,
        jobs.submit_s.tolist(),
        jobs.procs.tolist(),
        jobs.request_s.tolist(),
        jobs.length_s.tolist(),
        strict=True,
    )
    for name, submit_s, procs, request_s, length_s in rows:
        chances = oracle.probability(procs, request_s, waits_s, submit_in_s=submit_s)
        within = max(1, int(np.searchsorted(submit_s + waits_s, until_s, side="right")))
        curve = StartCurve(submit_s + waits_s[:within], np.maximum.accumulate(chances)[:within])
        results.append(
            Slot(
                id=name,
                site=jobs.machine,
                queue="q",
                kind="batch",
                procs=procs,
                curve=curve,
                end_s=submit_s + length_s,
                shared=f"{jobs.machine}/q",
                submit_s=submit_s,
                fixed=True,
            )
        )
    return tuple(results)


def gather(log: JobLog, row: int, machine: str, most: int, draws: np.random.Generator) -> Jobs:
    """Collect a job and at most ``most`` − 1 of those submitted soon after it."""
    at_s = float(log.submit_s[row])
    last = int(np.searchsorted(log.submit_s, at_s + GATHER_S, side="right"))
    others = np.arange(row + 1, last)[log.started[row + 1 : last]]
    taken = draws.choice(others, min(most - 1, len(others)), replace=False)
    rows = np.sort(np.append(row, taken)).astype(np.int64)
    return Jobs(
        machine=machine,
        at_s=at_s,
        submit_s=log.submit_s[rows] - at_s,
        procs=np.maximum(1, log.procs[rows]),
        request_s=log.request_s[rows],
        start_s=log.start_s[rows] - at_s,
    )


def lay_sets(log: JobLog, count: int, seed: int, shapes: Sequence[Workflow]) -> list[RecordedSet]:
    """Draw sets on jobs of the log, half of them on two machines: the same log at independent
    instants."""
    first = float(np.quantile(log.submit_s, WARM))
    rows = np.flatnonzero(log.started & (log.submit_s >= first))
    if not len(rows):
        raise InputError("no job started after the first fifth of the log", where=log.name)
    order = np.argsort(log.start_s, kind="stable")
    order = order[log.started[order]]
    begun_s, wait_s = log.start_s[order], log.wait_s[order]
    results = []
    for number in range(count):
        draws = stream(seed, "recorded", history_name(log.name), str(number))
        machines = MACHINES[: 1 + number % 2]
        jobs = tuple(
            gather(log, int(draws.choice(rows)), name, MOST // len(machines), draws)
            for name in machines
        )
        begun = int(np.searchsorted(begun_s, jobs[0].before_s, side="right"))
        waits_s = wait_s[max(0, begun - _NEWEST) : begun]
        results.append(
            RecordedSet(
                number=number,
                jobs=jobs,
                workflow_set=_draw_set(number, jobs, waits_s, shapes, draws),
            )
        )
    return results


def _draw_set(
    number: int,
    jobs: Sequence[Jobs],
    waits_s: Floats,
    shapes: Sequence[Workflow],
    draws: np.random.Generator,
) -> WorkflowSet:
    """Draw similar workflows that fit one of the slots; the slack is the wait of a random recent
    job.

    So promises of all sizes are requested, for any log, depending on past data only.
    """
    lengths, procs = (
        np.concatenate([getattr(j, name) for j in jobs]) for name in ("length_s", "procs")
    )
    spare_s = float(draws.uniform(30, 600))
    if len(waits_s):
        spare_s += min(LONGEST_S, float(np.quantile(waits_s, draws.uniform())))
    share = draws.uniform(0.2, 0.8)
    path_s = min(share / (1 - share) * spare_s, 0.9 * float(draws.choice(lengths)))
    width = max(1, int(draws.choice(procs) * draws.uniform(0.25, 1.0)))
    shape = scaled(shapes[int(draws.integers(len(shapes)))], path_s, width)
    count = int(draws.integers(1, min(6, len(lengths) + 1) + 1))
    needed = math.ceil(float(draws.choice([0.25, 0.5, 0.75, 1.0])) * count)
    return WorkflowSet(
        name=f"set-{number}",
        workflows=tuple(shape.renamed(f"w{n}") for n in range(count)),
        deadline_s=path_s + spare_s,
        needed=needed,
        probability=float(draws.choice([0.3, 0.5, 0.7, 0.9, 0.97])),
    )


def scaled(shape: Workflow, path_s: float, width: int) -> Workflow:
    """Return the same workflow, scaled in length and width."""
    longer, wider = path_s / max(shape.critical_path_s(), 1e-9), width / shape.width
    tasks = (
        replace(t, runtime_s=t.runtime_s * longer, procs=max(1, round(t.procs * wider)))
        for t in shape.tasks.values()
    )
    return make_workflow(shape.name, tasks, shape.file_mib)


def offered(
    log: JobLog, laid: Sequence[RecordedSet], settings: Settings
) -> dict[tuple[int, str], tuple[Slot, ...]]:
    """Return set and machine → its slots, as forecast by one method in one pass over the log."""
    requested: dict[float, list[tuple[RecordedSet, Jobs]]] = {}
    for item in laid:
        for jobs in item.jobs:
            requested.setdefault(jobs.before_s, []).append((item, jobs))
    result = {}
    for at_s, oracle in forecasts_along(log, list(requested), settings):
        for item, jobs in requested[at_s]:
            result[item.number, jobs.machine] = slots_of(oracle, jobs, item.workflow_set.deadline_s)
    return result
