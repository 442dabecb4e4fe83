"""Table 1 of SC'09 on recorded load: time of LEAD workflows by each way of getting processors.

The paper projects averages from history; here every way is simulated at many instants of a log,
under the recorded load, and its whole distribution is shown. Rows as in the paper: an advance
reservation; task by task through the queue; one slot for one, six and eight workflows; and vgrads
over the machine at two instants and a cloud as wide as the paper had (128), for six of eight
workflows within the deadline. LEAD has 16 processors at its widest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from vgrads.kernel.process_pool import process_pool
from vgrads.kernel.report_page import html_table, paragraph, write_page
from vgrads.kernel.units import format_duration
from vgrads.qbets.predictor import Settings
from vgrads.traces.history import history_name
from vgrads.workflows.sets import WorkflowSet
from vgrads_studies.picture import diagrams
from vgrads_studies.promises.arena import (
    Arena,
    Case,
    draw_instants,
    forecasts_at,
    most_busy,
    rescheduled,
)
from vgrads_studies.promises.ours import simulate
from vgrads_studies.promises.replication import lead
from vgrads_studies.promises.rivals import Result, reservation, single_slot, task_by_task
from vgrads_studies.report import (
    as_json,
    markdown_table,
    need_files,
    picture,
    read_enough,
    study_parser,
)

PAPER_S = {
    "advance reservation (1)": 5224.0,
    "task by task (1)": 10935.0,
    "single slot (1)": 7424.0,
    "single slot (6)": 8054.0,
    "single slot (8)": 19754.0,
    "vgES / vgrads (6 of 8)": 6893.0,
}
"""Total seconds, with the number of workflows."""
DEADLINE_S = 7200.0
HEAD = (
    "resources (workflows)",
    "paper (s)",
    "median (s)",
    "mean (s)",
    "10–90 % (s)",
    "binding, median (s)",
    "within 2 h",
    "never within a day",
)
_HORIZON_S = 3 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Table1Row:
    """One way on one log: totals and bindings at each instant, ``inf`` where it failed."""

    log: str
    way: str
    totals_s: tuple[float, ...]
    bindings_s: tuple[float, ...]


def case_of(number: int, count: int, needed: int, instants: tuple[float, float]) -> Case:
    """Return a case of ``needed`` out of ``count`` LEAD workflows within two hours."""
    workflow_set = WorkflowSet(
        name=f"lead-{number}",
        workflows=tuple(lead().renamed(f"w{n}") for n in range(count)),
        deadline_s=DEADLINE_S,
        needed=needed,
        probability=0.9,
    )
    return Case(number=number, workflow_set=workflow_set, instants=instants)


def _total(result: Result, needed: int) -> float:
    """Return when ``needed`` workflows were done."""
    return sorted(result.done_s)[needed - 1]


def _at_instant(job: tuple[Arena, int, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    arena, number, instants = job
    make = partial(case_of, number, instants=instants)
    case, six, eight, ours = make(1, 1), make(6, 6), make(8, 8), make(8, 6)
    simulated = {
        "advance reservation (1)": (reservation(arena, case), 1),
        "task by task (1)": (task_by_task(arena, case), 1),
        "single slot (1)": (single_slot(arena, case), 1),
        "single slot (6)": (single_slot(arena, six), 6),
        "single slot (8)": (single_slot(arena, eight), 8),
        "vgES / vgrads (6 of 8)": (simulate(arena.grid(ours), ours, "vgrads"), 6),
    }
    return {
        way: (_total(result, needed), result.binding_s)
        for way, (result, needed) in simulated.items()
    }


def study(logs: Sequence[Path], count: int, seed: int) -> list[Table1Row]:
    """Study all logs, on all cores, with a progress bar."""
    table1_rows: list[Table1Row] = []
    with process_pool() as pool:
        for path in logs:
            log = rescheduled(read_enough(path))
            pairs = draw_instants(log, count, seed, _HORIZON_S)
            knowns = forecasts_at(log, [at_s for pair in pairs for at_s in pair], Settings())
            procs = most_busy(log)
            jobs = [
                (
                    Arena(
                        log=log,
                        procs=procs,
                        forecasts={at_s: knowns[at_s] for at_s in pair},
                        cloud_procs=128,
                    ),
                    n,
                    pair,
                )
                for n, pair in enumerate(pairs)
            ]
            bar = track(
                pool.map(_at_instant, jobs, chunksize=8),
                history_name(path),
                total=len(jobs),
                console=Console(stderr=True),
            )
            simulated = list(bar)
            table1_rows += [
                Table1Row(
                    log=history_name(path),
                    way=way,
                    totals_s=tuple(p[way][0] for p in simulated),
                    bindings_s=tuple(p[way][1] for p in simulated),
                )
                for way in PAPER_S
            ]
    return table1_rows


def rows_of(lines: Sequence[Table1Row]) -> list[list[str]]:
    """Return the table: paper's total, ours as a distribution."""
    rows = []
    for line in lines:
        totals = np.array(line.totals_s)
        done = totals[np.isfinite(totals)]
        low, middle, high = np.quantile(totals, [0.1, 0.5, 0.9], method="inverted_cdf")
        rows.append(
            [
                line.way,
                f"{PAPER_S[line.way]:,.0f}",
                _seconds(middle),
                _seconds(done.mean() if len(done) else np.inf),
                f"{_seconds(low)}–{_seconds(high)}",
                _seconds(np.quantile(line.bindings_s, 0.5, method="inverted_cdf")),
                f"{np.mean(totals <= DEADLINE_S):.2f}",
                f"{np.mean(~np.isfinite(totals)):.2f}",
            ]
        )
    return rows


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if np.isfinite(value) else "never"


