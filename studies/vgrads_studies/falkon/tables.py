"""Falkon's tables (Raicu et al., SC 2007, doi:10.1145/1362622.1362680) on the dispatcher's own
core, in virtual time.

Eighteen stages on up to 32 machines (Tables 3 and 4) and the effect of look-ahead; acquisition and
release policies for nodes; efficiency by grain, 54,000 agents, 2,000,000 tasks.

The paper prints the stages' totals and draws their counts; the counts of stages 1 to 10 follow from
the printed values, those of 11 to 18 only in their sum and change no total. Nodes come from a batch
site that starts jobs once per cycle, plus their boot. The paper is one run at an unknown phase of
that cycle, so each setting is simulated at many, and means are printed with the range from 5 to 95
%. Waits and run times are passed to the pool only as observed so far.
"""

from __future__ import annotations

import json
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.kernel.text_table import TextTable, build_table
from vgrads.pool.acquire import ACQUISITIONS, Pace, acquire
from vgrads.pool.lookahead import make_look_ahead
from vgrads.pool.release import central_all, coordinated, distributed
from vgrads.pool.view import NOTHING, PoolDecision, PoolView, merge_decisions
from vgrads_studies.falkon.scale import report
from vgrads_studies.falkon.stage import StageResult, StageSite, simulate
from vgrads_studies.report import StudyParser, print_table

Stages = tuple[tuple[int, float], ...]
STAGES: Stages = (
    (1, 60.0),
    (2, 60.0),
    (4, 60.0),
    (8, 60.0),
    (16, 60.0),
    (32, 60.0),
    (64, 60.0),
    (1, 120.0),
    (640, 6.0),
    (160, 12.0),
    (3, 60.0),
    (20, 60.0),
    (18, 60.0),
    (16, 60.0),
    (8, 60.0),
    (4, 60.0),
    (2, 60.0),
    (1, 60.0),
)
"""Tasks of each stage, and seconds of each."""
MACHINES = 32
IDEAL_S = 1260.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyRow:
    """A row of Tables 3 and 4 (§4.6); shares in per cent."""

    queue_s: float
    execution_s: float
    execution_share: float
    complete_s: float
    utilisation: float
    efficiency: float
    allocations: float
    wasted_s: float


PAPER = {
    "Falkon-15": EfficiencyRow(
        queue_s=87.3,
        execution_s=17.9,
        execution_share=17.0,
        complete_s=1754,
        utilisation=89,
        efficiency=72,
        allocations=11,
        wasted_s=2032,
    ),
    "Falkon-60": EfficiencyRow(
        queue_s=83.9,
        execution_s=17.9,
        execution_share=17.6,
        complete_s=1680,
        utilisation=75,
        efficiency=75,
        allocations=9,
        wasted_s=5940,
    ),
    "Falkon-120": EfficiencyRow(
        queue_s=74.7,
        execution_s=17.9,
        execution_share=19.3,
        complete_s=1507,
        utilisation=65,
        efficiency=84,
        allocations=7,
        wasted_s=9595,
    ),
    "Falkon-180": EfficiencyRow(
        queue_s=44.4,
        execution_s=17.9,
        execution_share=28.7,
        complete_s=1484,
        utilisation=59,
        efficiency=85,
        allocations=6,
        wasted_s=12383,
    ),
    "Falkon-inf": EfficiencyRow(
        queue_s=43.5,
        execution_s=17.9,
        execution_share=29.2,
        complete_s=1276,
        utilisation=44,
        efficiency=99,
        allocations=0,
        wasted_s=22940,
    ),
}
"""Printed values; the wasted seconds of -60 to -180 follow from the utilisation."""


def ideal_s(stages: Stages) -> float:
    """Return the time to complete with all machines present from the start and no delay
    anywhere."""
    return sum(math.ceil(tasks / MACHINES) * seconds for tasks, seconds in stages)


def drawn_stages(seed: int) -> Stages:
    """Draw eighteen other stages: from 1 to 256 tasks, uniform on a logarithmic scale, of one of
    five run times.

    No stage has information about the next, and none of the pool's rules was chosen on these.
    """
    draws = stream(seed, "stages")
    return tuple(
        (round(2 ** draws.uniform(0, 8)), float(draws.choice((6.0, 12.0, 30.0, 60.0, 120.0))))
        for _ in STAGES
    )


