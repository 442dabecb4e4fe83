"""Binding, planning and execution of a run in time: Figures 5, 6 and 7 of SC'09 on the shipped
sites.

The LEAD set (six of eight within two hours) is planned and run at several instants of the sites'
histories. Drawn: for each site the mean time from the request of a slot until it is ready, with
minimum and maximum; for the first run the planning events, and binding and execution as lines from
start to end.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from vgrads.api.config import embedded_data
from vgrads.api.plans.execution import RunOutcome
from vgrads.api.plans.planning import Planned, open_grid, plan_set
from vgrads.api.plans.set_files import load_set
from vgrads.kernel.report_page import html_table, write_page
from vgrads.kernel.streams import stream
from vgrads.vgrid.catalog import load_catalog
from vgrads_studies.picture import diagrams
from vgrads_studies.promises.arena import Case
from vgrads_studies.promises.ours import run_case
from vgrads_studies.report import markdown_table, picture, study_parser

HEAD = ("site", "slots", "mean binding (s)", "least", "most")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A phase: ``what`` is planning, binding or execution; seconds from its zero."""

    what: str
    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedBinding:
    """A slot of some run: the time from request until ready."""

    run: int
    site: str
    seconds: float


def _planned(at_s: float, number: int) -> tuple[Planned, list[Span]]:
    """Return a plan and when its parts were computed (wall-clock seconds)."""
    folder = embedded_data()
    workflow_set, _ = load_set(folder / "lead-storm.yaml")
    begin = time.perf_counter()
    grid = open_grid(load_catalog(folder / "sites.toml"), at_s)
    read_s = time.perf_counter() - begin
    planned = plan_set(workflow_set, grid, number)
    spans = [Span(what="planning", name="read and learn histories", start_s=0.0, end_s=read_s)]
    at = read_s
    names = {"procure": "query all sites"}
    for name, seconds in planned.plan.seconds.items():
        shown = names.get(name, f"phase {name}")
        spans.append(Span(what="planning", name=shown, start_s=at, end_s=at + seconds))
        at += seconds
    end_s = time.perf_counter() - begin
    spans.append(Span(what="planning", name="simulate the plan", start_s=at, end_s=max(at, end_s)))
    return planned, spans


def _spans(planned: Planned, outcome: RunOutcome) -> list[Span]:
    """Return binding of slots and execution of workflows, in seconds of the run."""
    results = []
    for slot, record in sorted(outcome.state.slots.items()):
        if record.requested_s is not None and record.ready_s is not None:
            results.append(
                Span(what="binding", name=slot, start_s=record.requested_s, end_s=record.ready_s)
            )
    for workflow in planned.workflow_set.workflows:
        ran = [
            r
            for key, r in outcome.state.replicas.items()
            if key[0] == workflow.name and r.end_s > r.start_s > 0
        ]
        if ran:
            first, last = min(r.start_s for r in ran), max(r.end_s for r in ran)
            results.append(Span(what="execution", name=workflow.name, start_s=first, end_s=last))
    return results


def study(runs: int, seed: int) -> tuple[list[ObservedBinding], list[Span], list[bool]]:
    """Run all with a progress bar: bindings, the first run's spans, whether promises were kept."""
    instants = stream(seed, "timeline").uniform(0.4, 0.9, runs)
    bindings, spans, kept = [], list[Span](), []
    last_s = min(
        log.end_s for log in open_grid(load_catalog(embedded_data() / "sites.toml")).logs.values()
    )
    for number, share in enumerate(track(instants, "running", console=Console(stderr=True))):
        planned, planning = _planned(float(share) * last_s, number)
        case = Case(number=number, workflow_set=planned.workflow_set, instants=(0.0, 0.0))
        outcome, _ = run_case(planned, case)
        kept.append(outcome.kept)
        spans = spans or [*planning, *_spans(planned, outcome)]
        bindings += [
            ObservedBinding(
                run=number,
                site=outcome.execution.uses[slot].slot.site,
                seconds=record.ready_s - record.requested_s,
            )
            for slot, record in outcome.state.slots.items()
            if record.ready_s is not None and record.requested_s is not None
        ]
    return bindings, spans, kept


def rows_of(bindings: Sequence[ObservedBinding]) -> list[list[str]]:
    """Return a line for each site."""
    rows = []
    for site in sorted({b.site for b in bindings}):
        seconds = [b.seconds for b in bindings if b.site == site]
        rows.append(
            [
                site,
                str(len(seconds)),
                f"{np.mean(seconds):,.0f}",
                f"{min(seconds):,.0f}",
                f"{max(seconds):,.0f}",
            ]
        )
    return rows


def draw_bindings(bindings: Sequence[ObservedBinding], path: Path) -> None:
    """Draw Figure 5: a bar for each site, minimum and maximum as error bars."""
    sites = sorted({b.site for b in bindings})
    seconds = [[b.seconds for b in bindings if b.site == site] for site in sites]
    means = np.array([np.mean(s) for s in seconds])
    error_bars = [means - [min(s) for s in seconds], np.array([max(s) for s in seconds]) - means]
    with diagrams(path, 1, (9, 3.8)) as axes:
        axes[0].bar(sites, means / 60, yerr=np.array(error_bars) / 60, capsize=4, color="#3b7dd8")
        axes[0].set(ylabel="minutes until ready", title="binding time by site")


def draw_spans(spans: Sequence[Span], path: Path) -> None:
    """Draw Figures 6 and 7: planning in milliseconds, then binding and execution in minutes."""
    kinds = {"planning": "#c58a00", "binding": "#3b7dd8", "execution": "#2f8f5b"}
    planning = [s for s in spans if s.what == "planning"]
    later = [s for s in spans if s.what != "planning"]
    with diagrams(path, 2, (14, 1.2 + 0.26 * max(len(planning), len(later)))) as axes:
        for axis, part, unit in ((axes[0], planning, 1000.0), (axes[1], later, 1 / 60)):
            for n, span in enumerate(part):
                axis.plot(
                    [span.start_s * unit, span.end_s * unit],
                    [n, n],
                    "|-",
                    color=kinds[span.what],
                    linewidth=4,
                )
            axis.set_yticks(range(len(part)), [span.name for span in part])
            axis.invert_yaxis()
        axes[0].set(title="planning", xlabel="milliseconds")
        axes[1].set(title="binding (blue) and execution (green)", xlabel="minutes")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = study_parser("timeline", __doc__)
    parser.add_argument("--runs", type=int, default=12)
    chosen = parser.parse_args(arguments)
    bindings, spans, kept = study(chosen.runs, chosen.seed)
    text = f"{sum(kept)} of {len(kept)} promises were kept."
    if chosen.report:
        parts = [
            picture(lambda file: draw_bindings(bindings, file)),
            html_table(HEAD, rows_of(bindings)),
            picture(lambda file: draw_spans(spans, file)),
        ]
        write_page(chosen.report, "Binding, planning and execution in time", text, parts)
    if chosen.json:
        document = {
            "bindings": [asdict(b) for b in bindings],
            "spans": [asdict(s) for s in spans],
            "kept": kept,
        }
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        sys.stdout.write(f"{markdown_table(HEAD, rows_of(bindings))}\n{text}\n")


if __name__ == "__main__":
    main()
