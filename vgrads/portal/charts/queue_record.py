"""How the bounds of one queue have done over its whole history, as a picture."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from vgrads.api.queues.histories import open_history
from vgrads.portal.charts.backtest import history_picture
from vgrads.qbets.backtest import backtest
from vgrads.qbets.predictor import Settings
from vgrads.traces.records import LogQueue


def record_picture(history: str, log_queue: LogQueue, dark: bool = False) -> bytes:
    """Bound against wait, and rolling coverage, as PNG."""
    return _picture(history, Path(history).stat().st_mtime_ns, log_queue, dark)


@lru_cache(maxsize=64)
def _picture(history: str, _changed_ns: int, log_queue: LogQueue, dark: bool) -> bytes:
    trial = backtest(
        open_history(history).only_queue(log_queue), history, "*", Settings(knows_user=False)
    )
    return history_picture(trial, dark)