def figures(ran: StageResult, ideal: float = IDEAL_S) -> EfficiencyRow:
    """Return the metrics of §4.4 and 4.6: used against registered and idle time, ideal against
    actual time."""
    queue_s = float(np.mean([begin - submitted for submitted, begin, _ in ran.tasks]))
    execution_s = float(np.mean([end - begin for _, begin, end in ran.tasks]))
    used_s = sum(end - begin for _, begin, end in ran.tasks)
    duration_s = sum(left - joined for joined, left in ran.agents)
    return EfficiencyRow(
        queue_s=queue_s,
        execution_s=execution_s,
        execution_share=100 * execution_s / (execution_s + queue_s),
        complete_s=ran.end_s,
        utilisation=100 * used_s / duration_s,
        efficiency=100 * ideal / ran.end_s,
        allocations=ran.allocations,
        wasted_s=duration_s - used_s,
    )


Decider = Callable[[PoolView], PoolDecision]


def falkon(idle_s: float, acquisition: str = "all-at-once", pace: Pace = "at_once") -> Decider:
    """Return Falkon's provisioner: request nodes for queued tasks, leave after this idle time."""
    return lambda view: merge_decisions(
        (acquire(view, acquisition, pace), distributed(view, idle_s))
    )


def ours(patience: float, acquisition: str = "all-at-once") -> Decider:
    """Return look-ahead, which learns in the course of one simulation."""
    return make_look_ahead(patience, acquisition)


def settings(patiences: Sequence[float]) -> dict[str, Callable[[], Decider]]:
    """Return the paper's rows, then ours; each simulation has its own decider."""
    result: dict[str, Callable[[], Decider]] = {
        f"Falkon-{idle_s}": lambda idle_s=idle_s: falkon(float(idle_s))  # type: ignore[misc]
        for idle_s in (15, 60, 120, 180)
    }
    result["Falkon-inf"] = lambda: lambda _view: NOTHING
    for patience in patiences:
        result[f"look-ahead {patience:g}"] = lambda patience=patience: ours(patience)  # type: ignore[misc]
    return result


def phases(
    decider: Callable[[], Decider],
    cycle_s: float,
    count: int,
    reserved: int = 0,
    turn_s: float = 0.0,
    stages: Stages = STAGES,
) -> list[EfficiencyRow]:
    """Run one simulation for each of ``count`` phases of the cycle, spread evenly."""
    sites = (
        StageSite(cycle_s=cycle_s, phase_s=(n + 0.5) * cycle_s / count, turn_s=turn_s)
        for n in range(count)
    )
    return [
        figures(simulate(stages, decider(), site, MACHINES, reserved), ideal_s(stages))
        for site in sites
    ]


def spread(rows: Iterable[EfficiencyRow]) -> dict[str, tuple[float, float, float]]:
    """Return mean, 5 % and 95 % of each metric."""
    table = np.array([list(asdict(row).values()) for row in rows])
    low, high = np.quantile(table, (0.05, 0.95), axis=0)
    names = [field.name for field in fields(EfficiencyRow)]
    return {
        name: (float(mean), float(a), float(b))
        for name, mean, a, b in zip(names, table.mean(axis=0), low, high, strict=True)
    }


def releases() -> dict[str, Callable[[PoolView], PoolDecision]]:
    """Return the release policies, combined with each of the five acquisition policies."""
    return {
        "central": central_all,
        "distributed 15": lambda view: distributed(view, 15.0),
        "distributed 60": lambda view: distributed(view, 60.0),
        "coordinated 60": lambda view: coordinated(view, 60.0),
    }


def policies(cycle_s: float, count: int, turn_s: float) -> dict[str, dict[str, EfficiencyRow]]:
    """Return means over phases for each of five acquisitions with each release."""
    result: dict[str, dict[str, EfficiencyRow]] = {}
    for asks in ACQUISITIONS:
        for name, give_back in releases().items():

            def decide(
                view: PoolView, asks: str = asks, give_back: Decider = give_back
            ) -> PoolDecision:
                return merge_decisions((acquire(view, asks), give_back(view)))

            rows = spread(phases(lambda decide=decide: decide, cycle_s, count, turn_s=turn_s))  # type: ignore[misc]
            means = {figure: mean for figure, (mean, _, _) in rows.items()}
            result.setdefault(asks, {})[name] = EfficiencyRow(**means)
    return result


