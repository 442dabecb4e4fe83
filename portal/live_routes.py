"""What goes on: events of a run as they happen, cancelling, turns for outside engines, figures for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Protocol

from fastapi import FastAPI, Header, Query, Response
from fastapi import Path as PathParameter
from fastapi.sse import EventSourceResponse, ServerSentEvent
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from execmgr.outside_engine import OutsideEngine
from kernel.documents import Document
from portal.run_record import RunRecord
from portal.tables import RunRow, Store

SetId = Annotated[str, PathParameter(pattern=r"^set-[0-9a-f]{10}$")]
RunId = Annotated[str, PathParameter(pattern=r"^run-[0-9a-f]{10}$")]
Name = Annotated[str, PathParameter(max_length=200)]
_LOOK_S = 0.5
_LONGEST_WAIT_S = 30.0


class EndReport(Document):
    """How a copy of a task ended, as an outside engine tells it."""

    workflow: Annotated[str, Field(max_length=200)]
    task: Annotated[str, Field(max_length=200)]
    copy_: Annotated[int, Field(alias="copy", ge=0)] = 0
    ok: bool
    reason: Annotated[str, Field(max_length=1000)] = ""


class Live(Protocol):
    """What these endpoints need of the service."""

    store: Store

    def outside(self, run_id: str) -> OutsideEngine | None:
        """The engine through which somebody outside runs a run's tasks; None where nobody does."""


def add_live_routes(app: FastAPI, service: Live) -> None:
    """Events, cancelling, turns, metrics."""
    _add_events(app, service)
    _add_turns(app, service)

    @app.delete("/v1/workflow-sets/{set_id}", status_code=202)
    def cancel(set_id: SetId) -> dict[str, Any]:
        """Stop the run of a set and give back everything that it holds."""
        run = _newest(service.store, set_id)
        asked = run is not None and RunRecord(service.store.engine, run.id).ask_to_stop(
            "cancelled over REST"
        )
        if run is None or not asked:
            raise HTTPException(409, f"set '{set_id}' has no run that goes on")
        return {"run": run.id, "told": "its manager was asked to stop"}

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> Response:
        """Figures for Prometheus, reckoned from the database when asked."""
        registry = CollectorRegistry()
        registry.register(_Figures(service.store))
        return Response(
            generate_latest(registry), media_type="text/plain; version=0.0.4; charset=utf-8"
        )


def _newest(store: Store, set_id: str) -> RunRow | None:
    if store.get_set(set_id) is None:
        raise HTTPException(404, f"no workflow set '{set_id}'")
    return next(iter(store.list_runs(set_id, limit=1)), None)


def _add_events(app: FastAPI, service: Live) -> None:
    @app.get("/v1/workflow-sets/{set_id}/events", response_class=EventSourceResponse)
    async def events(
        set_id: SetId,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> AsyncIterator[ServerSentEvent]:
        """The journal of the newest run as server-sent events; ``Last-Event-ID`` goes on behind that one.

        The last event is ``end`` with the run's state.
        """
        run = await run_in_threadpool(_newest, service.store, set_id)
        if run is None:
            yield ServerSentEvent(data={"state": "planned"}, event="end", id="none")
            return
        async for one in _follow(service.store, run.id, _position(last_event_id, run.id)):
            yield one


def _position(last: str | None, run_id: str) -> int:
    """Where to go on: behind the event that was seen last, if it was of this run."""
    run, _, position = (last or "").partition(":")
    return int(position) + 1 if run == run_id and position.isdigit() else 0


async def _follow(store: Store, run_id: str, position: int) -> AsyncIterator[ServerSentEvent]:
    while True:
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


def _add_turns(app: FastAPI, service: Live) -> None:
    def engine_of(run_id: str) -> OutsideEngine:
        engine = service.outside(run_id)
        if engine is None:
            raise HTTPException(409, f"run '{run_id}' is not run by an outside engine, or is over")
        return engine

    @app.post("/v1/runs/{run_id}/turns/{workflow}/{task}")
    def announce(
        run_id: RunId, workflow: Name, task: Name,
        wait_s: Annotated[float, Query(ge=0, le=_LONGEST_WAIT_S)] = 0.0,
    ) -> dict[str, Any]:  # fmt: skip
        """An outside engine wants to run a task: where, if its turn has come (within ``wait_s``)."""
        orders = engine_of(run_id).announce((workflow, task), wait_s)
        turns = [
            {"copy": o.key[2], "attempt": o.attempt, "site": o.site, "slot": o.slot, "procs": o.procs} for o in orders
        ]  # fmt: skip
        return {"turns": turns}

    @app.post("/v1/runs/{run_id}/ends")
    def report(run_id: RunId, end: EndReport) -> dict[str, Any]:
        """How a copy ended. ``counted`` is false where it was not needed any more."""
        key = (end.workflow, end.task, end.copy_)
        return {"counted": engine_of(run_id).report(key, end.ok, end.reason)}


class _Figures:
    """Sets, runs by state, slots by site and fate: whatever the database holds when asked."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        runs = GaugeMetricFamily("vgrads_runs", "Runs by state", labels=["state"])
        for state, count in sorted(self._store.count_runs().items()):
            runs.add_metric([state], count)
        yield runs
        slots = CounterMetricFamily(
            "vgrads_slots", "Slots asked for, by site and fate", labels=["site", "fate"]
        )
        counts: dict[tuple[str, str], int] = {}
        for one in self._store.acquisitions(limit=100_000):
            fate = "refused" if one.refused else "broken" if one.broken else "granted"
            counts[one.site, fate] = counts.get((one.site, fate), 0) + 1
        for labels, count in sorted(counts.items()):
            slots.add_metric(list(labels), count)
        yield slots
