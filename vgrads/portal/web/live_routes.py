"""Active runs: events in real time, cancellation, start permits for outside engines, metrics for
Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Response
from fastapi import Path as PathParameter
from fastapi.sse import EventSourceResponse, ServerSentEvent
from prometheus_client import CollectorRegistry, generate_latest
from pydantic import ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.kernel.documents import Document
from vgrads.portal.records.access import Principal
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.run_lease import store_stop_request
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.answers import answers, events_of
from vgrads.portal.web.figures import ServiceMetrics
from vgrads.portal.web.guard import Reader, Submitter, needs
from vgrads.portal.web.planned_tasks import PlannedTasks
from vgrads.portal.web.problems import message
from vgrads.portal.web.service import Service

if TYPE_CHECKING:
    from vgrads.execmgr.engines.outside import OutsideEngine
    from vgrads.execmgr.tasks.order import TaskOrder
    from vgrads.planner.snapshot import TaskKey

SetId = Annotated[str, PathParameter(pattern=r"^set-[0-9a-f]{10}$")]
RunId = Annotated[str, PathParameter(pattern=r"^run-[0-9a-f]{10}$")]
Name = Annotated[str, PathParameter(max_length=200)]
_LOOK_S = 0.5
_LONGEST_WAIT_S = 30.0
_BEGIN_S = 20.0  # wait for a run that is queued, or being taken over


class EndReport(Document):
    """Result of a task's replica, reported by an outside engine."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"workflow": "lead-1", "task": "wrf", "copy": 0, "ok": True}]
        }
    )

    workflow: Annotated[str, Field(max_length=200)]
    task: Annotated[str, Field(max_length=200)]
    copy_: Annotated[int, Field(alias="copy", ge=0, le=1_000_000)] = 0
    ok: bool
    reason: Annotated[str, Field(max_length=1000)] = ""


