"""Inputs that no task produces: they must be in the set's folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vgrads.vgrid.catalog import Catalog
from vgrads.workflows.sets import WorkflowSet


def find_missing_inputs(workflow_set: WorkflowSet) -> Iterator[tuple[str, str, str]]:
    """Return workflow, task and name of each input that no task of its workflow produces and that
    is not in the set's folder."""
    here, there = Path(workflow_set.directory), dict[str, bool]()
    for workflow in workflow_set.workflows:
        outputs = {name for task in workflow.tasks.values() for name in task.outputs}
        for task in workflow.tasks.values():
            for name in task.inputs:
                if name not in outputs and name not in there:
                    there[name] = (here / name).exists()
                if name not in outputs and not there[name]:
                    yield workflow.name, task.id, name


def describe_doubts(workflow_set: WorkflowSet, catalog: Catalog) -> tuple[str, ...]:
    """Return warnings before such tasks run: they will fail unless the file is created before."""
    if workflow_set.released or all(site.driver == "simulated" for site in catalog.sites):
        return ()
    readers: dict[str, str] = {}
    for workflow, task, name in find_missing_inputs(workflow_set):
        readers.setdefault(name, f"{workflow}/{task}")
    if not readers:
        return ()
    name, reader = next(iter(readers.items()))
    more = f", as are {len(readers) - 1} more inputs" if len(readers) > 1 else ""
    return (
        (
            f"{reader} reads '{name}', which no task writes and which is missing in the folder of "
            f"the set{more}: the task will fail"
        ),
    )
