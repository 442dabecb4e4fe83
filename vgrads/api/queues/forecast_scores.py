"""Scores of forecasts as issued: coverage, pinball loss, reliability, and the comparison with the
site's own start estimates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from vgrads.api.queues.issued import LEVELS, Bounds, Probabilities
from vgrads.qbets.views import VIEWS
from vgrads.vgrid.varq_record import FEWEST, RequiredLevel, compute_required_level

Json = dict[str, Any]
WINDOW = 500
"""Newest scored forecasts that a score is about."""
WATCHED, ALARM, ALARM_LEVEL = 200, 0.90, 0.95
"""Newest bounds that are watched, the coverage below which they raise a warning, and their
quantile. At a true coverage of .95, 200 bounds fall below .90 in 1 of 1,000 cases."""
_CHANCE = 0.001
"""Chance at which so few statements come true if they are right, as for bounds."""
_STRETCHES = 4
"""Earlier stretches of bounds that show how many outcomes are usually unknown."""
_BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredForecast:
    """A forecast with the wait of its job; None: the job has not started, or never will.

    ``observed_s``: for every wait up to this it is known whether it was exceeded; all, of a job of
    our own. ``estimate_s``: the site's own estimate of the wait at the same instant;
    ``was_queried``: whether the site was queried for it. ``view``: in which its queue was learned;
    empty where that was not recorded. ``job_submit_s``: submission of its job, None where none is
    known. ``promised``: as in :class:`vgrads.api.queues.issued.IssuedForecast`.
    """

    bounds: Bounds = ()
    probabilities: Probabilities = ()
    wait_s: float | None
    observed_s: float = math.inf
    estimate_s: float | None = None
    was_queried: bool = False
    view: str = ""
    job_submit_s: float | None = None
    promised: float | None = None

    def covered(self, level: float) -> bool | None:
        """Return whether the bound of a quantile was not exceeded; None where none was stated, and
        while that cannot be known whatever happens."""
        bound_s = dict(self.bounds).get(level)
        return (
            None if bound_s is None else has_started_within(bound_s, self.wait_s, self.observed_s)
        )


def has_started_within(limit_s: float, wait_s: float | None, observed_s: float) -> bool | None:
    """Return whether a job started within a time after its submission. None before that time has
    passed, also if it has started: else the newest forecasts would be judged by the jobs that were
    lucky, while the others still wait.

    >>> [has_started_within(60.0, wait_s, 30.0) for wait_s in (10.0, None, 90.0)]
    [None, None, False]
    >>> [has_started_within(60.0, wait_s, 60.0) for wait_s in (10.0, None, 90.0)]
    [True, False, False]
    """
    if wait_s is not None and wait_s > limit_s:
        return False
    return None if observed_s < limit_s else wait_s is not None


def score(forecasts: Sequence[ScoredForecast]) -> Json:
    """Return the score of the newest forecasts; ``forecasts``: newest first."""
    newest = forecasts[:WINDOW]
    return {
        "scored": len(newest),
        "quantiles": [_score_quantile(newest, level) for level in LEVELS],
        "views": _count_by_view(newest),
        "reliability": _compute_reliability(newest),
        "brier": _compute_brier(newest),
        "slurm": _compare_medians(newest),
    }


def _score_quantile(forecasts: Sequence[ScoredForecast], level: float) -> Json:
    covered = [c for c in (f.covered(level) for f in forecasts) if c is not None]
    losses = [
        pinball(level, bound_s, f.wait_s)
        for f in forecasts
        if f.wait_s is not None and f.covered(level) is not None
        for quantile, bound_s in f.bounds
        if quantile == level and bound_s is not None
    ]
    return {
        "quantile": level,
        "bounds": len(covered),
        "coverage": _compute_mean(covered),
        "pinball_s": _compute_mean(losses),
    }


def _count_by_view(forecasts: Sequence[ScoredForecast]) -> list[Json]:
    """Return how many forecasts were given in each view, and the share of their bounds at
    :data:`ALARM_LEVEL` that were not exceeded. ``view``: None where it was not recorded."""
    rows = list[Json]()
    for view in (*VIEWS, ""):
        of_view = [forecast for forecast in forecasts if forecast.view == view]
        covered = [c for c in (f.covered(ALARM_LEVEL) for f in of_view) if c is not None]
        row = {
            "view": view or None,
            "scored": len(of_view),
            "bounds": len(covered),
            "coverage": _compute_mean(covered),
        }
        rows += [row] if of_view else []
    return rows


def pinball(level: float, bound_s: float, wait_s: float) -> float:
    """Return the pinball loss of a quantile.

    >>> pinball(0.75, 10.0, 14.0)
    3.0
    """
    miss_s = wait_s - bound_s
    return max(level * miss_s, (level - 1.0) * miss_s)


def pair_outcomes(forecasts: Iterable[ScoredForecast]) -> list[tuple[float, bool]]:
    """Return each stated probability with its outcome, where that is known."""
    pairs = [
        (probability, has_started_within(within_s, f.wait_s, f.observed_s))
        for f in forecasts
        for within_s, probability in f.probabilities
    ]
    return [(probability, outcome) for probability, outcome in pairs if outcome is not None]


def pair_promises(forecasts: Iterable[ScoredForecast]) -> list[tuple[float, bool]]:
    """Return the probability that was promised with each recommended submission, and whether its
    job started in time, in the order in which the outcomes were settled. ``forecasts``: newest
    first.

    What was promised repeatedly and is judged by the same job counts once: the newest.
    """
    settled: dict[tuple[float, float], tuple[float, bool]] = {}
    for f in forecasts:
        if f.promised is None or f.job_submit_s is None:
            continue
        for within_s, _ in f.probabilities:
            outcome = has_started_within(within_s, f.wait_s, f.observed_s)
            if outcome is not None:
                end_s = f.job_submit_s + within_s
                settled.setdefault((f.promised, f.job_submit_s), (end_s, outcome))
    order = sorted(settled.items(), key=lambda entry: entry[1][0])
    return [(promised, outcome) for (promised, _), (_, outcome) in order]


def _compute_reliability(forecasts: Sequence[ScoredForecast]) -> list[Json]:
    """Return stated probabilities in tenths, with the share of them that came true."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for probability, outcome in pair_outcomes(forecasts):
        bins.setdefault(_find_bin(probability), []).append((probability, outcome))
    return [
        {
            "stated": _compute_mean([p for p, _ in pairs]),
            "observed": _compute_mean([o for _, o in pairs]),
            "statements": len(pairs),
        }
        for _, pairs in sorted(bins.items())
    ]


