"""A manager, its workers and a pool in virtual time: small enough to be simulated thousands of
times.

A worker joins some time after its request, fetches missing files, runs a task, waits until the
manager accepts its result, and so on. The manager's links, its loop and the application's code each
serve one at a time; a *serial* manager is one server for all of them. Every iteration of the loop
checks every connected worker, as Work Queue's does, so that too many of them slow it down.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vgrads.kernel.streams import stream
from vgrads.pool.decide import PoolPolicy
from vgrads.pool.samples import TaskTimes
from vgrads.pool.sizing import SIZINGS
from vgrads_studies.pools.pool_decisions import ManagerLoad, SimulatedPoolDecider
from vgrads_studies.pools.timeline import Servers, Timeline
from vgrads_studies.pools.values import Batch, PoolSample, PoolWorker, SimulatedPool, StudyConfig


class PoolSimulation:
    """One simulation; ``fixed``: this many workers from the start, without decisions."""

    def __init__(
        self,
        batches: Sequence[Batch],
        config: StudyConfig,
        policy: PoolPolicy | None,
        seed: int,
        fixed: int = 0,
    ) -> None:
        self.batches, self.config = batches, config
        self.sizing = SIZINGS[policy.sizing] if policy else None
        self.durations, self.account = Durations(config, seed), Account()
        self.time, self.closed_s = Timeline(), math.inf
        self.servers = Servers(self.time, config.serial)
        self.waiting: deque[int] = deque()
        self.left = sum(batch.tasks for batch in batches)
        self.arrived = self.running = 0
        self.workers: dict[str, PoolWorker] = {}
        self.idle: deque[PoolWorker] = deque()
        self.fresh: list[TaskTimes] = []
        self.last: deque[TaskTimes] = deque(maxlen=400)
        waits_s = self.durations.waits(40)
        self.pool = SimulatedPoolDecider(policy, config, waits_s) if policy else None
        for batch in range(len(batches)):
            self.time.at(batches[batch].at_s, self.submit, batch)
        for _ in range(fixed):
            self.join(f"w{self.time.number()}")
        if self.pool:
            self.time.at(0.0, self.look)

    def simulate(self) -> SimulatedPool:
        """Simulate until all tasks have ended and all workers have left."""
        self.time.run(lambda: min(self.config.most_s, self.closed_s))
        for worker in tuple(self.workers.values()):
            self.leave(worker)
        return self.account.simulated(tuple(self.pool.looks) if self.pool else ())

    # -- work ---------------------------------------------------------------

    def submit(self, batch: int) -> None:
        """Submit a batch."""
        self.waiting.extend([batch] * self.batches[batch].tasks)
        self.arrived += self.batches[batch].tasks
        for _ in range(min(len(self.idle), len(self.waiting))):
            self.want(self.idle.popleft())

    def want(self, worker: PoolWorker) -> None:
        """Assign a task to a worker without work, or let it idle."""
        if not worker.there:
            return
        worker.task = None
        if worker.served and self.pool and self.served > self.pool.share:
            worker.served = False
        if not worker.served or not self.waiting:
            self.rest(worker)
            return
        worker.idle_s = None
        number = self.waiting.popleft()
        batch = self.batches[number]
        self.running += 1
        worker.sent = self.durations.sent(worker, number, batch, self.time.now_s)
        execution_s = self.durations.execution_s(worker, batch)
        worker.task = (number, execution_s)
        self.servers.serve("up", worker.sent[0], self.run, worker, execution_s)

    def run(self, worker: PoolWorker, execution_s: float) -> None:
        """Run a task that has arrived at its worker."""
        self.time.after(execution_s, self.result, worker)

    def rest(self, worker: PoolWorker) -> None:
        """Mark a worker as idle."""
        worker.idle_s = self.time.now_s
        if worker.served:
            self.idle.append(worker)
        if self.sizing and math.isfinite(self.sizing.idle_s):
            out_s = self.time.now_s + self.sizing.idle_s
            if self.sizing.billing:
                out_s = paid_until(worker, out_s)
            self.time.at(out_s, self.time_out, worker, self.time.now_s)

    def result(self, worker: PoolWorker) -> None:
        """Process a completed run: the manager receives its result, runs the application's code,
        and iterates once."""
        if not worker.there or worker.task is None:
            return
        out_s = self.durations.out_s(self.batches[worker.task[0]])
        think_s = self.durations.think_s()
        loop_s = self.config.per_worker_s * self.served
        message = (worker, out_s, think_s, loop_s)
        if self.config.serial:
            self.servers.serve("down", out_s + think_s + loop_s, self.end, *message)
        else:
            self.servers.serve("down", out_s, self.think, *message)

    def think(self, *message: Any) -> None:
        """Pass a received result to the application."""
        self.servers.serve("think", message[2] + message[3], self.end, *message)

    def end(self, worker: PoolWorker, out_s: float, think_s: float, loop_s: float) -> None:
        """Record the end of a task."""
        if not worker.there or worker.task is None:
            return
        number, execution_s = worker.task
        batch, (in_s, cached, cold) = self.batches[number], worker.sent
        times = TaskTimes(
            execution_s=execution_s,
            in_s=in_s,
            out_s=out_s,
            in_mib=batch.in_mib,
            out_mib=batch.out_mib,
            cached_mib=cached,
            cold_mib=cold,
            think_s=think_s,
            loop_s=loop_s,
            category=batch.category,
            node=worker.id,
        )
        self.last.append(times)
        self.fresh.append(times)
        self.running -= 1
        self.left -= 1
        self.account.ended(self.time.now_s, execution_s)
        if not self.left:
            self.closed_s = self.time.now_s + self.config.closing_s
        worker.ran += 1
        self.want(worker)

    # -- workers ------------------------------------------------------------

    @property
    def served(self) -> int:
        """Return the workers that the manager has accepted."""
        return sum(worker.served for worker in self.workers.values())

    def come(self, request: str) -> None:
        """Process the arrival of a requested worker."""
        if self.pool and self.pool.came(request, self.time.now_s):
            self.join(request)

    def join(self, name: str) -> None:
        """Connect a worker, if the manager may have it."""
        worker = PoolWorker(name, self.time.now_s, self.durations.speed())
        self.workers[name] = worker
        self.account.workers += 1
        lost_s = self.time.now_s + self.durations.lifetime_s()
        if lost_s < self.config.losses_until_s:
            self.time.at(lost_s, self.leave, worker)
        self.want(worker)

    def time_out(self, worker: PoolWorker, since_s: float) -> None:
        """Release a worker after its idle time."""
        if worker.there and worker.idle_s == since_s:
            self.leave(worker)

    def leave(self, worker: PoolWorker) -> None:
        """Remove a worker; its task, if any, starts again elsewhere."""
        if not worker.there:
            return
        worker.there = False
        del self.workers[worker.id]
        if worker.served and worker.idle_s is not None:
            self.idle.remove(worker)
        if worker.task is not None:
            self.running -= 1
            self.waiting.appendleft(worker.task[0])
        self.account.left(worker, self.time.now_s)

    # -- decisions ----------------------------------------------------------

    def look(self) -> None:
        """Run the pool's decision and carry it out."""
        assert self.pool
        now_s = self.time.now_s
        fresh, self.fresh = self.fresh, []
        decision = self.pool.decide(now_s, self._load(), fresh, self.last)
        for wait_s in self.durations.waits(decision.ask):
            name = f"w{self.time.number()}"
            self.pool.requests[name] = now_s
            self.time.after(wait_s, self.come, name)
        for name in decision.release:
            self.leave(self.workers[name])
        room = self.pool.share - self.served
        for worker in [
            pool_worker for pool_worker in self.workers.values() if not pool_worker.served
        ][: max(0, room)]:
            worker.served = True
            self.want(worker)
        self.pool.note(now_s, self._load())
        if self.left or self.workers or self.pool.requests:
            self.time.after(self.config.period_s, self.look)

    def _load(self) -> ManagerLoad:
        return ManagerLoad(
            waiting=len(self.waiting),
            running=self.running,
            arrived=self.arrived,
            workers=tuple(self.workers.values()),
        )


