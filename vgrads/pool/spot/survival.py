"""How long availability and unavailability of spot nodes last: hazards by the age of a spell.

Spells are right-censored (the last one goes on), so a life table counts, in each interval of ages,
the time at risk and the spells that ended; events ÷ time at risk estimates the hazard (the
actuarial form of the estimator of Kaplan and Meier, doi:10.1080/01621459.1958.10501452).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.pool.spot.history import SpotHistory

STEP_S = 600.0
AGES_S = np.array([0, 1, 2, 3, 5, 8, 12, 18, 30, 48]) * STEP_S
"""Begin of each interval of ages; the last one has no end."""
_AGES_S = tuple(float(age_s) for age_s in AGES_S)
LEAST, MOST = 1e-4, 0.999

Table = NDArray[np.float64]
"""Shape (2, intervals): spells without nodes, with nodes."""


@dataclass(frozen=True, eq=False)
class LifeTable:
    """``ended``: spells that ended in each interval of ages; ``at_risk``: steps of
    :data:`STEP_S` during which a spell was that old. ``origin``: date and zone where it was
    recorded."""

    ended: Table
    at_risk: Table
    origin: tuple[str, str] = ("", "")

    def __add__(self, other: LifeTable) -> LifeTable:
        return LifeTable(self.ended + other.ended, self.at_risk + other.at_risk)

    @property
    def hazards(self) -> Table:
        """Return the probability that a spell ends within a step; half an event in a step is added
        where little was observed."""
        rates: Table = (self.ended + 0.5) / (self.at_risk + 1.0)
        return np.clip(rates, LEAST, MOST)

    def weighted(self, steps: float) -> LifeTable:
        """Return the table as if it had been observed for so many steps in all."""
        factor = steps / max(1.0, float(self.at_risk.sum()))
        return LifeTable(self.ended * factor, self.at_risk * factor)


@dataclass(frozen=True, eq=False)
class Hazards:
    """Probabilities that a spell ends within :data:`STEP_S`, by the interval of its age."""

    steps: Table

    @property
    def available_share(self) -> float:
        """Return the share of the time in which nodes are available."""
        lengths = np.append(np.diff(AGES_S), np.inf) / STEP_S
        at_begin = np.cumprod(np.hstack([np.ones((2, 1)), (1.0 - self.steps) ** lengths]), axis=1)
        # with a constant hazard in each interval: survival at its begin less at its end, ÷ hazard
        means = ((at_begin[:, :-1] - at_begin[:, 1:]) / self.steps).sum(axis=1)
        return float(means[1] / means.sum())


NEVER = Hazards(np.array([np.full(len(AGES_S), LEAST), np.full(len(AGES_S), MOST)]))
"""There are no spot nodes."""


def find_interval(age_s: float) -> int:
    """Return the interval of an age."""
    return bisect_right(_AGES_S, age_s + 1e-6) - 1


def make_life_table(
    history: SpotHistory, now_s: float, origin: tuple[str, str] = ("", "")
) -> LifeTable:
    """Return the life table of what was observed until now."""
    ended, at_risk = np.zeros((2, len(AGES_S))), np.zeros((2, len(AGES_S)))
    for spell in history.spells(now_s):
        kind = int(spell.available)
        if spell.ended:
            # half a step earlier: a spell that fills an interval to its end ended in it
            ended[kind, find_interval(spell.length_s - STEP_S / 2)] += 1
        inside = np.diff(np.minimum(np.append(AGES_S, np.inf), spell.length_s))
        at_risk[kind] += inside / STEP_S
    return LifeTable(ended, at_risk, origin)
