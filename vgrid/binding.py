"""When to ask for a slot that a plan uses: as late as costs no probability."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vgrid.slot import Slot
from vgrid.varq import STEP_S


def latest_submission(slot: Slot, starts_s: Sequence[float]) -> float:
    """Latest instant at which every one of ``starts_s`` is met as surely as by asking at once.

    Asking later also means asking for less wall time, which never lowers the probability, so the
    offer's curve, shifted, is a lower bound.
    """
    if not starts_s:
        return 0.0
    delays = np.append(np.arange(0.0, min(starts_s), STEP_S), min(starts_s))
    enough = np.ones(len(delays), dtype=bool)
    for start_s in sorted(set(starts_s)):
        wanted = slot.curve.by(start_s)
        enough &= np.array([slot.curve.by(start_s - d) for d in delays]) >= wanted - 1e-3
    return float(delays[np.flatnonzero(enough)[-1]]) if enough.any() else 0.0
