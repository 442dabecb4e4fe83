"""Kept promises, and the losses of strategies without them.

From each log, instants are drawn; at each, a set of one to eight similar workflows (LEAD, or the
recorded ones given with --workflow), a deadline of 1.3 to 4 times the critical path, a quarter to
all of them needed. vgrads plans with the information at that time and executes on simulated sites
that replay the recorded load; so do strategies without a planner. The arena: the log's machine at
two independent instants, and a paid cloud with room for two LEAD workflows that refuses one slot in
twenty.

With --recorded there is no simulated queue: slots are real jobs of the log, each ready when it
really started (:mod:`vgrads_studies.promises.recorded_promises`). With --view all forecasts are
learned and queried without the jobs that a history of that view does not show.

Printed: the share of sets that were kept by strategy, with cost, processor hours held and used;
promised probability against share kept (reliability), Brier score and its decomposition (Murphy
1973, doi:10.1175/1520-0450(1973)012<0595:ANVPOT>2.0.CO;2).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from statsmodels.stats.proportion import proportion_confint

from vgrads.api.queues.histories import AS_QUESTION
from vgrads.kernel.errors import InputError
from vgrads.kernel.process_pool import process_pool
from vgrads.kernel.report_page import html_table, paragraph, write_page
from vgrads.qbets.predictor import Settings
from vgrads.traces.history import history_name
from vgrads.workflows.dag import Workflow
from vgrads.workflows.formats.load import load_workflow
from vgrads_studies.picture import diagrams
from vgrads_studies.promises.arena import (
    Arena,
    Case,
    draw_case,
    draw_instants,
    forecasts_at,
    most_busy,
    rescheduled,
)
from vgrads_studies.promises.future import contradiction
from vgrads_studies.promises.ours import OURS, PAPER, simulate
from vgrads_studies.promises.recorded_promises import (
    RecordedExtent,
    as_document,
    as_text,
    recorded_study,
    write_recorded,
)
from vgrads_studies.promises.reliability import (
    BIN_HEAD,
    PromiseRow,
    bin_rows,
    conclusion,
    reliability,
    sentences,
)
from vgrads_studies.promises.replication import lead
from vgrads_studies.promises.rivals import RIVALS
from vgrads_studies.report import (
    add_view,
    as_json,
    markdown_table,
    need_files,
    picture,
    read_enough,
    study_parser,
)

BY_PAST = "vgrads, by past waits"
HEAD = (
    "strategy",
    "view",
    "sets",
    "kept",
    "95 % interval",
    "workflows in time",
    "held h",
    "used h",
    "USD",
    "planning s",
)
_HORIZON_S = 3 * 86_400.0
_PARTS = 2  # of a log: each learns from all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyWork:
    """Some cases of one log, for one process."""

    log: Path
    count: int
    seed: int
    shapes: tuple[Workflow, ...]
    view: str
    part: int
    parts: int


def cases_of(work: StudyWork) -> Iterator[tuple[Arena, Arena, Case]]:
    """Return the cases of one log with the arenas of their simulation; the second uses past waits
    only."""
    log = rescheduled(read_enough(work.log))
    pairs = draw_instants(log, work.count, work.seed, _HORIZON_S)
    mine = [(n, pair) for n, pair in enumerate(pairs) if n % work.parts == work.part]
    instants = [at_s for _, pair in mine for at_s in pair]
    procs = most_busy(log)
    ours, past = (
        Arena(
            log=log,
            procs=procs,
            forecasts=forecasts_at(log, instants, replace(settings, view=work.view)),
        )
        for settings in (AS_QUESTION, Settings())
    )
    for number, pair in mine:
        yield ours, past, draw_case(number, work.seed, pair, work.shapes)


def _rows(work: StudyWork) -> list[PromiseRow]:
    name, results = history_name(work.log), []
    for ours, past, case in cases_of(work):
        simulated = {key: strategy(past, case) for key, strategy in RIVALS.items()}
        simulated[PAPER] = simulate(past.grid(case), case, PAPER)
        simulated[OURS] = simulate(ours.grid(case), case, OURS)
        simulated[BY_PAST] = simulate(past.grid(case), case, OURS)
        results += [
            PromiseRow(
                log=name,
                case=case.number,
                strategy=key,
                needed=case.workflow_set.needed,
                result=result,
                view=work.view,
            )
            for key, result in simulated.items()
        ]
    return results


def _refusal(path: Path) -> str:
    """Return why sets are not simulated in the future of this log; empty where they are."""
    log = rescheduled(read_enough(path))
    return contradiction(log, most_busy(log))


def study(
    logs: Sequence[Path], count: int, seed: int, shapes: Sequence[Workflow], view: str
) -> list[PromiseRow]:
    """Study all logs, on all cores, with a progress bar."""
    bar = Console(stderr=True)
    with process_pool() as pool:
        refused = dict(zip(logs, pool.map(_refusal, logs), strict=True))
        for path, why in refused.items():
            if why:
                bar.print(f"{path}: {why}", soft_wrap=True, highlight=False)
        if all(refused.values()):
            raise InputError(
                "no log has a future that can be simulated",
                where="logs",
                fix="with --recorded none is needed",
            )
        works = [
            StudyWork(
                log=p,
                count=count,
                seed=seed,
                shapes=tuple(shapes),
                view=view,
                part=n,
                parts=_PARTS,
            )
            for p in logs
            if not refused[p]
            for n in range(_PARTS)
        ]
        done = pool.map(_rows, works)
        return [
            row for rows in track(done, "playing", total=len(works), console=bar) for row in rows
        ]


def scoreboard(rows: Sequence[PromiseRow]) -> list[list[str]]:
    """Return a line for each strategy: share kept with its interval, hours, dollars."""
    lines = []
    for strategy, view in dict.fromkeys((row.strategy, row.view) for row in rows):
        simulated = [r.result for r in rows if (r.strategy, r.view) == (strategy, view)]
        kept = sum(r.kept for r in simulated)
        low, high = proportion_confint(kept, len(simulated), method="wilson")
        means = [
            np.mean([getattr(r, name) for r in simulated])
            for name in ("in_time", "slot_hours", "used_hours", "usd", "planning_s")
        ]
        lines.append(
            [
                strategy,
                view,
                str(len(simulated)),
                f"{kept / len(simulated):.3f}",
                f"{low:.3f}–{high:.3f}",
                f"{means[0]:.2f}",
                f"{means[1]:.1f}",
                f"{means[2]:.1f}",
                f"{means[3]:.2f}",
                f"{means[4]:.3f}" if means[4] else "–",
            ]
        )
    return lines


def draw(rows: Sequence[PromiseRow], path: Path) -> None:
    """Draw the reliability diagram, and the share kept by strategy and log."""
    logs = list(dict.fromkeys(row.log for row in rows))
    strategies = list(dict.fromkeys(row.strategy for row in rows))
    with diagrams(path, 2, (13, 4.6)) as axes:
        axes[0].plot([0, 1], [0, 1], color="#999", linestyle=":")
        for strategy in (s for s in strategies if reliability(rows, s)):
            result = reliability(rows, strategy)
            if result is None:
                continue
            middle = [b.promised for b in result.bins]
            error_bars = np.array([[b.kept - b.low, b.high - b.kept] for b in result.bins]).T
            axes[0].errorbar(
                middle,
                [b.kept for b in result.bins],
                yerr=np.maximum(error_bars, 0),
                fmt="o-",
                capsize=2,
                label=strategy,
            )
        axes[0].set(
            xlabel="promised probability",
            ylabel="share kept",
            xlim=(-0.02, 1.02),
            ylim=(-0.02, 1.02),
        )
        axes[0].legend(frameon=False)
        width = 0.8 / len(logs)
        for n, log in enumerate(logs):
            shares = [
                np.mean([r.result.kept for r in rows if (r.log, r.strategy) == (log, s)])
                for s in strategies
            ]
            axes[1].barh(np.arange(len(strategies)) + n * width, shares, width, label=log[:12])
        axes[1].set_yticks(np.arange(len(strategies)) + 0.4 - width / 2, strategies)
        axes[1].invert_yaxis()
        axes[1].set(xlabel="share of sets kept", xlim=(0, 1))
        axes[1].legend(frameon=False, fontsize="small")


def document(rows: Sequence[PromiseRow]) -> dict[str, Any]:
    """Return the JSON document: each set by each strategy, and the reliabilities."""
    strategies = dict.fromkeys(row.strategy for row in rows)
    result = {s: reliability(rows, s) for s in strategies}
    return {
        "rows": as_json([asdict(row) for row in rows]),
        "reliability": {s: asdict(r) for s, r in result.items() if r is not None},
    }


def write_report(rows: Sequence[PromiseRow], path: Path) -> None:
    """Write the page: picture, all logs, each log."""
    parts = [
        picture(lambda file: draw(rows, file)),
        *map(paragraph, sentences(rows)),
        html_table(HEAD, scoreboard(rows)),
        html_table(BIN_HEAD, bin_rows(rows)),
    ]
    for log in dict.fromkeys(row.log for row in rows):
        mine = [row for row in rows if row.log == log]
        parts += [
            f"<h2>{log}</h2>",
            html_table(HEAD, scoreboard(mine)),
            *map(paragraph, sentences(mine)),
        ]
    write_page(path, "Are promises kept?", conclusion(rows, "vgrads"), parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = study_parser("promises", __doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=100, help="number of sets for each log")
    parser.add_argument(
        "--workflow",
        action="append",
        type=Path,
        default=[],
        help="recorded workflows; default: LEAD",
    )
    parser.add_argument(
        "--recorded",
        action="store_true",
        help="slots are real jobs of the log, with their recorded starts: no simulated queue",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=20_000,
        help="with --recorded: number of jobs to read from the beginning of each log",
    )
    add_view(parser)
    chosen = parser.parse_args(arguments)
    need_files([*chosen.logs, *chosen.workflow])
    shapes = [load_workflow(path) for path in chosen.workflow] or [lead()]
    if chosen.recorded:
        extent = RecordedExtent(
            count=chosen.count, jobs=chosen.jobs, seed=chosen.seed, view=chosen.view
        )
        results = recorded_study(chosen.logs, extent, shapes)
        if chosen.report:
            write_recorded(results, chosen.report)
        text = (
            json.dumps(as_document(results), allow_nan=False) if chosen.json else as_text(results)
        )
        sys.stdout.write(text + "\n")
        return
    rows = study(chosen.logs, chosen.count, chosen.seed, shapes, chosen.view)
    if chosen.report:
        write_report(rows, chosen.report)
    if chosen.json:
        sys.stdout.write(json.dumps(document(rows), allow_nan=False) + "\n")
        return
    for log in dict.fromkeys(row.log for row in rows):
        mine = [row for row in rows if row.log == log]
        sys.stdout.write(
            f"\n{log}\n{markdown_table(HEAD, scoreboard(mine))}\n"
            + "\n".join(sentences(mine))
            + "\n"
        )
    sys.stdout.write(
        f"\nAll\n{markdown_table(HEAD, scoreboard(rows))}\n" + "\n".join(sentences(rows)) + "\n"
    )
    sys.stdout.write(f"\n{markdown_table(BIN_HEAD, bin_rows(rows))}\n")


if __name__ == "__main__":
    main()
