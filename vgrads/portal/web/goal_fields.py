"""What a run or a bag has to keep: the fields of a change over REST, and those of a form."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from vgrads.portal.web.form_numbers import read_probability, read_usd

_Text = Annotated[str, Field(max_length=100)]


class GoalPatch(BaseModel):
    """The fields of a change over REST; None: as before."""

    model_config = ConfigDict(extra="forbid")

    deadline: _Text | None = None
    at_least: _Text | Annotated[int, Field(ge=1)] | None = None
    budget_usd: Annotated[float, Field(ge=0)] | None = None
    probability: Annotated[float, Field(gt=0, lt=1)] | None = None

    def stated(self) -> dict[str, Any]:
        """Return the values by the names of the requests of operations."""
        return {
            "deadline": self.deadline,
            "at_least": None if self.at_least is None else str(self.at_least),
            "budget": self.budget_usd,
            "probability": self.probability,
        }


class GoalTexts(BaseModel):
    """The fields of a form; an empty one: as before. ``etag``: the tag of what it shows."""

    model_config = ConfigDict(extra="forbid")

    etag: Annotated[str, Field(max_length=200)] = ""
    deadline: _Text = ""
    at_least: _Text = ""
    budget_usd: _Text = ""
    probability: _Text = ""

    def stated(self) -> dict[str, Any]:
        """Return the values by the fields of a change over REST; InputError for a field that is no
        number."""
        return {
            "deadline": self.deadline.strip() or None,
            "at_least": self.at_least.strip() or None,
            "budget_usd": read_usd(self.budget_usd, "budget"),
            "probability": read_probability(self.probability, "probability"),
        }
