"""What may happen to a slot, drawn: when it is ready, when it breaks.

Slots of one queue come about together: in which of the queue's futures a scenario plays is drawn once for all of them
(``Slot.levels``). Where nothing is known of futures, one uniform number per queue and scenario makes them early or late together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernel.streams import stream
from vgrid.slot import Slot

Floats = NDArray[np.float64]


def slot_fate(slot: Slot, count: int, seed: int) -> tuple[Floats, Floats]:
    """Ready and broken instants in ``count`` scenarios; ``inf`` where never."""
    ready = slot.curve.ready_at(slot_levels(slot, count, seed))
    draws = stream(seed, "broken", slot.id).random((2, count))
    with np.errstate(invalid="ignore"):  # a slot that is never ready has no life to break in
        breaks = ready + draws[1] * np.maximum(slot.end_s - ready, 0.0)
    return ready, np.where(draws[0] < slot.up, np.inf, breaks)


def slot_levels(slot: Slot, count: int, seed: int) -> Floats:
    """At which level of its curve, in (0, 1], the slot comes in each scenario: uniform for every slot by itself."""
    shared = 1.0 - stream(seed, "ready", slot.shared).random(count)
    if slot.levels is None:
        return shared
    futures = len(slot.levels)
    drawn = (
        stream(seed, "future", slot.shared).permutation(-(-count // futures) * futures)[:count]
        % futures
    )
    return np.asarray(slot.levels[drawn] + (shared - 0.5) / futures)
