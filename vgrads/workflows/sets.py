"""Workflow sets: several workflows, a deadline, and how many of them must be done by then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from vgrads.kernel.deadline import as_written, parse_deadline
from vgrads.kernel.documents import (
    Count,
    Document,
    NotNegative,
    Seconds,
    Variable,
    as_value_error,
)
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, needed_of, parse_fraction
from vgrads.workflows.alarm_rules import USUAL_RULES, AlarmDocuments, AlarmRule, read_rules
from vgrads.workflows.by_files import add_makers, refuse_two_makers
from vgrads.workflows.dag import Workflow, make_safe_name, make_workflow
from vgrads.workflows.remote import FetchDocument, SendDocument
from vgrads.workflows.spread import RuntimeSpread
from vgrads.workflows.task import UNSTATED, Task
from vgrads.workflows.task_environment import PLAIN, TaskEnvironment
from vgrads.workflows.task_environment_document import FIELDS, TaskEnvironmentDocument

MAX_WORKFLOWS = 100_000
MAX_TASKS = 200_000
"""Twice the largest set for which planning is measured (``benchmarks/bench_planner.py``)."""


_Resource = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=100)]
_Units = Annotated[int, Field(ge=0, le=1_000_000)]
_Deviation = Annotated[float, Field(ge=0, le=5)]


WhenLost = Literal["stop_paying", "continue", "stop"]
"""What a run does once its promise cannot be met any more: it releases paid slots at the end of the
billing unit that has begun, and goes on in free ones; goes on in all; or stops."""


class SpreadDocument(Document):
    """Uncertainty of a run time: standard deviations of its logarithm, by the tasks that share the
    error."""

    own: _Deviation = 0.0
    kind: _Deviation = 0.0
    workflow: _Deviation = 0.0
    site: _Deviation = 0.0


class TaskDocument(TaskEnvironmentDocument):
    """One inline task."""

    id: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f/]+$")]
    runtime_s: Seconds | None = None
    kind: Annotated[str, Field(max_length=200)] = ""
    spread: SpreadDocument | None = None
    procs: Count = 1
    parents: tuple[str, ...] = ()
    command: str = ""
    inputs: tuple[str | FetchDocument, ...] = ()
    outputs: tuple[str | SendDocument, ...] = ()
    memory_mib: NotNegative = 0.0
    resources: Mapping[_Resource, _Units] = {}


class WorkflowDocument(TaskEnvironmentDocument):
    """A workflow of the set: a ``file``, or inline ``tasks``; ``count`` equal ones. Of the kind
    ``bag``: the ``file`` of a bag, or its fields in ``bag``.

    ``inputs``: a file or folder that belongs to ``file``, see
    :func:`vgrads.workflows.formats.load.load_workflow`; ``targets`` and ``config``: of a Snakefile,
    as on Snakemake's command line; ``notes``: notes of its plan, in addition
    to those of its file.
    """

    kind: Literal["workflow", "bag"] = "workflow"
    name: Annotated[str, Field(max_length=200)] = ""
    count: Annotated[int, Field(ge=1, le=MAX_WORKFLOWS)] = 1
    bag: Mapping[str, Any] | None = None
    file: str | None = None
    inputs: str | None = None
    targets: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    tasks: tuple[TaskDocument, ...] = ()
    runtimes: Mapping[str, Seconds] = {}
    file_mib: Mapping[str, NotNegative] = {}
    notes: tuple[Annotated[str, Field(max_length=1000)], ...] = ()

    @model_validator(mode="after")
    def _check_source(self) -> WorkflowDocument:
        inline = "tasks" if self.kind == "workflow" else "bag"
        if self.kind == "workflow" and self.bag is not None:
            raise ValueError("'bag' needs 'kind: bag'")
        if (self.file is None) == (not getattr(self, inline)):
            raise ValueError(f"give either 'file' or '{inline}'")
        if self.file is None and not self.name and not (self.bag or {}).get("name"):
            raise ValueError("an inline workflow needs a 'name'")
        of_files = ("inputs", "targets", "config")
        if self.kind == "bag":
            for name in ("tasks", "runtimes", "file_mib", *of_files):
                if getattr(self, name):
                    raise ValueError(f"'{name}' is not a field of a bag")
        elif self.file is None:
            for name in of_files:
                if getattr(self, name):
                    raise ValueError(f"'{name}' needs a 'file'")
        return self


class SetDocument(TaskEnvironmentDocument):
    """A workflow set as users and portals write it (``docs/sets.md`` has an example)."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    deadline: str | float | datetime
    fraction: str | float | None = None
    at_least: Count | None = None
    probability: float = 0.9
    runtime_spread: Annotated[float, Field(ge=0, le=2)] = 0.0
    budget_usd: NotNegative | None = None
    workflows: Annotated[tuple[WorkflowDocument, ...], Field(min_length=1)]
    released: bool = False
    when_lost: WhenLost = "stop_paying"
    pass_env: Annotated[tuple[Variable, ...], Field(max_length=100)] = ()
    alarms: AlarmDocuments | None = None
    sites: str | None = None

    @field_validator("fraction")
    @classmethod
    def _fraction(cls, value: str | float | None) -> float | None:
        return None if value is None else as_value_error(lambda: parse_fraction(value, ""))

    @field_validator("probability")
    @classmethod
    def _probability(cls, value: float) -> float:
        if not 0 < value < 1:
            raise ValueError(f"{value} is outside (0, 1)")
        return value

    @model_validator(mode="after")
    def _check_requirement(self) -> SetDocument:
        if self.fraction is not None and self.at_least is not None:
            raise ValueError("give 'fraction' or 'at_least', not both")
        return self


