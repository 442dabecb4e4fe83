"""Backtest of bounds: replay a history without using information before its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgrads.qbets.clusters import SIZES, find_bin
from vgrads.qbets.coverage_groups import iterate_groups
from vgrads.qbets.past_replay import NONE, FurtherBounds
from vgrads.qbets.predictor import LEARNED, Settings
from vgrads.qbets.replay import HistoryReplay, Learner, make_predictor
from vgrads.traces.records import JobLog

WINDOW = 500  # consecutive scored jobs for the worst coverage
QUICK_S = 3600.0
_STEP = 2000  # jobs between progress callbacks


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestRow:
    """One row of the table; the fields are those of the contracts. ``view``: which jobs questions
    could see (:data:`vgrads.qbets.views.VIEWS`); ``question``: the properties of a job that they
    had."""

    history: str
    queue: str
    method: str
    view: str
    question: str
    jobs: int
    scored: int
    unscored: int
    withdrawn: int
    coverage: float | None
    worst_window_coverage: float | None
    pinball_s: float | None
    median_bound_s: float | None
    mean_bound_s: float | None
    median_ratio: float | None
    quick_bounded: float | None
    change_points: int
    downtimes: int
    seconds: float
    jobs_per_s: float

    def as_json(self) -> dict[str, Any]:
        row = asdict(self)
        # "as" is a keyword of Python, which no field can be named after
        return {"as" if name == "question" else name: value for name, value in row.items()}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A complete backtest of one history: the bound with this ``probability`` that was issued to
    every job, and the results."""

    history: str
    queue: str
    probability: float
    log: JobLog
    issued_s: NDArray[np.float64]
    predictor: Learner
    seconds: float

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Every started job with an issued bound: all of them from the first on."""
        return self.log.started & ~np.isnan(self.issued_s)

    def row(self) -> BacktestRow:
        """Return the row of the table for all jobs."""
        return self._row(self.queue, np.ones(len(self.log), dtype=bool))

    def cluster_rows(self) -> list[BacktestRow]:
        """Return a row for each cluster at the end; sizes without the user's waiting jobs."""
        settings = self.predictor.settings
        size = SIZES[settings.cluster_size]
        shapes = zip(self.log.procs.tolist(), self.log.request_s.tolist(), strict=True)
        edges = self.predictor.edges
        bins = np.array([find_bin(edges, size(*settings.shape(*shape), 0)) for shape in shapes])
        names = [f"{self.queue} ≤ {edge:g}" for edge in edges] + [
            f"{self.queue} > {edges[-1]:g}" if edges else self.queue
        ]
        return [
            self._row(name, bins == index)
            for index, name in enumerate(names)
            if (bins == index).any()
        ]

    def group_rows(self) -> list[BacktestRow]:
        """Return a row for each group of jobs by width, queue and requested time."""
        groups = iterate_groups(self.log, self.scored)
        return [self._row(f"{dimension} {name}", part) for dimension, name, part in groups]

    def _row(self, name: str, part: NDArray[np.bool_]) -> BacktestRow:
        scored, started, settings = (
            self.scored & part,
            self.log.started & part,
            self.predictor.settings,
        )
        measures = score(self.log.wait_s[scored], self.issued_s[scored], self.probability)
        return BacktestRow(
            history=self.history,
            queue=name,
            method=settings.method,
            view=settings.view,
            question="known" if settings.knows_user else "asked",
            jobs=int(started.sum()),
            scored=int(scored.sum()),
            unscored=int(started.sum() - scored.sum()),
            withdrawn=int((part & ~self.log.started).sum()),
            change_points=len(self.predictor.change_points),
            downtimes=len(self.predictor.downtime.past),
            seconds=self.seconds,
            jobs_per_s=len(self.log) / max(self.seconds, 1e-9),
            **measures,
        )


def backtest(
    log: JobLog,
    history: str,
    queue: str = "*",
    settings: Settings | None = None,
    callback: Callable[[float, float], None] | None = None,
) -> Trial:
    """Replay ``log`` without using information before its time, for bounds with the probability
    and confidence of the settings; ``callback`` receives the number of jobs done, and the total."""
    settings = settings or Settings()
    return backtest_levels(log, history, queue, settings, (settings.quantile,), callback)[0]