def draw(lines: Sequence[Table1Row], path: Path) -> None:
    """Draw for each way the share of instants at which it was done within a time; the paper's total
    dotted."""
    logs = list(dict.fromkeys(line.log for line in lines))
    with diagrams(path, len(logs), (5.2 * len(logs), 4.2)) as axes:
        for axis, log in zip(axes, logs, strict=True):
            for number, line in enumerate(
                table1_row for table1_row in lines if table1_row.log == log
            ):
                hours = np.sort(np.array(line.totals_s)) / 3600.0
                shares = np.arange(1, len(hours) + 1) / len(hours)
                axis.step(
                    np.append(hours[np.isfinite(hours)], 24),
                    np.append(shares[np.isfinite(hours)], np.isfinite(hours).mean()),
                    where="post",
                    color=f"C{number}",
                    label=line.way,
                )
                axis.axvline(
                    PAPER_S[line.way] / 3600.0, color=f"C{number}", linestyle=":", linewidth=1
                )
            axis.set(
                title=log,
                xlabel="hours until done",
                ylabel="share of instants",
                xlim=(0, 12),
                ylim=(0, 1.02),
            )
        axes[0].legend(frameon=False, fontsize="small")


def _conclusion(lines: Sequence[Table1Row]) -> str:
    """Return how often six of eight workflows were done in time, by our plans and by slots."""
    ours, slots = (
        [total_s for line in lines if line.way == way for total_s in line.totals_s]
        for way in ("vgES / vgrads (6 of 8)", "single slot (6)")
    )
    shares = [float(np.mean(np.array(totals_s) <= DEADLINE_S)) for totals_s in (ours, slots)]
    return (
        f"Six workflows were done within {format_duration(DEADLINE_S)} at {shares[0]:.0%} of the "
        f"instants with a plan for six of eight, and at {shares[1]:.0%} with one slot for each."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = study_parser("table1", __doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=200, help="number of instants of each log")
    chosen = parser.parse_args(arguments)
    need_files(chosen.logs)
    lines = study(chosen.logs, chosen.count, chosen.seed)
    grouped = {
        log: [line for line in lines if line.log == log]
        for log in dict.fromkeys(line.log for line in lines)
    }
    if chosen.report:
        note = (
            f"Dotted: the paper's totals. Deadline {format_duration(DEADLINE_S)}; totals count "
            "from the set's arrival."
        )
        parts = [picture(lambda file: draw(lines, file)), paragraph(note)]
        for log, mine in grouped.items():
            parts += [f"<h2>{log}</h2>", html_table(HEAD, rows_of(mine))]
        write_page(chosen.report, "Table 1 of SC'09 on recorded load", _conclusion(lines), parts)
    if chosen.json:
        rows = [
            {
                "log": line.log,
                "way": line.way,
                "paper_s": PAPER_S[line.way],
                "totals_s": line.totals_s,
                "bindings_s": line.bindings_s,
            }
            for line in lines
        ]
        sys.stdout.write(json.dumps({"rows": as_json(rows)}) + "\n")
        return
    for log, mine in grouped.items():
        sys.stdout.write(f"\n{log}\n{markdown_table(HEAD, rows_of(mine))}\n")


if __name__ == "__main__":
    main()