@dataclass(frozen=True, kw_only=True)
class WorkflowSet:
    """A request: at least ``needed`` of ``workflows`` done ``deadline_s`` after submission.

    ``runtime_spread`` is the standard deviation of the logarithm of run times of tasks without a
    spread: the stated run time is their median. ``env`` is added to the environment of all tasks,
    ``pass_env`` names variables of the caller that are passed to them; other settings of a set are
    stored with each task. ``when_lost``: what is done once the promise cannot be met any more.
    ``released``: tasks start only when the program that submitted the set
    releases them, with their commands; one replica of each. ``deadline_text``: the deadline as
    stated. ``alarms``: rules of messages; None: none are stated.
    """

    name: str
    workflows: tuple[Workflow, ...]
    deadline_s: float
    needed: int
    probability: float = 0.9
    runtime_spread: float = 0.0
    budget_usd: float | None = None
    directory: str = "."
    env: Mapping[str, str] = field(default_factory=dict)
    released: bool = False
    when_lost: WhenLost = "stop_paying"
    pass_env: tuple[str, ...] = ()
    deadline_text: str = ""
    alarms: tuple[AlarmRule, ...] | None = None

    @property
    def most_usd(self) -> float:
        """The budget; ``inf`` if there is none."""
        return float("inf") if self.budget_usd is None else self.budget_usd

    @property
    def alarm_rules(self) -> tuple[AlarmRule, ...]:
        """The rules of messages, the usual one where none are stated."""
        return USUAL_RULES if self.alarms is None else self.alarms

    @property
    def width(self) -> int:
        """Cores of the widest task."""
        return max(workflow.width for workflow in self.workflows)

    def spread(self, task: Task) -> RuntimeSpread:
        """Return the uncertainty of a task's run time."""
        return self._everywhere if task.spread is None else task.spread

    @cached_property
    def _everywhere(self) -> RuntimeSpread:
        return RuntimeSpread(own=self.runtime_spread)

    @cached_property
    def task_count(self) -> int:
        """Number of tasks of all workflows."""
        return sum(len(workflow.tasks) for workflow in self.workflows)

    @cached_property
    def uncertain(self) -> bool:
        """True if any task may take longer than its median."""
        # equal workflows share their tasks: each is examined once
        shapes = {id(w.tasks): w.tasks for w in self.workflows}.values()
        return any(self.spread(task).total > 0 for tasks in shapes for task in tasks.values())

    def workflow(self, name: str) -> Workflow:
        """Return one workflow by name; KeyError if there is none."""
        return next(w for w in self.workflows if w.name == name)


EntryLoader = Callable[[WorkflowDocument], Workflow]
"""Reads the file that an entry of a set names, or its bag."""


def build_set(
    document: SetDocument,
    load_entry: EntryLoader,
    where: str,
    now: datetime | None = None,
    directory: str = ".",
) -> WorkflowSet:
    """Return the value of a document; ``load_entry`` opens the workflow files and bags that
    it names."""
    # before files are read, which may take long
    deadline_s = parse_deadline(document.deadline, now, f"{where}: deadline")
    workflows = _expand(document, load_entry, where)
    needed = _read_needed(document, len(workflows), where)
    return WorkflowSet(
        name=document.name,
        workflows=workflows,
        deadline_s=deadline_s,
        needed=needed,
        probability=document.probability,
        runtime_spread=document.runtime_spread,
        budget_usd=document.budget_usd,
        directory=directory,
        env=dict(document.env),
        released=document.released,
        when_lost=document.when_lost,
        pass_env=document.pass_env,
        deadline_text=as_written(document.deadline),
        alarms=read_rules(document.alarms),
    )


