"""Do several jobs come together as foretold? ``python -m vgrads_studies.waits.together LOGS…
[--jobs 20000] [--sample 500]``

Pairs and fours of real jobs that one user submitted within five minutes, of any shapes and of one
shape (as offers are). Just before the first of them each is asked about: P(start within T of its
own submission) for five T, in each way of ``QUESTIONS``. Whether all of them, half of them, one of
them starts within T is then foretold from these by every way of ``WAYS``, and compared with what
happened: the mean over the groups of a log, missed where it is off by more than .03 and two
standard errors.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import cast

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.kernel.text_table import pad
from vgrads.qbets.predictor import NOBODY, JobArrival, Settings
from vgrads.qbets.replay import HistoryReplay, make_predictor
from vgrads.qbets.state_forecast import freeze_state
from vgrads.qbets.state_predictor import StatePredictor
from vgrads.traces.history import history_name, read_history
from vgrads.traces.records import JobLog

WITHIN_S = np.array([300.0, 1800.0, 3600.0, 7200.0, 21600.0])
KINDS = {"pairs": (2, False), "fours": (4, False), "like pairs": (2, True), "like fours": (4, True)}
"""How many, and whether all of one shape."""
QUESTIONS = {"nothing ahead": (False, 0), "as offers ask": (False, 1), "named": (True, 1)}
"""Whether the asker is known, and how many more of the asker's jobs each one finds ahead than the
one before it."""
_SOON_S = 300.0
_WARM = 2000  # jobs before the first question
_ALLOWED = 0.03

Way = Callable[[np.ndarray, int], np.ndarray]
"""Marginals (a row a job, a column a T), how many are needed: P(so many start within T)."""


def single_draw(marginals: np.ndarray, needed: int) -> np.ndarray:
    """One draw for all, they come early or late together: what plans reckon with."""
    return np.asarray(np.sort(marginals, axis=0)[-needed])


def independent(marginals: np.ndarray, needed: int) -> np.ndarray:
    """Each for itself."""
    exactly = np.zeros((len(marginals) + 1, marginals.shape[1]))
    exactly[0] = 1.0
    for chance in marginals:
        exactly[1:] = exactly[1:] * (1 - chance) + exactly[:-1] * chance
        exactly[0] *= 1 - chance
    return np.asarray(exactly[needed:].sum(axis=0))


WAYS: dict[str, Way] = {"one draw": single_draw, "independent": independent}


def groups_of(log: JobLog, size: int, alike: bool) -> list[list[int]]:
    """So many started jobs of one user in a row, the last within five minutes of the first."""
    results = []
    rows = np.flatnonzero(log.started & (log.user >= 0))
    rows = rows[rows >= min(_WARM, len(log) // 3)]
    for user in np.unique(log.user[rows]):
        own = rows[log.user[rows] == user]
        if len(own) >= size:
            close = log.submit_s[own[size - 1 :]] - log.submit_s[own[: 1 - size]] <= _SOON_S
            results += [own[n : n + size].tolist() for n in np.flatnonzero(close)]
    if alike:
        return [r for r in results if np.ptp(log.procs[r]) == 0 and np.ptp(log.request_s[r]) == 0]
    return results


def predict(
    log: JobLog, groups: list[list[int]], names_user: bool, step: int
) -> Iterator[np.ndarray]:
    """Of each group, in the order of time: P(each starts within T)."""
    passing = HistoryReplay(
        log, make_predictor(Settings(method="state", knows_user=names_user), log)
    )
    for rows in groups:
        at_s = float(log.submit_s[rows[0]])
        passing.to(float(np.nextafter(at_s, -np.inf)))
        asker = JobArrival(user=int(log.user[rows[0]])) if names_user else NOBODY
        forecast = freeze_state(
            cast(StatePredictor, passing.predictor), at_s, float(log.submit_s[0]), asker
        )
        yield np.array(
            [
                forecast.probability(
                    int(log.procs[row]), float(log.request_s[row]), WITHIN_S, ahead=n * step
                )
                for n, row in enumerate(rows)
            ]
        )


def measure(path: Path, how: Namespace) -> str:
    """The lines of one log."""
    log = read_history(path)
    log = log.select(np.arange(min(how.jobs, len(log))))
    chosen: list[tuple[str, list[int]]] = []
    for kind, (size, alike) in KINDS.items():
        groups = groups_of(log, size, alike)
        draws = stream(7, "together", history_name(path), f"{size}{' alike' * alike}")
        taken = draws.choice(len(groups), min(how.sample, len(groups)), replace=False)
        chosen += [(kind, groups[n]) for n in taken]
    chosen.sort(key=lambda item: item[1][0])
    lines = [history_name(path)]
    for requested, (existing, step) in QUESTIONS.items():
        message = list(predict(log, [rows for _, rows in chosen], existing, step))
        for kind, (size, _) in KINDS.items():
            part = [n for n, item in enumerate(chosen) if item[0] == kind]
            waits = np.array([log.wait_s[chosen[n][1]] for n in part])
            came = (waits[:, :, None] <= WITHIN_S).sum(axis=1)
            for needed in sorted({size, size // 2, 1}, reverse=True):
                for name, way in WAYS.items():
                    chances = np.array([way(message[n], needed) for n in part])
                    title = f"{needed} of {kind}, {requested}, {name}"
                    lines.append(_line(title, chances, came >= needed))
    return "\n".join(lines)


def _line(title: str, chances: np.ndarray, happened: np.ndarray) -> str:
    """For each T: foretold → happened, a star where it misses; the Brier score over all."""
    cells = []
    for column in range(len(WITHIN_S)):
        share, text = float(happened[:, column].mean()), float(chances[:, column].mean())
        error = np.sqrt(share * (1 - share) / len(happened))
        star = "*" if abs(text - share) > _ALLOWED + 2 * error else ""
        cells.append(f"{text:.3f}→{share:.3f}{star}")
    brier = float(((chances - happened) ** 2).mean())
    return (
        f"  {pad(title, 46)} {len(happened)} | {'  '.join(pad(c, 13) for c in cells)} | Brier "
        f"{brier:.4f}"
    )


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--sample", type=int, default=500, help="groups of each kind")
    how = parser.parse_args()
    with ProcessPoolExecutor(2) as pool:
        for lines in pool.map(measure, how.logs, [how] * len(how.logs)):
            print(lines, flush=True)


if __name__ == "__main__":
    main()
