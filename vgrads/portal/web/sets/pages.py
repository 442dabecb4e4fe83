"""The pages of a set: its answer, chart and tasks; parts of it by themselves; its alternatives."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool

from vgrads.portal.charts.exports import available
from vgrads.portal.charts.gantt import render_svg
from vgrads.portal.records.sets import Head
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_document import workflow_count
from vgrads.portal.web.set_routes import SetId, gantt
from vgrads.portal.web.sets.alternative_page import add_alternative_page
from vgrads.portal.web.sets.answer import answer_parts
from vgrads.portal.web.sets.graph_part import WorkflowName, graph_parts
from vgrads.portal.web.sets.history_page import add_history_page
from vgrads.portal.web.sets.task_page import add_task_page
from vgrads.portal.web.sets.task_table import task_parts

Json = dict[str, Any]
SearchText = Annotated[str, Query(max_length=200)]
_MOST_STILL = 1000  # bars


def add_set_pages(app: FastAPI, service: Service) -> None:
    """Add the page of a set, its parts, its tasks' output, its alternatives, and the history of a
    name."""
    _add_whole(app, service)
    _add_parts(app, service)
    add_alternative_page(app, service)
    add_task_page(app, service)
    add_history_page(app, service)


def _add_whole(app: FastAPI, service: Service) -> None:
    @app.get("/sets/{set_id}", response_class=HTMLResponse, include_in_schema=False)
    async def page(
        set_id: SetId, request: Request, find: SearchText = "", workflow: WorkflowName = ""
    ) -> HTMLResponse:
        head, run, chart = await _load_current(service, set_id, request)
        parts = await answer_parts(service, head, run)
        parts |= await task_parts(service, head, run, chart, find)
        parts |= await run_in_threadpool(graph_parts, service, head, run, chart, workflow)
        return await run_in_threadpool(_set_page, service, head, chart, request, parts)


def _add_parts(app: FastAPI, service: Service) -> None:
    """Add the parts that the page of a set reloads; opened directly, they are pages too."""

    @app.get("/sets/{set_id}/status", response_class=HTMLResponse, include_in_schema=False)
    async def status(set_id: SetId, request: Request) -> HTMLResponse:
        head = await run_in_threadpool(service.visible, set_id, reader_of(request))
        run = await run_in_threadpool(service.newest_run, head.id)
        return page_of(request, "", "status_page.html", **await answer_parts(service, head, run))

    @app.get("/sets/{set_id}/tasks", response_class=HTMLResponse, include_in_schema=False)
    async def tasks(set_id: SetId, request: Request, find: SearchText = "") -> HTMLResponse:
        head, run, chart = await _load_current(service, set_id, request)
        parts = await task_parts(service, head, run, chart, find)
        return page_of(request, "", "tasks_page.html", set_name=head.name, **parts)

    @app.get("/sets/{set_id}/graph", response_class=HTMLResponse, include_in_schema=False)
    async def graph(set_id: SetId, request: Request, workflow: WorkflowName = "") -> HTMLResponse:
        head, run, chart = await _load_current(service, set_id, request)
        parts = await run_in_threadpool(graph_parts, service, head, run, chart, workflow)
        return page_of(request, "", "graph_page.html", set_name=head.name, set_id=head.id, **parts)


async def _load_current(
    service: Service, set_id: str, request: Request
) -> tuple[Head, RunRow | None, Json | None]:
    """Return a set, its newest run, and the current chart: None without a plan."""

    def read() -> tuple[Head, RunRow | None, Json | None]:
        head = service.visible(set_id, reader_of(request))
        run = service.newest_run(head.id)
        return head, run, gantt(service, head, run) if head.revision else None

    return await run_in_threadpool(read)


def _set_page(
    service: Service, head: Head, chart: Json | None, request: Request, parts: Json
) -> HTMLResponse:
    return page_of(
        request,
        "",
        "set.html",
        forms=available(),
        run=parts["now"]["run"],
        workflows=_count(service, head.id),
        run_times=_run_times(service, head),
        svg=_draw_still_chart(chart) if chart else "",
        placed=bool(chart and chart["placements"]),
        **parts,
    )


def _draw_still_chart(chart: Json) -> Markup:
    """Return the chart for browsers without scripts; not of very large sets."""
    if len(chart["placements"]) > _MOST_STILL:
        return Markup("")
    return Markup(render_svg(chart))


def _run_times(service: Service, head: Head) -> list[Json]:
    """Return the evidence for the run times of each kind of task; nothing where all are as
    stated."""
    if not head.revision:
        return []
    result = json.loads(service.sets.text(head.id, "plan")).get("run_times", [])
    if all(entry["source"] == "stated" for entry in result):
        return []
    # imported late: most sets have stated run times
    from vgrads.api.plans.runtimes import describe_source

    return [entry | {"rests": describe_source(entry)} for entry in result]


def _count(service: Service, set_id: str) -> int:
    return workflow_count(json.loads(service.sets.text(set_id, "document")))
