"""Availability samples of a slot: when it is ready, when it breaks.

One uniform number per queue and scenario: slots of one queue come early or late together. Of equal
requests the k-th starts no sooner than those before it, so P(k of them by t) is the curve of the
k-th, which includes those ahead: only one draw for all reproduces this in the scenarios. Draws are
stratified, one in each of ``count`` equal parts (McKay, Beckman, Conover, Technometrics 21(2) 1979,
doi:10.1080/00401706.1979.10489755), which reduces the noise of shares.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.streams import stream
from vgrads.vgrid.slot import Slot

Floats = NDArray[np.float64]


def sample_availability(slot: Slot, count: int, seed: int) -> tuple[Floats, Floats]:
    """Return ready and broken instants in ``count`` scenarios; ``inf`` if never."""
    ready = slot.curve.ready_at(1.0 - _draw_spread(stream(seed, "ready", slot.shared), count))
    generator = stream(seed, "broken", slot.id)
    draws = _draw_spread(generator, count), generator.random(count)
    with np.errstate(invalid="ignore"):  # a slot that is never ready cannot break
        breaks = ready + draws[1] * np.maximum(slot.end_s - ready, 0.0)
    return ready, np.where(draws[0] < slot.up, np.inf, breaks)


def _draw_spread(generator: np.random.Generator, count: int) -> Floats:
    """Return uniform numbers in [0, 1), one in each of ``count`` equal parts, in random order."""
    return np.asarray((generator.permutation(count) + generator.random(count)) / count)
