"""How long everything takes in a pool's play, drawn at random around what its setting says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vgrads.kernel.streams import stream
from vgrads.research.pools.values import Batch, Host, Setting


class Durations:
    """The draws of one play."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self._setting, self._draws = setting, stream(seed, "pool")
        self._born_s: dict[int, float] = {}  # when a file was sent for the first time

    def waits(self, count: int) -> Sequence[float]:
        """Of workers that are asked for, until they come."""
        setting, spread = self._setting, self._draws.lognormal(0.0, 0.8, count)
        found: list[float] = (setting.wait_s + setting.wait_spread_s * spread).tolist()
        return found

    def speed(self) -> float:
        """Of a host: how much longer tasks run there than they should."""
        return self._around(self._setting.speeds)

    def life_s(self) -> float:
        """Of a worker, until it is lost."""
        mean_s = self._setting.life_s
        return float(self._draws.exponential(mean_s)) if math.isfinite(mean_s) else math.inf

    def sent(
        self, worker: Host, number: int, batch: Batch, now_s: float
    ) -> tuple[float, float, float]:
        """Of sending a worker what a batch's task reads; MiB of that which it has, and which nobody
        who was there before has either. It keeps the file."""
        cached = batch.in_mib if batch.shared and number in worker.files else 0.0
        born_s = self._born_s.setdefault(number, now_s)
        new = not worker.files or born_s <= worker.joined_s
        cold = batch.in_mib - cached if batch.shared and new else 0.0
        worker.files.add(number)
        return self._transfer_s(batch.in_mib - cached), cached, cold

    def execution_s(self, worker: Host, batch: Batch) -> float:
        """Of one of a batch's tasks there."""
        return batch.execution_s * worker.speed * self._around(batch.spread)

    def out_s(self, batch: Batch) -> float:
        """Of taking a result."""
        return self._transfer_s(batch.out_mib)

    def think_s(self) -> float:
        """Of what the application does with a result."""
        return self._setting.think_s * self._around(self._setting.jitter)

    def _transfer_s(self, mib: float) -> float:
        return mib / self._setting.mib_s * self._around(self._setting.jitter)

    def _around(self, spread: float) -> float:
        if not spread:
            return 1.0
        sigma = math.sqrt(math.log1p(spread**2))
        return float(self._draws.lognormal(-(sigma**2) / 2.0, sigma))
