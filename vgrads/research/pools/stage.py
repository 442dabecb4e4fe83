"""A manager, its workers and a pool in virtual time: small enough to be played thousands of times.

A worker comes some time after it is asked for, fetches what it has not got yet, runs a task, waits
until the manager takes its result, and so on. The manager's links, its loop and the application's
code each serve one after another; a *serial* manager is one server for all of them. Every turn of
the loop looks at every connected worker, as Work Queue's does, so that too many of them slow it
down.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from vgrads.pool.decide import PoolPolicy
from vgrads.pool.samples import TaskTimes
from vgrads.pool.sizing import SIZINGS
from vgrads.research.pools.account import Account, paid_until
from vgrads.research.pools.deciding import PlayedPool, Standing
from vgrads.research.pools.durations import Durations
from vgrads.research.pools.timeline import Servers, Timeline
from vgrads.research.pools.values import Batch, Host, Played, Setting


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
        self.batches, self.setting = batches, setting
        self.sizing = SIZINGS[policy.sizing] if policy else None
        self.durations, self.account = Durations(setting, seed), Account()
        self.time, self.closed_s = Timeline(), math.inf
        self.servers = Servers(self.time, setting.serial)
        self.waiting: deque[int] = deque()
        self.left = sum(batch.tasks for batch in batches)
        self.arrived = self.running = 0
        self.workers: dict[str, Host] = {}
        self.idle: deque[Host] = deque()
        self.fresh: list[TaskTimes] = []
        self.last: deque[TaskTimes] = deque(maxlen=400)
        waits_s = self.durations.waits(40)
        self.pool = PlayedPool(policy, setting, waits_s) if policy else None
        for batch in range(len(batches)):
            self.time.at(batches[batch].at_s, self.submit, batch)
        for _ in range(fixed):
            self.join(f"w{self.time.number()}")
        if self.pool:
            self.time.at(0.0, self.look)

    def play(self) -> Played:
        """Until all has ended and everybody has gone."""
        self.time.run(lambda: min(self.setting.most_s, self.closed_s))
        for worker in tuple(self.workers.values()):
            self.leave(worker)
        return self.account.played(tuple(self.pool.looks) if self.pool else ())

    # -- work ---------------------------------------------------------------

    def submit(self, batch: int) -> None:
        """A batch comes."""
        self.waiting.extend([batch] * self.batches[batch].tasks)
        self.arrived += self.batches[batch].tasks
        for _ in range(min(len(self.idle), len(self.waiting))):
            self.want(self.idle.popleft())

    def want(self, worker: Host) -> None:
        """A worker has nothing to do: it gets a task, or idles."""
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

    def run(self, worker: Host, execution_s: float) -> None:
        """Its task is there."""
        self.time.after(execution_s, self.result, worker)

    def rest(self, worker: Host) -> None:
        """It idles from now on."""
        worker.idle_s = self.time.now_s
        if worker.served:
            self.idle.append(worker)
        if self.sizing and math.isfinite(self.sizing.idle_s):
            out_s = self.time.now_s + self.sizing.idle_s
            if self.sizing.billing:
                out_s = paid_until(worker, out_s)
            self.time.at(out_s, self.time_out, worker, self.time.now_s)

    def result(self, worker: Host) -> None:
        """A task has run: the manager takes its result, thinks, and goes round once."""
        if not worker.there or worker.task is None:
            return
        out_s = self.durations.out_s(self.batches[worker.task[0]])
        think_s = self.durations.think_s()
        loop_s = self.setting.per_worker_s * self.served
        told = (worker, out_s, think_s, loop_s)
        if self.setting.serial:
            self.servers.serve("down", out_s + think_s + loop_s, self.end, *told)
        else:
            self.servers.serve("down", out_s, self.think, *told)

    def think(self, *told: Any) -> None:
        """A result is there; the application has it next."""
        self.servers.serve("think", told[2] + told[3], self.end, *told)

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
        self.account.ended(self.time.now_s, execution_s)
        if not self.left:
            self.closed_s = self.time.now_s + self.setting.closing_s
        worker.ran += 1
        self.want(worker)

    # -- workers ------------------------------------------------------------

    @property
    def served(self) -> int:
        """Workers that the manager has taken on."""
        return sum(one.served for one in self.workers.values())

    def come(self, request: str) -> None:
        """A worker that was asked for is there."""
        if self.pool and self.pool.came(request, self.time.now_s):
            self.join(request)

    def join(self, name: str) -> None:
        """It connects, if the manager may have it."""
        worker = Host(name, self.time.now_s, self.durations.speed())
        self.workers[name] = worker
        self.account.workers += 1
        lost_s = self.time.now_s + self.durations.life_s()
        if lost_s < self.setting.losses_until_s:
            self.time.at(lost_s, self.leave, worker)
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
        self.account.left(worker, self.time.now_s)

    # -- decisions ----------------------------------------------------------

    def look(self) -> None:
        """The pool decides, and it is done."""
        assert self.pool
        now_s = self.time.now_s
        fresh, self.fresh = self.fresh, []
        decision = self.pool.decide(now_s, self._standing(), fresh, self.last)
        for wait_s in self.durations.waits(decision.ask):
            name = f"w{self.time.number()}"
            self.pool.asked[name] = now_s
            self.time.after(wait_s, self.come, name)
        for name in decision.release:
            self.leave(self.workers[name])
        room = self.pool.share - self.served
        for worker in [one for one in self.workers.values() if not one.served][: max(0, room)]:
            worker.served = True
            self.want(worker)
        self.pool.note(now_s, self._standing())
        if self.left or self.workers or self.pool.asked:
            self.time.after(self.setting.period_s, self.look)

    def _standing(self) -> Standing:
        return Standing(
            waiting=len(self.waiting),
            running=self.running,
            arrived=self.arrived,
            workers=tuple(self.workers.values()),
        )


def play(batches: Sequence[Batch], setting: Setting, policy: PoolPolicy, seed: int) -> Played:
    """Under a policy."""
    return Stage(batches, setting, policy, seed).play()
