"""The REST service: hand over a set, read its plan and its Gantt chart, run it, look at a page.

A set that comes over HTTP may name only workflow files that the service itself ships: a path from
outside opens nothing here.
"""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Response
from fastapi import Path as PathParameter
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from execmgr.acquisitions import acquisitions
from execmgr.outside_engine import OutsideEngine
from kernel.clock import WallClock
from kernel.errors import InputError, VgradsError
from portal.config import embedded_data, home
from portal.execution import RunOptions, run_plan
from portal.gantt_view import render_html
from portal.grid_routes import add_grid_routes
from portal.live_routes import add_live_routes
from portal.operations import Planned, open_grid, plan_set
from portal.pages import index_page
from portal.problems import install_problem_handlers
from portal.run_record import RunRecord
from portal.schema import outcome_json, plan_json, planned_gantt, run_gantt
from portal.tables import SetRow, Store
from portal.wiring import any_real
from vgrid.catalog import Catalog
from workflows.dag import Workflow
from workflows.load import load_workflow
from workflows.runtimes import Runtimes
from workflows.sets import SetDocument, build_set

SetId = Annotated[str, PathParameter(pattern=r"^set-[0-9a-f]{10}$")]
_MOST_TASKS = 5_000  # planned while the caller waits: some ten seconds


class Service:
    """What the endpoints share: the store, the sites, the grid learned from their histories."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self.store, self.catalog = store, catalog
        self._lock = threading.Lock()  # one simulated run at a time
        self._outside: dict[str, OutsideEngine] = {}

    def plan(self, document: SetDocument) -> Planned:
        """Plan a document against the service's sites."""
        wanted = build_set(document, _shipped_workflow, "body", directory=str(home()))
        if sum(len(w.tasks) for w in wanted.workflows) > _MOST_TASKS:
            raise InputError(f"more than {_MOST_TASKS} tasks", where="workflows")
        return plan_set(wanted, open_grid(self.catalog, seen=self.store.acquisitions()))

    def submit(self, document: SetDocument) -> str:
        """Plan a set and keep it; returns its id."""
        planned = self.plan(document)
        return self.store.add_set(
            planned.wanted.name,
            document.model_dump(mode="json"),
            plan_json(planned.plan),
            planned_gantt(planned),
        )

    def start(self, row: SetRow, outside: bool) -> str:
        """Run a set in the background, in virtual time or by an outside engine; returns the id of the run."""
        document = SetDocument.model_validate(json.loads(row.document))
        planned = self.plan(document)
        if not outside and any_real(self.catalog, planned.plan):
            raise InputError(
                "the service runs tasks on simulated sites only, so far", where="sites",
                fix="run them yourself: engine=outside",
            )  # fmt: skip
        if not planned.plan.feasible:
            raise HTTPException(409, planned.plan.lacking)
        run_id = self.store.add_run(row.id)
        if outside:
            self._outside[run_id] = OutsideEngine(WallClock())
        threading.Thread(target=self._run, args=(planned, run_id), daemon=True).start()
        return run_id

    def outside(self, run_id: str) -> OutsideEngine | None:
        """The engine through which somebody outside runs a run's tasks; None where nobody does."""
        return self._outside.get(run_id)

    def _run(self, planned: Planned, run_id: str) -> None:
        outside = self._outside.get(run_id)
        options = RunOptions(run_id=run_id, folder=home() / "runs" / run_id)
        record = RunRecord(self.store.engine, run_id)
        try:
            record.take()
            with nullcontext() if outside else self._lock:
                outcome = run_plan(planned, options, record, outside=outside)
        except VgradsError as error:
            self.store.end_run(run_id, "failed", {"reason": str(error)}, planned_gantt(planned))
            return
        finally:
            record.leave()
            self._outside.pop(run_id, None)
        self.store.add_acquisitions(run_id, acquisitions(outcome.book, outcome.state))
        self.store.end_run(run_id, outcome.verdict, outcome_json(outcome), run_gantt(outcome))


def _shipped_workflow(file: str, runtimes: Runtimes) -> Workflow:
    names = sorted(p.name for p in embedded_data().glob("*.json"))
    if file not in names:
        raise InputError(
            f"'{file}' is not served here", where="workflows.file", fix=f"known: {', '.join(names)}"
        )
    return load_workflow(embedded_data() / file, runtimes)


