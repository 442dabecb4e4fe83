"""Study of a job on spot nodes with a deadline: "Can't Be Late" (Wu et al., NSDI 2024).

48 h of work, deadlines of 52 and 70 h, restarts of 3 and 12 minutes, starts spread over each trace
of at least 100 h. A cell is a trace, a deadline and a restart cost. Rules: greedy, Uniform
Progress, ours (which learns from the job's own time, with other dates and zones as its prior), and
the clairvoyant, which no rule can beat. Saving: against on demand all the time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.errors import InputError
from vgrads.kernel.process_pool import process_pool
from vgrads.kernel.report_page import html_table, paragraph, write_page
from vgrads.pool.spot.prior import PRIOR
from vgrads.pool.spot.survival import STEP_S, LifeTable
from vgrads_studies.report import markdown_table, study_parser
from vgrads_studies.spot.leaderboard import print_leaderboard
from vgrads_studies.spot.rules import (
    PRICES,
    LateJob,
    Rule,
    clairvoyant_usd,
    greedy,
    ours,
    simulate,
    uniform_progress,
)
from vgrads_studies.spot.traces import SpotTrace, prior_for, read_traces

_WORK_H, _DEADLINES_H, _RESTARTS_MIN, _LEAST_H = 48.0, (52.0, 70.0), (3.0, 12.0), 100.0
RULES = ("greedy", "uniform progress", "ours")


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCell:
    """Mean dollars of each rule over the starts, ``standard_errors`` of our cost less that of the
    better rival, and the deadlines that were missed."""

    trace: str
    deadline_h: float
    restart_min: float
    costs_usd: Mapping[str, float]
    excess_usd: float
    standard_error_usd: float
    missed: Mapping[str, int]

    @property
    def within(self) -> bool:
        """Return whether ours costs no more than the better rival and two standard errors."""
        return self.excess_usd <= 2.0 * self.standard_error_usd + 1e-9


def starts_of(steps: int, window: int, count: int) -> list[int]:
    """Return starts of windows, spread evenly over a trace."""
    return sorted({round(n * (steps - window) / max(1, count - 1)) for n in range(count)})


def cell_of(
    trace: SpotTrace,
    prior: tuple[LifeTable, ...],
    deadline_h: float,
    restart_min: float,
    count: int,
) -> LateCell:
    """Return the costs in one cell."""
    job = LateJob(
        work_s=_WORK_H * 3600.0, deadline_s=deadline_h * 3600.0, restart_s=restart_min * 60.0
    )
    window = round(job.deadline_s / STEP_S)
    costs: dict[str, list[float]] = {name: [] for name in (*RULES, "clairvoyant")}
    missed = dict.fromkeys(RULES, 0)
    for start in starts_of(len(trace.available), window, count):
        available = trace.available[start : start + window]
        rules: dict[str, Rule] = {
            "greedy": greedy(job),
            "uniform progress": uniform_progress(job),
            "ours": ours(job, prior),
        }
        for name, rule in rules.items():
            usd, late = simulate(job, available, rule)
            costs[name].append(usd)
            missed[name] += late
        costs["clairvoyant"].append(clairvoyant_usd(job, available))
    means = {name: float(np.mean(values)) for name, values in costs.items()}
    rival = min(RULES[:2], key=lambda name: means[name])
    excess: NDArray[np.float64] = np.array(costs["ours"]) - np.array(costs[rival])
    error = float(excess.std(ddof=1) / np.sqrt(len(excess))) if len(excess) > 1 else 0.0
    return LateCell(
        trace=trace.name,
        deadline_h=deadline_h,
        restart_min=restart_min,
        costs_usd=means,
        excess_usd=float(excess.mean()),
        standard_error_usd=error,
        missed=missed,
    )


def late_cells(traces: Sequence[SpotTrace], count: int, jobs: int) -> list[LateCell]:
    """Return all cells; traces that are too short serve as priors only."""
    long = [trace for trace in traces if trace.hours >= _LEAST_H]
    if not long:
        raise InputError(f"no trace has {_LEAST_H:g} h", where="FOLDER")
    questions = [
        (trace, prior_for(trace, list(traces)) or None, deadline_h, restart_min, count)
        for trace in long
        for deadline_h in _DEADLINES_H
        for restart_min in _RESTARTS_MIN
    ]
    with process_pool(jobs) as pool:
        return list(pool.map(_cell, *zip(*questions, strict=True)))


def _cell(
    trace: SpotTrace,
    prior: tuple[LifeTable, ...] | None,
    deadline_h: float,
    restart_min: float,
    count: int,
) -> LateCell:
    return cell_of(trace, PRIOR if prior is None else prior, deadline_h, restart_min, count)


def saving(cells: Sequence[LateCell], rule: str) -> float:
    """Return a rule's mean saving over cells, in dollars."""
    full_usd = _WORK_H * PRICES.on_demand_usd
    return float(np.mean([full_usd - cell.costs_usd[rule] for cell in cells]))


