"""By how much does an answer move when it was learned one job earlier, or before the newest anchor?
``python -m vgrads_studies.waits.jitter LOGS… [--instants 40]``

At random instants of each log a forecast is learned, and a second one from one submission less; and
at the newest of its anchors, where models and correction are learned anew, one from just before and
one from just after. Both answer for the same state of the queue, for the shapes of ten jobs.
Printed: median, ninth decile and largest relative difference of the bound at .95, the ratio of that
ninth decile to the one of QBETS, and the share of P(start within 5 or 30 minutes, 1, 2 or 6 hours)
that moves by more than .05.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.kernel.text_table import pad
from vgrads.qbets.predictor import JobArrival, Settings
from vgrads.qbets.state_forecast import StateForecast, forecast_state
from vgrads.qbets.state_predictor import list_anchors
from vgrads.traces.history import history_name, read_history
from vgrads.traces.records import JobLog

_LEARN = Settings(method="state", knows_user=False)
_WITHIN_S = np.array([300.0, 1800.0, 3600.0, 7200.0, 21_600.0])


def differences(log: JobLog, rows: Sequence[int]) -> tuple[list[float], list[float], list[float]]:
    """Return relative differences of the bounds of ours and of QBETS, and differences of our
    probabilities, where the last of these submissions are learned and where they are not."""
    ours, qbets, chances = list[float](), list[float](), list[float]()
    for row in rows:
        at_s = float(log.submit_s[row])
        now = forecast_state(log, at_s, _LEARN)
        before = forecast_state(log, float(log.submit_s[row - 1]), _LEARN)
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
            new, old = (source.probability(*job[:2], _WITHIN_S) for source in pair)
            chances += np.abs(new - old).tolist()
    return ours, qbets, chances


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--instants", type=int, default=40)
    how = parser.parse_args()
    for path in how.logs:
        log = read_history(path)
        draws = stream(11, "jitter", history_name(path))
        instants = draws.integers(3000, min(len(log), 60_000), how.instants)
        newest = [anchor - 1 for anchor in list_anchors(min(len(log), 60_000)) if anchor > 3000]
        for where, rows in (("one job later", instants.tolist()), ("at an anchor", newest)):
            ours, qbets, chances = differences(log, rows)
            middle, high = np.quantile(ours, [0.5, 0.9])
            print(
                f"{pad(history_name(path)[:14], 14)} {where}: median {middle:.3f}, nine of ten "
                f"{high:.3f}, largest {max(ours):.2f}; nine of ten of QBETS "
                f"{np.quantile(qbets, 0.9):.3f}; {np.mean(np.array(chances) > 0.05):.1%} of P(T) "
                "by more than .05",
                flush=True,
            )


if __name__ == "__main__":
    main()
