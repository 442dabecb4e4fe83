"""What may happen to a slot, drawn: when it is ready, when it breaks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernel.streams import stream
from vgrid.slot import Slot

Floats = NDArray[np.float64]


def slot_fate(slot: Slot, count: int, seed: int) -> tuple[Floats, Floats]:
    """Ready and broken instants in ``count`` scenarios; ``inf`` where never.

    One uniform number per queue and scenario: slots that share a queue come early or late together.
    """
    ready = slot.curve.ready_at(1.0 - stream(seed, "ready", slot.shared).random(count))
    draws = stream(seed, "broken", slot.id).random((2, count))
    with np.errstate(invalid="ignore"):  # a slot that is never ready has no life to break in
        breaks = ready + draws[1] * np.maximum(slot.end_s - ready, 0.0)
    return ready, np.where(draws[0] < slot.up, np.inf, breaks)
