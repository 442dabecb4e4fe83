"""The form on the page of a bag that works for a goal: it changes the goal."""

from __future__ import annotations

from dataclasses import dataclass

from vgrads.kernel.errors import InputError
from vgrads.portal.records.reading.bags import BagEntry
from vgrads.portal.web.bags.goal_routes import BagGoalPatch, send_goal_change
from vgrads.portal.web.goal_fields import GoalTexts
from vgrads.portal.web.service import Service

_FIELDS = {
    "deadline": "deadline",
    "at_least": "at_least",
    "fraction": "at_least",
    "budget": "budget_usd",
    "budget_usd": "budget_usd",
    "probability": "probability",
}
"""Names in the messages of an error → fields of the form."""


@dataclass(frozen=True, slots=True)
class GoalMistake:
    """What is wrong with the form: its field, empty where it is none of them, and in words."""

    field: str
    words: str


def change_by_form(service: Service, row: BagEntry, form: GoalTexts) -> GoalMistake | None:
    """Have the dispatcher of a bag change its goal; return what is wrong with the form. Raise
    HTTPException as :func:`send_goal_change` does."""
    try:
        send_goal_change(service, row, BagGoalPatch(**form.stated()), form.etag)
    except InputError as error:
        stated = [name for name in _FIELDS.values() if getattr(form, name).strip()]
        only = stated[0] if len(set(stated)) == 1 else ""  # an error of the whole request is of it
        return GoalMistake(_FIELDS.get(error.where, only), str(error))
    return None