def _arguments() -> ArgumentParser:
    parser = StudyParser("falkon", __doc__)
    parser.add_argument(
        "--only",
        choices=("stages", "policies", "scale"),
        nargs="+",
        default=["stages", "policies", "scale"],
    )
    parser.add_argument("--cycles", type=float, nargs="+", default=[55.0, 60.0])
    parser.add_argument(
        "--phases", type=int, default=20, help="number of simulated phases of the cycle"
    )
    parser.add_argument("--patience", type=float, nargs="+", default=[1.5, 3.0, 5.0, 6.0, 7.0])
    parser.add_argument(
        "--turn", type=float, default=0.9, help="seconds from a stage's end to the next submission"
    )
    parser.add_argument(
        "--drawn",
        type=int,
        default=0,
        help="number of other sequences of stages to simulate, instead of the paper's",
    )
    parser.add_argument(
        "--quick", action="store_true", help="use few phases and a hundredth of the size"
    )
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    return parser


def main(arguments: Sequence[str]) -> None:
    """Simulate, print, and write the requested files."""
    chosen = _arguments().parse_args(arguments)
    count = 2 if chosen.quick else chosen.phases
    result: dict[str, Any] = {}
    if "stages" in chosen.only:
        result["stages"] = _stages(chosen, count)
    if "policies" in chosen.only:
        rows = policies(chosen.cycles[-1], 1 if chosen.quick else min(count, 5), chosen.turn)
        print_table(_policies_table(rows, chosen.cycles[-1]))
        result["policies"] = {
            asks: {name: asdict(row) for name, row in kinds.items()} for asks, kinds in rows.items()
        }
    if "scale" in chosen.only:
        result["scale"] = report(chosen.quick)
    if chosen.out:
        chosen.out.write_text(json.dumps(result, indent=1) + "\n")


def _stages(chosen: Namespace, count: int) -> dict[str, Any]:
    result = {}
    kinds = [drawn_stages(seed) for seed in range(chosen.drawn)] or [STAGES]
    for cycle_s in chosen.cycles:
        rows = {
            name: spread(
                row
                for stages in kinds
                for row in phases(
                    decider,
                    cycle_s,
                    count,
                    MACHINES if name == "Falkon-inf" else 0,
                    chosen.turn,
                    stages,
                )
            )
            for name, decider in settings(chosen.patience).items()
        }
        result[f"{cycle_s:g}"] = rows
        print_table(_table(rows, cycle_s, {} if chosen.drawn else PAPER))
    return result


def _policies_table(rows: dict[str, dict[str, EfficiencyRow]], cycle_s: float) -> TextTable:
    title = (
        f"Acquisition and release policies, cycle of {cycle_s:g} s: s to complete / "
        "utilisation % / allocations"
    )
    lines = [
        (
            asks,
            *(
                f"{r.complete_s:.0f} / {r.utilisation:.0f} / {r.allocations:.0f}"
                for r in kinds.values()
            ),
        )
        for asks, kinds in rows.items()
    ]
    return build_table(("asks", *releases()), lines, title)


def _table(
    rows: dict[str, dict[str, tuple[float, float, float]]],
    cycle_s: float,
    paper: dict[str, EfficiencyRow],
) -> TextTable:
    title = f"18 stages, cycle of {cycle_s:g} s: mean (5–95 % over phases), paper below"
    head = (
        "setting",
        "queue s",
        "execution s",
        "share %",
        "complete s",
        "utilisation %",
        "efficiency %",
        "allocations",
        "wasted CPU s",
    )
    lines = []
    for name, row in rows.items():
        cells = (f"{mean:.1f} ({low:.0f}–{high:.0f})" for mean, low, high in row.values())
        lines.append((name, *cells))
        if name in paper:
            lines.append(("paper", *(f"{value:g}" for value in asdict(paper[name]).values())))
    return build_table(head, lines, title)
