"""What goes on: events of a run as they happen, cancelling, turns for outside engines, figures for
Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Response
from fastapi import Path as PathParameter
from fastapi.sse import EventSourceResponse, ServerSentEvent
from prometheus_client import CollectorRegistry, generate_latest
from pydantic import ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.execmgr.engines.outside import OutsideEngine
from vgrads.kernel.documents import Document
from vgrads.portal.jobs.runs import ask_to_stop
from vgrads.portal.records.access import Principal
from vgrads.portal.records.run_lease import leave_word
from vgrads.portal.records.store import GOES_ON
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.figures import Figures
from vgrads.portal.web.guard import Reader, Submitter, needs
from vgrads.portal.web.service import Service

SetId = Annotated[str, PathParameter(pattern=r"^set-[0-9a-f]{10}$")]
RunId = Annotated[str, PathParameter(pattern=r"^run-[0-9a-f]{10}$")]
Name = Annotated[str, PathParameter(max_length=200)]
_LOOK_S = 0.5
_LONGEST_WAIT_S = 30.0
_BEGIN_S = 20.0  # patience with a run that was queued, or taken over after a restart


class EndReport(Document):
    """How a copy of a task ended, as an outside engine tells it."""

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
    """Events, cancelling, turns, metrics."""
    _add_events(app, service)
    _add_turns(app, service)

    @app.delete("/v1/workflow-sets/{set_id}", status_code=202)
    def cancel(set_id: SetId, who: Submitter) -> dict[str, Any]:
        """Stop the run of a set and give back everything that it holds."""
        return cancel_run(service, set_id, who)

    @app.get("/metrics", include_in_schema=False)
    def metrics(_: Annotated[Principal, needs("metrics")]) -> Response:
        """Figures for Prometheus: requests so far, and what the database holds when asked."""
        registry = CollectorRegistry()
        registry.register(Figures(service.store, service.meters))
        text = generate_latest(registry) + generate_latest(service.meters.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def cancel_run(service: Service, set_id: str, who: Principal) -> dict[str, Any]:
    """Have the newest run of a set stopped; 409 where none goes on, or nobody looks after it."""
    run = _newest(service, set_id, who)
    if run is None or run.state not in GOES_ON:
        raise HTTPException(409, f"set '{set_id}' has no run that goes on")
    reason = f"cancelled by {who.user}"
    done = ask_to_stop(service.store, run.id, reason)
    if not done and not service.supervisor.works.awaits(run.id):
        raise HTTPException(409, f"nobody looks after run '{run.id}'; see vgrads cancel")
    if not done:
        leave_word(service.store.engine, run.id, reason)
    return {"run": run.id, "told": done or "its manager was asked to stop"}


def _newest(service: Service, set_id: str, who: Principal) -> RunRow | None:
    service.visible(set_id, who)
    return service.newest_run(set_id)


def _add_events(app: FastAPI, service: Service) -> None:
    def newest(
        set_id: SetId, who: Reader
    ) -> RunRow | None:  # before the stream begins: it may be refused
        return _newest(service, set_id, who)

    @app.get("/v1/workflow-sets/{set_id}/events", response_class=EventSourceResponse)
    async def events(
        last_event_id: Annotated[str | None, Header()] = None,
        run: RunRow | None = Depends(newest),  # noqa: B008  # a local name cannot stand in an annotation
    ) -> AsyncIterator[ServerSentEvent]:
        """The journal of the newest run as server-sent events; ``Last-Event-ID`` goes on behind
        that one.

        The last event is ``end`` with the run's state.
        """
        if run is None:
            yield ServerSentEvent(data={"state": "planned"}, event="end", id="none")
            return
        async for one in _follow(service, run.id, _position(last_event_id, run.id)):
            yield one


def _position(last: str | None, run_id: str) -> int:
    """Where to go on: behind the event that was seen last, if it was of this run."""
    run, _, position = (last or "").partition(":")
    return int(position) + 1 if run == run_id and position.isdigit() else 0


async def _follow(service: Service, run_id: str, position: int) -> AsyncIterator[ServerSentEvent]:
    store = service.store
    while not service.stopping.is_set():
        state = (await run_in_threadpool(store.get_run, run_id)).state
        found = await run_in_threadpool(store.events, run_id, position)
        for body in found:
            yield ServerSentEvent(data=body, event=body["kind"], id=f"{run_id}:{position}")
            position += 1
        if state != "running":
            yield ServerSentEvent(
                data={"run": run_id, "state": state}, event="end", id=f"{run_id}:end"
            )
            return
        await asyncio.sleep(_LOOK_S)


def _add_turns(app: FastAPI, service: Service) -> None:
    def engine_of(run_id: str, who: Principal) -> OutsideEngine:
        engine = service.outside(run_id, who, _BEGIN_S)
        if engine is None:
            raise HTTPException(409, f"run '{run_id}' is not run by an outside engine, or is over")
        return engine

    @app.post("/v1/runs/{run_id}/turns/{workflow}/{task}")
    def announce(
        run_id: RunId,
        workflow: Name,
        task: Name,
        who: Submitter,
        wait_s: Annotated[float, Query(ge=0, le=_LONGEST_WAIT_S)] = 0.0,
    ) -> dict[str, Any]:
        """An outside engine wants to run a task: where, if its turn has come (within
        ``wait_s``)."""
        orders = engine_of(run_id, who).announce((workflow, task), wait_s)
        turns = [
            {
                "copy": o.key[2],
                "attempt": o.attempt,
                "site": o.site,
                "slot": o.slot,
                "procs": o.procs,
            }
            for o in orders
        ]
        return {"turns": turns}

    @app.post("/v1/runs/{run_id}/ends")
    def report(run_id: RunId, end: EndReport, who: Submitter) -> dict[str, Any]:
        """How a copy ended. ``counted`` is false where it was not needed any more."""
        key = (end.workflow, end.task, end.copy_)
        return {"counted": engine_of(run_id, who).report(key, end.ok, end.reason)}
