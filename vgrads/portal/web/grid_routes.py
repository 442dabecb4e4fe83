"""REST: sites with their queues, and virtual grids on request."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from fastapi import Body, FastAPI, HTTPException, Query, Response
from fastapi import Path as PathParameter
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from vgrads.kernel.errors import InputError
from vgrads.operations.questions import (
    NOT_QUERIED,
    BoundOptions,
    BoundQuestion,
    ProbabilityOptions,
    ProbabilityQuestion,
    TrajectoryOptions,
    TrajectoryQuestion,
)
from vgrads.portal.records.access import Principal
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import GridRow
from vgrads.portal.web.answers import answers, list_of
from vgrads.portal.web.embedding.forecast_access import (
    public_answer,
    refuse_details,
    refuse_missing_queue,
)
from vgrads.portal.web.forecasts.recording import record
from vgrads.portal.web.guard import Forecaster, Reader, Submitter
from vgrads.portal.web.paging import ShortPage
from vgrads.portal.web.request_models import query_model
from vgrads.portal.web.service import Service
from vgrads.vgrid.catalog import Catalog
from vgrads.vgrid.request import RequestDocument, parse_request_document

Json = dict[str, Any]
GridId = Annotated[str, PathParameter(pattern=r"^grid-[0-9a-f]{10}$")]
if TYPE_CHECKING:  # the models are made of the questions
    BoundFields: TypeAlias = Any
    ProbabilityFields: TypeAlias = Any
    TrajectoryFields: TypeAlias = Any
else:
    BoundFields = Annotated[query_model(BoundOptions, NOT_QUERIED), Query()]
    ProbabilityFields = Annotated[query_model(ProbabilityOptions, NOT_QUERIED), Query()]
    TrajectoryFields = Annotated[query_model(TrajectoryOptions, NOT_QUERIED), Query()]
_EXAMPLE = {
    "name": "storm",
    "duration": "2h",
    "deadline": "6h",
    "groups": [{"name": "solvers", "coupling": "tight", "nodes": 16}],
}


def add_grid_routes(app: FastAPI, service: Service) -> None:
    """Add the routes of sites, queues and virtual grids."""
    _add_list_route(app, service.store, lambda: service.catalog)
    _add_question_routes(app, service)
    _add_request_routes(app, service.store, lambda: service.catalog)


def _add_request_routes(app: FastAPI, store: Store, catalog: Callable[[], Catalog]) -> None:
    @app.post(
        "/v1/virtual-grids",
        status_code=201,
        **answers(
            "grids.VirtualGrid",
            operation="request_virtual_grid",
            tag="virtual grids",
            errors=(409, 503),
        ),
    )
    def ask(
        document: Annotated[RequestDocument, Body(examples=[_EXAMPLE])],
        response: Response,
        who: Submitter,
    ) -> dict[str, Any]:
        """Query the available nodes for this request. Answers as ``vgrads sites offers --json``."""
        # imported late: the service starts without planning and forecasts
        from vgrads.api.plans.planning import open_grid
        from vgrads.api.queues.offers import offer_gantt, offer_json
        from vgrads.vgrid.procure import procure

        request = parse_request_document(document.model_dump(), "body")
        grid = open_grid(catalog(), observed=store.acquisitions())
        offer = procure(grid.catalog, grid.knowledge, request)
        answer = offer_json(offer)
        grid_id = store.add_grid(request.name, answer, offer_gantt(offer), who.user)
        response.headers["Location"] = f"/v1/virtual-grids/{grid_id}"
        return {"id": grid_id, **answer}

    @app.get(
        "/v1/virtual-grids/{grid_id}",
        **answers(
            "grids.VirtualGrid", operation="read_virtual_grid", tag="virtual grids", errors=(404,)
        ),
    )
    def read(grid_id: GridId, who: Reader) -> JSONResponse:
        """Read a stored offer."""
        return JSONResponse({"id": grid_id, **json.loads(_find_grid(store, grid_id, who).offer)})

    @app.get(
        "/v1/virtual-grids/{grid_id}/gantt",
        **answers(
            "grids.GridChart",
            operation="read_virtual_grid_chart",
            tag="virtual grids",
            errors=(404,),
        ),
    )
    def gantt(grid_id: GridId, who: Reader) -> JSONResponse:
        """Read the Gantt chart of an offer."""
        return JSONResponse(json.loads(_find_grid(store, grid_id, who).gantt))


def _find_grid(store: Store, grid_id: str, who: Principal) -> GridRow:
    row = store.get_grid(grid_id)
    if row is None or not (who.operator or row.owner == who.user):
        raise HTTPException(404, f"no virtual grid '{grid_id}'")
    return row


def _add_list_route(app: FastAPI, store: Store, catalog: Callable[[], Catalog]) -> None:
    @app.get(
        "/v1/sites",
        **answers(list_of("sites.SiteDescription"), operation="list_sites", tag="sites"),
    )
    def sites(_: Reader, paging: ShortPage) -> list[dict[str, Any]]:
        """List all sites with their queues, prices, and the observations of runs."""
        # imported late, as for offers
        from vgrads.api.queues import sites as site_rows

        present = catalog()
        page = paging.page_of_all(present.sites, lambda site: site.name)
        rows = site_rows.describe(replace(present, sites=tuple(page)), store.acquisitions())
        return [_hide_paths(row) for row in rows]


def _add_question_routes(app: FastAPI, service: Service) -> None:
    """Add a route for each question about one queue, with the fields of its operation."""

    @app.get(
        "/v1/sites/{site}/queues/{queue}/bound",
        **answers(
            "forecasts.WaitBound", operation="read_wait_bound", tag="forecasts", errors=(404, 503)
        ),
    )
    def bound(site: str, queue: str, who: Forecaster, fields: BoundFields) -> Json:
        """Query an upper bound on a job's wait, as ``vgrads bound --json``."""
        refuse_details(who, fields.probability, fields.confidence, fields.explain)
        return _answer(
            service, who, "ask_bound", BoundQuestion(**_make_reference(site, queue, fields))
        )

    @app.get(
        "/v1/sites/{site}/queues/{queue}/probability",
        **answers(
            "forecasts.StartProbability",
            operation="read_start_probability",
            tag="forecasts",
            errors=(404, 503),
        ),
    )
    def probability(site: str, queue: str, who: Forecaster, fields: ProbabilityFields) -> Json:
        """Query the probability that a job starts within a time, as ``vgrads probability
        --json``."""
        refuse_details(who, None, fields.confidence)
        question = ProbabilityQuestion(**_make_reference(site, queue, fields))
        return _answer(service, who, "ask_probability", question)

    @app.get(
        "/v1/sites/{site}/queues/{queue}/trajectory",
        **answers(
            "forecasts.SubmissionTrajectory",
            operation="read_submission_trajectory",
            tag="forecasts",
            errors=(404, 503),
        ),
    )
    def path(site: str, queue: str, who: Forecaster, fields: TrajectoryFields) -> Json:
        """Query when a job must be submitted to run by a given time, as ``vgrads trajectory
        --json``."""
        question = TrajectoryQuestion(**_make_reference(site, queue, fields))
        return _answer(service, who, "ask_trajectory", question)


def _make_reference(site: str, queue: str, fields: BaseModel) -> Json:
    return {"site": site, "queue": queue, **fields.model_dump()}


def _answer(
    service: Service,
    who: Principal,
    operation: str,
    question: BoundQuestion | ProbabilityQuestion | TrajectoryQuestion,
) -> Json:
    """Return the answer of an operation as far as the user may read it, and record it; 404 where
    there is no such queue or no history."""
    # imported late: the service starts without forecasts
    from vgrads.operations import forecasts

    refuse_missing_queue(who, question.site, question.queue)
    try:
        answer = getattr(forecasts, operation)(question, service.queues.context(owner=who.user))
    except InputError as error:
        if error.where in ("site", "queue"):
            raise HTTPException(404, error.what) from error
        raise
    record(service, who, [answer.issued])
    return public_answer(who, answer.as_json())


def _hide_paths(row: dict[str, Any]) -> dict[str, Any]:
    """Return a site's row without the paths of its files, which are internal."""
    queues = []
    for queue in row["queues"]:
        history = queue["history"]
        stored = None if history is None else {k: v for k, v in history.items() if k != "file"}
        queues.append(queue | {"history": stored})
    return row | {"queues": queues}
