"""A cluster under recorded load, those who watch it, and the reservations that they make."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field, replace

import numpy as np

from vgrads.kernel.events import EventQueue
from vgrads.qbets.forecast import freeze
from vgrads.qbets.predictor import Arrival, QueuePredictor
from vgrads.research.waits.lookahead import JobsNow, LoadMemory, Lookahead, remember, surprise
from vgrads.simulator.backfill import Job
from vgrads.simulator.cluster import BatchCluster, Happening
from vgrads.vgrid.varq import MARGIN, Reservation, adapt, move, trajectory

_MEMORY = 20_000  # jobs that futures are drawn from
_STEP_S = 60.0
_GATHER_S = 21_600.0
_HORIZON_S = 3 * 86_400.0  # how far futures are followed to see how far off they were
_RECORD = 600  # newest of them that correct the next


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


@dataclass(slots=True)
class Stage:
    """A cluster under recorded load, what watches it, reservations under way."""

    cluster: BatchCluster
    predictor: QueuePredictor
    asked: dict[int, Asked] = field(default_factory=dict)
    waits_s: list[float] = field(default_factory=list)
    submits: dict[int, float] = field(default_factory=dict)
    due: EventQueue[int] = field(default_factory=EventQueue)
    arrivals: list[tuple[float, int, float]] = field(default_factory=list)
    ended: list[tuple[float, float]] = field(default_factory=list)
    started: dict[str, tuple[float, float]] = field(default_factory=dict)
    requests: dict[int, float] = field(default_factory=dict)
    memory: tuple[float, LoadMemory] | None = None
    foretold: dict[int, tuple[int, np.ndarray]] = field(default_factory=dict)
    record: list[tuple[int, float]] = field(default_factory=list)
    open: list[Asked] = field(default_factory=list)
    allowed: float = 0.5

    def advance(self, until_s: float) -> None:
        """Let the cluster run on; every start and end is seen when it happens."""
        for happening in self.cluster.advance(until_s):
            if happening.kind == "started":
                self._saw_start(happening)
            else:
                start_s, request_s = self.started.pop(happening.job)
                if int(happening.job) not in self.asked:
                    self.ended.append((request_s, happening.time_s - start_s))

    def _saw_start(self, happening: Happening) -> None:
        number = int(happening.job)
        self.predictor.start(number, happening.time_s)
        self.started[happening.job] = (happening.time_s, self.requests.pop(number))
        if number in self.asked:
            self.asked[number].started_s = happening.time_s
        else:
            self.waits_s.append(happening.time_s - self.submits[number])
        if number in self.foretold:
            procs, found = self.foretold.pop(number)
            self.record.append((procs, surprise(found, self.waits_s[-1])))

    def submit(self, number: int, job: Job, at_s: float, user: int) -> None:
        """Any job enters the queue."""
        self.submits[number] = at_s
        self.requests[number] = job.request_s
        if number not in self.asked:
            self.arrivals.append((at_s, job.procs, job.request_s))
        self.predictor.submit(number, at_s, Arrival(job.procs, job.request_s, user))
        self.cluster.submit(job, at_s)

    def review(self, number: int, now_s: float, policy: str) -> None:
        """Submit a reservation if its instant has come, else look again later."""
        asked = self.asked[number]
        ahead_s = asked.start_by_s - now_s
        if ahead_s < 0:
            return
        if policy == "moving":
            left = replace(self.strict(asked.wanted), start_by_s=ahead_s)
            step = move(self.futures(now_s), left)
            if not step.submit:
                self.due.push(now_s + step.again_in_s, number)
                return
        walltime_s = asked.wanted.walltime_s + ahead_s
        self.submit(number, Job(str(number), asked.wanted.procs, walltime_s, walltime_s), now_s, -1)

    def futures(self, now_s: float) -> Lookahead:
        """What the queue may do next, from its state and from what was seen of its load."""
        running = [(job.procs, job.request_s, now_s - at_s) for job, at_s in self.cluster.running]
        held = np.array(running, dtype=float).reshape(-1, 3)
        queue = np.array(
            [(job.procs, job.request_s) for job in self.cluster.waiting], dtype=float
        ).reshape(-1, 2)
        state = JobsNow(
            running_procs=held[:, 0].astype(np.int64),
            running_request_s=held[:, 1],
            running_elapsed_s=held[:, 2],
            waiting_procs=queue[:, 0].astype(np.int64),
            waiting_request_s=queue[:, 1],
        )
        return Lookahead(
            procs=self.cluster.procs,
            state=state,
            memory=self._remembered(now_s),
            seed=int(now_s),
            record=np.array(self.record[-_RECORD:]).reshape(-1, 2),
        )

    def test(self, number: int, job: Job, now_s: float) -> None:
        """Foretell another one's job, to see later how far off that was."""
        found = self.futures(now_s).starts(job.procs, job.request_s, 0.0, _HORIZON_S)
        self.foretold[number] = (job.procs, found)

    def settle(self, now_s: float) -> None:
        """Reservations whose instant has passed: kept or not, what is allowed follows."""
        while self.open and self.open[0].start_by_s <= now_s:
            asked = self.open.pop(0)
            self.allowed = adapt(self.allowed, asked.wanted.probability, asked.kept)

    def _remembered(self, now_s: float) -> LoadMemory:
        """What is known of the load, gathered anew every six hours."""
        if self.memory is None or now_s - self.memory[0] > _GATHER_S:
            ended = np.array(self.ended[-_MEMORY:], dtype=float).reshape(-1, 2)
            came = np.array(self.arrivals[-_MEMORY:], dtype=float).reshape(-1, 3)
            known = remember(
                (ended[:, 0], ended[:, 1]), (now_s - came[:, 0], came[:, 1], came[:, 2])
            )
            self.memory = (now_s, known)
        gathered_s, known = self.memory
        return replace(known, arrival_age_s=known.arrival_age_s + (now_s - gathered_s))

    def ask(self, number: int, asked: Asked, now_s: float, policy: str) -> bool:
        """A question comes; False if it is refused because no instant is sure enough."""
        if policy == "once":
            path = trajectory(freeze(self.predictor, 0.0), asked.wanted, _STEP_S)
            first_s = None if path.chosen is None else float(path.submit_s[path.chosen])
        else:
            self.settle(now_s)
            margin = 0.0 if policy == "ahead" else MARGIN
            step = move(self.futures(now_s), self.strict(asked.wanted), margin)
            first_s = step.latest_s if policy == "ahead" else step.again_in_s
            first_s = None if step.latest_s is None else first_s
        if first_s is None:
            return False
        self.asked[number] = asked
        insort(self.open, asked, key=lambda one: one.start_by_s)
        self.due.push(now_s + first_s, number)
        return True

    def strict(self, wanted: Reservation) -> Reservation:
        """The reservation at the probability that the record of promises asks for."""
        return replace(wanted, probability=1.0 - min(self.allowed, 1.0 - wanted.probability))


def advance_to(stage: Stage, until_s: float, policy: str) -> None:
    """Time passes; reservations that are due are reviewed at their instants."""
    while len(stage.due) and stage.due.peek_time() <= until_s:
        now_s, number = stage.due.pop()
        stage.advance(now_s)
        stage.review(number, now_s, policy)
    stage.advance(until_s)
