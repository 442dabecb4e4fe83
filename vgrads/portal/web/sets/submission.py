"""The form with which a set is submitted: a text, and fields that replace values of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Form
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from vgrads.kernel.deadline import is_bare, parse_deadline
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import parse_fraction
from vgrads.portal.jobs import children
from vgrads.portal.records.access import Principal
from vgrads.portal.records.idempotency import key_of
from vgrads.portal.web.form_numbers import read_usd
from vgrads.portal.web.service import LARGE, Service

if TYPE_CHECKING:
    from vgrads.portal.jobs.worker import CheckedSet

Json = dict[str, Any]
FormKey = Annotated[str, Form(max_length=200)]
_Text = Annotated[str, Field(max_length=100)]
_USUAL_DEADLINE = "4h"  # as that of `vgrads init`
_FIELDS = {"fraction": "at_least"}
"""Key of a set → the field of the form that states it, where that has another name."""


class SubmissionForm(BaseModel):
    """The text of a set (YAML), and values instead of its own; an empty field: as in the text.

    ``deadline``: a duration; ``due``: the same by the clock, ``zone_min`` minutes east of UTC.
    ``at_least``: a number of workflows, or a share as ``75%``. ``site``: those that may be used,
    and an empty one of the form; none: all. ``run_for``: run the set, too, for at most so many
    dollars.
    """

    model_config = ConfigDict(extra="forbid")

    text: str
    key: Annotated[str, Field(max_length=200)]
    deadline: _Text = ""
    due: _Text = ""
    zone_min: Annotated[int, Field(ge=-1440, le=1440)] = 0
    at_least: _Text = ""
    probability: _Text = ""
    budget_usd: _Text = ""
    site: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=1000)] = []
    run_for: Annotated[float | None, Field(ge=0)] = None

    def change(self) -> Json:
        """Return the keys of a set that the fields replace. InputError for a field that cannot be
        read; its place is the field."""
        result: Json = {}
        if self.deadline.strip():
            result["deadline"] = _parse_deadline(self.deadline.strip())
        if self.due.strip():
            if result:
                raise InputError("give a duration or a time of the clock, not both", where="due")
            result["deadline"] = self._due_instant()
        if self.at_least.strip():
            result |= _parse_requirement(self.at_least.strip())
        if self.probability.strip():
            result["probability"] = _parse_probability(self.probability.strip())
        if self.budget_usd.strip():
            result["budget_usd"] = read_usd(self.budget_usd, "budget_usd")
        return result

    def only_sites(self, offered: Collection[str]) -> tuple[str, ...]:
        """Return the chosen sites; none where all that are ``offered`` are. InputError where none
        is chosen, or an unknown one is."""
        chosen = tuple(name for name in self.site if name)
        if self.site and not chosen:
            raise InputError("choose at least one", where="site")
        for name in chosen:
            if name not in offered:
                raise InputError(f"no site '{name}'", where="site")
        return () if set(chosen) == set(offered) else chosen

    def _due_instant(self) -> str:
        try:
            local = datetime.fromisoformat(self.due.strip())
        except ValueError as error:
            raise InputError(f"'{self.due}' is not a time of the clock", where="due") from error
        zone = timezone(timedelta(minutes=self.zone_min)) if self.zone_min else UTC
        instant = (local if local.tzinfo else local.replace(tzinfo=zone)).isoformat()
        parse_deadline(instant, None, "due")
        return instant


def _parse_deadline(text: str) -> str:
    if is_bare(text):
        raise InputError(f"'{text}' has no unit", where="deadline", fix=f"write {text}h or {text}m")
    parse_deadline(text, None, "deadline")
    return text


def _parse_requirement(text: str) -> Json:
    if not text.isdigit():
        return {"fraction": parse_fraction(text, "at_least"), "at_least": None}
    if int(text) < 1:
        raise InputError("must be at least 1", where="at_least")
    return {"at_least": int(text), "fraction": None}


def _parse_probability(text: str) -> float:
    share = parse_fraction(text, "probability")
    if share >= 1:
        raise InputError("nothing is certain: must be below 100%", where="probability")
    return share


@dataclass(frozen=True, slots=True)
class Mistake:
    """What cannot be read of a form: in words, and the ``line`` of its text with what is
    ``written`` there, or the ``field`` that states it."""

    words: tuple[str, ...]
    field: str = "text"
    line: int | None = None
    written: str = ""


def mistake_of(form: SubmissionForm, error: InputError) -> Mistake:
    """Return what is wrong with a form, by the error that was raised for it."""
    place = error.where.removeprefix("body").removeprefix(": ")
    key = place.partition(":")[0].partition(".")[0]
    field = _FIELDS.get(key, key)
    if field in SubmissionForm.model_fields and getattr(form, field):
        return Mistake((error.without_place,), field)
    if key == "deadline" and form.due.strip():
        return Mistake((error.without_place,), "due")
    lines = form.text.splitlines()
    # a text that breaks off is wrong in the line after its last
    number = min(error.line, len(lines)) if error.line and lines else None
    written = lines[number - 1].strip()[:200] if number else ""
    words = error.parts or (_order_lines(error, place.partition(": ")[0], number),)
    return Mistake(words, "text", number, written)


def _order_lines(error: InputError, place: str, number: int | None) -> str:
    """Return an error that is one line: its line first, then its place."""
    what = error.without_place.removeprefix(f"line {error.line}: ")
    what = what.replace(f" in line {error.line}", "")
    parts = (f"line {number}" if number else "", place, what)
    return ": ".join(part for part in parts if part)


async def set_instead(service: Service, form: SubmissionForm) -> SubmissionForm | None:
    """Return the form with a set in place of its text, where that is a workflow as other programs
    write it; None where it is not. InputError for one that cannot be read here."""
    what = form.text, form.deadline.strip() or _USUAL_DEADLINE, service.bounds.max_tasks
    if len(form.text) > LARGE:
        written: str | None = await service.supervisor.think(children.set_of_workflow, *what)
    else:
        written = await run_in_threadpool(children.set_of_workflow, *what)
    return None if written is None else form.model_copy(update={"text": written})


async def read_submission(
    service: Service, form: SubmissionForm, offered: Collection[str]
) -> CheckedSet:
    """Read and check the set of a form; ``offered``: the sites that its user may choose of. Raise
    InputError for what is wrong with it."""
    only = form.only_sites(offered)
    checked = await service.read_set(form.text.encode(), "yaml", form.change())
    return replace(checked, options=replace(checked.options, only_sites=only))


async def submit_checked(service: Service, checked: CheckedSet, who: Principal, key: str) -> str:
    """Submit a set; return its id at once: its page shows the planning. The same ``key`` again is
    answered with the same set."""
    requested = key_of(who.user, key, ["/v1/workflow-sets", checked.digest])
    submit: Callable[..., Json] = service.submit
    answer = await run_in_threadpool(submit, checked, who, requested)
    return str(answer["id"])
