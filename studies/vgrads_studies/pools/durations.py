"""Durations in a pool's simulation, drawn at random around its setting's values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vgrads.kernel.streams import stream
from vgrads_studies.pools.values import Batch, PoolWorker, StudyConfig


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
