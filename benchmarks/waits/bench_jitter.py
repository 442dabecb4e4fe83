"""By how much does a bound move when the model was learned one job earlier, or one anchor earlier?
``python benchmarks/waits/bench_jitter.py LOGS… [--instants 40]``

At random instants of each log a forecast is learned, and a second one from one submission less (or
from before the newest anchor, where all models and the correction are learned anew). Both answer
for the same state of the queue, for the shapes of ten jobs. Printed: median, ninth decile and
largest relative difference of the bound at .95, and the ratio of that ninth decile to the one of
QBETS.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.qbets.predictor import JobArrival, Settings
from vgrads.qbets.state_forecast import StateForecast, forecast_state
from vgrads.qbets.state_predictor import anchors_of
from vgrads.traces.history import history_name, read_history
from vgrads.traces.records import JobLog

_LEARN = Settings(method="state", knows_user=False)


def differences(log: JobLog, instants: np.ndarray, earlier: str) -> tuple[list[float], list[float]]:
    """Relative differences of the bounds of ours and of QBETS."""
    ours, qbets = list[float](), list[float]()
    for row in instants.tolist():
        at_s = float(log.submit_s[row])
        before_row = row - 1 if earlier == "job" else max(a for a in anchors_of(row) if a < row) - 2
        now = forecast_state(log, at_s, _LEARN)
        before = forecast_state(log, float(log.submit_s[before_row]), _LEARN)
        if not isinstance(now, StateForecast) or not isinstance(before, StateForecast):
            continue
        shapes = np.random.default_rng(row).choice(row, 10)
        for shape in shapes.tolist():
            asker = JobArrival(queue=int(log.queue[shape]))
            job = (int(log.procs[shape]), float(log.request_s[shape]), 0.95)
            pair = (
                replace(now, asker=asker),
                replace(before, state=now.state, at_s=now.at_s, asker=asker),
            )
            for result, sources in ((ours, pair), (qbets, [one.floor for one in pair])):
                new_s, old_s = (float(source.bounds(*job)) for source in sources)
                result.append(abs(new_s - old_s) / max(new_s, 1.0))
    return ours, qbets


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--instants", type=int, default=40)
    how = parser.parse_args()
    for path in how.logs:
        log = read_history(path)
        draws = stream(11, "jitter", history_name(path))
        instants = draws.integers(3000, min(len(log), 60_000), how.instants)
        for earlier in ("job", "anchor"):
            ours, qbets = differences(log, instants, earlier)
            middle, high = np.quantile(ours, [0.5, 0.9])
            print(
                f"{history_name(path)[:14]:<14} one {earlier} earlier: median {middle:.3f}, nine "
                f"of ten {high:.3f}, largest {max(ours):.2f}; nine of ten of QBETS "
                f"{np.quantile(qbets, 0.9):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
