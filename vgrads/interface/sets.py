"""Workflow sets from files and mappings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from vgrads.api.plans.set_files import load_entry, load_set
from vgrads.interface.arguments import (
    Duration,
    FileName,
    deadline_text,
    named_arguments,
    path_of,
)
from vgrads.interface.html import table_html
from vgrads.kernel.documents import validate
from vgrads.kernel.units import format_count, format_duration, format_usd
from vgrads.operations.plans.planning import set_overrides
from vgrads.operations.plans.requests import SetFileOptions
from vgrads.workflows.sets import SetDocument, WorkflowSet, build_set


@dataclass(frozen=True, kw_only=True, repr=False)
class LoadedSet:
    """A workflow set: workflows, a deadline, and the number of workflows that must be done by then.

    ``name``: of the set. ``workflows``: names, in order. ``tasks``: number of tasks of all
    workflows. ``deadline_s``: seconds from submission. ``needed``: number of workflows that must be
    done by the deadline. ``probability``: that the promise must have. ``budget_usd``: the most that
    the plan may cost, None without limit. ``sites``: the sites file that the set names, if any.
    """

    name: str
    workflows: tuple[str, ...]
    tasks: int
    deadline_s: float
    needed: int
    probability: float
    budget_usd: float | None
    sites: str | None
    workflow_set: WorkflowSet = field(compare=False)

    def __repr__(self) -> str:
        return (
            f"LoadedSet '{self.name}': {format_count(len(self.workflows), 'workflow')}, "
            f"{format_count(self.tasks, 'task')}\n"
            f"  {self.needed} by {format_duration(self.deadline_s)} "
            f"with probability {self.probability:g}, budget {self._budget}"
        )

    def _repr_html_(self) -> str:
        return table_html(
            f"Workflow set {self.name}",
            ("workflows", "tasks", "needed", "deadline", "probability", "budget"),
            [
                (
                    f"{len(self.workflows)}",
                    f"{self.tasks}",
                    f"{self.needed}",
                    format_duration(self.deadline_s),
                    f"{self.probability:g}",
                    self._budget,
                )
            ],
        )

    @property
    def _budget(self) -> str:
        return "none" if self.budget_usd is None else format_usd(self.budget_usd)


@named_arguments()
def read_set(
    source: FileName | Mapping[str, Any],
    deadline: Duration | datetime | None = None,
    inputs: FileName | None = None,
) -> LoadedSet:
    """Read a workflow set.

    ``source``: a set (YAML or JSON, docs/sets.md), a workflow file of a known format
    (docs/formats.md), or a mapping with the fields of a set; files that a mapping names are
    relative to the working folder. ``deadline``: replaces that of the set; a workflow file needs
    it. ``inputs``: what a workflow file works on, as for ``vgrads plan --inputs``.

    >>> import vgrads
    >>> from vgrads.api.config import embedded_data
    >>> vgrads.read_set(embedded_data() / "lead-storm.yaml", deadline="3h")
    LoadedSet 'lead-storm': 8 workflows, 48 tasks
      6 by 3h with probability 0.9, budget $60.00
    """
    return read_changed(
        source,
        SetFileOptions(
            deadline=None if deadline is None else deadline_text(deadline, "deadline"),
            inputs=None if inputs is None else path_of(inputs),
        ),
    )


def read_changed(source: FileName | Mapping[str, Any], changes: SetFileOptions) -> LoadedSet:
    """The set of a file, or of the fields of a mapping, with these changes."""
    if isinstance(source, Mapping):
        return _read_mapping(source, changes.deadline)
    return _make_loaded(*load_set(path_of(source), overrides=set_overrides(changes)))


def _read_mapping(source: Mapping[str, Any], deadline: str | None) -> LoadedSet:
    fields = dict(source) if deadline is None else {**source, "deadline": deadline}
    if isinstance(fields.get("deadline"), timedelta):
        fields["deadline"] = fields["deadline"].total_seconds()
    document, folder = validate(SetDocument, fields, "set"), Path.cwd()
    workflow_set = build_set(
        document,
        lambda entry: load_entry(entry, folder),
        "set",
        directory=str(folder),
    )
    return _make_loaded(workflow_set, str(folder / document.sites) if document.sites else None)


def _make_loaded(workflow_set: WorkflowSet, sites: str | None) -> LoadedSet:
    return LoadedSet(
        name=workflow_set.name,
        workflows=tuple(workflow.name for workflow in workflow_set.workflows),
        tasks=workflow_set.task_count,
        deadline_s=workflow_set.deadline_s,
        needed=workflow_set.needed,
        probability=workflow_set.probability,
        budget_usd=workflow_set.budget_usd,
        sites=sites,
        workflow_set=workflow_set,
    )