def summary(cells: Sequence[LateCell]) -> dict[str, float]:
    """Return what the study is asked for."""
    quick = [cell for cell in cells if cell.restart_min == _RESTARTS_MIN[0]]
    return {
        "cells": len(cells),
        "cells_within": sum(cell.within for cell in cells),
        "missed": sum(cell.missed["ours"] for cell in cells),
        "saving_to_uniform_progress": saving(cells, "ours") / saving(cells, "uniform progress"),
        "saving_to_greedy": saving(cells, "ours") / saving(cells, "greedy"),
        "saving_to_clairvoyant_3_min": saving(quick, "ours") / saving(quick, "clairvoyant"),
    }


def _rows(cells: Sequence[LateCell]) -> list[list[str]]:
    rows = []
    for deadline_h in _DEADLINES_H:
        for restart_min in _RESTARTS_MIN:
            group = [
                cell
                for cell in cells
                if (cell.deadline_h, cell.restart_min) == (deadline_h, restart_min)
            ]
            full_usd = _WORK_H * PRICES.on_demand_usd
            shares = [f"{saving(group, rule) / full_usd:.1%}" for rule in (*RULES, "clairvoyant")]
            within = sum(cell.within for cell in group)
            missed = " / ".join(str(sum(cell.missed[rule] for cell in group)) for rule in RULES)
            rows.append(
                [
                    f"{deadline_h:g} h",
                    f"{restart_min:g} min",
                    *shares,
                    f"{within} of {len(group)}",
                    missed,
                ]
            )
    return rows


_HEAD = (
    "deadline",
    "restart",
    *(f"saving, {rule}" for rule in (*RULES, "clairvoyant")),
    "ours within",
    "missed",
)


def main(arguments: Sequence[str]) -> None:
    """Simulate and print."""
    parser = study_parser("spot", __doc__)
    parser.add_argument(
        "folder", type=Path, nargs="?", metavar="FOLDER", help="traces: *.json, *.json.gz"
    )
    parser.add_argument("--starts", type=int, default=30, help="starts in each trace (30)")
    parser.add_argument(
        "--leaderboard",
        type=Path,
        metavar="FOLDER",
        help="run the cases of this checkout of the ADRS leaderboard in its own simulator instead",
    )
    parser.add_argument(
        "--rival", action="append", default=[], help="another strategy of the leaderboard"
    )
    parser.add_argument("--each", type=int, default=1, help="run only each N-th of its cases (1)")
    parser.add_argument("--jobs", type=int, default=1, help="processes that run its cases (1)")
    chosen = parser.parse_args(arguments)
    for option, count in (
        ("--starts", chosen.starts),
        ("--each", chosen.each),
        ("--jobs", chosen.jobs),
    ):
        if count < 1:
            raise InputError("must be at least 1", where=option)
    if (chosen.folder is None) == (chosen.leaderboard is None):
        raise InputError("either FOLDER or --leaderboard FOLDER is needed")
    if chosen.leaderboard is not None:
        print_leaderboard(chosen.leaderboard, chosen.rival, chosen.jobs, chosen.each, chosen.json)
        return
    cells = late_cells(read_traces(chosen.folder), chosen.starts, os.cpu_count() or 1)
    result = summary(cells)
    verdict = (
        f"Ours saves {result['saving_to_uniform_progress']:.3f} × as much as Uniform Progress, "
        f"{result['saving_to_greedy']:.3f} × as much as greedy, and "
        f"{result['saving_to_clairvoyant_3_min']:.3f} of the clairvoyant's saving at 3 min. In "
        f"{result['cells_within']} of {result['cells']} cells it costs no more than the better of "
        f"the two and 2 s.e.; {result['missed']} deadlines were missed."
    )
    rows = _rows(cells)
    if chosen.json:
        print(json.dumps({"summary": result, "cells": [asdict(cell) for cell in cells]}, indent=1))
    else:
        print(f"{markdown_table(_HEAD, rows)}\n\n{verdict}")
    if chosen.report:
        parts = [html_table(_HEAD, rows), paragraph(__doc__ or "")]
        write_page(chosen.report, "Can a job on spot nodes keep its deadline?", verdict, parts)
