"""The rule in the simulator of the public ADRS leaderboard, problem "cant_be_late", unchanged.

1,080 cases: six kinds of nodes, 30 windows each, deadlines of 52 and 70 h for 48 h of work,
restarts of 1.2, 3 and 6 minutes. A score of 0 is on demand all the time, of 100 spot nodes all the
time. The rule's prior knows neither the zones nor the date of the cases. Uniform Progress is the
strategy ``rc_cr_threshold`` of the folder.
"""

from __future__ import annotations

import json
import os
import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from vgrads.kernel.errors import InputError
from vgrads.kernel.process_pool import process_pool
from vgrads.pool.spot.choose import Current, choose
from vgrads.pool.spot.history import SpotHistory
from vgrads.pool.spot.prior import PRIOR, tables_of_elsewhere
from vgrads.pool.spot.survival import LifeTable
from vgrads.pool.spot.table import MarketPrices
from vgrads_studies.report import markdown_table

OURS, UNIFORM_PROGRESS = "vgrads", "rc_cr_threshold"
_PROBLEM = Path("problems") / "cant_be_late"
_ZONE = re.compile(r"[a-z]+-[a-z]+-\d[a-z]")
_RECORDED = "10-26-2022"
"""The windows are cut out of traces that "Can't Be Late" recorded from this date on."""
_WARM = 5
"""Decisions of a case before those that count as warm: tables and estimates are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderCase:
    """A window of a trace of ``kind`` of nodes, hours of work, deadline and restart."""

    kind: str
    trace: str
    work_h: float
    deadline_h: float
    restart_h: float

    @property
    def cell(self) -> tuple[str, float, float]:
        """Return the cell to which it belongs."""
        return self.kind, self.deadline_h, self.restart_h


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """What a strategy got; ``warm_us``: microseconds of its decisions once tables are made."""

    score: float
    late: bool
    warm_us: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderCell:
    """Mean scores of strategies in the cases of a cell; ``ahead``: ours less Uniform Progress."""

    kind: str
    deadline_h: float
    restart_h: float
    cases: int
    scores: dict[str, float]
    ahead: float
    standard_error: float

    @property
    def within(self) -> bool:
        """Return whether ours is at most two standard errors below Uniform Progress."""
        return self.ahead >= -2.0 * self.standard_error - 1e-9


def find_resources(folder: Path) -> Path:
    """Return where simulator and evaluator are. Raise InputError where they are not."""
    for base in (folder / _PROBLEM, folder):
        resources = base / "resources"
        if (resources / "evaluator" / "evaluator_real30.py").is_file():
            if not (resources / "cant-be-late-simulator" / "data" / "real").is_dir():
                raise InputError(
                    "has no traces",
                    where=str(folder),
                    fix=f"unpack {resources / 'real_traces.tar.gz'} in "
                    f"{resources / 'cant-be-late-simulator' / 'data'}",
                )
            return resources
    raise InputError(
        f"is not a checkout of the ADRS leaderboard: it has no {_PROBLEM}/resources/evaluator",
        where=str(folder),
    )


def _import(resources: Path, name: str) -> Any:
    for path in (resources / "evaluator", resources / "cant-be-late-simulator"):
        if str(path) not in sys.path:
            sys.path.insert(0, str(path))
    os.environ["CBL_LOG_LEVEL"] = "CRITICAL"
    try:
        import_module("sim_worker")  # stands in for packages that the simulator only logs to
        return import_module(name)
    except (ImportError, OSError) as error:
        raise InputError(
            f"cannot be imported: {error}", where=str(resources / "cant-be-late-simulator")
        ) from error


def list_cases(resources: Path) -> list[LeaderCase]:
    """Return the cases of the leaderboard's evaluator; for a process of its own."""
    evaluator = _import(resources, "evaluator_real30")
    jobs, restarts_h = evaluator.JOB_CONFIGS, evaluator.CHANGEOVER_DELAYS
    pool = evaluator.build_trace_pool(max(job["deadline"] for job in jobs))
    return [
        LeaderCase(
            kind=kind,
            trace=trace,
            work_h=float(job["duration"]),
            deadline_h=float(job["deadline"]),
            restart_h=float(restart_h),
        )
        for job in jobs
        for restart_h in restarts_h
        for kind, traces in pool.get(restart_h, {}).items()
        for trace in traces
    ]