def simulate(
    batches: Sequence[Batch], config: StudyConfig, policy: PoolPolicy, seed: int
) -> SimulatedPool:
    """Simulate under a policy."""
    return PoolSimulation(batches, config, policy, seed).simulate()


_CYCLE_S = 1200.0
_BEFORE_S = 30.0  # before its next cycle begins, when a worker leaves


def paid_until(worker: PoolWorker, at_s: float) -> float:
    """Return when a worker that leaves at the end of a cycle leaves, at this instant or after
    it."""
    paid = math.ceil((at_s + _BEFORE_S - worker.joined_s) / _CYCLE_S)
    return worker.joined_s + paid * _CYCLE_S - _BEFORE_S


@dataclass(slots=True)
class Account:
    """The sums of one simulation."""

    workers: int = 0
    worker_s: float = 0.0
    execution_s: float = 0.0
    cycles: int = 0
    useless: int = 0
    ends_s: list[float] = field(default_factory=list)

    def ended(self, now_s: float, execution_s: float) -> None:
        """Record the end of a task."""
        self.execution_s += execution_s
        self.ends_s.append(now_s)

    def left(self, worker: PoolWorker, now_s: float) -> None:
        """Record the departure of a worker."""
        duration_s = now_s - worker.joined_s
        self.worker_s += duration_s
        self.cycles += max(1, math.ceil(duration_s / _CYCLE_S - 1e-9))
        self.useless += not worker.ran

    def simulated(self, looks: tuple[PoolSample, ...]) -> SimulatedPool:
        """Return the results, with the state at each decision."""
        return SimulatedPool(
            turnaround_s=self.ends_s[-1] if self.ends_s else math.inf,
            worker_s=self.worker_s,
            execution_s=self.execution_s,
            cycles=self.cycles,
            workers=self.workers,
            useless=self.useless,
            looks=looks,
            ends_s=tuple(self.ends_s),
        )


