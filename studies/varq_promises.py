"""Is a virtual reservation kept as often as promised? And what does its early start cost?

A recorded log is replayed through a simulated EASY cluster. At regular intervals somebody asks for N
processors for W seconds from T on, with probability P. The predictor knows what the simulated queue
has shown by then, nothing else; the reservation is submitted among the other jobs and delays them.
Two ways of choosing the instant of submission are compared:

- ``once``: the paper's: the latest instant of the trajectory computed when the question is asked;
- ``moving``: the trajectory is computed again as time passes, and the submission moves with it.

Kept: the job is running at T and has its whole wall time left. Idle: processor time held before T.
Run: ``python -m studies.varq_promises LOG.swf.gz… [--markdown]``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import numpy as np
from statsmodels.stats.proportion import proportion_confint

from kernel.events import EventQueue
from kernel.streams import stream
from qbets.forecast import freeze
from qbets.predictor import Arrival, QueuePredictor, Settings
from simulator.backfill import Job
from simulator.cluster import BatchCluster, Happening
from traces.history import history_name, read_history
from traces.records import JobLog
from vgrid.varq import Reservation, trajectory

POLICIES = ("none", "once", "moving")
LEVELS = (0.5, 0.75, 0.9, 0.95)
_REVIEW_S = 600.0
_WARM_UP = 0.15  # share of the log that passes before the first question
_STEP_S = 60.0


@dataclass(slots=True)
class Asked:
    """One reservation and what became of it; times on the log's clock."""

    wanted: Reservation
    start_by_s: float
    started_s: float | None = None

    @property
    def kept(self) -> bool:
        return self.started_s is not None and self.started_s <= self.start_by_s

    @property
    def idle_s(self) -> float:
        """Processor seconds held before they were wanted."""
        if self.started_s is None:
            return 0.0
        return max(0.0, self.start_by_s - self.started_s) * self.wanted.procs


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One row of the study."""

    history: str
    policy: str
    probability: float
    asked: int
    refused: int
    kept: int
    idle_node_hours: float
    others_wait_s: float

    @property
    def share(self) -> float:
        return self.kept / max(1, self.asked - self.refused)


@dataclass(slots=True)
class _Stage:
    """A cluster under recorded load, a predictor that watches it, reservations under way."""

    cluster: BatchCluster
    predictor: QueuePredictor
    asked: dict[int, Asked] = field(default_factory=dict)
    waits_s: list[float] = field(default_factory=list)
    submits: dict[int, float] = field(default_factory=dict)
    due: EventQueue[int] = field(default_factory=EventQueue)

    def advance(self, until_s: float) -> None:
        """Let the cluster run on; the predictor sees every start when it happens."""
        for happening in self.cluster.advance(until_s):
            if happening.kind == "started":
                self._saw(happening)

    def _saw(self, happening: Happening) -> None:
        number = int(happening.job)
        self.predictor.start(number, happening.time_s)
        if number in self.asked:
            self.asked[number].started_s = happening.time_s
        else:
            self.waits_s.append(happening.time_s - self.submits[number])

    def submit(self, number: int, job: Job, at_s: float, user: int) -> None:
        """Any job enters the queue."""
        self.submits[number] = at_s
        self.predictor.submit(number, at_s, Arrival(job.procs, job.request_s, user))
        self.cluster.submit(job, at_s)

    def review(self, number: int, now_s: float, policy: str) -> None:
        """Submit a reservation if its instant has come, else look again later."""
        asked = self.asked[number]
        ahead_s = asked.start_by_s - now_s
        if ahead_s < 0:
            return
        if policy == "moving":
            instant_s = self._instant(asked, ahead_s)
            if instant_s is not None and instant_s >= _STEP_S:
                self.due.push(now_s + min(instant_s, _REVIEW_S), number)
                return
        walltime_s = asked.wanted.walltime_s + ahead_s
        self.submit(number, Job(str(number), asked.wanted.procs, walltime_s, walltime_s), now_s, -1)

    def _instant(self, asked: Asked, ahead_s: float) -> float | None:
        wanted = replace(asked.wanted, start_by_s=ahead_s)
        path = trajectory(freeze(self.predictor, 0.0), wanted, _STEP_S)
        return None if path.chosen is None else float(path.submit_s[path.chosen])

    def ask(self, number: int, asked: Asked, now_s: float, policy: str) -> bool:
        """A question comes; False if it is refused because no instant is sure enough."""
        instant_s = self._instant(asked, asked.start_by_s - now_s)
        if instant_s is None:
            return False
        self.asked[number] = asked
        first_s = instant_s if policy == "once" else min(instant_s, _REVIEW_S)
        self.due.push(now_s + first_s, number)
        return True


def replay(
    log: JobLog, procs: int, policy: str, probability: float, count: int = 1000, seed: int = 0
) -> Outcome:
    """Run one log with ``count`` questions under one policy."""
    log = log.select(log.started & (log.run_s >= 0))
    stage = _Stage(BatchCluster(procs), QueuePredictor(Settings()))
    questions = _questions(log, procs, probability, count if policy != "none" else 0, seed)
    first = len(log)
    refused = 0
    rows = zip(
        log.submit_s.tolist(),
        log.procs.tolist(),
        log.request_s.tolist(),
        log.run_s.tolist(),
        log.user.tolist(),
        strict=True,
    )
    for number, (at_s, width, request_s, run_s, user) in enumerate(rows):
        while questions and questions[0][0] <= at_s:
            ask_s, asked = questions.pop(0)
            _pass(stage, ask_s, policy)
            refused += not stage.ask(first + len(stage.asked) + refused, asked, ask_s, policy)
        _pass(stage, at_s, policy)
        asked_s = request_s if request_s > 0 else max(run_s, 1.0)
        stage.submit(number, Job(str(number), min(width, procs), asked_s, run_s), at_s, user)
    _pass(stage, float("inf"), policy)
    made = list(stage.asked.values())
    return Outcome(
        history=log.name, policy=policy, probability=probability, asked=len(made) + refused, refused=refused,
        kept=sum(asked.kept for asked in made), idle_node_hours=sum(asked.idle_s for asked in made) / 3600,
        others_wait_s=float(np.mean(stage.waits_s)),
    )  # fmt: skip


def _pass(stage: _Stage, until_s: float, policy: str) -> None:
    """Time passes; reservations that are due are reviewed at their instants."""
    while len(stage.due) and stage.due.peek_time() <= until_s:
        now_s, number = stage.due.pop()
        stage.advance(now_s)
        stage.review(number, now_s, policy)
    stage.advance(until_s)


def _questions(
    log: JobLog, procs: int, probability: float, count: int, seed: int
) -> list[tuple[float, Asked]]:
    """Evenly over the log after the warm-up: 1 to a quarter of the machine, 10 min to 4 h, 1 to 12 h ahead."""
    draws = stream(seed, "varq", log.name)
    times = np.sort(
        draws.uniform(float(np.quantile(log.submit_s, _WARM_UP)), float(log.submit_s[-1]), count)
    )
    found = []
    for at_s in times.tolist():
        wanted = Reservation(
            procs=int(draws.integers(1, max(2, procs // 4))), walltime_s=float(draws.uniform(600, 14_400)),
            start_by_s=float(draws.uniform(3600, 43_200)), probability=probability,
        )  # fmt: skip
        found.append((at_s, Asked(wanted=wanted, start_by_s=at_s + wanted.start_by_s)))
    return found


def _work(job: tuple[Path, str, float]) -> Outcome:
    path, policy, probability = job
    log = read_history(path)
    outcome = replay(log, log.max_procs or int(log.procs.max()), policy, probability)
    return replace(outcome, history=history_name(path))


def table(outcomes: Sequence[Outcome]) -> str:
    """The study as a Markdown table."""
    base = {o.history: o.others_wait_s for o in outcomes if o.policy == "none"}
    once = {(o.history, o.probability): o for o in outcomes if o.policy == "once"}
    lines = ["| log | P | policy | refused | running at T (95 % interval) | idle node-hours | of those of `once` | others' mean wait |",
             "| --- | --: | --- | --: | --: | --: | --: | --: |"]  # fmt: skip
    for o in outcomes:
        if o.policy == "none":
            continue
        low, high = proportion_confint(o.kept, max(1, o.asked - o.refused), method="wilson")
        per_kept = o.idle_node_hours / max(1, o.asked - o.refused)
        peer = once[o.history, o.probability]
        ratio = per_kept / max(1e-9, peer.idle_node_hours / max(1, peer.asked - peer.refused))
        lines.append(
            f"| {o.history} | {o.probability} | {o.policy} | {o.refused} of {o.asked} | {o.share:.3f} ({low:.3f}–{high:.3f}) | "
            f"{o.idle_node_hours:,.0f} | {ratio:.2f} | {o.others_wait_s / base[o.history] - 1:+.1%} |"
        )
    return "\n".join(lines)


def main() -> None:
    paths = [Path(argument) for argument in sys.argv[1:]]
    work = [(path, "none", 0.5) for path in paths] + list(product(paths, POLICIES[1:], LEVELS))
    with ProcessPoolExecutor(2) as pool:
        outcomes = list(pool.map(_work, work))
    outcomes.sort(key=lambda o: (o.history, o.probability, o.policy != "once"))
    sys.stdout.write(table(outcomes) + "\n")


if __name__ == "__main__":
    main()
