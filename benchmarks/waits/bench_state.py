"""Bounds by the state of a queue: against statsmodels' quantile regression and the library's own
answers.

    python benchmarks/waits/bench_state.py [LOG...]      # default: a shipped history

Each log is split: its first two thirds (at most 20,000 jobs) teach, the next sixth is foretold; no
correction, no QBETS, the models alone.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np
import statsmodels.api as sm
from sklearn.ensemble import HistGradientBoostingRegressor

from vgrads.api.config import embedded_data
from vgrads.qbets.backtest import pinball
from vgrads.qbets.conditional import LEVELS, base_columns, clean, fit
from vgrads.qbets.events import list_users, make_events
from vgrads.qbets.predictor import Settings
from vgrads.qbets.state.queue_features import FEATURES
from vgrads.qbets.state.queue_state import QueueState
from vgrads.qbets.state.queue_tables import SUBMIT
from vgrads.qbets.state_forecast import forecast_state
from vgrads.traces.history import history_name, read_history
from vgrads.traces.records import JobLog

_SURE = LEVELS.index(0.95)
_MOST = 20_000


def states(log: JobLog) -> tuple[np.ndarray, float]:
    """Features of every submission, and microseconds a job."""
    events = make_events(log, ends=True)
    how = (0, log.unix_start_s, True, True)
    for part in (events.part(0, 100), events):  # compiled before the clock runs
        state = QueueState()
        sizes = (log.procs.astype(float), log.request_s.astype(float))
        times = (log.submit_s, log.start_s)
        jobs = state.columns(times, sizes, list_users(log), log.queue)
        rows = int((part.kinds == SUBMIT).sum())
        begin = time.perf_counter()
        result = state.replay(part, jobs, log.started, how, rows)
    return result, (time.perf_counter() - begin) / len(log) * 1e6


def bench_model(name: str, log: JobLog) -> None:
    """Pinball loss at .95 and seconds of learning, trees on a base against linear quantiles."""
    features, each_us = states(log)
    existing = log.started
    rows, waits = features[existing], log.wait_s[existing]
    split = len(rows) * 2 // 3
    teach = slice(max(0, split - _MOST), split)
    ask = slice(split, split + len(rows) // 6)
    begin = time.perf_counter()
    model = fit(rows[teach], waits[teach])
    ours_s = time.perf_counter() - begin
    ours = model.knots(rows[ask])[:, _SURE] ** 3
    begin = time.perf_counter()
    columns = base_columns(clean(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may stop before it has converged, and says so
        linear = sm.QuantReg(np.cbrt(waits[teach]), columns[teach]).fit(q=0.95, max_iter=500)
    linear_s = time.perf_counter() - begin
    theirs = np.maximum(0.0, linear.predict(columns[ask])) ** 3
    losses = [pinball(waits[ask], bound, 0.95) for bound in (ours, theirs)]
    covered = [float((waits[ask] <= bound).mean()) for bound in (ours, theirs)]
    print(
        f"| {name} | {each_us:.0f} | {losses[0] / losses[1]:.2f} | {covered[0]:.3f} / "
        f"{covered[1]:.3f} | "
        f"{ours_s:.1f} (seven levels) / {linear_s:.1f} (one) |"
    )


def bench_answer(log: JobLog) -> None:
    """One question: all quantiles by our trees, and by a library's forest for each."""
    draws = np.random.default_rng(0)
    rows, target = draws.normal(size=(5000, len(FEATURES))), draws.normal(size=5000)
    forests = [
        HistGradientBoostingRegressor(
            loss="quantile", quantile=q, max_iter=50, max_leaf_nodes=15, early_stopping=False
        ).fit(rows, target)
        for q in LEVELS
    ]
    model = fit(np.abs(rows), np.abs(target))
    model.knots(rows[0])
    compiled = _each(lambda: model.knots(rows[0]))
    library = _each(lambda: [forest.predict(rows[:1]) for forest in forests])
    print(
        f"\nSeven quantiles of one job: {compiled * 1e6:.0f} µs, {library * 1e3:.2f} ms by "
        f"seven forests of scikit-learn's: {library / compiled:.0f} times as long."
    )
    existing = forecast_state(log, log.end_s, Settings(method="state"))
    existing.bound(8, 7200.0, 0.95)
    walltimes = iter(
        np.arange(1.0, 1000.0)
    )  # never the same question twice: answers are remembered
    whole = _each(lambda: existing.bound(8, 7200.0 + next(walltimes), 0.95))
    print(f"A whole answer, state and simulated starts included: {whole * 1e3:.2f} ms.")


def _each(work: object, count: int = 200) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        work()  # type: ignore[operator]
    return (time.perf_counter() - begin) / count


def bench_growth() -> None:
    """Ten times the queue: how long the features take, and the exponent."""
    from vgrads.qbets.predictor import JobArrival  # noqa: PLC0415

    sizes, seconds = (30, 300, 3000), []
    for waiting in sizes:
        state = QueueState()
        for n in range(waiting + 20):
            state.submit(n, float(n), JobArrival(1 + n % 16, 3600.0, n % 9))
            if n < 20:
                state.start(n, float(n))
        job = JobArrival(8, 3600.0, 3)
        state.features(job, 1e4)
        seconds.append(_each(lambda state=state, job=job: state.features(job, 1e4), 20))
    exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    text = ", ".join(f"{n:,}: {s * 1e3:.2f} ms" for n, s in zip(sizes, seconds, strict=True))
    print(f"State of a queue with so many waiting jobs: {text}; exponent {exponent:.2f}.")


def main() -> None:
    paths = [Path(p) for p in sys.argv[1:]] or [embedded_data() / "histories" / "mercury.swf.gz"]
    print(
        "| log | state (µs a job) | pinball ÷ QuantReg | covered ours / QuantReg | "
        "learning (s) ours / QuantReg |"
    )
    print("|---|--:|--:|--:|--:|")
    for path in paths:
        bench_model(history_name(path), read_history(path))
    bench_answer(read_history(paths[0]))
    bench_growth()


if __name__ == "__main__":
    main()
