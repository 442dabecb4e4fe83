"""Conversion of any supported workflow to WfFormat 1.5 or to a set of vgrads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from vgrads.api.plans.set_files import SetOverrides, load_set
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError
from vgrads.kernel.files import read_text
from vgrads.kernel.units import format_count, parse_duration
from vgrads.workflows.dag import Workflow
from vgrads.workflows.formats.load import (
    ALONE,
    format_of,
    is_workflow,
    load_workflow,
    read_alone,
)
from vgrads.workflows.formats.wfformat import write_wfformat
from vgrads.workflows.sets import SetDocument, WorkflowSet
from vgrads.workflows.task_environment import PLAIN
from vgrads.workflows.written import write_document

FORMS: Mapping[str, str] = {".json": "wfformat", ".yaml": "set", ".yml": "set"}
_WITHOUT_FIELD = {
    "retries and environment": "environment",
    "uncertainty": "spread",
    "resources": "resources",
    "files by URL": "fetches",
    "outputs by URL": "sends",
}
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def choose_form(out: Path, to: str | None) -> str:
    """Return ``wfformat`` or ``set``: as requested, otherwise by the extension of the output
    file."""
    if to is None and out.suffix.lower() not in FORMS:
        raise InputError(
            f"'{out.name}' does not end in .json or .yaml",
            where="OUT",
            fix="use --to wfformat or --to set",
        )
    form = to or FORMS[out.suffix.lower()]
    if form not in FORMS.values():
        raise InputError(f"'{form}' is neither wfformat nor set", where="--to")
    return form


def convert_text(path: Path, form: str, overrides: SetOverrides) -> tuple[str, tuple[str, ...]]:
    """Return the text of a workflow's file, or of a set, in another form; and notes.

    A set needs a deadline, which a workflow's file lacks. WfFormat holds one workflow, and no
    uncertainty of run times.
    """
    if form == "set":
        workflow_set, _ = load_set(path, overrides=overrides)
        text = set_text(workflow_set, overrides.deadline, str(path))
        return text, workflow_set.workflows[0].notes
    workflow = _require_single_workflow(path, overrides)
    text = json.dumps(write_wfformat(workflow), indent=1, allow_nan=False) + "\n"
    return text, (*workflow.notes, *_describe_losses(workflow))


def _describe_losses(workflow: Workflow) -> tuple[str, ...]:
    """Return a note on what WfFormat has no field for."""
    tasks = workflow.tasks.values()
    lost = [
        f"{what} ({format_count(number, 'task')})"
        for what, field in _WITHOUT_FIELD.items()
        if (number := sum(getattr(t, field) not in (None, (), PLAIN) for t in tasks))
    ]
    return (f"WfFormat has no field for: {', '.join(lost)}",) if lost else ()


def _require_single_workflow(path: Path, overrides: SetOverrides) -> Workflow:
    """Return the workflow of a file, or the only one of a set."""
    if is_workflow(format_of(path, read_text(path))):
        return load_workflow(path, inputs=overrides.inputs)
    workflow_set, _ = load_set(path, overrides=overrides)
    if len(workflow_set.workflows) > 1:
        raise InputError(
            f"has {format_count(len(workflow_set.workflows), 'workflow')}, and WfFormat holds one",
            where=str(path),
            fix="convert the file of one workflow, or convert to a set",
        )
    (workflow,) = workflow_set.workflows
    return workflow.renamed(
        workflow.name.rpartition("-")[0]
    )  # without the number that reading a set appends


def set_of_workflow_text(text: str, deadline: str, most_tasks: int) -> str | None:
    """Return the text of a set of the one workflow that a text describes, with what was read in its
    first line; None for a text in no format of workflows. InputError for one that cannot be read
    without its folder."""
    name = format_of(Path("workflow"), text)
    is_other_json = name == "WfFormat" and '"workflow"' not in text  # that of every other JSON text
    if not is_workflow(name) or is_other_json:
        return None
    if name not in ALONE:
        raise InputError(
            f"is a workflow ({name}), which is read where its files are",
            fix="use 'vgrads init' there, or 'vgrads convert IN set.yaml'",
        )
    workflow = read_alone(text, name, most_tasks)
    own = replace(workflow.renamed(f"{workflow.name}-0"), notes=())  # numbered, as in a set
    only = WorkflowSet(
        name=workflow.name,
        workflows=(own,),
        deadline_s=parse_duration(deadline),
        needed=1,
    )
    return f"# From {name}: {'; '.join(workflow.notes)}\n{set_text(only, deadline)}"


def set_text(workflow_set: WorkflowSet, deadline: str | None = None, where: str = "set") -> str:
    """Return a set as YAML, without default values; ``deadline``: its text, if given. InputError if
    the set has names that cannot be written, as a task's with a slash."""
    document = write_document(workflow_set) | ({} if deadline is None else {"deadline": deadline})
    lean = validate(SetDocument, document, where).model_dump(mode="json", exclude_defaults=True)
    return str(
        yaml.dump(
            lean,
            Dumper=_DUMPER,
            sort_keys=False,
            allow_unicode=True,
            width=160,
            default_flow_style=None,
        )
    )
