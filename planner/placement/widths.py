"""How wide tasks are that need more than processors: units of resources are shared out with
processors.

Of a node with P processors and G units, a task that needs g units takes up its share of the
processors as well, so a slot that never gives away more processors than it has never gives away
more units either; no other rule is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vgrads.vgrid.catalog import Catalog, NodeType, Site
from vgrads.workflows.dag import Workflow
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

_Kind = tuple[Site, NodeType]


def widened(wanted: WorkflowSet, catalog: Catalog) -> WorkflowSet:
    """The set with tasks as wide as their resources make them; ``threads`` keeps what each asked
    for."""
    kinds = [(site, node) for site in catalog.sites for node in site.nodes if node.resources]
    known: dict[int, Workflow] = {}  # equal workflows share their tasks
    found = []
    for workflow in wanted.workflows:
        shape = known.get(id(workflow.tasks))
        if shape is None:
            shape = known[id(workflow.tasks)] = _widened(workflow, kinds)
        found.append(shape if shape.name == workflow.name else shape.renamed(workflow.name))
    same = all(new is old for new, old in zip(found, wanted.workflows, strict=True))
    return wanted if same else replace(wanted, workflows=tuple(found))


def _widened(workflow: Workflow, kinds: Iterable[_Kind]) -> Workflow:
    if not any(task.resources for task in workflow.tasks.values()):
        return workflow
    tasks = {i: _wide(task, kinds) for i, task in workflow.tasks.items()}
    return replace(workflow, tasks=tasks)


def _wide(task: Task, kinds: Iterable[_Kind]) -> Task:
    """The width at which most of a task's like can run at once, over all kinds of nodes that have
    what it needs."""
    if not task.resources:
        return task
    asked = task.threads or task.procs
    widths = [(width, site.procs) for site, node in kinds if (width := _width(task, asked, node))]
    fitting = [width for width, most in widths if width <= most]
    if not fitting:
        return task

    def at_once(width: int) -> int:
        return sum(most // width for least, most in widths if least <= width)

    best = max(sorted(set(fitting)), key=at_once)
    return replace(task, procs=best, threads=asked)


def _width(task: Task, asked: int, node: NodeType) -> int:
    """Processors of such a node that a task takes up; 0 where the node lacks something."""
    units = dict(node.resources)
    if any(not units.get(name) for name, _ in task.resources):
        return 0
    return max(asked, *(-(-count * node.cores // units[name]) for name, count in task.resources))
