"""The system that bags run on: clusters of equal processors, with speeds relative to a reference
processor."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.errors import InputError
from vgrads.kernel.streams import stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_CLUSTER = re.compile(r"([0-9]{1,12})(?:x([0-9]*\.?[0-9]+|[0-9]+\.))?")
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
        """Return the equivalent number of reference processors."""
        return float((self.procs * self.speed).sum())

    def check(self) -> None:
        """Raise InputError for a system without processors."""
        if len(self.procs) == 0 or (self.procs < 1).any() or (self.speed <= 0).any():
            raise InputError(
                "clusters have at least one processor, with a speed above 0", where="system"
            )

    def only(self, cluster: int) -> System:
        """Return a system of one of the clusters."""
        return System(
            procs=self.procs[cluster : cluster + 1], speed=self.speed[cluster : cluster + 1]
        )


_MOST_PROCS = 1_000_000
_SPEEDS = (0.001, 1000.0)


def parse_clusters(text: str, where: str) -> System:
    """Parse ``128x1.0,64x1.5``: processors × speed of each cluster, relative to the processors of
    the run times.

    Raises InputError (``where``) with the invalid part.
    """
    procs, speeds = [], []
    for part in text.split(","):
        match = _CLUSTER.fullmatch(part.strip())
        if not match:
            raise InputError(
                f"'{part.strip()}' does not have the form PROCSxSPEED",
                where=where,
                fix="write 128x1.0,64x1.5",
            )
        procs.append(int(match[1]))
        speeds.append(float(match[2] or 1))
    if min(procs) < 1 or sum(procs) > _MOST_PROCS:
        raise InputError(
            f"'{text}': a cluster has at least one processor, all have at most {_MOST_PROCS:,}",
            where=where,
        )
    if not all(_SPEEDS[0] <= speed <= _SPEEDS[1] for speed in speeds):
        raise InputError(f"'{text}': speeds are from {_SPEEDS[0]} to {_SPEEDS[1]:.0f}", where=where)
    return System(procs=np.array(procs, dtype=np.int64), speed=np.array(speeds))


def paper_system(seed: int = 0) -> System:
    """Return twenty clusters of 3,528 processors, relative speeds from 1.0 to 1.75 (§4.1).

    The paper names the two grids and the totals; sizes are ours, uneven as those of such grids,
    speeds are spread evenly over the clusters in an order that the seed draws.
    """
    speeds = np.linspace(1.0, 1.75, len(_SIZES))
    return System(
        procs=np.array(_SIZES, dtype=np.int64), speed=stream(seed, "speeds").permutation(speeds)
    )
