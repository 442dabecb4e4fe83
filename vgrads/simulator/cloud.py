"""A cloud in virtual time: a request is granted at once or refused, and nodes take time to boot."""

from __future__ import annotations

import numpy as np


def sample_boot_time(boot_s: float, spread: float, generator: np.random.Generator) -> float:
    """Sample a boot time: log-normal with median ``boot_s`` and ``spread`` the standard deviation
    of its logarithm."""
    return boot_s * float(np.exp(spread * generator.standard_normal()))


class CloudRegion:
    """Capacity of a region: requests beyond it are refused, never queued."""

    def __init__(self, procs: int) -> None:
        self.procs = procs
        self._in_use: dict[str, int] = {}

    def acquire(self, name: str, procs: int) -> bool:
        """Take capacity under a name; a repeated call with the same name takes nothing more."""
        if name in self._in_use:
            return True
        if procs > self.procs - sum(self._in_use.values()):
            return False
        self._in_use[name] = procs
        return True

    def release(self, name: str) -> None:
        """Release capacity; an unknown name is no error."""
        self._in_use.pop(name, None)

    def check(self) -> None:
        """Check that no more capacity is held than exists."""
        if sum(self._in_use.values()) > self.procs:
            raise AssertionError(f"{self._in_use} over {self.procs}")
