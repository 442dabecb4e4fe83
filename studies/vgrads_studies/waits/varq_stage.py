"""A cluster under recorded load, its observers, and their reservations."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field, replace

import numpy as np

from vgrads.kernel.events import EventQueue
from vgrads.qbets.forecast import freeze
from vgrads.qbets.predictor import JobArrival, QueuePredictor
from vgrads.simulator.backfill import BatchJob
from vgrads.simulator.cluster import BatchCluster, Happening
from vgrads.vgrid.varq import MARGIN, Reservation, evaluate_trajectory, move
from vgrads.vgrid.varq_record import adapt
from vgrads_studies.waits.lookahead import LoadMemory, Lookahead, QueueSnapshot, remember, surprise

_MEMORY = 20_000  # jobs that futures are drawn from
_STEP_S = 60.0
_GATHER_S = 21_600.0
_HORIZON_S = 3 * 86_400.0  # how far futures are followed to measure their errors
_RECORD = 600  # newest of them that correct the next


@dataclass(slots=True)
class ReservationRequest:
    """One reservation and its outcome; times on the log's clock."""

    reservation: Reservation
    start_by_s: float
    started_s: float | None = None

    @property
    def kept(self) -> bool:
        return self.started_s is not None and self.started_s <= self.start_by_s

    @property
    def idle_s(self) -> float:
        """Return the processor seconds held before the requested start."""
        if self.started_s is None:
            return 0.0
        return max(0.0, self.start_by_s - self.started_s) * self.reservation.procs


