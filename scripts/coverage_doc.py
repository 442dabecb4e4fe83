"""Print the tables of "Coverage by group" in ``docs/backtest.md``: ``python scripts/coverage_doc.py
LOG.swf.gz… [--jobs N]`` (a quarter of an hour for the shared logs on two cores)."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from vgrads.qbets.backtest import backtest, pinball
from vgrads.qbets.coverage_groups import group_report
from vgrads.qbets.predictor import Settings
from vgrads.traces.history import history_name, read_history

HEAD = (
    "| log | scored | coverage | width < .05, .05 to .2, ≥ .2 | worst 500 | weeks ≥ .90 "
    "| pinball ÷ qbets | groups that are missed |\n"
    "| --- | --: | --: | --: | --: | --: | --: | --- |"
)


def row_of(path: Path, jobs: int, knows_user: bool) -> tuple[str, float]:
    """Return a row of the table, and the ratio of pinball losses."""
    log = read_history(path)
    log = log.select(np.arange(min(jobs, len(log))))
    ours, qbets = (
        backtest(log, history_name(path), settings=Settings(method=method, knows_user=knows_user))
        for method in ("state", "qbets")
    )
    report, both = group_report(log, ours.issued_s, ours.scored), ours.scored & qbets.scored
    ratio = pinball(log.wait_s[both], ours.issued_s[both], 0.95) / pinball(
        log.wait_s[both], qbets.issued_s[both], 0.95
    )
    widths = "/".join(f"{g.coverage:.3f}" for g in report.groups if g.dimension == "width")
    missed = "; ".join(
        f"{g.dimension} {g.name}: {g.coverage:.3f} of {g.jobs:,}" for g in report.missed
    )
    row, weeks = ours.row(), "–" if report.weeks is None else f"{report.weeks:.2f}"
    text = (
        f"| {history_name(path)} | {int(both.sum()):,} | {row.coverage:.4f} | {widths} "
        f"| {row.worst_window_coverage:.3f} | {weeks} | {ratio:.2f} | {missed or '–'} |"
    )
    return text, ratio


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=10**9)
    how = parser.parse_args()
    with ProcessPoolExecutor(2) as pool:
        for knows_user in (False, True):
            print(f"\n{'Users known' if knows_user else 'No user named'}:\n\n{HEAD}")
            ratios = []
            work = partial(row_of, jobs=how.jobs, knows_user=knows_user)
            for text, ratio in pool.map(work, how.logs):
                print(text, flush=True)
                ratios.append(ratio)
            print(f"\nMean of pinball ÷ qbets: {np.mean(ratios):.3f}.")


if __name__ == "__main__":
    sys.exit(main())