def make_app(store: Store, catalog: Catalog) -> FastAPI:
    """The application over a store and a catalogue."""
    app = FastAPI(
        title="vgrads",
        version="0.1.0",
        description="Promise a deadline on machines you do not own.",
    )
    service = Service(store, catalog)
    install_problem_handlers(app)
    _add_set_routes(app, service)
    add_grid_routes(app, service.store, lambda: service.catalog)
    add_live_routes(app, service)
    _add_page_routes(app, service)
    return app


def _row(service: Service, set_id: str) -> SetRow:
    row = service.store.get_set(set_id)
    if row is None:
        raise HTTPException(404, f"no workflow set '{set_id}'")
    return row


def _gantt(service: Service, row: SetRow) -> Any:
    """The chart of the newest run that has one, else of the plan."""
    runs = [run for run in service.store.list_runs(row.id) if run.gantt != "{}"]
    return json.loads(runs[0].gantt if runs else row.gantt)


def _add_set_routes(app: FastAPI, service: Service) -> None:
    @app.post("/v1/workflow-sets", status_code=201)
    def submit(document: SetDocument, response: Response) -> dict[str, Any]:
        """Hand over a workflow set; it is planned at once."""
        set_id = service.submit(document)
        response.headers["Location"] = f"/v1/workflow-sets/{set_id}"
        return {"id": set_id, "name": document.name, "plan": f"/v1/workflow-sets/{set_id}/plan"}

    @app.get("/v1/workflow-sets")
    def list_sets() -> list[dict[str, Any]]:
        """All sets, newest first."""
        return [_summary(service, row) for row in service.store.list_sets()]

    @app.get("/v1/workflow-sets/{set_id}")
    def read_set(set_id: SetId) -> dict[str, Any]:
        """A set as it was handed over, and its runs."""
        row = _row(service, set_id)
        return _summary(service, row) | {"document": json.loads(row.document)}

    @app.get("/v1/workflow-sets/{set_id}/plan")
    def read_plan(set_id: SetId) -> JSONResponse:
        """The plan: the same document as ``vgrads plan --json``."""
        return JSONResponse(json.loads(_row(service, set_id).plan))

    @app.get("/v1/workflow-sets/{set_id}/gantt")
    def read_gantt(set_id: SetId) -> JSONResponse:
        """The Gantt query: slots and placements, planned and, after a run, actual."""
        return JSONResponse(_gantt(service, _row(service, set_id)))

    @app.post("/v1/workflow-sets/{set_id}/run", status_code=202)
    def run_set(set_id: SetId, engine: Literal["vgrads", "outside"] = "vgrads") -> dict[str, Any]:
        """Run the set; it goes on in the background. ``engine=outside``: the caller runs the tasks (turns, ends)."""
        return {"run": service.start(_row(service, set_id), engine == "outside")}


def _summary(service: Service, row: SetRow) -> dict[str, Any]:
    runs = [
        {
            "id": run.id,
            "state": run.state,
            "started": run.started.isoformat(),
            "outcome": json.loads(run.outcome),
        }
        for run in service.store.list_runs(row.id)
    ]
    plan = json.loads(row.plan)
    return {
        "id": row.id, "name": row.name, "created": row.created.isoformat(), "needed": plan["needed"],
        "deadline_s": plan["deadline_s"], "feasible": plan["feasible"], "promise": plan["promise"], "runs": runs,
    }  # fmt: skip


def _add_page_routes(app: FastAPI, service: Service) -> None:
    @app.get("/healthz")
    def healthz() -> dict[str, str]:
        """Is the service there, and its database?"""
        service.store.ready()
        return {"status": "ok"}

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def index() -> str:
        return index_page([_summary(service, row) for row in service.store.list_sets()])

    @app.get("/sets/{set_id}", response_class=HTMLResponse, include_in_schema=False)
    def page(set_id: SetId) -> str:
        row = _row(service, set_id)
        return render_html(_gantt(service, row), _sentence(service, row))


def _sentence(service: Service, row: SetRow) -> str:
    runs = service.store.list_runs(row.id)
    if not runs:
        return "Planned, not run yet."
    outcome = json.loads(runs[0].outcome)
    if "in_time" not in outcome:
        return f"The run is {runs[0].state}."
    return f"Promise {runs[0].state}: {outcome['in_time']} workflows were done in time, {outcome['needed']} were needed."