def _find_bin(probability: float) -> int:
    # a probability of 1 belongs to the last tenth
    return min(_BINS - 1, int(probability * _BINS))


def _compute_brier(forecasts: Sequence[ScoredForecast]) -> float | None:
    return _compute_mean([(p - outcome) ** 2 for p, outcome in pair_outcomes(forecasts)])


def _compare_medians(forecasts: Sequence[ScoredForecast]) -> Json | None:
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
        "started_by_estimate": _compute_mean([w <= e for w, e, _ in rows]),
        "median_error_s": {
            "vgrads": _compute_median([abs(w - b) for w, _, b in rows]),
            "slurm": _compute_median([abs(w - e) for w, e, _ in rows]),
        },
        "pinball_s": {
            "vgrads": _compute_mean([pinball(0.5, b, w) for w, _, b in rows]),
            "slurm": _compute_mean([pinball(0.5, e, w) for w, e, _ in rows]),
        },
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedBounds:
    """The newest bounds at :data:`ALARM_LEVEL` of a queue, by the time of issue, as far as their
    time has passed.

    ``bounds``: those with a known outcome, of which ``covered`` were not exceeded; ``unknown``:
    those issued meanwhile for which no job is known, though one that had started within the bound
    would be; ``hidden``: how many more these are than ever before.
    """

    bounds: int
    covered: int
    unknown: int
    hidden: int

    @property
    def warning(self) -> str | None:
        """Too few of the bounds were not exceeded, or would be if what is unknown waits; None for
        fewer bounds than are watched."""
        if self.bounds < WATCHED:
            return None
        share = f"{self.covered / self.bounds:.1%}"
        if self.covered < ALARM * self.bounds:
            return (
                f"the last {self.bounds} bounds at probability {ALARM_LEVEL} covered {share} of "
                "the waits: its forecasts are too low at present"
            )
        if self.covered < ALARM * (self.bounds + self.hidden):
            return (
                f"the last {self.bounds} known bounds at probability {ALARM_LEVEL} covered {share} "
                f"of the waits, but {self.unknown} of the last {self.bounds + self.unknown} are "
                "not known yet, more than ever before: jobs may wait for longer than forecast"
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """What the scores of a queue say of its next answers.

    ``warning``: of :class:`WatchedBounds`. ``submissions``: the probability of a start in time that
    was stated with each of the newest recommended submissions, and whether such a job did start.
    ``promises``: of those that were recommended as sufficient, as :func:`pair_promises` has them.
    """

    warning: str | None = None
    submissions: tuple[tuple[float, bool], ...] = ()
    promises: tuple[tuple[float, bool], ...] = ()

    def level(self, probability: float) -> RequiredLevel:
        """Return what an instant must reach so that a start with this probability is promised."""
        outcomes = [outcome for promised, outcome in self.promises if promised == probability]
        return compute_required_level(probability, outcomes)

    def contradiction(self, probability: float) -> str | None:
        """Say that recommended submissions led to a start in time less often than stated, where
        those with about this probability (the same tenth) did, by more than chance."""
        alike = [s for s in self.submissions if _find_bin(s[0]) == _find_bin(probability)]
        if len(alike) < FEWEST:
            return None
        from vgrads.planner.promise.probability import at_least  # noqa: PLC0415 late: few queues have so many

        chances, started = [chance for chance, _ in alike], sum(outcome for _, outcome in alike)
        # the probability that at most so many start, if what was stated is right
        if 1.0 - at_least(chances, started + 1) > _CHANCE:
            return None
        return (
            f"of the last {len(alike)} recommended submissions with a probability of "
            f"{fmean(chances):.2f} on average, {started} led to a start in time: such "
            "probabilities are too high at present"
        )


NO_RECORD = QueueRecord()


def watch(outcomes: Iterable[bool | None]) -> WatchedBounds:
    """Return the watched bounds; ``outcomes``: newest first, None where no job is known."""
    decided: list[bool] = []
    unknown, older = 0, list[bool | None]()
    for outcome in outcomes:
        if len(decided) == WATCHED:
            older.append(outcome)
        elif outcome is None:
            unknown += 1
        else:
            decided.append(outcome)
    hidden = _count_hidden(unknown, len(decided) + unknown, older) if unknown else 0
    return WatchedBounds(bounds=len(decided), covered=sum(decided), unknown=unknown, hidden=hidden)


def _count_hidden(unknown: int, of: int, older: Sequence[bool | None]) -> int:
    """Return how many more outcomes are unknown than in each earlier stretch of as many: questions
    are often about jobs that nobody submits, and more at some times than at others. 0 where there
    are too few older bounds to know what is usual."""
    stretches = [older[first : first + of] for first in range(0, len(older) - of + 1, of)]
    if len(stretches) < _STRETCHES:
        return 0
    return max(0, unknown - max(stretch.count(None) for stretch in stretches))


def _compute_mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _compute_median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