class Durations:
    """The random draws of one simulation."""

    def __init__(self, config: StudyConfig, seed: int) -> None:
        self._config, self._draws = config, stream(seed, "pool")
        self._born_s: dict[int, float] = {}  # when a file was sent for the first time

    def waits(self, count: int) -> Sequence[float]:
        """Return the waits of requested workers until they join."""
        config, spread = self._config, self._draws.lognormal(0.0, 0.8, count)
        values: list[float] = (config.wait_s + config.wait_spread_s * spread).tolist()
        return values

    def speed(self) -> float:
        """Return a node's factor of run times."""
        return self._around(self._config.speeds)

    def lifetime_s(self) -> float:
        """Return the lifetime of a worker until it is lost."""
        mean_s = self._config.lifetime_s
        return float(self._draws.exponential(mean_s)) if math.isfinite(mean_s) else math.inf

    def sent(
        self, worker: PoolWorker, number: int, batch: Batch, now_s: float
    ) -> tuple[float, float, float]:
        """Return the time to send a worker the input of a batch's task, the MiB of it that the
        worker has, and the MiB sent only because the worker is new. The worker keeps the file."""
        cached = batch.in_mib if batch.shared and number in worker.files else 0.0
        born_s = self._born_s.setdefault(number, now_s)
        new = not worker.files or born_s <= worker.joined_s
        cold = batch.in_mib - cached if batch.shared and new else 0.0
        worker.files.add(number)
        return self._transfer_s(batch.in_mib - cached), cached, cold

    def execution_s(self, worker: PoolWorker, batch: Batch) -> float:
        """Return the run time of one of a batch's tasks there."""
        return batch.execution_s * worker.speed * self._around(batch.spread)

    def out_s(self, batch: Batch) -> float:
        """Return the time to receive a result."""
        return self._transfer_s(batch.out_mib)

    def think_s(self) -> float:
        """Return the application's time for a result."""
        return self._config.think_s * self._around(self._config.jitter)

    def _transfer_s(self, mib: float) -> float:
        return mib / self._config.mib_s * self._around(self._config.jitter)

    def _around(self, spread: float) -> float:
        if not spread:
            return 1.0
        sigma = math.sqrt(math.log1p(spread**2))
        return float(self._draws.lognormal(-(sigma**2) / 2.0, sigma))
