"""A manager, its workers and a pool in virtual time: small enough to be played thousands of times.

A worker comes some time after it is asked for, fetches what it has not got yet, runs a task, waits
until the manager takes its result, and so on. The manager's links, its loop and the application's
code each serve one after another; a *serial* manager is one server for all of them. Every turn of
the loop looks at every connected worker, as Work Queue's does, so that too many of them slow it
down. The pool asks ``vgrads.pool.decide.decide``, the function that serves real ones.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.pool.capacity import Capacity, capacity, capacity_with_think
from vgrads.pool.decide import Decision, PoolNow, PoolPolicy, WorkerNow, decide
from vgrads.pool.samples import Meter, TaskTimes, fold
from vgrads.pool.share import ManagerAd
from vgrads.pool.sizing import SIZINGS
from vgrads.pool.view import RequestView
from vgrads.research.pools.values import Batch, Host, Look, Played, Server, Setting

OURS = {"d8"}
"""Policies that are told our capacity; others are told that of the thesis."""
_NAME, _CYCLE_S = "m", 1200.0
_WINDOW = 10  # of the thesis's estimate: the last tasks, as many as workers are busy, and no fewer


class Stage:
    """One play; ``fixed``: so many workers from the beginning, and nobody decides."""

    def __init__(
        self,
        batches: Sequence[Batch],
        setting: Setting,
        policy: PoolPolicy | None,
        seed: int,
        fixed: int = 0,
    ) -> None:
        self.batches, self.setting, self.policy = batches, setting, policy
        self.sizing = SIZINGS[policy.sizing] if policy else None
        self.draws = stream(seed, "pool")
        self.events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.now_s, self.count, self.closed_s = 0.0, 0, math.inf
        self.waiting: deque[int] = deque()
        self.left = sum(batch.tasks for batch in batches)
        self.arrived = self.ended = self.running = 0
        self.workers: dict[str, Host] = {}
        self.idle: deque[Host] = deque()
        self.asked: dict[str, float] = {}
        names = ("up", "down", "think")
        self.servers = (
            dict.fromkeys(names, Server()) if setting.serial else {name: Server() for name in names}
        )
        self.born_s: dict[int, float] = {}  # when a file was sent for the first time
        self.meter, self.fresh = Meter(serial=setting.serial), list[TaskTimes]()
        self.last: deque[TaskTimes] = deque(maxlen=400)
        self.decision, self.decided_s = Decision(), 0.0
        self.waits = list(self._waits(40))
        self.worker_s = self.execution_s = 0.0
        self.cycles = self.useless = self.came = 0
        self.looks: list[Look] = []
        self.ends: list[float] = []
        for batch in range(len(batches)):
            self.at(batches[batch].at_s, self.submit, batch)
        for _ in range(fixed):
            self.join(f"w{self.number()}")
        if policy:
            self.at(0.0, self.look)

    def at(self, at_s: float, what: Callable[..., None], *about: object) -> None:
        """Something will happen."""
        heappush(self.events, (at_s, self.number(), what, about))

    def number(self) -> int:
        """Another one each time."""
        self.count += 1
        return self.count

    def play(self) -> Played:
        """Until all has ended and everybody has gone."""
        while self.events:
            self.now_s, _, what, about = heappop(self.events)
            if self.now_s > min(self.setting.most_s, self.closed_s):
                self.now_s = min(self.setting.most_s, self.closed_s)
                break
            what(*about)
        for worker in tuple(self.workers.values()):
            self.leave(worker)
        return Played(
            turnaround_s=self.ends[-1] if self.ends else math.inf,
            worker_s=self.worker_s,
            execution_s=self.execution_s,
            cycles=self.cycles,
            workers=self.came,
            useless=self.useless,
            looks=tuple(self.looks),
            ends_s=tuple(self.ends),
        )

    # -- work ---------------------------------------------------------------

    def submit(self, batch: int) -> None:
        """A batch comes."""
        self.waiting.extend([batch] * self.batches[batch].tasks)
        self.arrived += self.batches[batch].tasks
        for _ in range(min(len(self.idle), len(self.waiting))):
            self.want(self.idle.popleft())

    def serve(
        self, resource: str, seconds: float, what: Callable[..., None], *about: object
    ) -> None:
        """Something happens once a resource has served that; workers get their tasks first, results
        wait in a row."""
        server = self.servers[resource]
        (server.first if resource == "up" else server.then).append((seconds, what, about))
        if not server.busy:
            self.next(server)

    def next(self, server: Server) -> None:
        """The next one is served."""
        server.busy = bool(server.first or server.then)
        if server.busy:
            seconds, what, about = (server.first or server.then).popleft()
            self.at(self.now_s + seconds, self.served_one, server, what, about)

    def served_one(self, server: Server, what: Callable[..., None], about: tuple[Any, ...]) -> None:
        """What was served goes on; whoever that lets come is served before others who wait."""
        server.busy = True
        what(*about)
        self.next(server)

    def want(self, worker: Host) -> None:
        """A worker has nothing to do: it gets a task, or idles."""
        if not worker.there:
            return
        worker.task = None
        if worker.served and self.policy and self.served > self.decision.shares.get(_NAME, 0):
            worker.served = False
        if not worker.served or not self.waiting:
            self.rest(worker)
            return
        worker.idle_s = None
        number = self.waiting.popleft()
        batch = self.batches[number]
        self.running += 1
        cached = batch.in_mib if batch.shared and number in worker.files else 0.0
        born_s = self.born_s.setdefault(number, self.now_s)
        new = not worker.files or born_s <= worker.joined_s
        cold = batch.in_mib - cached if batch.shared and new else 0.0
        in_s = (batch.in_mib - cached) / self.setting.mib_s * self._around(self.setting.jitter)
        worker.files.add(number)
        worker.sent = (in_s, cached, cold)
        execution_s = batch.execution_s * worker.speed * self._around(batch.spread)
        worker.task = (number, execution_s)
        self.serve("up", in_s, self.run, worker, execution_s)

    def run(self, worker: Host, execution_s: float) -> None:
        """Its task is there."""
        self.at(self.now_s + execution_s, self.result, worker)

    def rest(self, worker: Host) -> None:
        """It idles from now on."""
        worker.idle_s = self.now_s
        if worker.served:
            self.idle.append(worker)
        if self.sizing and math.isfinite(self.sizing.idle_s):
            out_s = self.now_s + self.sizing.idle_s
            if self.sizing.billing:
                paid = math.ceil((out_s + 30.0 - worker.joined_s) / _CYCLE_S)
                out_s = worker.joined_s + paid * _CYCLE_S - 30.0
            self.at(out_s, self.time_out, worker, self.now_s)

    def result(self, worker: Host) -> None:
        """A task has run: the manager takes its result, thinks, and goes round once."""
        if not worker.there or worker.task is None:
            return
        out_s = (
            self.batches[worker.task[0]].out_mib
            / self.setting.mib_s
            * self._around(self.setting.jitter)
        )
        think_s = self.setting.think_s * self._around(self.setting.jitter)
        loop_s = self.setting.per_worker_s * self.served
        told = (worker, out_s, think_s, loop_s)
        if self.setting.serial:
            self.serve("down", out_s + think_s + loop_s, self.end, *told)
        else:
            self.serve("down", out_s, self.think, *told)

    def think(self, *told: Any) -> None:
        """A result is there; the application has it next."""
        self.serve("think", told[2] + told[3], self.end, *told)

    def end(self, worker: Host, out_s: float, think_s: float, loop_s: float) -> None:
        """A task has ended."""
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
            host=worker.id,
        )
        self.last.append(times)
        self.fresh.append(times)
        self.running -= 1
        self.left -= 1
        self.execution_s += execution_s
        self.ends.append(self.now_s)
        if not self.left:
            self.closed_s = self.now_s + self.setting.closing_s
        worker.ran += 1
        self.want(worker)

    # -- workers ------------------------------------------------------------

    @property
    def served(self) -> int:
        """Workers that the manager has taken on."""
        return sum(one.served for one in self.workers.values())

    def come(self, request: str) -> None:
        """A worker that was asked for is there."""
        asked_s = self.asked.pop(request, None)
        if asked_s is not None:
            self.waits.append(self.now_s - asked_s)
            self.join(request)

    def join(self, name: str) -> None:
        """It connects, if the manager may have it."""
        worker = Host(name, self.now_s, self._around(self.setting.speeds))
        self.workers[name] = worker
        self.came += 1
        if math.isfinite(self.setting.life_s):
            lost_s = self.now_s + self.draws.exponential(self.setting.life_s)
            if lost_s < self.setting.losses_until_s:
                self.at(lost_s, self.leave, worker)
        self.want(worker)

    def time_out(self, worker: Host, since_s: float) -> None:
        """It was idle long enough."""
        if worker.there and worker.idle_s == since_s:
            self.leave(worker)

    def leave(self, worker: Host) -> None:
        """It is gone; its task, if any, begins again elsewhere."""
        if not worker.there:
            return
        worker.there = False
        del self.workers[worker.id]
        if worker.served and worker.idle_s is not None:
            self.idle.remove(worker)
        if worker.task is not None:
            self.running -= 1
            self.waiting.appendleft(worker.task[0])
        held_s = self.now_s - worker.joined_s
        self.worker_s += held_s
        self.cycles += max(1, math.ceil(held_s / _CYCLE_S - 1e-9))
        self.useless += not worker.ran

    # -- decisions ----------------------------------------------------------

    def look(self) -> None:
        """The pool decides, and it is done."""
        assert self.policy
        self.meter = fold(self.meter, self.fresh, self.running)
        self.fresh = []
        known = capacity(self.meter)
        busy = max(_WINDOW, self.running)
        thesis = capacity_with_think(list(self.last)[-busy:]) if len(self.last) >= _WINDOW else None
        ad = self._ad(known, thesis)
        self.decision = decide(self._view(ad), self.policy)
        self.decided_s = self.now_s
        self._carry_out()
        self.looks.append(
            Look(
                at_s=self.now_s,
                decided=self.decision.shares[_NAME],
                connected=len(self.workers),
                target=len(self.workers) + len(self.asked),
                busy=self.running,
                unfinished=len(self.waiting) + self.running,
                known=known,
                thesis=thesis,
            )
        )
        if self.left or self.workers or self.asked:
            self.at(self.now_s + self.setting.period_s, self.look)

    def _ad(self, known: Capacity | None, thesis: float | None) -> ManagerAd:
        assert self.policy
        served = self.served
        ad = ManagerAd(
            name=_NAME,
            waiting=len(self.waiting),
            running=self.running,
            workers=served,
            by_pool={"": served},
            at_s=self.now_s,
            arrived=self.arrived,
            capacity=thesis,
            execution_s=float(self.meter.all.means[0]) if self.meter.ended else None,
            cycle_s=self.meter.cycle_s or None,
        )
        if self.policy.sizing not in OURS:
            return ad
        if known is None:
            return replace(ad, capacity=None)
        told = known.workers
        return replace(ad, capacity=told.value, capacity_low=told.low, capacity_high=told.high)

    def _view(self, ad: ManagerAd) -> PoolNow:
        workers = tuple(
            WorkerNow(
                id=one.id,
                joined_s=one.joined_s,
                idle_since_s=one.idle_s,
                manager=_NAME if one.served else None,
                cache_mib=float(len(one.files)),
            )
            for one in self.workers.values()
        )
        low_s, median_s = np.quantile(self.waits[-60:], (0.1, 0.5))
        return PoolNow(
            now_s=self.now_s,
            managers=(ad,),
            workers=workers,
            previous=self.decision.shares,
            asked=tuple(
                RequestView(id=name, hosts=1, asked_s=at_s) for name, at_s in self.asked.items()
            ),
            elapsed_s=self.now_s - self.decided_s if self.looks else self.setting.period_s,
            wait_s=float(median_s),
            wait_low_s=float(low_s),
            memory=self.decision.memory,
        )

    def _carry_out(self) -> None:
        for wait_s in self._waits(self.decision.ask):
            name = f"w{self.number()}"
            self.asked[name] = self.now_s
            self.at(self.now_s + wait_s, self.come, name)
        for name in self.decision.withdraw:
            del self.asked[name]
        for name in self.decision.release:
            self.leave(self.workers[name])
        room = self.decision.shares[_NAME] - self.served
        for worker in [one for one in self.workers.values() if not one.served][: max(0, room)]:
            worker.served = True
            self.want(worker)

    def _waits(self, count: int) -> Sequence[float]:
        spread = self.draws.lognormal(0.0, 0.8, count)
        found: list[float] = (self.setting.wait_s + self.setting.wait_spread_s * spread).tolist()
        return found

    def _around(self, spread: float) -> float:
        if not spread:
            return 1.0
        sigma = math.sqrt(math.log1p(spread**2))
        return float(self.draws.lognormal(-(sigma**2) / 2.0, sigma))


def play(batches: Sequence[Batch], setting: Setting, policy: PoolPolicy, seed: int) -> Played:
    """Under a policy."""
    return Stage(batches, setting, policy, seed).play()
