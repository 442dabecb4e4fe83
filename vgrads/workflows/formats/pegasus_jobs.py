"""What both formats of Pegasus share: profiles of jobs, and sub-workflows in files of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.workflows.by_files import add_makers
from vgrads.workflows.formats.condor_submit import parse_memory_mib
from vgrads.workflows.formats.nested import put_in_place
from vgrads.workflows.formats.reading import Reading
from vgrads.workflows.task import Task
from vgrads.workflows.task_environment import ErrorRule, TaskEnvironment

_MOST_RETRIES = 100
_LOCAL = "file://"


@dataclass(slots=True)
class JobGraph:
    """Jobs of a document; those that stand for sub-workflows, with the tasks of these."""

    jobs: list[Task] = field(default_factory=list)
    nested: dict[str, Sequence[Task]] = field(default_factory=dict)
    file_mib: dict[str, float] = field(default_factory=dict)

    def put_dag(self, task_id: str, tasks: Sequence[Task]) -> None:
        """Let a job stand for the tasks of a DAGMan file, unless all of these are done."""
        if tasks:
            self.nested[task_id] = tasks

    def put(self, task_id: str, inner: JobGraph, place: str, reading: Reading) -> None:
        """Let a job stand for the jobs of another document; InputError if it has none."""
        self.nested[task_id] = inner.tasks(place, reading)
        if not self.nested[task_id]:
            raise InputError("its sub-workflow has no jobs", where=place)
        self.file_mib |= inner.file_mib

    def tasks(self, where: str, reading: Reading) -> list[Task]:
        """Return all tasks, those of sub-workflows in place of their jobs. Where no dependencies
        are stated at all, they are those of the files."""
        jobs = self.jobs
        if not any(job.parents for job in jobs):
            jobs = add_makers(jobs)
            edges = sum(len(job.parents) for job in jobs)
            if edges:
                reading.count("edge", "are", "derived from files", edges)
        return put_in_place(jobs, self.nested, where, reading)


def find_file(name: str, folder: Path, replicas: Mapping[str, Sequence[str]]) -> Path:
    """Return the place of a file by its logical name: next to the document, otherwise the first of
    its replicas that is here."""
    near = folder / name
    if near.exists():
        return near
    paths = [Path(pfn.removeprefix(_LOCAL)) for pfn in replicas.get(name, ())]
    return next((path for path in paths if path.is_absolute() and path.is_file()), near)


def read_profiles(profiles: Mapping[str, Any], place: str, reading: Reading) -> dict[str, Any]:
    """Return the fields of a task that the profiles of its job state: processors, memory, retries,
    run time."""
    pegasus, condor, dagman = (
        {str(key).lower(): value for key, value in (profiles.get(space) or {}).items()}
        for space in ("pegasus", "condor", "dagman")
    )
    fields: dict[str, Any] = {}
    cores = pegasus.get("cores", condor.get("request_cpus"))
    if cores is not None:
        fields["procs"] = int(parse_number(cores, f"{place}: cores"))
    memory = pegasus.get("memory", condor.get("request_memory"))
    if memory is not None:
        fields["memory_mib"] = parse_memory_mib(str(memory))
        if fields["memory_mib"] is None:
            raise InputError(f"'{memory}' is no amount of memory", where=place)
    if pegasus.get("runtime") is not None:
        fields["runtime_s"] = parse_number(pegasus["runtime"], f"{place}: runtime")
    retries = dagman.get("retry")
    if retries is not None and int(parse_number(retries, f"{place}: retry")):
        rule = ErrorRule(retries=min(_MOST_RETRIES, int(parse_number(retries, place))))
        fields["environment"] = TaskEnvironment(errors=(rule,))
    for key in ("gpus", "diskspace"):
        if pegasus.get(key):
            reading.list("not honoured", key)
    return fields


def parse_number(value: object, place: str) -> float:
    """Parse a number; InputError names its place."""
    try:
        return float(str(value))
    except ValueError as error:
        raise InputError(f"'{value}' is not a number", where=place) from error