@dataclass(slots=True)
class VarqSimulation:
    """A cluster under recorded load, its observers, open reservations."""

    cluster: BatchCluster
    predictor: QueuePredictor
    reservations: dict[int, ReservationRequest] = field(default_factory=dict)
    waits_s: list[float] = field(default_factory=list)
    submits: dict[int, float] = field(default_factory=dict)
    due: EventQueue[int] = field(default_factory=EventQueue)
    arrivals: list[tuple[float, int, float]] = field(default_factory=list)
    ended: list[tuple[float, float]] = field(default_factory=list)
    started: dict[str, tuple[float, float]] = field(default_factory=dict)
    requests: dict[int, float] = field(default_factory=dict)
    memory: tuple[float, LoadMemory] | None = None
    predicted: dict[int, tuple[int, np.ndarray]] = field(default_factory=dict)
    record: list[tuple[int, float]] = field(default_factory=list)
    open: list[ReservationRequest] = field(default_factory=list)
    allowed: float = 0.5

    def advance(self, until_s: float) -> None:
        """Advance the cluster; every start and end is observed when it happens."""
        for happening in self.cluster.advance(until_s):
            if happening.kind == "started":
                self._saw_start(happening)
            else:
                start_s, request_s = self.started.pop(happening.job)
                if int(happening.job) not in self.reservations:
                    self.ended.append((request_s, happening.time_s - start_s))

    def _saw_start(self, happening: Happening) -> None:
        number = int(happening.job)
        self.predictor.start(number, happening.time_s)
        self.started[happening.job] = (happening.time_s, self.requests.pop(number))
        if number in self.reservations:
            self.reservations[number].started_s = happening.time_s
        else:
            self.waits_s.append(happening.time_s - self.submits[number])
        if number in self.predicted:
            procs, result = self.predicted.pop(number)
            self.record.append((procs, surprise(result, self.waits_s[-1])))

    def submit(self, number: int, job: BatchJob, at_s: float, user: int) -> None:
        """Submit any job to the queue."""
        self.submits[number] = at_s
        self.requests[number] = job.request_s
        if number not in self.reservations:
            self.arrivals.append((at_s, job.procs, job.request_s))
        self.predictor.submit(number, at_s, JobArrival(job.procs, job.request_s, user))
        self.cluster.submit(job, at_s)

    def review(self, number: int, now_s: float, policy: str) -> None:
        """Submit a reservation if its instant has passed, else evaluate again later."""
        request = self.reservations[number]
        ahead_s = request.start_by_s - now_s
        if ahead_s < 0:
            return
        if policy == "moving":
            left = replace(self.strict(request.reservation), start_by_s=ahead_s)
            step = move(self.futures(now_s), left)
            if not step.submit:
                self.due.push(now_s + step.again_in_s, number)
                return
        walltime_s = request.reservation.walltime_s + ahead_s
        self.submit(
            number,
            BatchJob(str(number), request.reservation.procs, walltime_s, walltime_s),
            now_s,
            -1,
        )

    def futures(self, now_s: float) -> Lookahead:
        """Return possible futures of the queue, from its state and its observed load."""
        running = [(job.procs, job.request_s, now_s - at_s) for job, at_s in self.cluster.running]
        reserved = np.array(running, dtype=float).reshape(-1, 3)
        queue = np.array(
            [(job.procs, job.request_s) for job in self.cluster.waiting], dtype=float
        ).reshape(-1, 2)
        state = QueueSnapshot(
            running_procs=reserved[:, 0].astype(np.int64),
            running_request_s=reserved[:, 1],
            running_elapsed_s=reserved[:, 2],
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

    def test(self, number: int, job: BatchJob, now_s: float) -> None:
        """Forecast the start of another user's job, to measure the error later."""
        result = self.futures(now_s).starts(job.procs, job.request_s, 0.0, _HORIZON_S)
        self.predicted[number] = (job.procs, result)

    def settle(self, now_s: float) -> None:
        """Settle reservations whose instant has passed: kept or not; the allowed probability
        follows."""
        while self.open and self.open[0].start_by_s <= now_s:
            request = self.open.pop(0)
            self.allowed = adapt(self.allowed, request.reservation.probability, request.kept)

    def _remembered(self, now_s: float) -> LoadMemory:
        """Return the observed load, collected again every six hours."""
        if self.memory is None or now_s - self.memory[0] > _GATHER_S:
            ended = np.array(self.ended[-_MEMORY:], dtype=float).reshape(-1, 2)
            came = np.array(self.arrivals[-_MEMORY:], dtype=float).reshape(-1, 3)
            load_memory = remember(
                (ended[:, 0], ended[:, 1]), (now_s - came[:, 0], came[:, 1], came[:, 2])
            )
            self.memory = (now_s, load_memory)
        gathered_s, load_memory = self.memory
        return replace(load_memory, arrival_age_s=load_memory.arrival_age_s + (now_s - gathered_s))

    def ask(self, number: int, request: ReservationRequest, now_s: float, policy: str) -> bool:
        """Process a question; return False if it is refused because no instant reaches the
        probability."""
        if policy == "once":
            path = evaluate_trajectory(freeze(self.predictor, 0.0), request.reservation, _STEP_S)
            first_s = None if path.chosen is None else float(path.submit_s[path.chosen])
        else:
            self.settle(now_s)
            margin = 0.0 if policy == "ahead" else MARGIN
            step = move(self.futures(now_s), self.strict(request.reservation), margin)
            first_s = step.latest_s if policy == "ahead" else step.again_in_s
            first_s = None if step.latest_s is None else first_s
        if first_s is None:
            return False
        self.reservations[number] = request
        insort(self.open, request, key=lambda item: item.start_by_s)
        self.due.push(now_s + first_s, number)
        return True

    def strict(self, reservation: Reservation) -> Reservation:
        """Return the reservation at the probability that follows from the record of promises."""
        return replace(
            reservation, probability=1.0 - min(self.allowed, 1.0 - reservation.probability)
        )


def advance_to(stage: VarqSimulation, until_s: float, policy: str) -> None:
    """Advance time; due reservations are evaluated at their instants."""
    while len(stage.due) and stage.due.peek_time() <= until_s:
        now_s, number = stage.due.pop()
        stage.advance(now_s)
        stage.review(number, now_s, policy)
    stage.advance(until_s)