def add_live_routes(app: FastAPI, service: Service) -> None:
    """Add events, cancellation, start permits, metrics."""
    _add_events(app, service)
    _add_permits(app, service)

    @app.delete(
        "/v1/workflow-sets/{set_id}",
        status_code=202,
        **answers(
            "runs.RunRequestSent",
            operation="cancel_workflow_set",
            tag="workflow sets",
            errors=(404, 409),
        ),
    )
    def cancel(set_id: SetId, who: Submitter) -> dict[str, Any]:
        """Cancel the run of a set and release everything that it holds."""
        return cancel_run(service, set_id, who)

    @app.get("/metrics", include_in_schema=False)
    def metrics(_: Annotated[Principal, needs("metrics")]) -> Response:
        """Read metrics for Prometheus: requests so far, and values read from the database on
        request."""
        registry = CollectorRegistry()
        registry.register(
            ServiceMetrics(service.store, service.live, service.meters, service.forecasts.scores)
        )
        registry.register(service.wait_gauges)
        text = generate_latest(registry) + generate_latest(service.meters.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def cancel_run(service: Service, set_id: str, who: Principal, run_id: str = "") -> dict[str, Any]:
    """Cancel a run of a set, or its newest; 409 where none is active, or it has no manager."""
    run = _find_newest(service, set_id, who)
    run = service.store.get_run(run_id) if run_id else run
    if run is None or run.state not in GOES_ON:
        raise HTTPException(409, f"set '{set_id}' has no active run")
    # imported late: the service starts without what runs are made of
    from vgrads.portal.jobs.runs import ask_to_stop

    reason = f"cancelled by {who.user}"
    done = ask_to_stop(service.store, run.id, reason)
    if not done and not service.supervisor.works.awaits(run.id):
        raise HTTPException(409, f"no manager is running for run '{run.id}'; see vgrads cancel")
    if not done:
        store_stop_request(service.store.engine, run.id, reason)
    return {"run": run.id, **message(done or "asked its manager to stop")}


def _find_newest(service: Service, set_id: str, who: Principal) -> RunRow | None:
    service.visible(set_id, who)
    return service.newest_run(set_id)


def _add_events(app: FastAPI, service: Service) -> None:
    def newest(
        set_id: SetId, who: Reader
    ) -> RunRow | None:  # before the stream starts: the request may be rejected
        return _find_newest(service, set_id, who)

    @app.get(
        "/v1/workflow-sets/{set_id}/events",
        response_class=EventSourceResponse,
        **answers(events_of("runs.RunEvent"), operation="follow_run", tag="runs", errors=(404,)),
    )
    async def events(
        last_event_id: Annotated[str | None, Header()] = None,
        run: RunRow | None = Depends(newest),  # noqa: B008  # a local name cannot stand in an annotation
    ) -> AsyncIterator[ServerSentEvent]:
        """Stream the journal of the newest run as server-sent events; ``Last-Event-ID`` continues
        after that one.

        The last event is ``end`` with the run's state.
        """
        if run is None:
            yield ServerSentEvent(data={"state": "planned"}, event="end", id="none")
            return
        async for event in _follow(service, run.id, _find_position(last_event_id, run.id)):
            yield event


def _find_position(last: str | None, run_id: str) -> int:
    """Return the position after the last received event, if it was of this run."""
    run, _, position = (last or "").partition(":")
    # an id of another run of the set says nothing about this one
    return int(position) + 1 if run == run_id and position.isdigit() else 0


async def _follow(service: Service, run_id: str, position: int) -> AsyncIterator[ServerSentEvent]:
    store = service.store
    while not service.stopping.is_set():
        # before the events: those that a run stores as it ends must still be sent
        state = (await run_in_threadpool(store.get_run, run_id)).state
        result = await run_in_threadpool(store.events, run_id, position)
        for body in result:
            yield ServerSentEvent(data=body, event=body["kind"], id=f"{run_id}:{position}")
            position += 1
        if state != "running":
            yield ServerSentEvent(
                data={"run": run_id, "state": state}, event="end", id=f"{run_id}:end"
            )
            return
        await asyncio.sleep(_LOOK_S)


def _add_permits(app: FastAPI, service: Service) -> None:
    planned_tasks = PlannedTasks(service)

    async def engine_of(run_id: str, who: Principal, task: TaskKey) -> OutsideEngine:
        engine = await service.outside(run_id, who, _BEGIN_S)
        if engine is None:
            raise HTTPException(
                409, f"run '{run_id}' is not run by an outside engine, or has ended"
            )
        await planned_tasks.require(await run_in_threadpool(service.store.get_run, run_id), [task])
        return engine

    @app.post(
        "/v1/runs/{run_id}/permits/{workflow}/{task}",
        **answers(
            "runs.StartPermits", operation="request_start_permit", tag="runs", errors=(404, 409)
        ),
    )
    async def announce(
        run_id: RunId,
        workflow: Name,
        task: Name,
        who: Submitter,
        wait_s: Annotated[float, Query(ge=0, le=_LONGEST_WAIT_S)] = 0.0,
    ) -> dict[str, Any]:
        """Request a start permit for a task from an outside engine: its slot, if granted (within
        ``wait_s``)."""
        key = (workflow, task)
        orders = await _await_permits(await engine_of(run_id, who, key), key, wait_s)
        permits = [_permit_json(order) for order in orders]
        return {"permits": permits}

    @app.post(
        "/v1/runs/{run_id}/completions",
        **answers(
            "runs.CompletionCounted", operation="report_completion", tag="runs", errors=(404, 409)
        ),
    )
    async def report(run_id: RunId, end: EndReport, who: Submitter) -> dict[str, Any]:
        """Report the result of a replica. ``counted`` is false where it was no longer needed."""
        key = (end.workflow, end.task, end.copy_)
        engine = await engine_of(run_id, who, key[:2])
        return {"counted": await run_in_threadpool(engine.report, key, end.ok, end.reason)}


def _permit_json(order: TaskOrder) -> dict[str, Any]:
    return {
        "copy": order.key[2],
        "attempt": order.attempt,
        "site": order.site,
        "slot": order.slot,
        "procs": order.procs,
    }


async def _await_permits(engine: OutsideEngine, task: TaskKey, wait_s: float) -> list[TaskOrder]:
    """Return the start permits of a task, at once or within ``wait_s``. Those that wait take no
    thread."""
    try:
        async with asyncio.timeout(wait_s):
            while True:
                # before the question: a permit that is granted in between must not be missed
                offered = engine.offered(task)
                if orders := engine.announce(task):
                    offered.cancel()
                    return orders
                await asyncio.wrap_future(offered)
    except TimeoutError:
        return engine.announce(task)
