"""The goal of a matrix: stated with the command that computes it, stored in its file, and continued
by each later run, with what is left of its time and money."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vgrads.dispatch.goal_document import USUAL_PROBABILITY
from vgrads.kernel.deadline import parse_deadline
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_duration, format_usd
from vgrads.kernel.values import field_values

_LEAST_S = 1e-3
"""Deadline of a run that begins after the deadline of its matrix."""


@dataclass(frozen=True, kw_only=True)
class MatrixGoal:
    """All cells must be done ``deadline_s`` after ``since_unix_s``, the start of the first run.
    ``probability`` with which; ``budget_usd``: the most that nodes may cost, of all runs together;
    ``spent_usd``: what they cost so far, by the id of the bag."""

    deadline_s: float
    probability: float = USUAL_PROBABILITY
    budget_usd: float | None = None
    since_unix_s: float = 0.0
    spent_usd: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, stored: Mapping[str, Any] | None) -> MatrixGoal | None:
        """Return the goal that :meth:`as_json` encoded; None for none."""
        return cls(**stored) if stored else None

    def as_json(self) -> dict[str, Any]:
        """Encode it as plain values."""
        return field_values(self)

    def is_same(self, other: MatrixGoal | None) -> bool:
        """Return whether another goal states the same."""
        return other is not None and (
            (self.deadline_s, self.probability, self.budget_usd)
            == (other.deadline_s, other.probability, other.budget_usd)
        )

    def with_spent(self, bag: str, spent_usd: float) -> MatrixGoal:
        """Return it with the cost of a bag so far."""
        return replace(self, spent_usd={**self.spent_usd, bag: spent_usd})

    def left_s(self, now_unix_s: float) -> float:
        """Return the time until the deadline; negative after it."""
        return self.since_unix_s + self.deadline_s - now_unix_s

    @property
    def left_usd(self) -> float | None:
        """Return what is left of the budget; None without."""
        if self.budget_usd is None:
            return None
        return max(0.0, self.budget_usd - sum(self.spent_usd.values()))

    def fields(self, now_unix_s: float) -> dict[str, Any]:
        """Return the fields of a bag that begins now."""
        return {
            "deadline": max(_LEAST_S, self.left_s(now_unix_s)),
            "probability": self.probability,
            "budget_usd": self.left_usd,
        }

    def describe(self, now_unix_s: float) -> str:
        """Return a sentence about a goal that an earlier run has begun with."""
        left_s, whole = self.left_s(now_unix_s), format_duration(self.deadline_s)
        if left_s > 0:
            text = f"its deadline counts from the first run: {format_duration(left_s)} of {whole}"
        else:
            text = f"its deadline of {whole} passed {format_duration(-left_s)} ago"
        if self.budget_usd is not None and self.left_usd is not None:
            text += f", and {format_usd(self.left_usd)} of {format_usd(self.budget_usd)}"
        return (
            text
            + (" are left" if left_s > 0 else "")
            + "; another --deadline or --budget replaces it"
        )


def make_matrix_goal(
    deadline: str | None, probability: float | None, budget_usd: float | None
) -> MatrixGoal | None:
    """Return the goal of the command line, from now on; None without a deadline. Raise InputError
    where it is not one."""
    for name, value in (("--probability", probability), ("--budget", budget_usd)):
        if value is not None and deadline is None:
            raise InputError("needs a --deadline", where=name, fix="give --deadline, e.g. 4h")
    if deadline is None:
        return None
    return MatrixGoal(
        deadline_s=parse_deadline(deadline, None, "--deadline"),
        probability=USUAL_PROBABILITY if probability is None else probability,
        budget_usd=budget_usd,
        since_unix_s=time.time(),
    )
