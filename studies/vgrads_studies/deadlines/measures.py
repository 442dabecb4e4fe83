"""What the study measures of simulated bags: promises, money, node hours, useless nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vgrads_studies.deadlines.nodes import StudyOutcome

OURS = "ours"
_NEAR = 0.02
"""Kept shares that differ by no more than this count as equal."""

Outcomes = Sequence[Mapping[str, StudyOutcome]]
"""For each case its outcomes, by rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseFifth:
    """Cases of about equal promises: means, and the standard error of their difference."""

    cases: int
    promised: float
    in_time_share: float
    standard_error: float

    @property
    def is_within(self) -> bool:
        """Return whether the difference is at most .03 and two standard errors."""
        return abs(self.in_time_share - self.promised) <= 0.03 + 2.0 * self.standard_error


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTotals:
    """Sums over cases of one rule. ``least_hours``: the node hours that the tasks needed which were
    done: no rule can do them with fewer."""

    rule: str
    in_time_share: float
    cost_usd: float
    node_hours: float
    least_hours: float
    requested: int
    useless: int

    @property
    def useless_share(self) -> float:
        """Return the share of the requested nodes that came and ran nothing."""
        return self.useless / max(1, self.requested)


def fifths(outcomes: Outcomes, parts: int = 5) -> list[PromiseFifth]:
    """Return promises and what became of them, ordered by promise."""
    pairs = sorted(
        (case[OURS].promise, case[OURS].in_time)
        for case in outcomes
        if case[OURS].promise is not None
    )
    result = []
    for part in np.array_split(np.array(pairs, np.float64).reshape(-1, 2), parts):
        if len(part):
            promised, in_time = part[:, 0], part[:, 1]
            variance = max(float((promised * (1.0 - promised)).mean()), 1.0 / (len(part) + 4) / 4.0)
            result.append(
                PromiseFifth(
                    cases=len(part),
                    promised=float(promised.mean()),
                    in_time_share=float(in_time.mean()),
                    standard_error=float(np.sqrt(variance / len(part))),
                )
            )
    return result


def totals(outcomes: Outcomes) -> list[RuleTotals]:
    """Return the sums of each rule."""
    rules = outcomes[0] if outcomes else {}
    return [
        RuleTotals(
            rule=rule,
            in_time_share=float(np.mean([case[rule].in_time for case in outcomes])),
            cost_usd=float(sum(case[rule].cost_usd for case in outcomes)),
            node_hours=float(sum(case[rule].node_hours for case in outcomes)),
            least_hours=float(sum(case[rule].least_hours for case in outcomes)),
            requested=sum(case[rule].requested for case in outcomes),
            useless=sum(case[rule].useless for case in outcomes),
        )
        for rule in rules
    ]


def against(rows: Sequence[RuleTotals], measure: str) -> tuple[str, float] | None:
    """Return the rival with the least dollars or node hours among those that keep an equal or a
    greater share, and the ratio of ours to it; None without any."""
    mine = next(row for row in rows if row.rule == OURS)
    rivals = [
        row for row in rows if row is not mine and row.in_time_share >= mine.in_time_share - _NEAR
    ]
    if not rivals:
        return None
    best = min(rivals, key=lambda row: float(getattr(row, measure)))
    least = float(getattr(best, measure))
    return best.rule, float(getattr(mine, measure)) / least if least else float("nan")
