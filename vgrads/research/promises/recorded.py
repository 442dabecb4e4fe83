"""Slots that are real jobs: what was asked of a queue, what was known of it then, when it really
started.

At the instant at which some job of a log was submitted, the jobs that came in the next quarter of
an hour are taken for requests of ours: their processors, their requested times, their submission
instants. What was foretold of them is a curve; when they started stands in the log. No simulator of
the queue is in between.
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
from vgrads.research.promises.arena import MACHINES, WARM, known_along
from vgrads.traces.records import JobLog
from vgrads.vgrid.slot import Slot, StartCurve
from vgrads.vgrid.varq import WaitOracle
from vgrads.workflows.dag import Workflow, make_workflow
from vgrads.workflows.sets import WorkflowSet

Floats = NDArray[np.float64]
GATHER_S = 900.0
"""How long after the first job others are gathered."""
MOST = 8
"""Jobs that a set is laid over, of all machines together."""
LONGEST_S = 86_400.0
"""A slot is no longer than this, however much its job asked for; and as long where that is not
told."""
_POINTS = 500
_NEWEST = 1000  # waits known by then, which the time to spare is drawn from


@dataclass(frozen=True, kw_only=True, eq=False)
class Jobs:
    """Real jobs of one machine. Seconds after ``at_s``, an instant of the log; ``request_s`` −1
    where not told."""

    machine: str
    at_s: float
    submit_s: Floats
    procs: NDArray[np.int64]
    request_s: Floats
    start_s: Floats

    @property
    def before_s(self) -> float:
        """The last instant at which nothing of them is known."""
        return float(np.nextafter(self.at_s, -np.inf))

    @property
    def length_s(self) -> Floats:
        """How long each is held as a slot."""
        return np.where(self.request_s > 0, np.minimum(self.request_s, LONGEST_S), LONGEST_S)

    @property
    def names(self) -> tuple[str, ...]:
        """The slots that these jobs become."""
        return tuple(f"{self.machine}-{n + 1}" for n in range(len(self.submit_s)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Laid:
    """A set laid over real jobs of one machine or of two."""

    number: int
    jobs: tuple[Jobs, ...]
    wanted: WorkflowSet

    @property
    def starts_s(self) -> dict[str, float]:
        """Slot → when its job really started."""
        return {
            name: float(start_s)
            for one in self.jobs
            for name, start_s in zip(one.names, one.start_s, strict=True)
        }


def slots_of(oracle: WaitOracle, jobs: Jobs, until_s: float) -> tuple[Slot, ...]:
    """What is offered: each job as a slot that is asked for when it was, with what is foretold of
    it now, up to an instant. The one place where forecasts become slots."""
    waits_s = np.append(0.0, np.geomspace(1.0, max(2.0, until_s), _POINTS))
    found = []
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
        found.append(
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
    return tuple(found)


def gather(log: JobLog, row: int, machine: str, most: int, draws: np.random.Generator) -> Jobs:
    """A job and at most so many less one of those that came soon after it."""
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


def lay_sets(log: JobLog, count: int, seed: int, shapes: Sequence[Workflow]) -> list[Laid]:
    """Sets over jobs of the log, half of them over two machines: the same log at independent
    instants."""
    first = float(np.quantile(log.submit_s, WARM))
    rows = np.flatnonzero(log.started & (log.submit_s >= first))
    if not len(rows):
        raise InputError("no job started after the first fifth of the log", where=log.name)
    order = np.argsort(log.start_s, kind="stable")
    order = order[log.started[order]]
    begun_s, wait_s = log.start_s[order], log.wait_s[order]
    found = []
    for number in range(count):
        draws = stream(seed, "recorded", log.name, str(number))
        machines = MACHINES[: 1 + number % 2]
        jobs = tuple(
            gather(log, int(draws.choice(rows)), name, MOST // len(machines), draws)
            for name in machines
        )
        known = int(np.searchsorted(begun_s, jobs[0].before_s, side="right"))
        waits_s = wait_s[max(0, known - _NEWEST) : known]
        found.append(
            Laid(number=number, jobs=jobs, wanted=_draw_set(number, jobs, waits_s, shapes, draws))
        )
    return found


def _draw_set(
    number: int,
    jobs: Sequence[Jobs],
    waits_s: Floats,
    shapes: Sequence[Workflow],
    draws: np.random.Generator,
) -> WorkflowSet:
    """Like workflows that fit one of the slots; time to spare as long as some job of late has
    waited.

    So promises of all sizes are asked for, whatever the log, and nothing but the past decides
    which.
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
    """The same workflow, longer or shorter, wider or narrower."""
    longer, wider = path_s / max(shape.critical_path_s(), 1e-9), width / shape.width
    tasks = (
        replace(t, runtime_s=t.runtime_s * longer, procs=max(1, round(t.procs * wider)))
        for t in shape.tasks.values()
    )
    return make_workflow(shape.name, tasks, shape.file_mib)


def offered(
    log: JobLog, laid: Sequence[Laid], settings: Settings
) -> dict[tuple[int, str], tuple[Slot, ...]]:
    """Set and machine → its slots, as foretold by one method in one pass over the log."""
    asked: dict[float, list[tuple[Laid, Jobs]]] = {}
    for one in laid:
        for jobs in one.jobs:
            asked.setdefault(jobs.before_s, []).append((one, jobs))
    found = {}
    for at_s, oracle in known_along(log, list(asked), settings):
        for one, jobs in asked[at_s]:
            found[one.number, jobs.machine] = slots_of(oracle, jobs, one.wanted.deadline_s)
    return found
