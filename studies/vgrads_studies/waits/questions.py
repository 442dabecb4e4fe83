"""Are answers right as they are asked? ``python -m vgrads_studies.waits.questions LOGS…
[--jobs 20000] [--sample 2000] [--known] [--without-requests]``

Every log is replayed; before a random sample of its submissions the forecast is frozen and asked,
as a person would ask it, about a job of that shape: the bound at .95 and .5, and P(start within T)
for five T. QBETS answers the same questions. Printed for each log: coverage, pinball loss and Brier
score as ratios to QBETS, the calibration error of the probabilities (mean distance of tenths from
what happened). The forecast is also the one that a command learns for a single answer
(``tests/qbets/test_state.py`` compares them).
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.kernel.text_table import pad
from vgrads.qbets.backtest import pinball
from vgrads.qbets.predictor import JobArrival, Settings
from vgrads.qbets.replay import HistoryReplay, make_predictor
from vgrads.qbets.state_forecast import StateForecast, freeze_state
from vgrads.qbets.state_predictor import StatePredictor
from vgrads.traces.history import history_name, read_history
from vgrads.traces.records import JobLog

Answers = dict[str, list[list[float]]]

WITHIN_S = np.array([300.0, 1800.0, 3600.0, 7200.0, 21600.0])
_WARM = 2000  # jobs before the first question


def measure(path: Path, how: Namespace) -> str:
    """A row of the table."""
    log = read_history(path)
    log = log.select(np.arange(min(how.jobs, len(log))))
    if how.without_requests:
        log = replace(log, request_s=np.full(len(log), -1.0))
    settings = Settings(method="state", knows_user=how.named)
    rows = np.flatnonzero(log.started)
    rows = rows[rows >= min(_WARM, len(log) // 3)]
    draws = stream(7, "asked", history_name(path))
    answers: Answers = {"ours": [], "qbets": []}
    requested: list[int] = []
    chosen = np.sort(draws.choice(rows, min(how.sample, len(rows)), replace=False))
    requested += _ask(log, HistoryReplay(log, make_predictor(settings, log)), chosen, answers)
    rows = np.array(requested)
    wait_s = log.wait_s[rows]
    ours, qbets = (np.array(answers[name]) for name in ("ours", "qbets"))
    message = ~np.isnan(ours[:, :2]).any(axis=1) & ~np.isnan(qbets[:, :2]).any(axis=1)
    ours, qbets, wait_s = ours[message], qbets[message], wait_s[message]
    happened = wait_s[:, None] <= WITHIN_S
    brier = [float(((a[:, 2:] - happened) ** 2).mean()) for a in (ours, qbets)]
    errors = [_calibration_error(a[:, 2:].ravel(), happened.ravel()) for a in (ours, qbets)]
    loss = [pinball(wait_s, a[:, 1], 0.95) for a in (ours, qbets)]
    return (
        f"{pad(history_name(path)[:14], 14)} {len(wait_s)} | .95: "
        f"{(wait_s <= ours[:, 1]).mean():.3f} ({(wait_s <= qbets[:, 1]).mean():.3f}) | "
        f".50: {(wait_s <= ours[:, 0]).mean():.3f} | pinball {loss[0] / loss[1]:.3f} | "
        f"Brier {brier[0]:.3f} {brier[0] / brier[1]:.3f} | "
        f"calibration {errors[0]:.3f} ({errors[1]:.3f})"
    )


def _ask(log: JobLog, passing: HistoryReplay, rows: np.ndarray, answers: Answers) -> list[int]:
    """Ask about each of these jobs in the second before it comes."""
    for row in rows.tolist():
        at_s = float(log.submit_s[row])
        passing.to(float(np.nextafter(at_s, -np.inf)))
        queue = JobArrival(queue=int(log.queue[row]))
        forecast = freeze_state(
            cast(StatePredictor, passing.predictor), at_s, float(log.submit_s[0]), queue
        )
        floor = forecast.floor if isinstance(forecast, StateForecast) else forecast
        shape = (int(log.procs[row]), float(log.request_s[row]))
        for name, item in (("ours", forecast), ("qbets", floor)):
            bounds = item.bounds(*shape, [0.5, 0.95])
            answers[name].append([*bounds, *item.probability(*shape, WITHIN_S)])
    return [int(row) for row in rows]


def _calibration_error(chances: np.ndarray, happened: np.ndarray) -> float:
    tenths = np.minimum((chances * 10).astype(int), 9)
    gaps = [
        (tenths == n).mean() * abs(chances[tenths == n].mean() - happened[tenths == n].mean())
        for n in range(10)
        if (tenths == n).any()
    ]
    return float(sum(gaps))


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--sample", type=int, default=2000)
    parser.add_argument(
        "--without-requests", action="store_true", help="leave out the requested times of all jobs"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--known", dest="named", action="store_true", help="questions name their user"
    )
    how = parser.parse_args()
    with ProcessPoolExecutor(how.workers) as pool:
        for row in pool.map(measure, how.logs, [how] * len(how.logs)):
            print(row, flush=True)


if __name__ == "__main__":
    main()
