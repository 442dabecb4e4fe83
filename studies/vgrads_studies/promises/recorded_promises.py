"""Promises where slots start with real jobs. (``vgrads study promises --recorded``)

Sets are placed on real jobs of a log (:mod:`vgrads_studies.promises.recorded`), planned with the
information at that instant, and carried out by the execution manager with the recorded starts
(:mod:`vgrads_studies.promises.recorded_site`), as planned, without replanning. Three methods plan
the same sets: the state of the queue (with the view of an external user: jobs of others have no
user), QBETS, and the paper's rule of probability over QBETS.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from vgrads.api.queues.histories import AS_QUESTION
from vgrads.kernel.process_pool import process_pool
from vgrads.kernel.report_page import html_table, paragraph, write_page
from vgrads.planner.make import Options, make_plan
from vgrads.planner.snapshot import Snapshot
from vgrads.qbets.predictor import Settings
from vgrads.qbets.views import FULL
from vgrads.traces.history import history_name
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow
from vgrads_studies.picture import diagrams
from vgrads_studies.promises.recorded import RecordedSet, lay_sets, offered
from vgrads_studies.promises.recorded_site import run_recorded
from vgrads_studies.promises.reliability import (
    PromiseRow,
    Reliability,
    compare,
    conclusion,
    reliability,
)
from vgrads_studies.report import as_json, markdown_table, picture, read_enough

FIFTHS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
QBETS = Settings(method="qbets")
ARMS = {
    "ours": (AS_QUESTION, Options()),
    "qbets": (QBETS, Options()),
    "paper": (QBETS, Options(probability="paper")),
}
_ALLOWED = 0.05  # between promised and kept, plus two standard errors
HEAD = ("what", "who", "view", "promised", "came true", "95 % interval", "cases", "gap")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedExtent:
    """Extent: sets and jobs of each log, the seed, and which jobs forecasts know
    (:data:`vgrads.qbets.views.VIEWS`)."""

    count: int = 600
    jobs: int = 20_000
    seed: int = 0
    view: str = FULL


@dataclass(frozen=True, kw_only=True)
class LogResult:
    """Results of one log: every set by every method that could plan it, the number of sets that
    each could not plan, and for each offered slot the forecast and whether it started in time
    (method, chance, 1 or 0). ``view``: which jobs forecasts knew."""

    log: str
    view: str
    count: int
    rows: tuple[PromiseRow, ...]
    unplanned: dict[str, int]
    starts: tuple[tuple[str, float, float], ...]

    @property
    def common(self) -> list[PromiseRow]:
        """Return the sets that all methods could plan: on these they are compared."""
        planned = Counter(row.case for row in self.rows)
        return [row for row in self.rows if planned[row.case] == len(ARMS)]


def study_log(path: Path, extent: RecordedExtent, shapes: Sequence[Workflow]) -> LogResult:
    """Study one log: draw the sets, plan with all methods, simulate."""
    log = read_enough(path)
    log = log.select(np.arange(min(extent.jobs, len(log))))
    laid = lay_sets(log, extent.count, extent.seed, shapes)
    rows: list[PromiseRow] = []
    starts: list[tuple[str, float, float]] = []
    unplanned = dict.fromkeys(ARMS, 0)
    offers = {
        settings: offered(log, laid, replace(settings, view=extent.view))
        for settings in (AS_QUESTION, QBETS)
    }
    for item in laid:
        for who, (settings, options) in ARMS.items():
            slots = tuple(s for j in item.jobs for s in offers[settings][item.number, j.machine])
            if who != "paper":
                starts += ((who, *pair) for pair in _came(item, slots))
            row = _row(history_name(path), item, slots, who, options)
            if row is None:
                unplanned[who] += 1
            else:
                rows.append(replace(row, view=extent.view))
    return LogResult(
        log=history_name(path),
        view=extent.view,
        count=len(laid),
        rows=tuple(rows),
        unplanned=unplanned,
        starts=tuple(starts),
    )


def _row(
    log: str, item: RecordedSet, slots: tuple[Slot, ...], who: str, options: Options
) -> PromiseRow | None:
    snapshot = Snapshot(workflow_set=item.workflow_set, slots=slots, seed=item.number)
    begin = time.perf_counter()
    plan = make_plan(snapshot, options)
    planning_s = time.perf_counter() - begin
    if not plan.feasible:
        return None
    result = run_recorded(plan, snapshot, item.starts_s, planning_s)
    return PromiseRow(
        log=log, case=item.number, strategy=who, needed=item.workflow_set.needed, result=result
    )


def _came(item: RecordedSet, slots: Sequence[Slot]) -> Iterator[tuple[float, float]]:
    """Return for each slot: P(ready in time for one of the workflows), and whether it was."""
    latest_s = item.workflow_set.deadline_s - item.workflow_set.workflows[0].critical_path_s()
    for slot in slots:
        if slot.submit_s <= latest_s:
            yield slot.curve.by(latest_s), float(item.starts_s[slot.id] <= latest_s)


def recorded_study(
    logs: Sequence[Path], extent: RecordedExtent, shapes: Sequence[Workflow]
) -> list[LogResult]:
    """Study all logs, on all cores, with a progress bar."""
    work = partial(study_log, extent=extent, shapes=tuple(shapes))
    with process_pool() as pool:
        bar = Console(stderr=True)
        return list(
            track(pool.map(work, logs), "simulating recorded starts", total=len(logs), console=bar)
        )


def together(results: Sequence[LogResult]) -> LogResult:
    """Merge all logs."""
    rows = [row for result in results for row in result.rows]
    return LogResult(
        log="All",
        view=results[0].view,
        count=sum(result.count for result in results),
        rows=tuple(rows),
        unplanned={who: sum(result.unplanned[who] for result in results) for who in ARMS},
        starts=tuple(start for result in results for start in result.starts),
    )


def lines(result: LogResult) -> list[list[str]]:
    """Return the sets of each method by fifths of the promises, then the slots by fifths of the
    forecasts."""
    sets = {who: reliability(result.rows, who, FIFTHS) for who in ARMS}
    table = [
        line
        for who, reliability in sets.items()
        if reliability
        for line in _bins(("sets", who, result.view), reliability)
    ]
    for who in ("ours", "qbets"):
        pairs = [pair[1:] for pair in result.starts if pair[0] == who]
        if pairs:
            chances, came = np.array(pairs).T
            table += _bins(("slots", who, result.view), compare(chances, came, FIFTHS))
    return table


def _bins(first: tuple[str, ...], reliability: Reliability) -> list[list[str]]:
    return [
        [
            *first,
            f"{b.promised:.3f}",
            f"{b.kept:.3f}",
            f"{b.low:.3f}–{b.high:.3f}",
            str(b.count),
            f"{b.gap:+.3f}" + (" **missed**" if abs(b.gap) > _ALLOWED + 2 * b.error else ""),
        ]
        for b in reliability.bins
    ]


def sentences(result: LogResult, common: Sequence[PromiseRow]) -> list[str]:
    """Return the number of sets, the number that each method could not plan, Brier scores on those
    that all could plan."""
    could = ", ".join(f"{who} {result.unplanned[who] / max(1, result.count):.2f}" for who in ARMS)
    text = [
        (
            f"{result.count} sets; no feasible plan: {could}; planned by all: "
            f"{len(common) // len(ARMS)}."
        )
    ]
    for who in ARMS:
        item = reliability(common, who, FIFTHS)
        if item is not None:
            text.append(
                f"{who}: Brier score {item.brier:.4f} = reliability {item.reliability:.4f} − "
                f"resolution {item.resolution:.4f} + "
                f"uncertainty {item.uncertainty:.4f} and the variation within fifths; kept "
                f"{_kept_share(common, who):.3f}."
            )
    return text


def _kept_share(rows: Sequence[PromiseRow], who: str) -> float:
    return float(np.mean([row.result.kept for row in rows if row.strategy == who]))


def _each(results: Sequence[LogResult]) -> Iterator[tuple[LogResult, list[PromiseRow]]]:
    """Yield every log, then all together where there are several."""
    common = [result.common for result in results]
    yield from zip(results, common, strict=True)
    if len(results) > 1:
        yield together(results), [row for rows in common for row in rows]


def as_text(results: Sequence[LogResult]) -> str:
    """Return Markdown tables for the terminal."""
    parts = [
        f"\n{result.log}\n"
        + "\n".join(sentences(result, common))
        + f"\n\n{markdown_table(HEAD, lines(result))}"
        for result, common in _each(results)
    ]
    return "\n".join(parts)


def as_document(results: Sequence[LogResult]) -> dict[str, Any]:
    """Return the JSON document: each set by each method, the accuracy of slot forecasts, the
    reliabilities."""
    rows = [asdict(row) for result in results for row in result.rows]
    reliability = {
        result.log: {who: asdict(r) for who in ARMS if (r := reliability(result.rows, who, FIFTHS))}
        for result, _ in _each(results)
    }
    starts = {result.log: result.starts for result in results}
    unplanned = {result.log: {"sets": result.count, **result.unplanned} for result in results}
    return {
        "rows": as_json(rows),
        "reliability": reliability,
        "unplanned": unplanned,
        "starts": starts,
    }


def write_recorded(results: Sequence[LogResult], path: Path) -> None:
    """Write the page: picture, each log, all logs."""
    parts = [picture(partial(_draw, results))]
    for result, common in _each(results):
        parts += [
            f"<h2>{result.log}</h2>",
            *map(paragraph, sentences(result, common)),
            html_table(HEAD, lines(result)),
        ]
    title, rows = "Are promises kept on recorded starts?", together(results).rows
    write_page(path, title, conclusion(rows, "ours"), parts)


def _draw(results: Sequence[LogResult], path: Path) -> None:
    """Draw reliability by fifths: all methods over all logs, and ours log by log."""
    whole = together(results).rows
    ways: list[dict[str, Callable[[], Reliability | None]]] = [
        {who: partial(reliability, whole, who, FIFTHS) for who in ARMS},
        {result.log[:14]: partial(reliability, result.rows, "ours", FIFTHS) for result in results},
    ]
    with diagrams(path, 2, (12, 5)) as axes:
        for axis, curves in zip(axes, ways, strict=True):
            axis.plot([0, 1], [0, 1], color="#999", linestyle=":")
            for name, promise_model in curves.items():
                model = promise_model()
                bins = model.bins if model else ()
                error_bars = (
                    np.array([[b.kept - b.low, b.high - b.kept] for b in bins]).reshape(-1, 2).T
                )
                axis.errorbar(
                    [b.promised for b in bins],
                    [b.kept for b in bins],
                    yerr=np.maximum(error_bars, 0),
                    fmt="o-",
                    capsize=2,
                    markersize=4,
                    linewidth=1,
                    label=name,
                )
            axis.set(xlabel="promised", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
            axis.legend(frameon=False, fontsize="small")
        axes[0].set_ylabel("kept")
