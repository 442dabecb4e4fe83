"""Inputs that no task makes: they must lie beside the set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vgrads.vgrid.catalog import Catalog
from vgrads.workflows.sets import WorkflowSet


def not_there(wanted: WorkflowSet) -> Iterator[tuple[str, str, str]]:
    """Workflow, task and name of each input that no task of its workflow makes and that is not
    beside the set."""
    here, there = Path(wanted.directory), dict[str, bool]()
    for workflow in wanted.workflows:
        made = {name for task in workflow.tasks.values() for name in task.outputs}
        for task in workflow.tasks.values():
            for name in task.inputs:
                if name not in made and name not in there:
                    there[name] = (here / name).exists()
                if name not in made and not there[name]:
                    yield workflow.name, task.id, name


def doubts(wanted: WorkflowSet, catalog: Catalog) -> tuple[str, ...]:
    """What is to be said before such tasks run: they will fail, unless a file appears until
    then."""
    if wanted.released or all(site.driver == "simulated" for site in catalog.sites):
        return ()
    readers: dict[str, str] = {}
    for workflow, task, name in not_there(wanted):
        readers.setdefault(name, f"{workflow}/{task}")
    if not readers:
        return ()
    name, reader = next(iter(readers.items()))
    more = f", as are {len(readers) - 1} more inputs" if len(readers) > 1 else ""
    return (
        (
            f"{reader} reads '{name}', which no task makes and which is missing beside the "
            f"set{more}: the task will fail"
        ),
    )
