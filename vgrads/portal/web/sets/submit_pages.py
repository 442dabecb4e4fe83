"""The page on which a set is submitted: its text, fields beside it, and what would be promised."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Form, Header, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.api.config import embedded_data
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_duration, parse_duration
from vgrads.operations.plans.requests import read_stored_options
from vgrads.portal.records.access import Principal
from vgrads.portal.records.reading.sites import choose_usable_sites
from vgrads.portal.web.guard import Submitter
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.service import PLANNING_S, Service
from vgrads.portal.web.set_display import PromiseSummary, read_summary
from vgrads.portal.web.set_routes import begin_run, patience
from vgrads.portal.web.sets.promise_parts import CENT, promise_parts
from vgrads.portal.web.sets.promise_questions import PromiseQuestions, WrittenSet
from vgrads.portal.web.sets.questions import StillWaiting
from vgrads.portal.web.sets.remedies import Remedy, remedies
from vgrads.portal.web.sets.submission import (
    Mistake,
    SubmissionForm,
    mistake_of,
    read_submission,
    set_instead,
    submit_checked,
)

Json = dict[str, Any]
TEMPLATES = {
    "storm": ("lead-storm.yaml", "Eight storm forecasts, the example of the demo"),
    "commands": ("commands.yaml", "Your own commands"),
    "bag": ("bag-in-set.yaml", "A bag of independent tasks"),
}
"""Name of a template → its file and what it is."""
TemplateName = Literal["storm", "commands", "bag"]
_FIELDS = {"deadline_s": "deadline", "needed": "at_least", "budget_usd": "budget_usd"}
"""Field of a remedy → that of the form."""


def add_submit_pages(app: FastAPI, service: Service) -> None:
    """Add the page, the promise that it shows, and the submission."""
    questions = PromiseQuestions(service)

    @app.get("/submit", response_class=HTMLResponse, include_in_schema=False)
    def blank(
        request: Request,
        like: Annotated[str, Query(max_length=50)] = "",
        template: TemplateName = "storm",
    ) -> HTMLResponse:
        who = reader_of(request)
        form = _make_form_like(service, like, who) if like else _make_form(_read_template(template))
        shown = ShownForm(form, offered_sites(service, who), chosen="" if like else template)
        return _render_page(request, shown)

    @app.post("/submit", response_class=HTMLResponse, include_in_schema=False, response_model=None)
    async def submit(
        request: Request, who: Submitter, form: Annotated[SubmissionForm, Form()]
    ) -> Response:
        offered = offered_sites(service, who)
        try:
            instead = await set_instead(service, form)
            if instead is not None:  # it is shown before anything is submitted
                return await run_in_threadpool(
                    _render_page, request, ShownForm(instead, offered, is_new=True)
                )
            checked = await read_submission(service, form, offered)
        except InputError as error:
            wrong = ShownForm(form, offered, mistake=mistake_of(form, error))
            refused = await run_in_threadpool(_render_page, request, wrong)
            refused.status_code = 422
            return refused
        created = await submit_checked(service, checked, who, form.key)
        shown = f"/sets/{created}"
        if form.run_for is not None:
            shown = await _run_as_shown(service, created, who, form.key, form.run_for)
        return RedirectResponse(shown, 303)

    @app.post("/submit/promise", response_class=HTMLResponse, include_in_schema=False)
    async def promise(
        request: Request,
        who: Submitter,
        form: Annotated[SubmissionForm, Form()],
        prefer: Annotated[str, Header()] = "",
    ) -> HTMLResponse:
        """Show what would be promised, or what is wrong with the form; ``Prefer: wait=2``: wait so
        many seconds for it. Nothing is stored."""
        offered, is_new = offered_sites(service, who), False
        try:
            wait_s = patience(prefer)
            instead = await set_instead(service, form)
            form, is_new = instead or form, instead is not None
            written = WrittenSet(form.text, form.change(), form.only_sites(offered))
            answer = await questions.ask(who, form.key, written, wait_s)
        except InputError as error:
            wrong = ShownForm(form, offered, mistake=mistake_of(form, error))
            return await run_in_threadpool(_render_page, request, wrong)
        shown = ShownForm(form, offered, is_new=is_new)
        return await run_in_threadpool(_render_page, request, shown, answer)


def offered_sites(service: Service, who: Principal) -> tuple[str, ...]:
    """Return the names of the sites for the sets of a user."""
    chosen = choose_usable_sites(service.catalog, service.granted(who.user))[0]
    return tuple(site.name for site in chosen.sites)


def _read_template(name: str) -> str:
    return (embedded_data() / TEMPLATES[name][0]).read_text(encoding="utf-8")


def _make_form(text: str, sites: Sequence[str] = ()) -> SubmissionForm:
    return SubmissionForm(text=text, key=secrets.token_hex(16), site=list(sites))


def _make_form_like(service: Service, set_id: str, who: Principal) -> SubmissionForm:
    """Return the form of a set that is to be submitted again: its text, and its sites."""
    head = service.visible(set_id, who)
    document = json.loads(service.sets.text(head.id, "document"))
    stated = {name: value for name, value in document.items() if value not in (None, [], {})}
    text = json.dumps(stated, indent=2, ensure_ascii=False)
    only = read_stored_options(json.loads(service.sets.text(head.id, "options"))).only_sites
    return _make_form(text, only)


async def _run_as_shown(
    service: Service, set_id: str, who: Principal, key: str, most_usd: float
) -> str:
    """Run a set as soon as it is planned, if the plan is as good as was shown; return the page that
    comes next: the one that asks where the plan costs more or promises less."""
    head, page = await service.planned(set_id, PLANNING_S), f"/sets/{set_id}"
    if head is None or head.state != "planned":
        return page
    promise = read_summary(head.summary)
    dearer = (promise.cost_usd or 0.0) > most_usd + CENT
    if not promise.feasible or promise.below or dearer:
        return f"{page}/run"
    how = {"engine": "vgrads", "speed": None}
    try:
        # the end of the key: keys have at most 200 characters
        await begin_run(service, set_id, who, how, f"{key}-run"[-200:], head.etag)
    except (HTTPException, InputError):  # the page that asks says why
        return f"{page}/run"
    return page


@dataclass(frozen=True, slots=True)
class ShownForm:
    """A form as its page shows it. ``offered``: sites; ``chosen``: template of its text;
    ``is_new``: the text was written for the workflow that was sent."""

    form: SubmissionForm
    offered: tuple[str, ...]
    chosen: str = ""
    is_new: bool = False
    mistake: Mistake | None = None


def _render_page(
    request: Request,
    shown: ShownForm,
    answer: Json | StillWaiting | None = None,
) -> HTMLResponse:
    """Return the page with the promise for its set, or what is wrong with it."""
    return page_of(
        request,
        "/submit",
        "submit.html",
        form=shown.form,
        chosen=shown.chosen,
        templates=[(name, title, _read_template(name)) for name, (_, title) in TEMPLATES.items()],
        files=sorted(path.name for path in embedded_data().glob("*.json")),
        mistake=shown.mistake,
        offered=shown.offered,
        chosen_sites=[name for name in shown.form.site if name] or shown.offered,
        is_new=shown.is_new,
        ahead=answer.ahead if isinstance(answer, StillWaiting) else None,
        **_make_promise_parts(answer if isinstance(answer, dict) else None),
    )


def _make_promise_parts(answer: Json | None) -> Json:
    """Return the values of the template that show a promise; None: there is none."""
    promise = read_summary(answer or {})
    return promise_parts(answer) | {
        "workflows": (answer or {}).get("workflows"),
        "stated": _list_stated(promise) if answer else {},
        "remedies": [
            (_FIELDS[r.field], _format_value(r), r) for r in remedies(answer or {}, promise)
        ],
    }


def _list_stated(promise: PromiseSummary) -> dict[str, str]:
    """Return what a set requests, by the fields of the form: shown in those that are empty."""
    budget = promise.budget_usd
    return {
        "deadline": format_duration(promise.deadline_s),
        "at_least": str(promise.needed),
        "probability": f"{promise.requested:g}",
        "budget_usd": "no limit" if budget is None else f"{budget:.2f}",
    }


def _format_value(remedy: Remedy) -> str:
    """Return the value of a remedy as people write it into the form."""
    if remedy.field != "deadline_s":
        return remedy.value
    text = format_duration(float(remedy.value))
    return text if parse_duration(text) == float(remedy.value) else f"{remedy.value}s"
