"""Would the bounds have held? A history replayed with nothing known before its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgrads.qbets.clusters import SIZES, bin_of
from vgrads.qbets.predictor import Settings
from vgrads.qbets.replay import Learner, Replay, make_predictor
from vgrads.traces.records import JobLog

WINDOW = 500  # consecutive scored jobs over which the worst coverage is looked for
QUICK_S = 3600.0
_STEP = 2000  # jobs between two words of progress


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestRow:
    """One line of the table; the fields are those of the contracts. ``known_as``: what questions
    knew of a job."""

    history: str
    queue: str
    method: str
    known_as: str
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
        return {"as" if name == "known_as" else name: value for name, value in row.items()}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A whole backtest of one history: the bound that every job was given, and what was found."""

    history: str
    queue: str
    log: JobLog
    issued_s: NDArray[np.float64]
    predictor: Learner
    seconds: float

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Every started job that was given a bound: all of them from the first on."""
        return self.log.started & ~np.isnan(self.issued_s)

    def row(self) -> BacktestRow:
        """The line of the table for all jobs."""
        return self._row(self.queue, np.ones(len(self.log), dtype=bool))

    def cluster_rows(self) -> list[BacktestRow]:
        """A line for each cluster as it stood at the end; sizes without what the user had
        waiting."""
        settings = self.predictor.settings
        size = SIZES[settings.cluster_size]
        shapes = zip(self.log.procs.tolist(), self.log.request_s.tolist(), strict=True)
        edges = self.predictor.edges
        bins = np.array([bin_of(edges, size(*settings.shape(*shape), 0)) for shape in shapes])
        names = [f"{self.queue} ≤ {edge:g}" for edge in edges] + [
            f"{self.queue} > {edges[-1]:g}" if edges else self.queue
        ]
        return [
            self._row(name, bins == index)
            for index, name in enumerate(names)
            if (bins == index).any()
        ]

    def _row(self, name: str, part: NDArray[np.bool_]) -> BacktestRow:
        scored, started, settings = (
            self.scored & part,
            self.log.started & part,
            self.predictor.settings,
        )
        measures = score(self.log.wait_s[scored], self.issued_s[scored], settings.quantile)
        return BacktestRow(
            history=self.history,
            queue=name,
            method=settings.method,
            known_as="known" if settings.knows_user else "asked",
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
    told: Callable[[float, float], None] | None = None,
) -> Trial:
    """Replay ``log`` with nothing known before its time; ``told`` hears of jobs done, and of how
    many."""
    begin = time.perf_counter()
    predictor = make_predictor(settings or Settings(), log)
    passing = Replay(log, predictor)
    if told is not None:
        for row in range(_STEP, len(log), _STEP):
            passing.to(float(log.submit_s[row]))
            told(row, len(log))
    passing.to()
    seconds = time.perf_counter() - begin
    return Trial(
        history=history,
        queue=queue,
        log=log,
        issued_s=passing.issued,
        predictor=predictor,
        seconds=seconds,
    )


def score(
    waits_s: NDArray[np.float64], bounds_s: NDArray[np.float64], quantile: float
) -> dict[str, float | None]:
    """Coverage and tightness of bounds against the waits that came; None where nothing was scored.

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
        "worst_window_coverage": worst_window(kept),
        "pinball_s": pinball(waits_s, bounds_s, quantile),
        "median_bound_s": float(np.median(bounds_s)),
        "mean_bound_s": float(bounds_s.mean()),
        "median_ratio": float(np.median(np.maximum(waits_s, 1) / np.maximum(bounds_s, 1))),
        "quick_bounded": float((bounds_s[quick] <= QUICK_S).mean()) if quick.any() else None,
    }


def pinball(waits_s: NDArray[np.float64], bounds_s: NDArray[np.float64], quantile: float) -> float:
    """Mean pinball (quantile) loss in seconds: q·(w−b) above the bound, (1−q)·(b−w) below."""
    over = waits_s - bounds_s
    return float(np.maximum(quantile * over, (quantile - 1) * over).mean())


def worst_window(kept: NDArray[np.bool_], window: int = WINDOW) -> float:
    """Lowest coverage of any ``window`` consecutive jobs; of all of them where there are fewer."""
    return float(rolling_coverage(kept, window).min())


def rolling_coverage(kept: NDArray[np.bool_], window: int = WINDOW) -> NDArray[np.float64]:
    """Coverage of every ``window`` consecutive jobs; one value, that of all, where there are
    fewer."""
    width = min(window, len(kept))
    total = np.concatenate([[0], np.cumsum(kept)])
    shares: NDArray[np.float64] = (total[width:] - total[:-width]) / width
    return shares