def _watched(strategy: type[Any]) -> type[Any]:
    """Return a strategy that remembers when the job ended."""

    class WatchedStrategy(strategy):  # type: ignore[misc]
        NAME = f"watched {strategy.NAME}"
        ended_s: float | None = None

        def step(self) -> Any:
            chosen = super().step()
            if self.ended_s is None and self.task_done:
                self.ended_s = self.env.elapsed_seconds
            return chosen

    return WatchedStrategy


def _our_strategy(resources: Path, prior: tuple[LifeTable, ...]) -> type[Any]:
    base = _import(resources, "sky_spot.strategies.strategy").Strategy
    cluster = _import(resources, "sky_spot.utils").ClusterType
    markets = {"none": cluster.NONE, "spot": cluster.SPOT, "on-demand": cluster.ON_DEMAND}
    names = {there: name for name, there in markets.items()}

    class VgradsStrategy(base):  # type: ignore[misc, valid-type]
        NAME = OURS

        def reset(self, env: Any, task: Any) -> None:
            super().reset(env, task)
            self.history: SpotHistory | None = None
            self.warm_us: list[float] = []
            self.decisions = 0
            prices = env.get_price()
            self.prices = MarketPrices(
                spot_usd=prices[cluster.SPOT], on_demand_usd=prices[cluster.ON_DEMAND]
            )

        def _step(self, last_cluster_type: Any, has_spot: bool) -> Any:  # noqa: ARG002 theirs
            now_s = self.env.elapsed_seconds
            history = self.history or SpotHistory(now_s, has_spot)
            self.history = history = history.observed(now_s, has_spot)
            left_s = self.task_duration - sum(self.task_done_time)
            there = names[self.env.cluster_type]
            restart_left_s = self.remaining_restart_overhead if there != "none" else 0.0
            began = perf_counter()
            decision = choose(
                now_s,
                left_s,
                self.deadline,
                self.restart_overhead,
                Current(market=there, restart_left_s=restart_left_s),
                self.prices,
                history,
                prior,
                step_s=self.env.gap_seconds,
            )
            self.decisions += 1
            if self.decisions > _WARM and left_s > 0.0:
                self.warm_us.append((perf_counter() - began) * 1e6)
            return markets[decision.market]

    return VgradsStrategy


def run_case(
    resources: Path, case: LeaderCase, names: Sequence[str], zones: frozenset[str]
) -> dict[str, CaseResult]:
    """Return what each strategy got in a case; for a process of its own. Our prior knows none of
    the zones."""
    prior = tables_of_elsewhere(PRIOR, _RECORDED, zones)
    results = {}
    for name in names:
        ours = name == OURS
        strategy = _our_strategy(resources, prior) if ours else find_strategy(resources, name)
        results[name] = _run(resources, case, strategy)
    return results


def find_strategy(resources: Path, name: str) -> type[Any]:
    """Return a strategy of the leaderboard; for a process of its own. Raise InputError for an
    unknown one."""
    strategies = _import(resources, "sky_spot.strategies").strategy.Strategy
    try:
        found: type[Any] = strategies.get(name)
    except (KeyError, ValueError, AssertionError) as error:
        raise InputError(f"'{name}' is no strategy of the leaderboard", where="--rival") from error
    return found


def _check_strategy(resources: Path, name: str) -> None:
    find_strategy(resources, name)  # whose class is of that process alone


def _run(resources: Path, case: LeaderCase, strategy: type[Any]) -> CaseResult:
    worker, prices = _import(resources, "sim_worker"), _import(resources, "sky_spot.utils")
    arguments = Namespace(
        deadline_hours=case.deadline_h,
        task_duration_hours=[case.work_h],
        restart_overhead_hours=[case.restart_h],
        inter_task_overhead=[0.0],
        keep_on_demand=None,
    )
    run = _watched(strategy)(arguments)
    with TemporaryDirectory() as target:  # the simulator writes a file for each run
        stats = worker.simulate.simulate(
            envs=worker.TraceEnv.create_env(case.trace, env_start_hours=0.0),
            strategy=run,
            task=worker.SingleTask({"duration": case.work_h}),
            trace_file=case.trace,
            deadline_hours=case.deadline_h,
            restart_overhead_hours=[case.restart_h],
            env_start_hours=0.0,
            output_dir=target,
            kwargs={},
            output_filename="run.json",
            silent=True,
            dump_history=False,
        )
    price = next(usd for device, usd in prices.DEVICE_COSTS.items() if device in case.trace)
    dear_usd = price * case.work_h
    cheap_usd = dear_usd / prices.COST_K
    return CaseResult(
        score=100.0 * (dear_usd - float(np.mean(stats["costs"]))) / (dear_usd - cheap_usd),
        late=run.ended_s is None or run.ended_s > case.deadline_h * 3600.0 + 1e-6,
        warm_us=tuple(getattr(run, "warm_us", ())),
    )


