"""A cloud in virtual time: a request is granted at once or refused, and nodes take time to boot."""

from __future__ import annotations

import numpy as np


def boot_time(boot_s: float, spread: float, generator: np.random.Generator) -> float:
    """A boot time: log-normal with median ``boot_s`` and ``spread`` the standard deviation of its
    log."""
    return boot_s * float(np.exp(spread * generator.standard_normal()))


class CloudRegion:
    """Capacity of a region: what does not fit is refused, never queued."""

    def __init__(self, procs: int) -> None:
        self.procs = procs
        self._held: dict[str, int] = {}

    def acquire(self, name: str, procs: int) -> bool:
        """Take capacity under a name; asking again under the same name takes nothing more."""
        if name in self._held:
            return True
        if procs > self.procs - sum(self._held.values()):
            return False
        self._held[name] = procs
        return True

    def release(self, name: str) -> None:
        """Give capacity back; a name unknown is no error."""
        self._held.pop(name, None)

    def check(self) -> None:
        """No more is held than there is."""
        if sum(self._held.values()) > self.procs:
            raise AssertionError(f"{self._held} over {self.procs}")