def _expand(document: SetDocument, load_entry: EntryLoader, where: str) -> tuple[Workflow, ...]:
    workflows: list[Workflow] = []
    general = replace(document.environment, env=())  # the set stores its own
    taken: Counter[str] = Counter()
    tasks = 0
    # before a file is read
    if sum(entry.count for entry in document.workflows) > MAX_WORKFLOWS:
        raise InputError(f"more than {MAX_WORKFLOWS} workflows", where=f"{where}: workflows")
    for position, entry in enumerate(document.workflows):
        workflow = _read_workflow(entry, load_entry, f"{where}: workflows.{position}")
        workflow = _add_environment(workflow, entry.environment.over(general))
        tasks += entry.count * len(workflow.tasks)
        if tasks > MAX_TASKS:
            raise InputError(
                f"more than {MAX_TASKS:,} tasks",
                where=f"{where}: workflows",
                fix="split the set; submit independent tasks as a bag",
            )
        for _ in range(entry.count):
            workflows.append(workflow.renamed(number_name(workflow.name, taken)))
    refuse_shared_targets(workflows, where)
    return tuple(workflows)


def number_name(name: str, taken: Counter[str]) -> str:
    """Return the name in the set of its next workflow that is called ``name``."""
    name = make_safe_name(name)
    taken[name] += 1
    return f"{name}-{taken[name]}"


def _read_workflow(entry: WorkflowDocument, load_entry: EntryLoader, where: str) -> Workflow:
    if entry.file is not None or entry.bag is not None:
        try:
            workflow = load_entry(entry)
        except InputError as error:
            raise error.within(where) from error
        workflow = workflow.noted(*entry.notes)
        return workflow.renamed(make_safe_name(entry.name)) if entry.name else workflow
    tasks = link_files(add_makers(make_task(task) for task in entry.tasks))
    workflow = make_workflow(entry.name, tasks, entry.file_mib, where, entry.notes)
    refuse_two_makers(workflow, where)
    return workflow


def _add_environment(workflow: Workflow, general: TaskEnvironment) -> Workflow:
    """Return the workflow with more general settings added to its tasks."""
    if general == PLAIN:
        return workflow
    tasks = {
        i: replace(task, environment=task.environment.over(general))
        for i, task in workflow.tasks.items()
    }
    return replace(workflow, tasks=tasks)


def make_task(written: TaskDocument) -> Task:
    """Return the task of a document."""
    fields = written.model_dump(exclude={"spread", "resources", "inputs", "outputs", *FIELDS})
    if written.runtime_s is None:
        fields["runtime_s"] = UNSTATED
    spread = None if written.spread is None else RuntimeSpread(**written.spread.model_dump())
    resources = tuple(sorted((name, units) for name, units in written.resources.items() if units))
    for what, elsewhere in (("inputs", "fetches"), ("outputs", "sends")):
        named = getattr(written, what)
        fields[what] = tuple(name for name in named if isinstance(name, str))
        fields[elsewhere] = tuple(item.file for item in named if not isinstance(item, str))
    return Task(**fields, spread=spread, environment=written.environment, resources=resources)


def _read_needed(document: SetDocument, count: int, where: str) -> int:
    if document.at_least is not None:
        if document.at_least > count:
            raise InputError(
                f"is {document.at_least}, but the set has {format_count(count, 'workflow')}",
                where=f"{where}: at_least",
            )
        return document.at_least
    return needed_of(float(document.fraction or 1.0), count)


def link_files(tasks: Iterable[Task]) -> list[Task]:
    """Convert inputs with names of files that other tasks send into fetched files."""
    tasks = list(tasks)
    sent = {file.name: (file, task.id) for task in tasks for file in task.sends}
    if not sent:
        return tasks
    results = []
    for task in tasks:
        mine = [sent[name] for name in task.inputs if name in sent]
        fetched = tuple(file.named(task=maker) for file, maker in mine)
        inputs = tuple(name for name in task.inputs if name not in sent)
        results.append(
            replace(task, inputs=inputs, fetches=(*task.fetches, *fetched)) if mine else task
        )
    return results


def refuse_shared_targets(workflows: Iterable[Workflow], where: str) -> None:
    """Raise InputError if two tasks would send to one URL."""
    observed: dict[str, str] = {}
    for workflow in workflows:
        for task in workflow.tasks.values():
            for file in task.sends:
                url, whose = file.of(workflow.name, task.id).url, f"{workflow.name}/{task.id}"
                if url in observed:
                    raise InputError(
                        f"{observed[url]} and {whose} both send to {url}",
                        where=f"{where}: workflows",
                        fix="use {workflow} and {task} in the URL; they are replaced by the names",
                    )
                observed[url] = whose
