"""REST: sites with their queues, and virtual grids on request."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Body, FastAPI, HTTPException, Query, Response
from fastapi import Path as PathParameter
from fastapi.responses import JSONResponse

from vgrads.kernel.errors import InputError
from vgrads.portal.jobs.learned_states import LearnedStates
from vgrads.portal.records.access import Principal
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import GridRow
from vgrads.portal.web.embedding.forecast_access import (
    public_answer,
    refuse_details,
    refuse_missing_queue,
)
from vgrads.portal.web.forecasts.recording import record_answer
from vgrads.portal.web.guard import Forecaster, Reader, Submitter
from vgrads.portal.web.service import Service
from vgrads.vgrid.catalog import Catalog
from vgrads.vgrid.request import RequestDocument, request_from

if TYPE_CHECKING:
    from vgrads.api.queues import queries
    from vgrads.qbets.predictor import Settings

GridId = Annotated[str, PathParameter(pattern=r"^grid-[0-9a-f]{10}$")]
Procs = Annotated[int, Query(ge=1, le=10**9)]
Seconds = Annotated[float, Query(ge=0, le=1e9, allow_inf_nan=False)]
Share = Annotated[float, Query(gt=0, lt=1)]
How = Literal["state", "qbets", "bmbp"]
_EXAMPLE = {
    "name": "storm",
    "duration": "2h",
    "deadline": "6h",
    "groups": [{"name": "solvers", "coupling": "tight", "nodes": 16}],
}
_LONGEST_TRAJECTORY_S = 31 * 86400.0


def add_grid_routes(app: FastAPI, service: Service) -> None:
    """Add the routes of sites, queues and virtual grids."""
    _add_list_route(app, service.store, lambda: service.catalog)
    _add_bound_route(app, service)
    _add_probability_route(app, service)
    _add_trajectory_route(app, service)
    _add_request_routes(app, service.store, lambda: service.catalog)


def _add_request_routes(app: FastAPI, store: Store, catalog: Callable[[], Catalog]) -> None:
    @app.post("/v1/virtual-grids", status_code=201)
    def ask(
        document: Annotated[RequestDocument, Body(examples=[_EXAMPLE])],
        response: Response,
        who: Submitter,
    ) -> dict[str, Any]:
        """Query the available nodes for this request. Answers as ``vgrads offers --json``."""
        # imported late: the service starts without planning and forecasts
        from vgrads.api.plans.planning import open_grid
        from vgrads.api.queues.offers import offer_gantt, offer_json
        from vgrads.vgrid.procure import procure

        request = request_from(document.model_dump(), "body")
        grid = open_grid(catalog(), observed=store.acquisitions())
        offer = procure(grid.catalog, grid.knowledge, request)
        answer = offer_json(offer)
        grid_id = store.add_grid(request.name, answer, offer_gantt(offer), who.user)
        response.headers["Location"] = f"/v1/virtual-grids/{grid_id}"
        return {"id": grid_id, **answer}

    @app.get("/v1/virtual-grids/{grid_id}")
    def read(grid_id: GridId, who: Reader) -> JSONResponse:
        """Read a stored offer."""
        return JSONResponse({"id": grid_id, **json.loads(_grid(store, grid_id, who).offer)})

    @app.get("/v1/virtual-grids/{grid_id}/gantt")
    def gantt(grid_id: GridId, who: Reader) -> JSONResponse:
        """Read the Gantt chart of an offer."""
        return JSONResponse(json.loads(_grid(store, grid_id, who).gantt))


def _grid(store: Store, grid_id: str, who: Principal) -> GridRow:
    row = store.get_grid(grid_id)
    if row is None or not (who.operator or row.owner == who.user):
        raise HTTPException(404, f"no virtual grid '{grid_id}'")
    return row


def _add_list_route(app: FastAPI, store: Store, catalog: Callable[[], Catalog]) -> None:
    @app.get("/v1/sites")
    def sites(_: Reader) -> list[dict[str, Any]]:
        """List all sites with their queues, prices, and the observations of runs."""
        # imported late, as for offers
        from vgrads.api.queues import sites as site_rows

        rows = site_rows.describe(catalog(), store.acquisitions())
        return [_without_paths(row) for row in rows]


def _add_bound_route(app: FastAPI, service: Service) -> None:
    @app.get("/v1/sites/{site}/queues/{queue}/bound")
    def bound(
        site: str,
        queue: str,
        who: Forecaster,
        procs: Procs = 1,
        walltime_s: Seconds = 3600.0,
        probability: Share = 0.95,
        confidence: Share = 0.95,
        method: How = "state",
        explain: bool = False,
    ) -> dict[str, Any]:
        """Query an upper bound on a job's wait, as ``vgrads bound --json``."""
        # imported late, as for offers
        from vgrads.api.queues import queries
        from vgrads.api.queues.answers import bound_json
        from vgrads.api.queues.issuing import Statement
        from vgrads.qbets.predictor import Settings

        refuse_missing_queue(who, site, queue)
        refuse_details(who, probability, confidence, explain)
        settings = Settings(
            method=method, quantile=probability, confidence=confidence, knows_user=False
        )
        query = query_of(service.catalog, site, queue, settings, service.learned)
        result = query.forecast.bound(procs, walltime_s, probability, confidence)
        stated = Statement(bounds=((probability, result.bound_s),))
        record_answer(service, who, query, (site, queue, procs, walltime_s), stated)
        answer = bound_json(result, query)
        if explain:
            answer["explanation"] = queries.explanation_of(query, procs, walltime_s, probability)
        return public_answer(who, answer)


