"""The probability that an instant of a reservation must reach, by the record of promises.

The outcomes of the promises themselves are all that it needs
(docs/decisions/0047-record-of-promises.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgrads.kernel.units import format_count

FEWEST = 20
"""Outcomes from which on a record counts."""


def adapt(allowed: float, probability: float, kept: bool, rate: float = 0.03) -> float:
    """Return the share of failures to allow from now on, after one more promise was kept or broken.

    Forecasts may be too confident, choosing instants by their estimated probability selects those
    that were estimated too high, and moving them discards good outcomes but keeps bad ones; the
    record of promises corrects all three in the long run (adaptive conformal inference: Gibbs and
    Candès, NeurIPS 2021, equation 2). Never more lenient than promised, never impossible to meet.
    """
    missing = 1.0 - probability
    step = rate * missing if kept else -rate * probability
    return min(max(allowed + step, missing / 10.0), missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredLevel:
    """The probability that an instant must reach (``level``) to be chosen for a ``requested`` one.

    ``started``: how many of the newest ``outcomes`` of submissions that were recommended for this
    requested probability led to a start in time.
    """

    requested: float
    level: float
    outcomes: int = 0
    started: int = 0

    @property
    def reason(self) -> str | None:
        """Say why more than the requested probability must be reached; None if it need not."""
        if self.level == self.requested:
            return None
        return (
            f"an instant must reach probability {self.level:.4g} here, not {self.requested:.4g}: "
            f"of the last {format_count(self.outcomes, 'submission')} recommended for "
            f"{self.requested:.4g}, {self.started} led to a start in time (the newest count most)"
        )


def compute_required_level(requested: float, outcomes: Sequence[bool]) -> RequiredLevel:
    """Return the level that follows from the outcomes of what was recommended for the same
    probability, oldest first; with fewer than :data:`FEWEST` the requested probability."""
    allowed = missing = 1.0 - requested
    if len(outcomes) >= FEWEST:
        for outcome in outcomes:
            allowed = adapt(allowed, requested, outcome)
    return RequiredLevel(
        requested=requested,
        level=requested if allowed >= missing else 1.0 - allowed,
        outcomes=len(outcomes),
        started=sum(outcomes),
    )
