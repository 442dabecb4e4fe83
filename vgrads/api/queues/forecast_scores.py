"""Scores of forecasts as issued: coverage, pinball loss, reliability, and the comparison with the
site's own start estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from vgrads.api.queues.issued import LEVELS, Bounds, Probabilities

Json = dict[str, Any]
WINDOW = 500
"""Newest scored forecasts that a score is about."""
WATCHED, ALARM, ALARM_LEVEL = 200, 0.90, 0.95
"""Newest bounds that are watched, the coverage below which they raise a warning, and their
quantile. At a true coverage of .95, 200 bounds fall below .90 in 1 of 1,000 cases."""
_BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredForecast:
    """A forecast with the wait of its job; None: the job was refused or failed before its start.

    ``estimate_s``: the site's own estimate of the wait at the same instant; ``was_queried``:
    whether the site was queried for it.
    """

    bounds: Bounds = ()
    probabilities: Probabilities = ()
    wait_s: float | None
    estimate_s: float | None = None
    was_queried: bool = False

    def covered(self, level: float) -> bool | None:
        """Return whether the bound of a quantile was not exceeded; None where none was stated."""
        bound_s = dict(self.bounds).get(level)
        return None if bound_s is None else self.wait_s is not None and self.wait_s <= bound_s


def score(forecasts: Sequence[ScoredForecast]) -> Json:
    """Return the score of the newest forecasts; ``forecasts``: newest first."""
    newest = forecasts[:WINDOW]
    return {
        "scored": len(newest),
        "quantiles": [_quantile_score(newest, level) for level in LEVELS],
        "reliability": _reliability(newest),
        "brier": _brier(newest),
        "slurm": _comparison(newest),
    }


def _quantile_score(forecasts: Sequence[ScoredForecast], level: float) -> Json:
    covered = [c for c in (f.covered(level) for f in forecasts) if c is not None]
    losses = [
        pinball(level, bound_s, f.wait_s)
        for f in forecasts
        if f.wait_s is not None
        for quantile, bound_s in f.bounds
        if quantile == level and bound_s is not None
    ]
    return {
        "quantile": level,
        "bounds": len(covered),
        "coverage": _mean(covered),
        "pinball_s": _mean(losses),
    }


def pinball(level: float, bound_s: float, wait_s: float) -> float:
    """Return the pinball loss of a quantile.

    >>> pinball(0.75, 10.0, 14.0)
    3.0
    """
    miss_s = wait_s - bound_s
    return max(level * miss_s, (level - 1.0) * miss_s)


def _outcomes(forecasts: Sequence[ScoredForecast]) -> list[tuple[float, bool]]:
    """Return each stated probability with its outcome."""
    return [
        (probability, f.wait_s is not None and f.wait_s <= within_s)
        for f in forecasts
        for within_s, probability in f.probabilities
    ]


def _reliability(forecasts: Sequence[ScoredForecast]) -> list[Json]:
    """Return stated probabilities in tenths, with the share of them that came true."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for probability, outcome in _outcomes(forecasts):
        bins.setdefault(min(_BINS - 1, int(probability * _BINS)), []).append((probability, outcome))
    return [
        {
            "stated": _mean([p for p, _ in pairs]),
            "observed": _mean([o for _, o in pairs]),
            "statements": len(pairs),
        }
        for _, pairs in sorted(bins.items())
    ]


def _brier(forecasts: Sequence[ScoredForecast]) -> float | None:
    return _mean([(p - outcome) ** 2 for p, outcome in _outcomes(forecasts)])


def _comparison(forecasts: Sequence[ScoredForecast]) -> Json | None:
    """Compare medians with the site's own estimates, on the same jobs; None where the site was
    never queried for one."""
    if not any(f.was_queried for f in forecasts):
        return None
    rows = [
        (f.wait_s, f.estimate_s, bound_s)
        for f in forecasts
        if f.wait_s is not None and f.estimate_s is not None
        for quantile, bound_s in f.bounds
        if quantile == 0.5 and bound_s is not None
    ]
    return {
        "jobs": len(rows),
        "left_out": len(forecasts) - len(rows),
        "started_by_estimate": _mean([w <= e for w, e, _ in rows]),
        "median_error_s": {
            "vgrads": _median([abs(w - b) for w, _, b in rows]),
            "slurm": _median([abs(w - e) for w, e, _ in rows]),
        },
        "pinball_s": {
            "vgrads": _mean([pinball(0.5, b, w) for w, _, b in rows]),
            "slurm": _mean([pinball(0.5, e, w) for w, e, _ in rows]),
        },
    }


def coverage_warning(covered: Sequence[bool]) -> str | None:
    """Return a warning if too few of the newest bounds were not exceeded; ``covered``: newest
    first. None for fewer than are watched."""
    newest = covered[:WATCHED]
    if len(newest) < WATCHED or sum(newest) >= ALARM * WATCHED:
        return None
    share = sum(newest) / WATCHED
    return (
        f"the last {WATCHED} bounds at probability {ALARM_LEVEL} covered {share:.1%} of the waits: "
        "its forecasts are too low at present"
    )


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
