"""Forms of a set's page: run, cancel, retry, submit a changed set. They need no scripts."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from typing import Annotated, Any

from fastapi import FastAPI, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from vgrads.operations.plans.requests import read_stored_options
from vgrads.portal.jobs.run_status import run_status
from vgrads.portal.records.archived import archive_work
from vgrads.portal.records.reading.run_rows import NamedWork
from vgrads.portal.records.retention import remove_ended_set
from vgrads.portal.web.guard import Submitter
from vgrads.portal.web.live_routes import cancel_run
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.run_routes import retry_run
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_display import read_summary
from vgrads.portal.web.set_document import changed_document
from vgrads.portal.web.set_routes import (
    SetId,
    begin_run,
    request_plan,
    summary,
)
from vgrads.portal.web.sets.submission import FormKey, submit_checked

Json = dict[str, Any]


class OtherValues(BaseModel):
    """Other values of a set; missing ones are unchanged. ``unlimited``: without a budget."""

    deadline_s: Annotated[float | None, Field(gt=0)] = None
    needed: Annotated[int | None, Field(ge=1)] = None
    budget_usd: Annotated[float | None, Field(ge=0)] = None
    unlimited: bool = False


class ChangeForm(OtherValues):
    """Other values of a set that is submitted with them."""

    key: Annotated[str, Field(max_length=200)]


def add_set_forms(app: FastAPI, service: Service) -> None:
    """Add what costs something, with its confirmation, and changed sets."""
    _add_confirmations(app, service)
    _add_actions(app, service)
    _add_archive(app, service)
    _add_changes(app, service)


def _add_confirmations(app: FastAPI, service: Service) -> None:
    def confirm(set_id: str, request: Request, act: str) -> HTMLResponse:
        head = service.visible(set_id, reader_of(request))
        run = service.newest_run(set_id)
        return page_of(
            request,
            "",
            "confirm.html",
            act=act,
            s=summary(service, head),
            promise=read_summary(head.summary),
            etag=head.etag,
            key=secrets.token_hex(16),
            now=run_status(service.live, run) if run is not None else None,
        )

    @app.get("/sets/{set_id}/run", response_class=HTMLResponse, include_in_schema=False)
    def ask_run(set_id: SetId, request: Request) -> HTMLResponse:
        return confirm(set_id, request, "run")

    @app.get("/sets/{set_id}/cancel", response_class=HTMLResponse, include_in_schema=False)
    def ask_cancel(set_id: SetId, request: Request) -> HTMLResponse:
        return confirm(set_id, request, "cancel")

    @app.get("/sets/{set_id}/delete", response_class=HTMLResponse, include_in_schema=False)
    def ask_delete(set_id: SetId, request: Request) -> HTMLResponse:
        return confirm(set_id, request, "delete")


def _add_actions(app: FastAPI, service: Service) -> None:
    @app.post("/sets/{set_id}/run", include_in_schema=False)
    async def run(
        set_id: SetId,
        who: Submitter,
        key: FormKey,
        plan: FormKey,
        speed: Annotated[str, Form(pattern=r"^([1-9]\d{0,5})?$")] = "",
        rerun: Annotated[bool, Form()] = False,
    ) -> RedirectResponse:
        how: Json = {"engine": "vgrads", "speed": float(speed) if speed else None}
        how |= {"rerun": True} if rerun else {}
        await begin_run(service, set_id, who, how, key, plan)
        return RedirectResponse(f"/sets/{set_id}", 303)

    @app.post("/sets/{set_id}/retry", include_in_schema=False)
    async def retry(
        set_id: SetId,
        who: Submitter,
        key: FormKey,
        task: Annotated[str, Form(max_length=500)] = "",
    ) -> RedirectResponse:
        await retry_run(service, set_id, who, [task] if task else [], key)
        return RedirectResponse(f"/sets/{set_id}", 303)

    @app.post("/sets/{set_id}/plan", include_in_schema=False)
    def plan(set_id: SetId, who: Submitter) -> RedirectResponse:
        request_plan(service, set_id, who, None)
        return RedirectResponse(f"/sets/{set_id}", 303)

    @app.post("/sets/{set_id}/cancel", include_in_schema=False)
    def cancel(set_id: SetId, who: Submitter) -> RedirectResponse:
        cancel_run(service, set_id, who)
        return RedirectResponse(f"/sets/{set_id}", 303)

    @app.post("/sets/{set_id}/delete", include_in_schema=False)
    def delete(set_id: SetId, who: Submitter) -> RedirectResponse:
        service.visible(set_id, who)
        remove_ended_set(service.store, set_id)
        return RedirectResponse("/", 303)


def _add_archive(app: FastAPI, service: Service) -> None:
    @app.post("/sets/{set_id}/archive", include_in_schema=False)
    def archive(
        set_id: SetId, who: Submitter, archived: Annotated[bool, Form()]
    ) -> RedirectResponse:
        service.visible(set_id, who)
        archive_work(service.store, NamedWork("set", set_id, set_id), archived)
        return RedirectResponse(f"/sets/{set_id}", 303)


def _add_changes(app: FastAPI, service: Service) -> None:
    @app.post("/sets/{set_id}/change", include_in_schema=False)
    async def change(
        set_id: SetId, who: Submitter, form: Annotated[ChangeForm, Form()]
    ) -> RedirectResponse:
        """Submit a set again with another deadline, number of workflows or budget."""
        head = await run_in_threadpool(service.visible, set_id, who)
        text = await run_in_threadpool(service.sets.text, set_id, "document")
        options = await run_in_threadpool(service.sets.text, set_id, "options")
        changes = form.model_dump(include={"deadline_s", "needed", "budget_usd"})
        document = changed_document(text, head.summary.get("deadline_s"), changes)
        # None among the changes means unchanged, so no limit is stated here
        if form.unlimited:
            document["budget_usd"] = None
        read = await service.read_set(json.dumps(document).encode(), "json")
        checked = replace(read, options=read_stored_options(json.loads(options)))
        created = await submit_checked(service, checked, who, form.key)
        return RedirectResponse(f"/sets/{created}", 303)
