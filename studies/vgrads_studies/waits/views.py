"""Bounds by what a history shows of its queue: are they right in each view?

    python -m vgrads_studies.waits.views LOG.swf.gz [LOG…] [--jobs N] [--views full,ended]
        [--as known] [--groups] [--cut 14]

Each log is replayed once for each view (:data:`vgrads.qbets.views.VIEWS`), with questions as users
ask them. Printed are the jobs that were scored, the shares of waits within the bounds at .5, .75,
.9 and .95, that of QBETS in the same view at .95, the pinball loss at .95 ÷ that of QBETS, and the
lowest share of 500 consecutive jobs at .95, the share of weeks in which .90 of the jobs are within
it, and the groups of jobs that are not covered as they must be
(:mod:`vgrads_studies.waits.coverage`); then, for the ended view, the checks of the document, each
with the logs that miss it. ``--as known``: questions name the user of their job.

With ``--groups``, a table of all groups by width, queue and requested time follows, at all levels
and in all views. What is missed is printed bold, groups that are too small to be judged in
brackets.

With ``--cut``, what the backtest states is tried as a user would: at so many instants, after equal
numbers of the jobs of the last two thirds of a log, the jobs that had ended by then are written to
a file, and the operation behind ``vgrads bound`` is asked about the jobs of the next hour, at most
20. The share within the bounds is the mean over the instants; its standard error is theirs, because
the jobs of one instant are not independent. The last columns compare it with the backtest on the
same jobs, so that it does not matter which instants these are.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vgrads.api.queues.histories import AS_QUESTION
from vgrads.api.queues.queries import HistorySource
from vgrads.kernel.arrays import Floats, Ints
from vgrads.operations.forecasts import ask_bound
from vgrads.operations.questions import BoundQuestion
from vgrads.operations.queue_questions import ForecastContext
from vgrads.qbets.backtest import Trial, backtest, backtest_levels, pinball
from vgrads.qbets.coverage_groups import FEWEST
from vgrads.qbets.viewed_log import list_ends
from vgrads.qbets.views import ENDED, FULL, VIEWS
from vgrads.traces.history import history_name, read_history
from vgrads.traces.records import JobLog
from vgrads.traces.swf import write_swf
from vgrads_studies.waits.coverage import (
    FEWEST_REPORTED,
    GroupCoverage,
    GroupReport,
    group_report,
)

LEVELS = (0.5, 0.75, 0.9, 0.95)
HIGH = (0.9, 0.95)
REPORTED = ("CERIT-SC-wagap", "UniLu-Gaia")
"""Logs whose shares at the high levels are printed, but need not be near these."""
_OFF = 0.03  # how far a share may be from its level
_LOSS, _MEAN_LOSS = 1.0, 0.9  # pinball loss ÷ QBETS, at most
_WITHIN_S, _MOST, _LEAST = 3600.0, 20, 5  # questions of an instant
HEAD = (
    "| log | view | scored | .5 | .75 | .9 | .95 | QBETS .95 | pinball ÷ QBETS | worst 500 "
    "| weeks ≥ .90 | groups missed |\n"
    "| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --- |"
)
CUT_HEAD = (
    "| log | questions | level | as asked ± standard error | backtest, all jobs | within two "
    "| backtest, same jobs | difference ± standard error |\n"
    "| --- | --: | --: | --: | --: | --- | --: | --: |"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewResult:
    """Shares of one log in one view, by level, and the losses at .95 as a ratio."""

    log: str
    view: str
    scored: int
    covered: tuple[float, ...]
    qbets_covered: float
    loss_ratio: float
    worst: float
    reports: tuple[GroupReport, ...]

    def off(self, level: float) -> float:
        """Return how far the share is from its level."""
        return abs(self.covered[LEVELS.index(level)] - level)

    @property
    def line(self) -> str:
        """The row of the table."""
        shares = " | ".join(f"{share:.3f}" for share in self.covered)
        return (
            f"| {self.log} | {self.view} | {self.scored:,} | {shares} | {self.qbets_covered:.3f} "
            f"| {self.loss_ratio:.2f} | {self.worst:.3f} | {self.weeks} | {self.misses} |"
        )

    @property
    def weeks(self) -> str:
        """The share of weeks that are covered."""
        weeks = self.reports[-1].weeks
        return "–" if weeks is None else f"{weeks:.2f}"

    @property
    def misses(self) -> str:
        """How many groups are not covered at how many of the levels."""
        judged = [_judged(report) for report in self.reports]
        missed = sum(not group.covered for groups in judged for group in groups)
        return f"{missed} of {sum(map(len, judged))}"


def _judged(report: GroupReport) -> list[GroupCoverage]:
    return [group for group in report.groups if group.jobs >= FEWEST]


def group_lines(results: Sequence[ViewResult]) -> list[str]:
    """Return a row for each group of a log: its jobs, and its shares by level in each view."""
    rows: dict[tuple[str, str], list[str]] = {}
    for number, result in enumerate(results):
        for by_level in zip(*(report.groups for report in result.reports), strict=True):
            first = by_level[0]
            row = rows.setdefault((first.dimension, first.name), [f"{first.jobs:,}"])
            row += ["–"] * (number + 1 - len(row))
            row.append("/".join(map(_share_text, by_level)))
    return [
        f"| {results[0].log} | {dimension} {name} | "
        + " | ".join(row + ["–"] * (len(results) + 1 - len(row)))
        + " |"
        for (dimension, name), row in rows.items()
    ]


def _share_text(group: GroupCoverage) -> str:
    text = f"{group.coverage:.2f}".removeprefix("0")
    if group.jobs < FEWEST:
        return f"({text})"
    return text if group.covered else f"**{text}**"


def measure(log: JobLog, name: str, view: str, knows_user: bool) -> tuple[ViewResult, list[Trial]]:
    """Return the results of a log in a view, and its backtests by level."""
    settings = replace(AS_QUESTION, view=view, knows_user=knows_user)
    trials = backtest_levels(log, name, "*", settings, LEVELS)
    qbets = backtest(log, name, settings=replace(settings, method="qbets"))
    last, both = trials[-1], trials[-1].scored & qbets.scored
    losses = [pinball(log.wait_s[both], t.issued_s[both], LEVELS[-1]) for t in (last, qbets)]
    rows = [trial.row() for trial in trials]
    scored = np.all([trial.scored for trial in trials], axis=0)
    reports = (
        group_report(log, trial.issued_s, scored, trial.probability, FEWEST_REPORTED)
        for trial in trials
    )
    result = ViewResult(
        log=name,
        view=view,
        scored=rows[-1].scored,
        covered=tuple(row.coverage or 0.0 for row in rows),
        qbets_covered=qbets.row().coverage or 0.0,
        loss_ratio=losses[0] / losses[1],
        worst=rows[-1].worst_window_coverage or 0.0,
        reports=tuple(reports),
    )
    return result, trials


def checks(results: Sequence[ViewResult]) -> list[tuple[str, list[str]]]:
    """Return each check of the ended view, and what misses it."""
    ended = [result for result in results if result.view == ENDED]
    full = {result.log: result for result in results if result.view == FULL}
    bound = [result for result in ended if not result.log.startswith(REPORTED)]
    high = [
        f"{r.log} {level:g}: {r.covered[LEVELS.index(level)]:.3f}"
        for r in bound
        for level in HIGH
        if r.off(level) > _OFF
    ]
    low = [
        f"{r.log} {level:g}: {r.off(level):.3f} off, full {full[r.log].off(level):.3f}"
        for r in ended
        for level in LEVELS
        if level not in HIGH and r.log in full and r.off(level) > full[r.log].off(level) + _OFF
    ]
    means = np.mean([r.covered for r in ended], axis=0)
    mean = [
        f"{level:g}: {share:.3f}"
        for level, share in zip(LEVELS, means.tolist(), strict=True)
        if abs(share - level) > _OFF
    ]
    loss = [f"{r.log}: {r.loss_ratio:.2f}" for r in ended if r.loss_ratio > _LOSS]
    mean_loss = float(np.mean([r.loss_ratio for r in ended]))
    shares = "/".join(f"{share:.3f}" for share in means)
    return [
        (f"shares at .9 and .95 within {_OFF:g}, but {' and '.join(REPORTED)}", high),
        (f"at .5 and .75 no farther off than in the full view + {_OFF:g}", low),
        (f"mean shares within {_OFF:g} ({shares})", mean),
        (f"pinball ÷ QBETS at most {_LOSS:g}", loss),
        (
            f"its mean at most {_MEAN_LOSS:g} ({mean_loss:.3f})",
            ["the mean"] if mean_loss > _MEAN_LOSS else [],
        ),
    ]


def instants(log: JobLog, count: int) -> list[tuple[float, Ints]]:
    """Return instants in the last two thirds of a log, and the next jobs that questions are about:
    those that started and state a requested time."""
    fits = log.started & (log.request_s > 0)
    spots = len(log) / 3.0 + (np.arange(count) + 0.5) * (len(log) * 2.0 / 3.0 / count)
    results = []
    for spot in spots.astype(int).tolist():
        for row in range(spot, len(log)):
            at_s = float(log.submit_s[row])
            first, last = np.searchsorted(log.submit_s, [at_s, at_s + _WITHIN_S], side="right")
            rows = np.arange(first, last)
            rows = rows[fits[rows]][:_MOST]
            if len(rows) >= _LEAST:
                results.append((at_s, rows))
                break
    return results


def ask_cut(log: JobLog, at_s: float, rows: Ints, path: Path) -> tuple[Ints, Floats]:
    """Return those of these jobs that a file of the jobs that had ended by an instant answers for,
    and their bounds, rows × levels. It does not for jobs wider than its machine."""
    part = log.select(list_ends(log) <= at_s)
    path.write_text(write_swf(part))
    queues = np.unique(part.queue)
    fitting = rows[log.procs[rows] <= max(part.max_procs, int(part.procs.max()))]

    def bound_s(row: int, level: float) -> float:
        queue = int(log.queue[row]) if len(queues) > 1 and log.queue[row] in queues else None
        question = BoundQuestion(
            procs=int(log.procs[row]),
            walltime_s=float(log.request_s[row]),
            probability=level,
            history=HistorySource(file=path, queue=queue),
        )
        answer = ask_bound(question, ForecastContext()).bound.bound_s
        return np.nan if answer is None else answer

    bounds_s = np.array([[bound_s(row, level) for level in LEVELS] for row in fitting.tolist()])
    answered = ~np.isnan(bounds_s.reshape(-1, len(LEVELS))).any(axis=1)
    return fitting[answered], bounds_s[answered]


def cut_lines(log: JobLog, name: str, count: int, trials: Sequence[Trial]) -> list[str]:
    """Return a row for each level: the share as asked, and those of the backtest."""
    shares, replayed, questions = [], [], 0
    with tempfile.TemporaryDirectory(prefix="vgrads-bench-") as folder:
        os.environ["VGRADS_HOME"] = folder
        for n, (at_s, next_rows) in enumerate(instants(log, count)):
            rows, bounds_s = ask_cut(log, at_s, next_rows, Path(folder) / f"{n}.swf")
            if not len(rows):
                continue
            questions += len(rows)
            wait_s = log.wait_s[rows][:, None]
            issued_s = np.column_stack([trial.issued_s[rows] for trial in trials])
            shares.append((wait_s <= bounds_s).mean(axis=0))
            replayed.append((wait_s <= issued_s).mean(axis=0))
    lines = []
    for level, trial, within, same in zip(
        LEVELS, trials, np.transpose(shares), np.transpose(replayed), strict=True
    ):
        whole, (share, error) = trial.row().coverage or 0.0, mean_error(within)
        agrees = "yes" if abs(share - whole) <= 2 * error else "**no**"
        difference, its_error = mean_error(within - same)
        lines.append(
            f"| {name} | {questions} | {level:g} | {share:.3f} ± {error:.3f} | {whole:.3f} "
            f"| {agrees} | {same.mean():.3f} | {difference:+.3f} ± {its_error:.3f} |"
        )
    return lines


def mean_error(values: Floats) -> tuple[float, float]:
    """Return a mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def main() -> None:
    """Measure each log, then check."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("logs", type=Path, nargs="+")
    parser.add_argument("--jobs", type=int, help="of each log, from its beginning; default: all")
    parser.add_argument("--views", default=f"{FULL},{ENDED}", help=f"of {', '.join(VIEWS)}")
    parser.add_argument("--as", dest="how", choices=("asked", "known"), default="asked")
    parser.add_argument("--groups", action="store_true", help="print all groups of jobs")
    parser.add_argument("--cut", type=int, default=0, help="instants at which to cut each log")
    options = parser.parse_args()
    views = options.views.split(",")
    if not set(views) <= VIEWS.keys() or (options.cut and ENDED not in views):
        parser.error(f"--views: some of {', '.join(VIEWS)}; for --cut, {ENDED} is one of them")
    results: list[ViewResult] = []
    cut: list[str] = []
    print(HEAD, flush=True)
    for path in options.logs:
        log, name = read_history(path), history_name(path)
        log = log.select(np.arange(len(log)) < (options.jobs or len(log)))
        for view in views:
            result, trials = measure(log, name, view, options.how == "known")
            results.append(result)
            print(result.line, flush=True)
            if options.cut and view == ENDED:
                cut += cut_lines(log, name, options.cut, trials)
    if ENDED in views:
        print()
        for check, misses in checks(results):
            print(f"- {check}: {'**missed** by ' + '; '.join(misses) if misses else 'yes'}")
    if options.groups:
        print("\n" + "".join(f"| {head} " for head in ("log", "group", "jobs", *views)) + "|")
        print("| --- | --- | --: " + "| --: " * len(views) + "|")
        for name in dict.fromkeys(result.log for result in results):
            print("\n".join(group_lines([result for result in results if result.log == name])))
    if cut:
        print("\n".join(["", CUT_HEAD, *cut]))


if __name__ == "__main__":
    main()
