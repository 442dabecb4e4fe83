"""Comparison of promised probabilities and kept promises: by bins, with intervals, and as Brier
scores.

The decomposition is Murphy's (1973, doi:10.1175/1520-0450(1973)012<0595:ANVPOT>2.0.CO;2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from statsmodels.stats.proportion import proportion_confint

from vgrads.qbets.views import FULL
from vgrads_studies.promises.rivals import Result

Floats = NDArray[np.float64]
EDGES = (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
FEW = 20
"""Bins of fewer sets are marked: their share says little."""
BIN_HEAD = ("planner", "mean promise", "kept", "95 % interval", "sets")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseRow:
    """One set by one strategy; ``promised`` None without a promise. ``view``: which jobs its
    forecasts knew (:data:`vgrads.qbets.views.VIEWS`)."""

    log: str
    case: int
    strategy: str
    needed: int
    result: Result
    view: str = FULL


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Similar promises: their mean, the share kept, its 95 % interval."""

    promised: float
    kept: float
    low: float
    high: float
    count: int

    @property
    def gap(self) -> float:
        """Return promised minus kept: above 0 where too much was promised."""
        return self.promised - self.kept

    @property
    def error(self) -> float:
        """Return the standard error of the share kept; the rule of succession keeps it above 0."""
        share = (self.kept * self.count + 1) / (self.count + 2)
        return float(np.sqrt(share * (1 - share) / self.count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Brier = reliability − resolution + uncertainty; ``error``: mean abs(promised − kept) over
    bins."""

    brier: float
    reliability: float
    resolution: float
    uncertainty: float
    error: float
    bins: tuple[Bin, ...]


def reliability(
    rows: Sequence[PromiseRow], strategy: str, edges: Sequence[float] = EDGES
) -> Reliability | None:
    """Compare promises with the share kept; None where nothing was promised."""
    pairs = [
        (r.result.promised, float(r.result.kept))
        for r in rows
        if r.strategy == strategy and r.result.promised is not None
    ]
    if not pairs:
        return None
    promised, kept = np.array(pairs).T
    return compare(promised, kept, edges)


def compare(promised: Floats, kept: Floats, edges: Sequence[float] = EDGES) -> Reliability:
    """Compare probabilities with their outcomes: 1 or 0."""
    spots = np.clip(np.searchsorted(edges, promised, side="right") - 1, 0, len(edges) - 2)
    bins = []
    for spot in np.unique(spots):
        part = spots == spot
        low, high = proportion_confint(int(kept[part].sum()), int(part.sum()), method="wilson")
        bins.append(
            Bin(
                promised=float(promised[part].mean()),
                kept=float(kept[part].mean()),
                low=float(low),
                high=float(high),
                count=int(part.sum()),
            )
        )
    weights = np.array([b.count for b in bins]) / len(promised)
    gaps = np.array([b.gap for b in bins])
    spread = np.array([b.kept - kept.mean() for b in bins])
    return Reliability(
        brier=float(np.mean((promised - kept) ** 2)),
        reliability=float(weights @ gaps**2),
        resolution=float(weights @ spread**2),
        uncertainty=float(kept.mean() * (1 - kept.mean())),
        error=float(weights @ np.abs(gaps)),
        bins=tuple(bins),
    )


def sentences(rows: Sequence[PromiseRow], edges: Sequence[float] = EDGES) -> list[str]:
    """Return Brier scores and calibration errors as sentences."""
    lines = []
    for strategy in dict.fromkeys(row.strategy for row in rows):
        result = reliability(rows, strategy, edges)
        if result:
            lines.append(
                f"{strategy}: Brier score {result.brier:.4f} = reliability "
                f"{result.reliability:.4f} − resolution "
                f"{result.resolution:.4f} + uncertainty {result.uncertainty:.4f}; mean "
                f"|promised − kept| over bins {result.error:.3f}."
            )
    return lines


def conclusion(rows: Sequence[PromiseRow], strategy: str) -> str:
    """Return how many promises of a strategy were kept, beside what they promised, in a
    sentence."""
    results = [row.result for row in rows if row.strategy == strategy]
    promised = [result.promised for result in results if result.promised is not None]
    if not promised:
        return f"{strategy} promised nothing in {len(results)} sets."
    kept = [result.kept for result in results if result.promised is not None]
    return (
        f"{strategy} promised {np.mean(promised):.3f} on average in {len(promised)} of "
        f"{len(results)} sets; {np.mean(kept):.3f} were kept."
    )


def bin_rows(rows: Sequence[PromiseRow], edges: Sequence[float] = EDGES) -> list[list[str]]:
    """Return the reliability diagram as a table."""
    strategies = dict.fromkeys(row.strategy for row in rows)
    result = {strategy: reliability(rows, strategy, edges) for strategy in strategies}
    return [
        [
            strategy,
            f"{b.promised:.3f}",
            f"{b.kept:.3f}",
            f"{b.low:.3f}–{b.high:.3f}",
            f"{b.count} (few)" if b.count < FEW else str(b.count),
        ]
        for strategy, reliability in result.items()
        for b in (reliability.bins if reliability else ())
    ]
