"""Simulation of the whole space of bag scheduling: a reproduction of Iosup, Sonmez, Anoep and
Epema, HPDC 2008.

Twenty clusters of 3,528 processors, workloads of the average model with run times of two hours on
average over three days, which makes as many tasks as the paper has (20,000 to 175,000); ``--seeds``
of each:

- selection policies, scheduling policies and architectures at loads from 20 to 95 % (their §5.1,
  5.4, 5.5)
- arrivals, bag sizes and run times at 60 % (§5.2), wrongly reported run times (§5.3)
- run-time predictors on histories given as files, or on the model (§3.7)

The same over loads for a natural day: one day with the run times of the model, six times as many
tasks and short ones. Averages are over bags, then over seeds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from vgrads_studies.bags.predictors import PREDICTORS, inaccuracies
from vgrads_studies.picture import diagrams, picture_file
from vgrads_studies.report import StudyParser, markdown_table

from vgrads.kernel.errors import InputError
from vgrads.kernel.process_pool import process_pool
from vgrads.kernel.streams import stream
from vgrads.kernel.values import field_values
from vgrads.traces.history import history_name, read_history
from vgrads.workloads.architectures import Algorithm, simulate
from vgrads.workloads.extract import extract_bags
from vgrads.workloads.metrics import figures
from vgrads.workloads.model import MODELS, Target, draw_bags
from vgrads.workloads.selection import SELECTIONS
from vgrads.workloads.system import System, paper_system
from vgrads.workloads.workload import BagColumns

Cells = dict[tuple[str, str, float | str], dict[str, float]]
LOADS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
DAYS, MEAN_RUNTIME_S = 3.0, 7200.0
NATURAL = {"days": 1.0, "mean_runtime_s": None}
PAPERS_TASKS = "20,000–175,000"
SCHEDULED = ("ECT", "FPLT", "RR", "WQR-4", "DFPLT", "ECT-P", "STFR", "FPF")
SIZES, MINUTES = (10, 20, 30, 40, 50), (3, 10, 30, 60, 180)
WRONG = (0, 100, 300, 1000, 3000, 10000)
_SPREAD = 0.6  # the load of §5.2


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationCase:
    """One simulation: its experiment, its position there (``x``), the algorithm, the error of run
    times."""

    experiment: str
    x: float | str
    series: str
    how: Algorithm
    wrong: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyJob:
    """A workload with all its simulations."""

    target: Target
    seed: int
    questions: tuple[SimulationCase, ...]


def _target(load: float, **more: Any) -> Target:
    system = paper_system()
    chosen = {"days": DAYS, "mean_runtime_s": MEAN_RUNTIME_S, **more}
    return Target(load=load, capacity=system.capacity, clusters=len(system.procs), **chosen)


def plan_jobs(seeds: int) -> list[StudyJob]:
    """Return all simulations."""
    return [
        job
        for seed in range(seeds)
        for job in (
            *_over_loads(seed, "", {}),
            *_over_workloads(seed),
            *_over_loads(seed, "natural day, ", NATURAL),
        )
    ]


def _over_loads(seed: int, prefix: str, more: dict[str, Any]) -> Iterable[StudyJob]:
    for load in LOADS:
        simulation_cases = [
            SimulationCase(
                experiment=f"{prefix}selection", x=load, series=s, how=Algorithm(selection=s)
            )
            for s in SELECTIONS
        ]
        simulation_cases += [
            SimulationCase(
                experiment=f"{prefix}scheduling", x=load, series=s, how=Algorithm(scheduling=s)
            )
            for s in SCHEDULED
        ]
        simulation_cases += [
            SimulationCase(
                experiment=f"{prefix}architecture", x=load, series=a, how=Algorithm(architecture=a)
            )
            for a in ("csp", "sep-c", "fcondor")
        ]
        if load in (0.6, 0.95) and not prefix:
            simulation_cases += [
                SimulationCase(
                    experiment=f"wrong estimates, load {load:.0%}",
                    x=w,
                    series=s,
                    how=Algorithm(scheduling=s),
                    wrong=w,
                )
                for w in WRONG
                for s in ("ECT", "FPLT", "DFPLT", "STFR")
            ]
        yield StudyJob(target=_target(load, **more), seed=seed, questions=tuple(simulation_cases))


def _over_workloads(seed: int) -> Iterable[StudyJob]:
    """Vary run times over one day: in three, tasks of three minutes would be four million."""
    kinds: list[tuple[str, float | str, Target]] = []
    kinds += [("arrivals", a, _target(_SPREAD, arrivals=a)) for a in ("cycle", "even", "at once")]
    kinds += [("median size", m, _target(_SPREAD, median_size=float(m))) for m in SIZES]
    kinds += [
        ("mean run time, minutes", m, _target(_SPREAD, days=1.0, mean_runtime_s=60.0 * m))
        for m in MINUTES
    ]
    for name, x, target in kinds:
        simulation_cases = tuple(
            SimulationCase(experiment=name, x=x, series=s, how=Algorithm(scheduling=s))
            for s in SCHEDULED
        )
        yield StudyJob(target=target, seed=seed, questions=simulation_cases)


@lru_cache(maxsize=1)
def _system() -> System:
    return paper_system()


def answer(job: StudyJob) -> list[dict[str, Any]]:
    """Run all simulations of one workload."""
    bags = draw_bags(MODELS["average"], job.target, job.seed)
    return [_row(job, question, bags) for question in job.questions]


def _row(job: StudyJob, question: SimulationCase, bags: BagColumns) -> dict[str, Any]:
    how = question.how
    if question.wrong or question.experiment.startswith("wrong estimates"):
        draws = stream(job.seed, "wrong", str(question.wrong))
        off = draws.uniform(-question.wrong, question.wrong, len(bags.runtime_s)) / 100.0
        message = np.maximum(bags.runtime_s * (1.0 + off), 1.0)
        how = Algorithm(selection=how.selection, scheduling=how.scheduling, estimate_s=message)
    bag_metrics = figures(simulate(bags, _system(), how))
    return {
        "experiment": question.experiment,
        "x": question.x,
        "series": question.series,
        "seed": job.seed,
        "tasks": len(bags.runtime_s),
        **field_values(bag_metrics),
    }


def study(seeds: int, processes: int = 2) -> list[dict[str, Any]]:
    """Return all rows, computed in parallel over cores, with a progress bar."""
    jobs = plan_jobs(seeds)
    bar = Console(stderr=True)
    with process_pool(processes) as pool:
        result = track(pool.map(answer, jobs), "bags", total=len(jobs), console=bar, transient=True)
        return [row for rows in result for row in rows]


def averaged(rows: Sequence[dict[str, Any]]) -> Cells:
    """Return (experiment, series, x) → averages over seeds."""
    groups: dict[tuple[str, str, float | str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["experiment"], row["series"], row["x"]), []).append(row)
    names = ("makespan_s", "length", "finished", "wait_s", "utilisation", "tasks")
    return {
        key: {n: float(np.mean([r[n] for r in group])) for n in names}
        for key, group in groups.items()
    }


def predictor_rows(histories: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the average and median inaccuracy in per cent of every predictor, by batch and by
    user."""
    logs = [(history_name(path), extract_bags(read_history(path))) for path in histories]
    if not logs:
        target = Target(load=0.3, capacity=3500.0)
        logs = [(name, draw_bags(MODELS[name], target, 0)) for name in ("DAS-2", "Grid'5000")]
    rows = []
    for name, bags in logs:
        for predictor in PREDICTORS:
            for by in ("batch", "user"):
                off = inaccuracies(bags, predictor, by)
                if not len(off):
                    raise InputError(
                        "has no bag of two or more tasks for the prediction", where=name
                    )
                rows.append(
                    {
                        "history": name,
                        "predictor": predictor,
                        "by": by,
                        "mean": float(off.mean()),
                        "median": float(np.median(off)),
                    }
                )
    return rows


