"""Rows of the study of virtual reservations on recorded jobs: counted, as text, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from statsmodels.stats.proportion import proportion_confint

from vgrads.qbets.views import FULL
from vgrads_studies.report import markdown_table

if TYPE_CHECKING:
    from vgrads_studies.waits.varq_like_jobs import ReservationResult

HEAD = (
    "log",
    "P",
    "policy",
    "view",
    "refused",
    "skipped",
    "by neighbour",
    "kept",
    "95 % interval",
    "idle h",
    "of `now`",
    "misses",
)
_SHORT = 0.02  # shortfall that still counts as kept
_MOST_REFUSED = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedVarqRow:
    """One row: numbers of questions, refused ones, ones without a similar job, ones that take a
    neighbour's wait; kept, and idle processor hours per promise.

    ``of_now``: idle time as a share of that of submitting at once, over the questions that were not
    refused. ``view``: which jobs forecasts knew (:data:`vgrads.qbets.views.VIEWS`).
    """

    log: str
    probability: float
    policy: str
    questions: int
    refused: int
    unmatched: int
    near: int
    kept: int
    idle_hours: float
    of_now: float | None
    view: str = FULL

    @property
    def accepted(self) -> int:
        """Return the evaluated promises."""
        return self.questions - self.refused - self.unmatched


def outcome(
    log: str,
    level: float,
    policy: str,
    answers: Sequence[ReservationResult],
    now: Sequence[ReservationResult],
) -> RecordedVarqRow:
    """Counted."""
    reservation_results = [a for a in answers if a.start_s is not None]
    taken = {a.question.number for a in answers if a.submit_s is not None}
    peers = [a for a in now if a.start_s is not None and a.question.number in taken]
    idle, at_once = (
        sum(a.idle_s for a in some) / 3600.0 / max(1, len(some))
        for some in (reservation_results, peers)
    )
    return RecordedVarqRow(
        log=log,
        probability=level,
        policy=policy,
        questions=len(answers),
        refused=len(answers) - len(taken),
        unmatched=len(taken) - len(reservation_results),
        near=sum(a.neighbour for a in reservation_results),
        kept=sum(a.kept for a in reservation_results),
        idle_hours=idle,
        of_now=idle / at_once if at_once > 0 else None,
    )


def as_text(outcomes: Sequence[RecordedVarqRow]) -> str:
    """Return the study as a Markdown table; missed targets are named in the last column."""
    rows = []
    for o in outcomes:
        created = max(1, o.accepted)
        low, high = proportion_confint(o.kept, created, method="wilson")
        message = o.accepted > 0
        rows.append(
            [
                o.log,
                str(o.probability),
                o.policy,
                o.view,
                f"{o.refused / o.questions:.2f}",
                f"{o.unmatched / max(1, o.questions - o.refused):.2f}",
                f"{o.near / created:.2f}" if message else "–",
                f"{o.kept / created:.3f} of {o.accepted}" if message else "–",
                f"{low:.3f}–{high:.3f}" if message else "–",
                f"{o.idle_hours:,.1f}" if message else "–",
                "–" if o.of_now is None else f"{o.of_now:.2f}",
                ", ".join(missed(o)),
            ]
        )
    return markdown_table(HEAD, rows)


def missed(o: RecordedVarqRow) -> list[str]:
    """Return the targets that ``plain``, ``ahead`` and ``moving`` miss: kept at the requested rate
    less .02, at most half as idle as submitting now, at most .3 refused."""
    if o.policy not in ("plain", "ahead", "moving") or not o.accepted:
        return []
    results = []
    if o.kept / o.accepted < o.probability - _SHORT:
        results.append("kept")
    if o.of_now is not None and o.of_now > 0.5:
        results.append("idle")
    if o.refused > _MOST_REFUSED * o.questions:
        results.append("refused")
    return results


def as_document(outcomes: Sequence[RecordedVarqRow]) -> dict[str, Any]:
    """Return everything as JSON."""
    return {"rows": [asdict(o) for o in outcomes]}
