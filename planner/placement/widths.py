"""Width of tasks that need further resources than processors: units of resources are shared in
proportion to processors.

On a node with P processors and G units, a task that needs g units also occupies the same share of
the processors. So a slot that never assigns more processors than it has never assigns more units
either; no other rule is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vgrads.vgrid.catalog import Catalog, NodeType, Site
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

_Kind = tuple[Site, NodeType]


def widen(workflow_set: WorkflowSet, catalog: Catalog) -> WorkflowSet:
    """Return the set with task widths adjusted to their resources; ``threads`` keeps the requested
    number."""
    kinds = [(site, node) for site in catalog.sites for node in site.nodes if node.resources]
    by_tasks: dict[int, Workflow] = {}  # equal workflows share their tasks
    results = []
    for workflow in workflow_set.workflows:
        shape = by_tasks.get(id(workflow.tasks))
        if shape is None:
            shape = by_tasks[id(workflow.tasks)] = _widen_workflow(workflow, kinds)
        results.append(shape if shape.name == workflow.name else shape.renamed(workflow.name))
    same = all(new is old for new, old in zip(results, workflow_set.workflows, strict=True))
    return workflow_set if same else replace(workflow_set, workflows=tuple(results))


def _widen_workflow(workflow: Workflow, kinds: Iterable[_Kind]) -> Workflow:
    if not any(task.resources for task in workflow.tasks.values()):
        return workflow
    tasks = {i: _choose_width(task, kinds) for i, task in workflow.tasks.items()}
    return replace(workflow, tasks=tasks)


def _choose_width(task: Task, kinds: Iterable[_Kind]) -> Task:
    """Return the task with the width at which most such tasks can run at once, over all kinds of
    nodes with the needed resources."""
    if not task.resources:
        return task
    threads = task.threads or task.procs
    widths = [
        (width, site.procs)
        for site, node in kinds
        if (width := _count_occupied(task, threads, node))
    ]
    fitting = [width for width, most in widths if width <= most]
    if not fitting:
        return task

    def at_once(width: int) -> int:
        return sum(most // width for least, most in widths if least <= width)

    # max returns the first of equals: the narrowest
    best = max(sorted(set(fitting)), key=at_once)
    return replace(task, procs=best, threads=threads)


def _count_occupied(task: Task, threads: int, node: NodeType) -> int:
    """Return the processors of such a node that a task occupies; 0 if the node lacks a resource."""
    units = dict(node.resources)
    if any(not units.get(name) for name, _ in task.resources):
        return 0
    # the quotient rounded up, in whole numbers
    return max(threads, *(-(-count * node.cores // units[name]) for name, count in task.resources))
