"""Any workflow that is understood, written as WfFormat 1.5 or as a set of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vgrads.kernel.errors import InputError
from vgrads.kernel.files import read_text
from vgrads.workflows.dag import Workflow
from vgrads.workflows.formats.load import format_of, is_workflow, load_workflow
from vgrads.workflows.formats.wfformat import write_wfformat
from vgrads.workflows.sets import Beside, SetDocument, WorkflowSet, load_set
from vgrads.workflows.written import document_of

FORMS: Mapping[str, str] = {".json": "wfformat", ".yaml": "set", ".yml": "set"}
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def form_of(out: Path, to: str | None) -> str:
    """``wfformat`` or ``set``: as asked for, else by the ending of the file that is to be
    written."""
    if to is None and out.suffix.lower() not in FORMS:
        raise InputError(
            f"'{out.name}' ends neither in .json nor in .yaml",
            where="OUT",
            fix="--to wfformat or --to set",
        )
    form = to or FORMS[out.suffix.lower()]
    if form not in FORMS.values():
        raise InputError(f"'{form}' is neither wfformat nor set", where="--to")
    return form


def converted(path: Path, form: str, beside: Beside) -> tuple[str, tuple[str, ...]]:
    """The text of a workflow's file, or of a set, in another form; and what is to be known of it.

    A set needs a deadline, which a workflow's file has not. WfFormat holds one workflow, and no
    doubts of run times.
    """
    if form == "set":
        wanted, _ = load_set(path, beside=beside)
        return set_text(wanted, beside.deadline), wanted.workflows[0].notes
    workflow = _one_of(path, beside)
    return json.dumps(write_wfformat(workflow), indent=1, allow_nan=False) + "\n", workflow.notes


def _one_of(path: Path, beside: Beside) -> Workflow:
    """The workflow of a file, or the only one of a set."""
    if is_workflow(format_of(path, read_text(path))):
        return load_workflow(path, inputs=beside.inputs)
    wanted, _ = load_set(path, beside=beside)
    if len(wanted.workflows) > 1:
        raise InputError(
            f"has {len(wanted.workflows)} workflows, and WfFormat holds one",
            where=str(path),
            fix="convert the file of one, or to a set",
        )
    (workflow,) = wanted.workflows
    return workflow.renamed(
        workflow.name.rpartition("-")[0]
    )  # less the number that reading a set puts there


def set_text(wanted: WorkflowSet, deadline: str | None = None) -> str:
    """A set as YAML, without what every set is like when nothing is said; ``deadline``: in whose
    words."""
    document = document_of(wanted) | ({} if deadline is None else {"deadline": deadline})
    lean = SetDocument.model_validate(document).model_dump(mode="json", exclude_defaults=True)
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
