"""The nodes of HTCondor DAGMan files as tasks, with what their submit descriptions say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path, PurePath

from vgrads.workflows.formats.condor_submit import (
    SubmitDescription,
    count_jobs,
    parse_submit,
    read_job,
)
from vgrads.workflows.formats.reading import Reading
from vgrads.workflows.runtimes import Runtimes, find_runtime
from vgrads.workflows.task import Task
from vgrads.workflows.task_environment import PLAIN, TaskEnvironment


@dataclass(slots=True)
class DagNode:
    """A node that is run, by its whole name."""

    name: str
    own: str
    place: str
    folder: Path
    submit: str = ""
    description: SubmitDescription | None = None
    noop: bool = False
    done: bool = False
    environment: TaskEnvironment = PLAIN
    before: dict[str, str] | None = None
    after: dict[str, str] | None = None
    parents: dict[str, None] = field(default_factory=dict)


class NodeTasks:
    """Makes tasks of nodes; each submit file is read once."""

    def __init__(self, runtimes: Runtimes, reading: Reading) -> None:
        self._runtimes, self._reading = runtimes, reading
        self._submit: dict[tuple[Path, str], SubmitDescription | None] = {}

    def tasks(self, nodes: Mapping[str, DagNode]) -> Iterator[Task]:
        """Return the tasks: one for each job of each node, in the order of the files."""
        ids: dict[str, Sequence[str]] = {}
        jobs = edges = 0
        for node in nodes.values():
            number = self._number_of_jobs(node)
            jobs += number
            # before any task is made: few lines can describe any number of jobs
            self._reading.limit(jobs, 0, node.place)
            ids[node.name] = (
                (node.name,) if number == 1 else [f"{node.name}.{n}" for n in range(number)]
            )
        missing = sum(description is None for description in self._submit.values())
        if missing:
            self._reading.count("submit file", "are", "missing", missing)
        for node in nodes.values():
            parents = tuple(i for parent in node.parents for i in ids[parent])
            edges += len(parents) * len(ids[node.name])
            self._reading.limit(0, edges, node.place)
            for index, task_id in enumerate(ids[node.name]):
                yield self._task(node, task_id, index, parents)

    def _number_of_jobs(self, node: DagNode) -> int:
        """Return the number of jobs of a node, whose submit file is read, if it can be found."""
        if node.noop:
            return 1
        if node.description is None:
            key = node.folder, node.submit
            if key not in self._submit:
                path = node.folder / node.submit
                self._submit[key] = (
                    parse_submit(self._reading.text(path, node.place), node.submit, str(path))
                    if path.exists()
                    else None
                )
            node.description = self._submit[key]
        description = node.description
        if description is None:
            return 1
        if description.conditional:
            self._reading.list("conditions are not evaluated in", description.name or node.own)
        return count_jobs(description, _list_macros(node, 0) if description.queue else {})

    def _task(self, node: DagNode, task_id: str, index: int, parents: tuple[str, ...]) -> Task:
        if node.noop:
            return Task(id=task_id, runtime_s=0.0, kind="noop", parents=parents, command="true")
        description, stem = node.description, _find_stem(node.submit)
        job = None if description is None else read_job(_list_macros(node, index))
        names = (node.name, node.own, node.submit, stem, job.program if job else "")
        inline = description is not None and not description.name
        task = Task(
            id=task_id,
            runtime_s=find_runtime(self._runtimes, names),
            kind=(job.program if job and inline else "") or stem or node.own,
            parents=parents,
            environment=node.environment,
        )
        if job is None:
            return task
        for name in job.unread:
            self._reading.list("expressions are not evaluated", name)
        return replace(
            task,
            procs=job.procs,
            memory_mib=job.memory_mib,
            command=job.command,
            inputs=job.inputs if node.folder == self._reading.path.parent else (),
        )


@lru_cache
def _find_stem(name: str) -> str:
    return PurePath(name).stem


def _list_macros(node: DagNode, index: int) -> dict[str, str]:
    """Return the values of macros by name in lower case: VARS, except appended ones, yield to the
    submit description."""
    commands = {} if node.description is None else node.description.commands
    of_job = {"job": node.name, "node": node.name, "retry": "0"}
    number = {"process": str(index), "procid": str(index), "step": "0", "row": str(index)}
    return of_job | number | (node.before or {}) | commands | (node.after or {})
