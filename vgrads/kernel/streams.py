"""Named random streams: one seed, any number of independent generators.

A stream depends only on the seed and its name, never on the number of others, so adding a random
choice in one module does not change the numbers in another.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the generator with these ``names`` under ``seed`` (PCG64 over a spawned seed
    sequence)."""
    key = [zlib.crc32(str(name).encode()) for name in names]
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
