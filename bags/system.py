"""The system that bags run on: clusters of equal processors, faster or slower than a reference one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernel.errors import InputError
from kernel.streams import stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_SIZES = (
    72,
    32,
    32,
    32,
    32,
    684,
    128,
    576,
    64,
    104,
    424,
    240,
    190,
    194,
    114,
    112,
    106,
    128,
    120,
    144,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Processors and relative speed of each cluster."""

    procs: Ints
    speed: Floats

    @property
    def capacity(self) -> float:
        """How many reference processors it is worth."""
        return float((self.procs * self.speed).sum())

    def check(self) -> None:
        """InputError for a system without processors."""
        if len(self.procs) == 0 or (self.procs < 1).any() or (self.speed <= 0).any():
            raise InputError(
                "clusters have at least one processor, with a speed above 0", where="system"
            )

    def only(self, cluster: int) -> System:
        """One of the clusters."""
        return System(
            procs=self.procs[cluster : cluster + 1], speed=self.speed[cluster : cluster + 1]
        )


def paper_system(seed: int = 0) -> System:
    """Twenty clusters of 3,528 processors, relative speeds from 1.0 to 1.75 (§4.1).

    The paper names the two grids and the totals; sizes are ours, uneven as those of such grids, speeds are
    spread evenly over the clusters in an order that the seed draws.
    """
    speeds = np.linspace(1.0, 1.75, len(_SIZES))
    return System(
        procs=np.array(_SIZES, dtype=np.int64), speed=stream(seed, "speeds").permutation(speeds)
    )