def tables(rows: Sequence[dict[str, Any]], predicted: Sequence[dict[str, Any]]) -> str:
    """Return Markdown: makespan in minutes and normalised length of every experiment, then the
    predictors."""
    cells = averaged(rows)
    parts: list[str] = []
    for experiment in dict.fromkeys(key[0] for key in cells):
        parts += _experiment_tables(cells, experiment)
    return "\n".join([*parts, _predictor_table(predicted)])


def _experiment_tables(cells: Cells, experiment: str) -> Iterable[str]:
    """Return makespan and length, each under the tasks and the utilisation; for architectures also
    the finished share."""
    xs = list(dict.fromkeys(key[2] for key in cells if key[0] == experiment))
    series = list(dict.fromkeys(key[1] for key in cells if key[0] == experiment))
    measures = [("makespan_s", "makespan, minutes", 60.0), ("length", "normalised length", 1.0)]
    if experiment.endswith("architecture"):
        measures.append(("finished", "share of tasks finished when the last bag arrived", 1.0))
    for measure, title, scale in measures:
        yield f"\n**{experiment}: {title}**\n"
        first = [cells[experiment, series[0], x] for x in xs]
        rows = [
            (f"tasks ({PAPERS_TASKS})", *(f"{cell['tasks']:,.0f}" for cell in first)),
            (f"utilisation ({series[0]})", *(f"{cell['utilisation']:.0%}" for cell in first)),
        ]
        for name in series:
            values = (cells[experiment, name, x][measure] / scale for x in xs)
            rows.append((name, *map(_format_figure, values)))
        yield markdown_table(("", *map(_label, xs)), rows)


