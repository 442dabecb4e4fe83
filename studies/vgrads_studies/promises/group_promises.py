"""Backtest of the promises of groups of jobs: are as many deadlines met as were promised?

Groups of random shape run several times in virtual time: chains, fans and layered graphs that the
promise does not know; run times by job name, with a spread from job to job and from run to run;
widths that vary from run to run; some cores; a wait of the queue before each run. A job is
submitted when those that it needs have ended, as engines do. The deadline does not depend on the
run that it is for. Each group is asked twice (:mod:`vgrads.api.slurm.groups`): after the first
submission, and at an instant within the run.

A promise is right if, in each fifth of the promised probability, the promised and the observed
share differ by at most .05 and two standard errors.

    python -m vgrads_studies.promises.group_promises --groups 4000
"""

from __future__ import annotations

import argparse
import heapq
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from vgrads.api.slurm.groups import GroupPromises
from vgrads.api.slurm.table import JobTable
from vgrads.kernel.streams import stream
from vgrads_studies.promises.reliability import Bin, compare
from vgrads_studies.report import markdown_table

EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
TOLERANCE = 0.05
MOST_EARLIER = 10
_POLL_S = 2.0
"""Seconds from the end of a job until an engine submits the next ones."""
_PAUSE_S = 7200.0
_DEADLINE_SPREAD = 0.35
_SAMPLES = 9
"""Further runs of a group, of which the deadline is chosen."""
_COMMON = {"user": "u", "uid": 1, "gid": 1, "group": "g", "host": "h", "folder": "/"}
_COMMON |= {"submit_folder": "/", "umask": 0, "command": "", "kind": "k"}
KINDS = ("chain", "fan", "layers")


@dataclass(frozen=True)
class GroupShape:
    """A group: the jobs of its stages, their run times, and what varies from run to run.

    ``widths``: jobs of each stage; ``middle_s``: median run time of each stage's jobs in seconds;
    spreads are standard deviations of logarithms: of jobs, of whole runs, of widths.
    """

    kind: str
    widths: tuple[int, ...]
    middle_s: tuple[float, ...]
    job_spread: float
    run_spread: float
    width_spread: float
    cores: int
    wait_s: float
    earlier: int


@dataclass(frozen=True)
class SimulatedJob:
    """A job of a run: seconds since the first submission."""

    name: str
    submit_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True)
class GroupQuestion:
    """A promise, when it was given, and whether the deadline was met."""

    kind: str
    earlier: int
    at: str
    promised: float | None
    met: bool


def draw_shape(rng: Generator) -> GroupShape:
    """Return a random group."""
    kind = KINDS[rng.integers(len(KINDS))]
    if kind == "chain":
        widths = [1] * int(rng.integers(3, 13))
    elif kind == "fan":
        widths = [1, int(np.exp(rng.uniform(np.log(4), np.log(80)))), 1]
    else:
        widths = [int(rng.integers(1, 16)) for _ in range(rng.integers(2, 6))]
    return GroupShape(
        kind=kind,
        widths=tuple(widths),
        middle_s=tuple(float(rng.lognormal(np.log(300.0), 1.0)) for _ in widths),
        job_spread=float(rng.uniform(0.1, 0.7)),
        run_spread=float(rng.uniform(0.0, 0.3)),
        width_spread=float(rng.uniform(0.0, 0.3)),
        cores=int(2 ** rng.integers(1, 6)),
        wait_s=float(rng.choice([0.0, 60.0, 600.0])),
        earlier=int(rng.integers(0, MOST_EARLIER + 1)),
    )


def simulate_run(shape: GroupShape, rng: Generator) -> list[SimulatedJob]:
    """Run a group once: first come, first served, on its cores, which are there after a wait."""
    stages = _jobs_of(shape, rng)
    parents = _parents(shape, [len(stage) for stage in stages], rng)
    left = {key: len(needs) for key, needs in parents.items()}
    children = defaultdict(list)
    for key, needs in parents.items():
        for need in needs:
            children[need].append(key)
    free = [float(rng.exponential(shape.wait_s)) if shape.wait_s else 0.0] * shape.cores
    ready = [(0.0, key) for key, count in left.items() if count == 0]
    heapq.heapify(ready)
    jobs = []
    ends: list[tuple[float, tuple[int, int]]] = []
    while ready or ends:
        if ends and (not ready or ends[0][0] + _POLL_S <= max(ready[0][0], free[0])):
            end_s, key = heapq.heappop(ends)
            for child in children[key]:
                left[child] -= 1
                if left[child] == 0:
                    heapq.heappush(ready, (end_s + _POLL_S, child))
            continue
        submit_s, (stage, place) = heapq.heappop(ready)
        start_s = max(submit_s, heapq.heappop(free))
        end_s = start_s + stages[stage][place]
        heapq.heappush(free, end_s)
        heapq.heappush(ends, (end_s, (stage, place)))
        jobs.append(SimulatedJob(f"stage{stage}", submit_s, start_s, end_s))
    return sorted(jobs, key=lambda job: job.submit_s)


def _jobs_of(shape: GroupShape, rng: Generator) -> list[list[float]]:
    """Return the run times of a run's jobs, by stage."""
    run = rng.normal(0.0, shape.run_spread)
    size = rng.normal(0.0, shape.width_spread)
    stages = []
    for width, middle_s in zip(shape.widths, shape.middle_s, strict=True):
        count = max(1, round(width * np.exp(size))) if width > 1 else 1
        logs = np.log(middle_s) + run + rng.normal(0.0, shape.job_spread, count)
        stages.append([float(value) for value in np.exp(logs)])
    return stages


