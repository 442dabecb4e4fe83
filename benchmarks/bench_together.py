"""Do several jobs come together as foretold? ``python benchmarks/bench_together.py LOGS… [--jobs 20000] [--sample 500]``

Pairs and fours of real jobs that one user submitted within five minutes. Just before the first of them each is asked about: P(start within
T of its own submission) for five T, the k-th with k − 1 of the asker's jobs ahead; once by a stranger, once with the user known. Whether all of
them start within T is then foretold from these by every way of ``WAYS``, and compared with what happened: the mean
over the groups of a log, missed where it is off by more than .03 and two standard errors.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from kernel.streams import stream
from qbets.predictor import NOBODY, Arrival, Ask, Settings
from qbets.replay import Replay, make_predictor
from qbets.state_forecast import Known, freeze_state
from traces.history import history_name, read_history
from traces.records import JobLog

WITHIN_S = np.array([300.0, 1800.0, 3600.0, 7200.0, 21600.0])
SIZES = (2, 4)
_SOON_S = 300.0
_WARM = 2000  # jobs before the first question
_ALLOWED = 0.03
_ASKERS = {"stranger": False, "known": True}

Way = Callable[[Known, np.ndarray, np.ndarray], np.ndarray]
"""Forecast, shapes (a row a job: processors, requested time, submission after the first), their marginals (a row a job, a column a T): P(all start within T)."""


def shared(_: Known, __: np.ndarray, marginals: np.ndarray) -> np.ndarray:
    """One draw for all: they come early or late together."""
    return marginals.min(axis=0)


def product(_: Known, __: np.ndarray, marginals: np.ndarray) -> np.ndarray:
    """Each for itself."""
    return marginals.prod(axis=0)


def joint(forecast: Known, shapes: np.ndarray, marginals: np.ndarray) -> np.ndarray:
    """As in simulated futures of the queue in which all of them are submitted: what plans reckon with."""
    levels = forecast.levels(
        [Ask(int(procs), request_s, at_s) for procs, request_s, at_s in shapes.tolist()]
    )
    if levels is None:
        return shared(forecast, shapes, marginals)
    return (levels[:, :, None] <= marginals).all(axis=1).mean(axis=0)


WAYS: dict[str, Way] = {"shared": shared, "product": product, "joint": joint}


def groups_of(log: JobLog, size: int) -> list[list[int]]:
    """So many started jobs of one user in a row, the last within five minutes of the first."""
    found = []
    rows = np.flatnonzero(log.started & (log.user >= 0))
    rows = rows[rows >= min(_WARM, len(log) // 3)]
    for user in np.unique(log.user[rows]):
        own = rows[log.user[rows] == user]
        if len(own) >= size:
            close = log.submit_s[own[size - 1 :]] - log.submit_s[own[: 1 - size]] <= _SOON_S
            found += [own[n : n + size].tolist() for n in np.flatnonzero(close)]
    return found


def foretell(log: JobLog, groups: list[list[int]], known: bool) -> Iterator[dict[str, np.ndarray]]:
    """Of each group, in the order of time: P(all start within T) by every way."""
    passing = Replay(log, make_predictor(Settings(method="state", knows_user=known), log))
    for rows in groups:
        first = rows[0]
        at_s = float(log.submit_s[first])
        passing.to(float(np.nextafter(at_s, -np.inf)))
        asker = Arrival(user=int(log.user[first])) if known else NOBODY
        forecast = freeze_state(passing.predictor, at_s, float(log.submit_s[0]), asker)
        shapes = np.column_stack([log.procs[rows], log.request_s[rows], log.submit_s[rows] - at_s])
        marginals = np.array([
            forecast.probability(int(procs), float(request_s), WITHIN_S, ahead=n)
            for n, (procs, request_s, _) in enumerate(shapes)
        ])  # fmt: skip
        yield {name: way(forecast, shapes, marginals) for name, way in WAYS.items()}


def measure(path: Path, how: Namespace) -> str:
    """The lines of one log."""
    log = read_history(path)
    log = log.select(np.arange(min(how.jobs, len(log))))
    chosen: list[tuple[int, list[int]]] = []
    for size in SIZES:
        groups = groups_of(log, size)
        draws = stream(7, "together", history_name(path), str(size))
        taken = draws.choice(len(groups), min(how.sample, len(groups)), replace=False)
        chosen += [(size, groups[n]) for n in taken]
    chosen.sort(key=lambda one: one[1][0])
    sizes = np.array([size for size, _ in chosen])
    waits = [log.wait_s[rows] for _, rows in chosen]
    happened = np.array([(wait_s[:, None] <= WITHIN_S).all(axis=0) for wait_s in waits])
    lines = [history_name(path)]
    for asker, known in _ASKERS.items():
        told = list(foretell(log, [rows for _, rows in chosen], known))
        for size in SIZES:
            part = sizes == size
            for name in WAYS:
                chances = np.array([one[name] for one in told])[part]
                lines.append(_line(f"{size} {asker} {name}", chances, happened[part]))
    return "\n".join(lines)


def _line(title: str, chances: np.ndarray, happened: np.ndarray) -> str:
    """For each T: foretold → happened, a star where it misses; the Brier score over all."""
    cells = []
    for column in range(len(WITHIN_S)):
        share, said = float(happened[:, column].mean()), float(chances[:, column].mean())
        error = np.sqrt(share * (1 - share) / len(happened))
        star = "*" if abs(said - share) > _ALLOWED + 2 * error else ""
        cells.append(f"{said:.3f}→{share:.3f}{star}")
    brier = float(((chances - happened) ** 2).mean())
    return f"  {title:<20} {len(happened):4} | {'  '.join(f'{c:<13}' for c in cells)} | Brier {brier:.4f}"


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--sample", type=int, default=500, help="pairs, and as many fours")
    how = parser.parse_args()
    with ProcessPoolExecutor(2) as pool:
        for lines in pool.map(measure, how.logs, [how] * len(how.logs)):
            print(lines, flush=True)


if __name__ == "__main__":
    sys.exit(main())