def _add_probability_route(app: FastAPI, service: Service) -> None:
    @app.get("/v1/sites/{site}/queues/{queue}/probability")
    def probability(
        site: str,
        queue: str,
        who: Forecaster,
        within_s: Seconds,
        procs: Procs = 1,
        walltime_s: Seconds = 3600.0,
        confidence: Share = 0.95,
        method: How = "state",
    ) -> dict[str, Any]:
        """Query the probability that a job starts within a time, as ``vgrads probability
        --json``."""
        # imported late, as for offers
        from vgrads.api.queues.answers import probability_json
        from vgrads.api.queues.issuing import Statement
        from vgrads.qbets.predictor import Settings

        refuse_missing_queue(who, site, queue)
        refuse_details(who, None, confidence)
        settings = Settings(method=method, confidence=confidence, knows_user=False)
        requested = query_of(service.catalog, site, queue, settings, service.learned)
        chance = float(requested.forecast.probability(procs, walltime_s, within_s, confidence))
        stated = Statement(probabilities=((within_s, chance),))
        record_answer(service, who, requested, (site, queue, procs, walltime_s), stated)
        jobs = len(requested.forecast.waits(procs, walltime_s))
        return public_answer(who, probability_json(requested, chance, within_s, jobs))


def _add_trajectory_route(app: FastAPI, service: Service) -> None:
    @app.get("/v1/sites/{site}/queues/{queue}/trajectory")
    def path(
        site: str,
        queue: str,
        who: Forecaster,
        start_by_s: Seconds,
        procs: Procs = 1,
        walltime_s: Seconds = 3600.0,
        probability: Share = 0.9,
        method: How = "state",
    ) -> dict[str, Any]:
        """Query when a job must be submitted to run by a given time, as ``vgrads trajectory
        --json``."""
        # imported late, as for offers
        from vgrads.api.queues import queries
        from vgrads.api.queues.answers import trajectory_json
        from vgrads.api.queues.issuing import Statement
        from vgrads.qbets.predictor import Settings
        from vgrads.vgrid.varq import Reservation

        refuse_missing_queue(who, site, queue)
        if start_by_s > _LONGEST_TRAJECTORY_S:
            raise InputError("is more than a month away", where="start_by_s")
        settings, catalog = Settings(method=method, knows_user=False), service.catalog
        query = query_of(catalog, site, queue, settings, service.learned)
        limit_s = next(q.max_walltime_s for q in catalog.site(site).queues if q.name == queue)
        reservation = Reservation(
            procs=procs,
            walltime_s=walltime_s,
            start_by_s=start_by_s,
            probability=probability,
            max_walltime_s=limit_s,
        )
        result = queries.walk(query, reservation)
        stated = Statement(path=result)
        record_answer(service, who, query, (site, queue, procs, walltime_s), stated)
        return trajectory_json(result)


def query_of(
    catalog: Catalog, site: str, queue: str, settings: Settings, learned_states: LearnedStates
) -> queries.QueueQuery:
    """Return the query of a queue's history, by its state once that is learned; 404 where there is
    no such queue or no history."""
    # imported late, as for offers
    from vgrads.api.queues import queries

    for stage_site in catalog.sites:
        for entry in stage_site.queues:
            if (stage_site.name, entry.name) == (site, queue):
                if entry.history is None:
                    raise HTTPException(404, f"'{site}/{queue}' has no history")
                learned = None
                if settings.looks_at_state:
                    learned = learned_states.find(entry.history, entry.of_log)
                    settings = replace(settings, method="qbets")
                try:
                    return queries.ask_log(entry.history, entry.of_log, settings, learned)
                except InputError as error:  # the path of the file is not for readers
                    raise InputError(
                        f"its history cannot be used: {error.what}", where=f"{site}/{queue}"
                    ) from error
    raise HTTPException(404, f"no queue '{site}/{queue}'")


def _without_paths(row: dict[str, Any]) -> dict[str, Any]:
    """Return a site's row without the paths of its files, which are internal."""
    queues = []
    for queue in row["queues"]:
        history = queue["history"]
        stored = None if history is None else {k: v for k, v in history.items() if k != "file"}
        queues.append(queue | {"history": stored})
    return row | {"queues": queues}
