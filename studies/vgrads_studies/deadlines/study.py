"""Study of bags with deadlines on recorded queues, clouds on demand and recorded spot zones.

Ours: the plan at the start and the decisions of a dispatcher, each minute and at each event.
Rivals: all nodes of all sources held; rules of today's tools, which know no deadline; two of these
at queues, with on-demand nodes once they are late; auto-scaling with deadlines (Mao & Humphrey).
Nodes are simulated with waits that jobs of about that width had in the log after that instant, run
times that differ from the estimate, and the availability of the trace; what is forecast comes from
before. Deadlines are 1.2 to 4 times the least possible time by the estimates, requested
probabilities .5 to .99. A simulation ends with the bag or at its deadline. Also: plans against an
integer programme, and the time that planning takes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from vgrads.kernel.errors import InputError
from vgrads.kernel.report_page import html_table, paragraph, write_page
from vgrads.kernel.units import format_usd
from vgrads_studies.deadlines.cases import StudyCase, cases_of, read_folder
from vgrads_studies.deadlines.measures import (
    OURS,
    Outcomes,
    PromiseFifth,
    RuleTotals,
    against,
    fifths,
    totals,
)
from vgrads_studies.deadlines.nodes import StudyOutcome
from vgrads_studies.deadlines.ours import GoalSteering
from vgrads_studies.deadlines.programme import ProgrammeCase, programme_case
from vgrads_studies.deadlines.rivals import (
    PEERS,
    DeadlineScaling,
    FixedSteering,
    PeerSteering,
)
from vgrads_studies.deadlines.stage import BagStage
from vgrads_studies.deadlines.timing import PlanningTimes, planning_times
from vgrads_studies.report import markdown_table, study_parser

KINDS = ("queues", "clouds", "both")
_RULES: Mapping[str, Callable[[StudyCase], GoalSteering | FixedSteering]] = {
    OURS: GoalSteering,
    "all nodes": FixedSteering,
    **{name: partial(PeerSteering, name=name) for name in PEERS},
    "hyperqueue, cloud if late": partial(PeerSteering, name="hyperqueue", late_cloud=True),
    "parsl, cloud if late": partial(PeerSteering, name="parsl", late_cloud=True),
    "mao & humphrey": DeadlineScaling,
}


@dataclass(frozen=True, kw_only=True)
class DeadlineResult:
    """All that the study measures."""

    fifths: Sequence[PromiseFifth]
    totals: Sequence[RuleTotals]
    least_hours: float
    by_kind: Mapping[str, Sequence[RuleTotals]]
    programme: Sequence[ProgrammeCase]
    times: PlanningTimes


def outcomes_of(case: StudyCase, rules: Sequence[str] = tuple(_RULES)) -> dict[str, StudyOutcome]:
    """Return what becomes of a case under each rule."""
    results = {}
    for rule in rules:
        steering = _RULES[rule](case)
        outcome = BagStage(case, steering).simulate()
        results[rule] = replace(outcome, promise=steering.promise)
    return results


def result_of(
    cases: Sequence[StudyCase], outcomes: Outcomes, programme: Sequence[ProgrammeCase]
) -> DeadlineResult:
    """Return the measures of simulated cases, which are of each kind in turn."""
    return DeadlineResult(
        fifths=fifths(outcomes),
        totals=totals(outcomes),
        least_hours=sum(case.least_hours for case in cases),
        by_kind={kind: totals(outcomes[n :: len(KINDS)]) for n, kind in enumerate(KINDS)},
        programme=programme,
        times=planning_times(),
    )


_FIFTHS = ("cases", "promised", "in time", "difference", ".03 + 2 s.e.")
_TOTALS = ("rule", "in time", "dollars", "node hours", "least possible", "nodes", "ran nothing")


def _fifth_rows(parts: Sequence[PromiseFifth]) -> list[list[str]]:
    return [
        [
            str(part.cases),
            f"{part.promised:.3f}",
            f"{part.in_time_share:.3f}",
            f"{part.in_time_share - part.promised:+.3f}",
            f"{0.03 + 2.0 * part.standard_error:.3f}{'' if part.is_within else ', missed'}",
        ]
        for part in parts
    ]


def _total_rows(rows: Sequence[RuleTotals]) -> list[list[str]]:
    return [
        [
            row.rule,
            f"{row.in_time_share:.3f}",
            format_usd(row.cost_usd),
            f"{row.node_hours:,.0f}",
            f"{row.least_hours:,.0f}",
            f"{row.requested:,}",
            f"{row.useless_share:.1%}",
        ]
        for row in rows
    ]


def _comparison(rows: Sequence[RuleTotals]) -> str:
    words = []
    for measure, name in (("cost_usd", "dollars"), ("node_hours", "node hours")):
        ratio = against(rows, measure)
        words.append(
            f"{name} {ratio[1]:.2f} × {ratio[0]}" if ratio else f"{name}: no rival keeps as many"
        )
    return ", ".join(words)


def _node_hours(result: DeadlineResult) -> str:
    mine = next(row for row in result.totals if row.rule == OURS)
    return (
        f"Least possible node hours: {result.least_hours:,.0f} for all tasks; those that ours has "
        f"done needed {mine.least_hours:,.0f} of its {mine.node_hours:,.0f}."
    )


def verdicts(result: DeadlineResult) -> list[str]:
    """Return the measures as sentences."""
    within = sum(part.is_within for part in result.fifths)
    ratios = [case.ratio for case in result.programme if case.ratio is not None]
    lines = [
        f"Promises: {within} of {len(result.fifths)} fifths within .03 and two standard errors.",
        f"At an equal or greater share in time: {_comparison(result.totals)}.",
        _node_hours(result),
        f"A bag of a million tasks is planned in {result.times.plan_s:.2f} s; one decision with "
        f"1,000 nodes takes {result.times.decision_s:.2f} s.",
    ]
    if ratios:
        near = sum(ratio <= 1.05 for ratio in ratios)
        lines.append(
            f"Integer programme: in {near} of {len(ratios)} cases that have a plan, ours costs at "
            f"most 1.05 × as much; on average {float(np.mean(ratios)):.4f} ×, at most "
            f"{max(ratios):.3f} ×."
        )
    return lines


def main(arguments: Sequence[str]) -> None:
    """Simulate and print."""
    parser = study_parser("deadlines", __doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="with swf/ and spot/")
    parser.add_argument("--count", type=int, default=900, help="cases (900)")
    parser.add_argument("--programmes", type=int, default=100, help="integer programmes (100)")
    parser.add_argument(
        "--longest", type=float, metavar="SECONDS", help="start no more cases after this time"
    )
    chosen = parser.parse_args(arguments)
    for option in ("count", "programmes"):
        if getattr(chosen, option) < (1 if option == "count" else 0):
            raise InputError("must be at least 1", where=f"--{option}")
    cases = cases_of(*read_folder(chosen.folder), chosen.count, chosen.seed)
    began_s, outcomes = time.monotonic(), list[Mapping[str, StudyOutcome]]()
    for case in cases:
        if chosen.longest and time.monotonic() - began_s > chosen.longest and outcomes:
            break
        outcomes.append(outcomes_of(case))
    programme = [programme_case(number, chosen.seed) for number in range(chosen.programmes)]
    result = result_of(cases[: len(outcomes)], outcomes, programme)
    tables: list[tuple[str, tuple[str, ...], list[list[str]]]] = [
        ("Fifths by promise", _FIFTHS, _fifth_rows(result.fifths)),
        (f"{len(outcomes)} cases, all sources", _TOTALS, _total_rows(result.totals)),
    ]
    tables += [(kind, _TOTALS, _total_rows(rows)) for kind, rows in result.by_kind.items() if rows]
    if chosen.json:
        print(json.dumps(asdict(result), indent=1))
    else:
        for title, head, rows in tables:
            print(f"{title}\n\n{markdown_table(head, rows)}\n")
        print("\n".join(verdicts(result)))
    if chosen.report:
        parts = [paragraph(__doc__ or "")]
        for title, head, rows in tables:
            parts += [paragraph(title), html_table(head, rows)]
        parts += [paragraph(line) for line in verdicts(result)[1:]]
        write_page(chosen.report, "Are deadlines met?", verdicts(result)[0], parts)