def backtest_levels(
    log: JobLog,
    history: str,
    queue: str,
    settings: Settings,
    probabilities: Sequence[float],
    callback: Callable[[float, float], None] | None = None,
) -> list[Trial]:
    """Return a backtest for each probability. By the state, one replay answers for all."""
    if not settings.looks_at_state:
        replays = [
            # change points and the adaptive correction follow the quantile: a replay for each
            _replay(log, settings.for_bounds(probability), NONE, callback)
            for probability in probabilities
        ]
        issued = [passing.issued for passing, _ in replays]
    else:
        levels = tuple(dict.fromkeys(probabilities))
        if settings.confidence == LEARNED:  # what is learned anyway
            levels = tuple(level for level in levels if level != LEARNED)
        further = FurtherBounds(levels, settings.confidence)
        one = _replay(log, settings.for_bounds(LEARNED), further, callback)
        replays = [one] * len(probabilities)
        issued = [one[0].issued_at(p if p in levels else None) for p in probabilities]
    return [
        Trial(
            history=history,
            queue=queue,
            probability=probability,
            log=log,
            issued_s=issued_s,
            predictor=passing.predictor,
            seconds=seconds,
        )
        for probability, issued_s, (passing, seconds) in zip(
            probabilities, issued, replays, strict=True
        )
    ]


def _replay(
    log: JobLog,
    settings: Settings,
    further: FurtherBounds,
    callback: Callable[[float, float], None] | None,
) -> tuple[HistoryReplay, float]:
    """Return a complete replay, and its seconds."""
    begin = time.perf_counter()
    passing = HistoryReplay(log, make_predictor(settings, log, further))
    if callback is not None:
        for row in range(_STEP, len(log), _STEP):
            # stops only to report progress: what is learned does not depend on where a replay stops
            passing.to(float(log.submit_s[row]))
            callback(row, len(log))
    passing.to()
    return passing, time.perf_counter() - begin


def score(
    waits_s: NDArray[np.float64], bounds_s: NDArray[np.float64], quantile: float
) -> dict[str, float | None]:
    """Return coverage and tightness of bounds for the actual waits; None if nothing was scored.

    A wait or bound of 0 counts as 1 s in ``median_ratio``, which is wait over bound.
    """
    if not len(waits_s):
        names = (
            "coverage",
            "worst_window_coverage",
            "pinball_s",
            "median_bound_s",
            "mean_bound_s",
            "median_ratio",
            "quick_bounded",
        )
        return dict.fromkeys(names)
    kept = waits_s <= bounds_s
    quick = waits_s <= QUICK_S
    return {
        "coverage": float(kept.mean()),
        "worst_window_coverage": find_worst_window(kept),
        "pinball_s": pinball(waits_s, bounds_s, quantile),
        "median_bound_s": float(np.median(bounds_s)),
        "mean_bound_s": float(bounds_s.mean()),
        "median_ratio": float(np.median(np.maximum(waits_s, 1) / np.maximum(bounds_s, 1))),
        "quick_bounded": float((bounds_s[quick] <= QUICK_S).mean()) if quick.any() else None,
    }


def pinball(waits_s: NDArray[np.float64], bounds_s: NDArray[np.float64], quantile: float) -> float:
    """Return the mean pinball (quantile) loss in seconds: q·(w−b) above the bound, (1−q)·(b−w)
    below."""
    over = waits_s - bounds_s
    return float(np.maximum(quantile * over, (quantile - 1) * over).mean())


def find_worst_window(kept: NDArray[np.bool_], window: int = WINDOW) -> float:
    """Return the lowest coverage of any ``window`` consecutive jobs; of all of them if there are
    fewer."""
    return float(compute_rolling_coverage(kept, window).min())


def compute_rolling_coverage(kept: NDArray[np.bool_], window: int = WINDOW) -> NDArray[np.float64]:
    """Return the coverage of every ``window`` consecutive jobs; one value, that of all, if there
    are fewer."""
    width = min(window, len(kept))
    # differences of running totals: one pass for all windows
    total = np.concatenate([[0], np.cumsum(kept)])
    shares: NDArray[np.float64] = (total[width:] - total[:-width]) / width
    return shares