def _format_figure(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _label(x: float | str) -> str:
    return f"{x:.0%}" if isinstance(x, float) and x <= 1 else str(x)


def _predictor_table(rows: Sequence[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(r["history"] for r in rows))
    cell = {(r["history"], r["predictor"], r["by"]): r for r in rows}
    lines = []
    for predictor in PREDICTORS:
        for by in ("batch", "user"):
            result = (cell[name, predictor, by] for name in names)
            shares = (f"{r['mean']:,.0f} ({r['median']:.0f})" for r in result)
            lines.append((f"{predictor}, {by}", *shares))
    title = "\n**predictors: mean (median) inaccuracy, per cent**\n\n"
    return title + markdown_table(("predictor, input", *names), lines)


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw normalised length and makespan against load, for selection, scheduling and
    architecture."""
    cells = averaged(rows)
    with diagrams(path, 6, (22, 3.8)) as axes:
        for place, experiment in enumerate(("selection", "scheduling", "architecture")):
            for series in dict.fromkeys(key[1] for key in cells if key[0] == experiment):
                for k, (measure, title) in enumerate(
                    (("length", "normalised length"), ("makespan_s", "makespan (s)"))
                ):
                    axis = axes[2 * place + k]
                    values = [cells[experiment, series, load][measure] for load in LOADS]
                    axis.plot(LOADS, values, marker=".", label=series)
                    axis.set_yscale("log")
                    axis.set_xlabel("load")
                    axis.set_title(f"{experiment}: {title}", fontsize=9)
            axes[2 * place].legend(fontsize=6)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = StudyParser("bags", __doc__)
    parser.add_argument(
        "histories", nargs="*", type=Path, help="logs for the predictors; default: the model"
    )
    parser.add_argument("--seeds", type=int, default=4, help="number of workloads of each kind")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--picture", type=picture_file, help="file for the diagrams (SVG)")
    parser.add_argument("--json", action="store_true", help="print one JSON document to stdout")
    chosen = parser.parse_args(arguments)
    for name, value in (("--seeds", chosen.seeds), ("--processes", chosen.processes)):
        if value < 1:
            raise InputError("must be at least 1", where=name)
    predicted = predictor_rows(chosen.histories)
    rows = study(chosen.seeds, chosen.processes)
    if chosen.picture:
        draw(rows, chosen.picture)
    text = (
        json.dumps({"rows": rows, "predictors": predicted})
        if chosen.json
        else tables(rows, predicted)
    )
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
