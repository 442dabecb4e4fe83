"""The form on the page of a bag that works for a goal: it changes the goal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from vgrads.kernel.errors import InputError
from vgrads.portal.records.reading.bags import BagEntry
from vgrads.portal.web.bags.goal_routes import BagGoalPatch, send_goal_change
from vgrads.portal.web.form_numbers import read_probability, read_usd
from vgrads.portal.web.service import Service

_Text = Annotated[str, Field(max_length=100)]
_FIELDS = {
    "deadline": "deadline",
    "at_least": "at_least",
    "fraction": "at_least",
    "budget": "budget_usd",
    "budget_usd": "budget_usd",
    "probability": "probability",
}
"""Names in the messages of an error → fields of the form."""


class GoalForm(BaseModel):
    """The form; an empty field: as before. ``etag``: the tag of the goal that it shows."""

    model_config = ConfigDict(extra="forbid")

    etag: Annotated[str, Field(max_length=40)] = ""
    deadline: _Text = ""
    at_least: _Text = ""
    budget_usd: _Text = ""
    probability: _Text = ""

    def patch(self) -> BagGoalPatch:
        """Return the change; InputError for a field that is no number."""
        return BagGoalPatch(
            deadline=self.deadline.strip() or None,
            at_least=self.at_least.strip() or None,
            budget_usd=read_usd(self.budget_usd, "budget"),
            probability=read_probability(self.probability, "probability"),
        )


@dataclass(frozen=True, slots=True)
class GoalMistake:
    """What is wrong with the form: its field, empty where it is none of them, and in words."""

    field: str
    words: str


def change_by_form(service: Service, row: BagEntry, form: GoalForm) -> GoalMistake | None:
    """Have the dispatcher of a bag change its goal; return what is wrong with the form. Raise
    HTTPException as :func:`send_goal_change` does."""
    try:
        send_goal_change(service, row, form.patch(), form.etag)
    except InputError as error:
        stated = [name for name in _FIELDS.values() if getattr(form, name).strip()]
        only = stated[0] if len(set(stated)) == 1 else ""  # an error of the whole request is of it
        return GoalMistake(_FIELDS.get(error.where, only), str(error))
    return None
