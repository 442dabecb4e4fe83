"""Are promises kept where slots start when real jobs really did? (``vgrads study promises
--recorded``)

Sets are laid over real jobs of a log (:mod:`vgrads.research.promises.recorded`), planned with what
was known at that instant, and carried out by the execution manager with the recorded starts
(:mod:`vgrads.research.promises.recorded_site`), as planned: nobody plans anew. Three who plan the
same sets: with what the state of the queue says (asked as a stranger would: jobs of others have no
user), with QBETS, and by the paper's rule of probability over QBETS.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from vgrads.api.queues.histories import AS_ASKED
from vgrads.planner.make import Options, make_plan
from vgrads.planner.snapshot import Snapshot
from vgrads.qbets.predictor import Settings
from vgrads.research.picture import diagrams
from vgrads.research.promises.recorded import Laid, lay_sets, offered
from vgrads.research.promises.recorded_site import played
from vgrads.research.promises.reliability import Reliability, Row, compare, reliability
from vgrads.research.report import (
    as_json,
    html_table,
    paragraph,
    picture,
    read_enough,
    text_table,
    write_page,
)
from vgrads.traces.history import history_name
from vgrads.vgrid.slot import Slot
from vgrads.workflows.dag import Workflow

FIFTHS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
QBETS = Settings(method="qbets")
ARMS = {
    "ours": (AS_ASKED, Options()),
    "qbets": (QBETS, Options()),
    "paper": (QBETS, Options(probability="paper")),
}
_ALLOWED = 0.05  # between promised and kept, beside two standard errors
HEAD = ("what", "who", "promised", "came true", "95 % interval", "cases", "gap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is asked: sets and jobs of each log, and the seed."""

    count: int = 600
    jobs: int = 20_000
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Found:
    """Of one log: every set by everybody who could plan it, how many could not be planned by whom,
    and for each offered slot what was foretold and whether it came (who, chance, 1 or 0).
    """

    log: str
    count: int
    rows: tuple[Row, ...]
    unplanned: dict[str, int]
    starts: tuple[tuple[str, float, float], ...]

    @property
    def common(self) -> list[Row]:
        """Sets that everybody could plan: on these they are compared."""
        planned = Counter(row.case for row in self.rows)
        return [row for row in self.rows if planned[row.case] == len(ARMS)]


def study_log(path: Path, extent: Extent, shapes: Sequence[Workflow]) -> Found:
    """One log: lay the sets, ask everybody, play."""
    log = read_enough(path)
    log = log.select(np.arange(min(extent.jobs, len(log))))
    laid = lay_sets(log, extent.count, extent.seed, shapes)
    rows: list[Row] = []
    starts: list[tuple[str, float, float]] = []
    unplanned = dict.fromkeys(ARMS, 0)
    known = {settings: offered(log, laid, settings) for settings in (AS_ASKED, QBETS)}
    for one in laid:
        for who, (settings, options) in ARMS.items():
            slots = tuple(s for j in one.jobs for s in known[settings][one.number, j.machine])
            if who != "paper":
                starts += ((who, *pair) for pair in _came(one, slots))
            row = _row(history_name(path), one, slots, who, options)
            if row is None:
                unplanned[who] += 1
            else:
                rows.append(row)
    return Found(
        log=history_name(path),
        count=len(laid),
        rows=tuple(rows),
        unplanned=unplanned,
        starts=tuple(starts),
    )


def _row(log: str, one: Laid, slots: tuple[Slot, ...], who: str, options: Options) -> Row | None:
    snapshot = Snapshot(wanted=one.wanted, slots=slots, seed=one.number)
    begin = time.perf_counter()
    plan = make_plan(snapshot, options)
    planning_s = time.perf_counter() - begin
    if not plan.feasible:
        return None
    result = played(plan, snapshot, one.starts_s, planning_s)
    return Row(log=log, case=one.number, strategy=who, needed=one.wanted.needed, result=result)


def _came(one: Laid, slots: Sequence[Slot]) -> Iterator[tuple[float, float]]:
    """Of each slot: P(ready in time for one of the workflows), and whether it was."""
    latest_s = one.wanted.deadline_s - one.wanted.workflows[0].critical_path_s()
    for slot in slots:
        if slot.submit_s <= latest_s:
            yield slot.curve.by(latest_s), float(one.starts_s[slot.id] <= latest_s)


def recorded_study(logs: Sequence[Path], extent: Extent, shapes: Sequence[Workflow]) -> list[Found]:
    """All logs, on all cores, with a progress bar."""
    work = partial(study_log, extent=extent, shapes=tuple(shapes))
    with ProcessPoolExecutor() as pool:
        bar = Console(stderr=True)
        return list(track(pool.map(work, logs), "playing recorded", total=len(logs), console=bar))


def together(found: Sequence[Found]) -> Found:
    """All logs as one."""
    rows = [row for one in found for row in one.rows]
    return Found(
        log="All",
        count=sum(one.count for one in found),
        rows=tuple(rows),
        unplanned={who: sum(one.unplanned[who] for one in found) for who in ARMS},
        starts=tuple(start for one in found for start in one.starts),
    )


