"""The graph of one workflow of a set, with the states of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import Query
from starlette.exceptions import HTTPException

from vgrads.kernel.errors import InputError
from vgrads.portal.records.sets import Head
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.service import Service
from vgrads.portal.web.sets.task_table import ListedTask, task_rows

if TYPE_CHECKING:
    from vgrads.workflows.sets import WorkflowSet

Json = dict[str, Any]
Parents = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Workflow → task → its parents."""
WorkflowName = Annotated[str, Query(max_length=200)]
_MOST_NAMES = 200  # workflows to choose from
_ATTENTION = ("failed", "running")
_STARTED = ("running", "done", "failed")


def graph_parts(
    service: Service, head: Head, run: RunRow | None, chart: Json | None, workflow: str = ""
) -> Json:
    """Return the values of the graph's template; of a set without a stored plan, no graph. ``run``:
    the newest of the set; ``chart``: its chart, None without a plan."""
    from vgrads.portal.charts.task_graph import render_graph

    parents = _list_parents(service, head, run)
    if not parents or chart is None:
        return {"graph": "", "workflow": "", "workflow_names": []}
    if workflow and workflow not in parents:
        raise HTTPException(404, f"no workflow '{workflow}' in set '{head.id}'")
    rows = task_rows(chart["placements"], ())
    chosen = workflow or _choose_workflow(rows, parents)
    states = {row.task: row.state for row in rows if row.workflow == chosen}
    # tasks that were done before this plan have no placement in it
    states |= {d["task"]: "done" for d in chart.get("done", ()) if d["workflow"] == chosen}
    base = f"/sets/{head.id}/tasks/{quote(chosen, safe='')}"
    links = {
        row.task: f"{base}/{quote(row.task, safe='')}"
        for row in rows
        if row.workflow == chosen and row.state in _STARTED
    }
    names = list(parents)[:_MOST_NAMES]
    return {
        "graph": render_graph(f"Tasks of {chosen}", parents[chosen], states, links),
        "workflow": chosen,
        # the chosen one is listed even beyond the limit
        "workflow_names": names if chosen in names else [chosen, *names],
    }


def _choose_workflow(rows: list[ListedTask], parents: Parents) -> str:
    """Return the workflow that needs attention; where none does, the first one."""
    for state in _ATTENTION:
        for row in rows:
            if row.state == state and row.workflow in parents:
                return row.workflow
    return next(iter(parents))


def _list_parents(service: Service, head: Head, run: RunRow | None) -> Parents:
    folded = service.live.folded(run.id) if run is not None else None
    if folded is not None:
        return _list_edges(folded[0].snapshot.workflow_set)
    return _list_planned_edges(service, head.id, head.revision) if head.revision else {}


@lru_cache(maxsize=8)
def _list_planned_edges(service: Service, set_id: str, revision: int) -> Parents:
    """Return the edges of a stored plan; ``revision`` changes with it."""
    del revision
    try:
        archived = service.sets.archived(set_id)
    except InputError:  # written by another version of vgrads
        archived = None
    return _list_edges(archived[1].workflow_set) if archived is not None else {}


def _list_edges(workflow_set: WorkflowSet) -> Parents:
    return {
        workflow.name: {
            name: tuple(p for p in task.parents if p in workflow.tasks)
            for name, task in workflow.tasks.items()
        }
        for workflow in workflow_set.workflows
    }
