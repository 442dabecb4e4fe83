"""The goal of a bag as a user writes it: a deadline, how much of the bag must be done by then, with
which probability, and for how much money (docs/deadlines.md)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from vgrads.bags.bag import BagGoal
from vgrads.kernel.deadline import parse_deadline
from vgrads.kernel.documents import Document, NotNegative, as_value_error

USUAL_PROBABILITY = 0.95
"""With which a deadline is to be kept where nothing else is stated."""


class GoalDocument(Document):
    """``deadline``: from the submission on, or an instant. ``fraction`` or ``at_least`` (tasks):
    how many must be done by then; ``of``: ``these``: the first by number, fixed before; ``any``:
    whichever are done first. ``probability``: with which; ``budget_usd``: the most that nodes may
    cost."""

    deadline: str | float | datetime | None = None
    fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    at_least: Annotated[int, Field(ge=1)] | None = None
    of: Literal["these", "any"] = "these"
    probability: Annotated[float, Field(gt=0, lt=1)] | None = None
    budget_usd: NotNegative | None = None

    @field_validator("deadline")
    @classmethod
    def _deadline(cls, value: str | float | datetime | None) -> float | None:
        return None if value is None else as_value_error(lambda: parse_deadline(value, None, ""))

    @model_validator(mode="after")
    def _check_goal(self) -> GoalDocument:
        if self.fraction is not None and self.at_least is not None:
            raise ValueError("give 'fraction' or 'at_least', not both")
        stated = {
            "fraction": self.fraction,
            "at_least": self.at_least,
            "probability": self.probability,
            "budget_usd": self.budget_usd,
        }
        for name, value in stated.items():
            if value is not None and self.deadline is None:
                raise ValueError(f"'{name}' needs a 'deadline'")
        return self

    @property
    def deadline_s(self) -> float | None:
        """Return the deadline in seconds from the submission."""
        return self.deadline if isinstance(self.deadline, float) else None

    @property
    def goal(self) -> BagGoal | None:
        """Return the goal; None where a deadline is all that is stated: such a bag is run as one
        without."""
        stated = (self.fraction, self.at_least, self.probability, self.budget_usd)
        if self.deadline_s is None or all(value is None for value in stated):
            return None
        return BagGoal(
            deadline_s=self.deadline_s,
            fraction=self.fraction or 1.0,
            at_least=self.at_least,
            these=self.of == "these",
            probability=self.probability or USUAL_PROBABILITY,
            budget_usd=self.budget_usd,
        )