def lines(found: Found) -> list[list[str]]:
    """Sets of everybody by fifths of what was promised, then the slots by fifths of what was
    foretold."""
    sets = {who: reliability(found.rows, who, FIFTHS) for who in ARMS}
    table = [line for who, one in sets.items() if one for line in _bins("sets", who, one)]
    for who in ("ours", "qbets"):
        pairs = [pair[1:] for pair in found.starts if pair[0] == who]
        if pairs:
            chances, came = np.array(pairs).T
            table += _bins("slots", who, compare(chances, came, FIFTHS))
    return table


def _bins(what: str, who: str, found: Reliability) -> list[list[str]]:
    return [
        [
            what,
            who,
            f"{b.promised:.3f}",
            f"{b.kept:.3f}",
            f"{b.low:.3f}–{b.high:.3f}",
            str(b.count),
            f"{b.gap:+.3f}" + (" **missed**" if abs(b.gap) > _ALLOWED + 2 * b.error else ""),
        ]
        for b in found.bins
    ]


def sentences(found: Found, common: Sequence[Row]) -> list[str]:
    """How many sets, who could not plan how many, Brier scores on those that all could plan."""
    could = ", ".join(f"{who} {found.unplanned[who] / max(1, found.count):.2f}" for who in ARMS)
    said = [
        (
            f"{found.count} sets; no feasible plan: {could}; planned by all: "
            f"{len(common) // len(ARMS)}."
        )
    ]
    for who in ARMS:
        one = reliability(common, who, FIFTHS)
        if one is not None:
            said.append(
                f"{who}: Brier score {one.brier:.4f} = reliability {one.reliability:.4f} − "
                f"resolution {one.resolution:.4f} + "
                f"uncertainty {one.uncertainty:.4f} and what differs within fifths; kept "
                f"{_kept(common, who):.3f}."
            )
    return said


def _kept(rows: Sequence[Row], who: str) -> float:
    return float(np.mean([row.result.kept for row in rows if row.strategy == who]))


def _each(found: Sequence[Found]) -> Iterator[tuple[Found, list[Row]]]:
    """Every log, then all together where there are several."""
    common = [one.common for one in found]
    yield from zip(found, common, strict=True)
    if len(found) > 1:
        yield together(found), [row for rows in common for row in rows]


def as_text(found: Sequence[Found]) -> str:
    """Tables for the terminal, as Markdown."""
    parts = [
        f"\n{one.log}\n" + "\n".join(sentences(one, common)) + f"\n\n{text_table(HEAD, lines(one))}"
        for one, common in _each(found)
    ]
    return "\n".join(parts)


def as_document(found: Sequence[Found]) -> dict[str, Any]:
    """Everything as JSON: each set by everybody, how far slots came as foretold, the
    reliabilities."""
    rows = [asdict(row) for one in found for row in one.rows]
    known = {
        one.log: {who: asdict(r) for who in ARMS if (r := reliability(one.rows, who, FIFTHS))}
        for one, _ in _each(found)
    }
    starts = {one.log: one.starts for one in found}
    unplanned = {one.log: {"sets": one.count, **one.unplanned} for one in found}
    return {"rows": as_json(rows), "reliability": known, "unplanned": unplanned, "starts": starts}


def write_recorded(found: Sequence[Found], path: Path) -> None:
    """The page: picture, each log, all logs."""
    parts = [picture(partial(_draw, found))]
    for one, common in _each(found):
        parts += [
            f"<h2>{one.log}</h2>",
            *map(paragraph, sentences(one, common)),
            html_table(HEAD, lines(one)),
        ]
    write_page(path, "Are promises kept on recorded starts?", parts)


def _draw(found: Sequence[Found], path: Path) -> None:
    """Reliability by fifths: who promised what over all logs, and ours log by log."""
    whole = together(found).rows
    ways: list[dict[str, Callable[[], Reliability | None]]] = [
        {who: partial(reliability, whole, who, FIFTHS) for who in ARMS},
        {one.log[:14]: partial(reliability, one.rows, "ours", FIFTHS) for one in found},
    ]
    with diagrams(path, 2, (12, 5)) as axes:
        for axis, curves in zip(axes, ways, strict=True):
            axis.plot([0, 1], [0, 1], color="#999", linestyle=":")
            for name, reckon in curves.items():
                known = reckon()
                bins = known.bins if known else ()
                reach = np.array([[b.kept - b.low, b.high - b.kept] for b in bins]).reshape(-1, 2).T
                axis.errorbar(
                    [b.promised for b in bins],
                    [b.kept for b in bins],
                    yerr=np.maximum(reach, 0),
                    fmt="o-",
                    capsize=2,
                    markersize=4,
                    linewidth=1,
                    label=name,
                )
            axis.set(xlabel="promised", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
            axis.legend(frameon=False, fontsize="small")
        axes[0].set_ylabel("kept")
