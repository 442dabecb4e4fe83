"""The page of a set's alternatives: the promise for other values, and its curves."""

from __future__ import annotations

import secrets
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import FastAPI, Header, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_routes import SetId, patience, summary
from vgrads.portal.web.sets.alternative_curves import curves_of
from vgrads.portal.web.sets.alternatives import (
    MOST_TASKS,
    AlternativeQuestions,
    Alternatives,
    SetPlan,
    Values,
    begun,
)
from vgrads.portal.web.sets.forms import OtherValues
from vgrads.portal.web.sets.promise_parts import promise_parts

Json = dict[str, Any]
_STEPS = 60  # of the deadline's slider, in the set's own deadline
_BUDGET_STEPS = 40  # of the whole slider


class ChosenValues(OtherValues):
    """Values for which the promise is computed. ``key``: which page asks."""

    key: Annotated[str, Field(max_length=200)] = ""


def add_alternative_page(app: FastAPI, service: Service) -> None:
    """Add the page. It shows what is computed so far: scripts request it again, with
    ``Prefer: wait=1``, until nothing is missing; without scripts it renews itself."""
    questions = AlternativeQuestions(service)

    @app.get("/sets/{set_id}/what-if", response_class=HTMLResponse, include_in_schema=False)
    async def what_if(
        set_id: SetId,
        request: Request,
        chosen: Annotated[ChosenValues, Query()],
        prefer: Annotated[str, Header()] = "",
    ) -> HTMLResponse:
        who = reader_of(request)
        plan = await run_in_threadpool(_plan_of, service, set_id, request)
        values = _read_values(plan, chosen)
        key = chosen.key or secrets.token_hex(16)
        if chosen == OtherValues() or chosen == ChosenValues(key=chosen.key):
            state = begun(plan, values)
        else:
            state = await questions.ask(who, key, plan, values, patience(prefer))
        return await run_in_threadpool(_render_page, service, request, plan, state, key)


def _plan_of(service: Service, set_id: str, request: Request) -> SetPlan:
    head = service.visible(set_id, reader_of(request))
    if not head.revision:
        raise HTTPException(409, "the set has no plan yet")
    return SetPlan(head, service.sets.text(set_id, "document"))


def _read_values(plan: SetPlan, chosen: OtherValues) -> Values:
    """Return the chosen values; those of the set where none are."""
    own = plan.own
    budget = own.budget_usd if chosen.budget_usd is None else chosen.budget_usd
    return Values(
        deadline_s=chosen.deadline_s or own.deadline_s,
        needed=min(chosen.needed or own.needed, plan.workflows),
        budget_usd=None if chosen.unlimited else budget,
    )


def _render_page(
    service: Service, request: Request, plan: SetPlan, state: Alternatives, key: str
) -> HTMLResponse:
    values, row = state.values, summary(service, plan.head)
    stated: Json = {"deadline_s": values.deadline_s, "needed": values.needed}
    stated |= {"unlimited": "true"} if values.budget_usd is None else {}
    stated |= {"budget_usd": values.budget_usd} if values.budget_usd is not None else {}
    return page_of(
        request,
        "",
        "whatif.html",
        s=row,
        key=key,
        values=values,
        workflows=plan.workflows,
        most_usd=plan.most_usd,
        step_usd=plan.most_usd / _BUDGET_STEPS,
        slider=_make_deadline_slider(plan.own.deadline_s),
        state=state,
        curves=curves_of(plan, state),
        too_large=plan.tasks > MOST_TASKS,
        tasks=plan.tasks,
        query=urlencode(stated | {"key": key}),
        own=plan.head.summary if values != plan.own else None,
        **promise_parts(state.here),
    )


def _make_deadline_slider(deadline_s: float) -> tuple[int, int, int]:
    """Return the least and the most of the slider of deadlines, and its step: the set's own
    deadline is one of its steps."""
    whole_s = max(1, round(deadline_s))
    step = max(1, round(whole_s / _STEPS))
    least = whole_s - step * (int(0.75 * whole_s) // step)
    return max(1, least), 3 * whole_s, step