def _parents(
    shape: GroupShape, counts: Sequence[int], rng: Generator
) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return what each job, (stage, place), needs: in layers one to three jobs of the stage before,
    else all of them."""
    parents: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for stage, count in enumerate(counts):
        before = [(stage - 1, place) for place in range(counts[stage - 1])] if stage else []
        for place in range(count):
            needs = before
            if shape.kind == "layers" and len(before) > 3:
                picked = rng.choice(len(before), size=rng.integers(1, 4), replace=False)
                needs = [before[number] for number in picked]
            parents[stage, place] = list(needs)
    return parents


class GroupHistory:
    """The jobs of a group as the service stores them, up to an instant."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._table = JobTable()
        self.promises = GroupPromises(self._table, lambda: self.now_s)

    def play(
        self, run: Sequence[SimulatedJob], deadline_s: float, stops: Sequence[float]
    ) -> Iterator[float | None]:
        """Run the jobs from now on; yield the promise at each stop, seconds from now."""
        began_s, numbers = self.now_s, {}
        events = sorted(
            [(job.submit_s, 0, place) for place, job in enumerate(run)]
            + [(job.start_s, 1, place) for place, job in enumerate(run)]
            + [(job.end_s, 2, place) for place, job in enumerate(run)]
            + [(stop_s, 3, 0) for stop_s in stops]
        )
        for at_s, what, place in events:
            self.now_s = began_s + at_s
            if what == 0:
                numbers[place] = self._submit(run[place].name, began_s + deadline_s)
            elif what == 1:
                self._change(numbers[place], state="RUNNING", start_s=self.now_s)
            elif what == 2:
                self._change(numbers[place], state="COMPLETED", end_s=self.now_s)
            else:
                status = self.promises.status("group")
                yield status.promise if status else None
        self.now_s += _PAUSE_S

    def _submit(self, name: str, deadline_s: float) -> int:
        number = self._table.next_id
        job = {"id": number, "request": str(number), "submit_s": self.now_s, "name": name}
        stated = {"comment": "vgrads:group", "deadline_s": deadline_s}
        self._table.apply({"submitted": {**_COMMON, **job, **stated}})
        return number

    def _change(self, number: int, **changes: object) -> None:
        self._table.apply({"jobs": [number], "changes": changes})


def duration_s(run: Sequence[SimulatedJob]) -> float:
    """Return the seconds from the first submission to the last end."""
    return max(job.end_s for job in run)


def questions(number: int, seed: int) -> list[GroupQuestion]:
    """Run one random group, and return what was promised for its last run."""
    rng = stream(seed, "group", number)
    shape = draw_shape(rng)
    usual_s = float(np.median([duration_s(simulate_run(shape, rng)) for _ in range(_SAMPLES)]))
    deadline_s = usual_s * float(rng.lognormal(0.0, _DEADLINE_SPREAD))
    middle_s = deadline_s * float(rng.uniform(0.1, 0.9))
    history = GroupHistory()
    for _ in range(shape.earlier):
        list(history.play(simulate_run(shape, rng), deadline_s, ()))
    run = simulate_run(shape, rng)
    end_s = duration_s(run)
    stops = {"start": 0.0, "within": middle_s}
    if middle_s >= end_s:
        del stops["within"]  # it is over by then
    promises = history.play(run, deadline_s, list(stops.values()))
    return [
        GroupQuestion(shape.kind, shape.earlier, at, share, end_s <= deadline_s)
        for at, share in zip(stops, promises, strict=True)
    ]


def is_right(part: Bin) -> bool:
    """Return True where the promised and the observed share agree."""
    return abs(part.gap) <= TOLERANCE + 2 * part.error


def bins_of(rows: Sequence[GroupQuestion]) -> tuple[Bin, ...]:
    """Return the fifths of the promised probability."""
    pairs = [(row.promised, float(row.met)) for row in rows if row.promised is not None]
    promised, met = np.array(pairs).T
    return compare(promised, met, EDGES).bins


def selections(rows: Sequence[GroupQuestion]) -> dict[str, list[GroupQuestion]]:
    """Return the questions by instant, number of earlier runs, and shape of the graph."""
    parts = {
        "at the start": [row for row in rows if row.at == "start"],
        "within the run": [row for row in rows if row.at == "within"],
        "one earlier run": [row for row in rows if row.earlier == 1],
        "2 to 4 earlier runs": [row for row in rows if 2 <= row.earlier <= 4],
        "5 to 10 earlier runs": [row for row in rows if row.earlier >= 5],
    }
    return parts | {kind: [row for row in rows if row.kind == kind] for kind in KINDS}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [row for number in range(options.groups) for row in questions(number, options.seed)]
    starts = [row for row in rows if row.at == "start"]
    none = sum(row.promised is None for row in starts)
    document = {
        name: [
            {"promised": b.promised, "met": b.kept, "error": b.error, "count": b.count}
            for b in bins_of(part)
        ]
        for name, part in selections(rows).items()
    }
    if options.json:
        print(json.dumps({"groups": len(starts), "no_promise": none, "bins": document}))
        return
    cells = [
        [
            name,
            f"{b.promised:.3f}",
            f"{b.kept:.3f}",
            f"{abs(b.gap):.3f} ± {2 * b.error:.3f}",
            str(b.count),
            "yes" if is_right(b) else "NO",
        ]
        for name, part in selections(rows).items()
        for b in bins_of(part)
    ]
    print(markdown_table(["", "promised", "met", "difference ± 2 s.e.", "groups", "right"], cells))
    print(f"no promise (no earlier run): {none} of {len(starts)} groups")


if __name__ == "__main__":
    main()
