"""Effort of planning, counted in work: equal inputs have equal plans on every machine."""

from __future__ import annotations

import time

UNIT = 10_000_000
"""Work of effort 1: simulated replicas of tasks, about 2.5 s of processor time."""


class Effort:
    """Work that planning may still do, in simulated replicas. ``over_at``: an instant of
    :func:`time.monotonic` at which it ends earlier; ``ended_early`` says that it did."""

    def __init__(self, left: float, over_at: float = float("inf")) -> None:
        self.left, self.over_at, self.ended_early = left, over_at, False

    def spend(self, work: float) -> bool:
        """Use up work; return False if too little is left. Then nothing is left: else smaller and
        smaller work would be tried."""
        self.ended_early = self.ended_early or time.monotonic() > self.over_at
        if work > self.left or self.ended_early:
            self.left = 0.0
            return False
        self.left -= work
        return True

    def part(self, share: float) -> Effort:
        """Return this share of what is left, as effort of its own; :meth:`take_back` its rest."""
        result = Effort(share * self.left, self.over_at)
        self.left -= result.left
        return result

    def take_back(self, part: Effort) -> None:
        """Take back what a part has not used."""
        self.left += part.left
        self.ended_early = self.ended_early or part.ended_early
