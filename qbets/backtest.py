"""Would the bounds have held? A history replayed with nothing known before its time."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbets.predictor import QueuePredictor, replay
from traces.records import JobLog

WINDOW = 500  # consecutive scored jobs over which the worst coverage is looked for
QUICK_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestRow:
    """One line of the table; the fields are those of the contracts."""

    history: str
    queue: str
    method: str
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
    seconds: float
    jobs_per_s: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def backtest(
    log: JobLog,
    history: str,
    queue: str = "*",
    method: str = "bmbp",
    quantile: float = 0.95,
    confidence: float = 0.95,
) -> BacktestRow:
    """Replay ``log`` and score every started job from the first that was given a bound."""
    begin = time.perf_counter()
    predictor = QueuePredictor(quantile, confidence)
    issued = np.array(
        [np.nan if b is None else b for b in replay(log, predictor)], dtype=np.float64
    )
    seconds = time.perf_counter() - begin
    scored = log.started & ~np.isnan(issued)
    measures = score(log.wait_s[scored], issued[scored], quantile)
    return BacktestRow(
        history=history, queue=queue, method=method, jobs=int(log.started.sum()), scored=int(scored.sum()),
        unscored=int(log.started.sum() - scored.sum()), withdrawn=int((~log.started).sum()),
        change_points=len(predictor.change_points), seconds=seconds, jobs_per_s=len(log) / max(seconds, 1e-9),
        **measures,
    )  # fmt: skip


def score(
    waits_s: NDArray[np.float64], bounds_s: NDArray[np.float64], quantile: float
) -> dict[str, float | None]:
    """Coverage and tightness of bounds against the waits that came; None where nothing was scored.

    A wait or bound of 0 counts as 1 s in ``median_ratio``, which is wait over bound.
    """
    if not len(waits_s):
        names = ("coverage", "worst_window_coverage", "pinball_s", "median_bound_s", "mean_bound_s",
                 "median_ratio", "quick_bounded")  # fmt: skip
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
    if len(kept) <= window:
        return float(kept.mean())
    total = np.concatenate([[0], np.cumsum(kept)])
    return float((total[window:] - total[:-window]).min() / window)