def study_leaderboard(
    folder: Path, rivals: Sequence[str], jobs: int, sample: int = 1
) -> list[tuple[LeaderCase, dict[str, CaseResult]]]:
    """Return what ours, Uniform Progress and rivals got in each case, or in each ``sample``-th."""
    resources, names = (
        find_resources(folder),
        list(dict.fromkeys((OURS, UNIFORM_PROGRESS, *rivals))),
    )
    with process_pool(jobs) as pool:
        cases = pool.submit(list_cases, resources).result()[::sample]
        for name in rivals:
            pool.submit(_check_strategy, resources, name).result()
        if not cases:
            raise InputError("has no cases", where=str(folder))
        zones = frozenset(_ZONE.findall(" ".join(case.kind for case in cases)))
        work = partial(run_case, resources, names=names, zones=zones)
        results = pool.map(work, cases, chunksize=4)
        bar = track(results, "cases", total=len(cases), console=Console(stderr=True))
        return list(zip(cases, bar, strict=True))


def cells_of(results: Sequence[tuple[LeaderCase, dict[str, CaseResult]]]) -> list[LeaderCell]:
    """Return the cells of cases, with paired differences."""
    cells = []
    for kind, deadline_h, restart_h in sorted({case.cell for case, _ in results}):
        there = [got for case, got in results if case.cell == (kind, deadline_h, restart_h)]
        ahead = np.array([got[OURS].score - got[UNIFORM_PROGRESS].score for got in there])
        error = float(ahead.std(ddof=1) / np.sqrt(len(ahead))) if len(ahead) > 1 else 0.0
        cells.append(
            LeaderCell(
                kind=kind,
                deadline_h=deadline_h,
                restart_h=restart_h,
                cases=len(there),
                scores={
                    name: float(np.mean([got[name].score for got in there])) for name in there[0]
                },
                ahead=float(ahead.mean()),
                standard_error=error,
            )
        )
    return cells


def summarize(
    results: Sequence[tuple[LeaderCase, dict[str, CaseResult]]], cells: Sequence[LeaderCell]
) -> dict[str, Any]:
    """Return mean scores, missed deadlines, cells within, and the median time of a decision."""
    names = list(results[0][1])
    warm_us = [us for _, got in results for us in got[OURS].warm_us]
    return {
        "cases": len(results),
        "scores": {name: float(np.mean([got[name].score for _, got in results])) for name in names},
        "missed": {name: sum(got[name].late for _, got in results) for name in names},
        "cells": len(cells),
        "cells_within": sum(cell.within for cell in cells),
        "warm_us": float(np.median(warm_us)) if warm_us else 0.0,
    }


def print_leaderboard(
    folder: Path, rivals: Sequence[str], jobs: int, sample: int, as_json: bool
) -> None:
    """Run the cases and print scores."""
    results = study_leaderboard(folder, rivals, jobs, sample)
    cells = cells_of(results)
    summary = summarize(results, cells)
    if as_json:
        document = {"summary": summary, "cells": [asdict(cell) for cell in cells]}
        print(json.dumps(document, indent=1))
        return
    names = list(summary["scores"])
    head = ("nodes", "deadline", "restart", *names, "ahead", "s.e.", "within")
    rows = [
        [
            cell.kind,
            f"{cell.deadline_h:g} h",
            f"{cell.restart_h * 60:g} min",
            *(f"{cell.scores[name]:.1f}" for name in names),
            f"{cell.ahead:+.2f}",
            f"{cell.standard_error:.2f}",
            "yes" if cell.within else "no",
        ]
        for cell in cells
    ]
    print(markdown_table(head, rows))
    for name in names:
        print(
            f"{name}: mean score {summary['scores'][name]:.2f}, "
            f"{summary['missed'][name]} of {summary['cases']} deadlines missed"
        )
    print(
        f"{summary['cells_within']} of {summary['cells']} cells at most 2 s.e. below Uniform "
        f"Progress; a warm decision takes {summary['warm_us']:.0f} \N{MICRO SIGN}s (median)"
    )
