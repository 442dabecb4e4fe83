"""Load a workflow set from its file, with the files that it names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from vgrads.api.plans.set_bags import make_bag_workflow
from vgrads.kernel.document_kinds import refuse_other_kind
from vgrads.kernel.documents import load_mapping, validate
from vgrads.kernel.errors import InputError
from vgrads.kernel.files import read_text
from vgrads.workflows.dag import Workflow
from vgrads.workflows.formats.load import (
    UNDERSTOOD,
    format_of,
    is_workflow,
    load_workflow,
    split_entry,
)
from vgrads.workflows.formats.snakefile import SnakemakeOptions
from vgrads.workflows.sets import MAX_TASKS, SetDocument, WorkflowDocument, WorkflowSet, build_set

_PLAIN = (".yaml", ".yml", ".toml", ".json")
_MOST_GUESSED = 1 << 20
"""Bytes of a larger file, which people do not write."""
_SETS = (".yaml", ".yml", ".json", ".toml", ".gz", ".xz")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOverrides:
    """Values given in addition to a set's file: another deadline, and the fields that a bare
    workflow's file lacks. ``cores``: limit of the threads of Snakemake's rules."""

    deadline: str | None = None
    inputs: Path | None = None
    targets: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    cores: int | None = None


NO_OVERRIDES = SetOverrides()


def load_set(
    path: Path, now: datetime | None = None, overrides: SetOverrides = NO_OVERRIDES
) -> tuple[WorkflowSet, str | None]:
    """Load the set of a YAML or JSON file and the sites file that it names, resolved against its
    folder.

    A workflow's file instead is a set of one, which needs a deadline.
    """
    document = _document_of(path, overrides)
    folder = path.resolve().parent
    chosen = build_set(
        document,
        lambda entry: load_entry(entry, folder, overrides.cores),
        str(path),
        now=now,
        directory=str(folder),
    )
    return chosen, str(folder / document.sites) if document.sites else None


def load_entry(entry: WorkflowDocument, folder: Path, cores: int | None = None) -> Workflow:
    """Load the file of a set's entry, named relative to ``folder``, or its bag; ``cores``: limit of
    the threads of Snakemake's rules."""
    if entry.kind == "bag":
        return make_bag_workflow(entry, folder)
    assert entry.file is not None
    return load_workflow(
        folder / entry.file,
        entry.runtimes,
        folder / entry.inputs if entry.inputs else None,
        SnakemakeOptions(targets=entry.targets, config=entry.config, cores=cores),
        MAX_TASKS,
    )


def _document_of(path: Path, overrides: SetOverrides) -> SetDocument:
    whole = read_text(split_entry(path)[0])
    try:
        return _read_document(path, whole, overrides)
    except InputError:
        _refuse_log(path, whole)
        raise


def _refuse_log(path: Path, text: str) -> None:
    """Raise InputError where a file is the log of a queue."""
    from vgrads.traces.history import detect_format  # noqa: PLC0415 late: for an error alone

    try:
        log = detect_format(text, str(path))
    except InputError:
        return
    raise InputError(
        f"is a queue log ({log}), not a workflow set",
        where=str(path),
        fix=f"'vgrads bound {path} --procs 16 --walltime 2h' predicts a job's wait from it",
    )


def _refuse_other_document(path: Path) -> None:
    """Raise InputError for a pool, a bag or sites: some formats of workflows are guessed."""
    if path.suffix.lower() not in _PLAIN or path.stat().st_size > _MOST_GUESSED:
        return
    try:
        document = load_mapping(path)
    except InputError:  # its own reader reports it
        return
    refuse_other_kind(SetDocument.model_fields, document, str(path))


def _read_document(path: Path, whole: str, overrides: SetOverrides) -> SetDocument:
    text = format_of(split_entry(path)[0], whole)
    if text == "" and path.suffix.lower() not in _SETS:
        raise InputError(
            "is neither a set nor a workflow of a known format", where=str(path), fix=UNDERSTOOD
        )
    _refuse_other_document(path)
    if not is_workflow(text):
        for name in ("inputs", "targets", "config"):
            if getattr(overrides, name):
                raise InputError(
                    "applies only to a workflow file; this file is a workflow set",
                    where=f"--{name.rstrip('s') if name == 'targets' else name}",
                )
        document = load_mapping(path)
        if overrides.deadline is not None:
            document["deadline"] = overrides.deadline
        return validate(SetDocument, document, str(path))
    if overrides.deadline is None:
        raise InputError(
            "is a workflow file, which needs a deadline",
            where=str(path),
            fix="use --deadline 4h, or state it in a set",
        )
    # relative to the working folder, while a set's own entries are relative to the set
    inputs = None if overrides.inputs is None else str(overrides.inputs.absolute())
    item = {
        "file": path.name,
        "inputs": inputs,
        "targets": overrides.targets,
        "config": overrides.config,
    }
    return SetDocument.model_validate(
        {"name": path.stem[:200], "deadline": overrides.deadline, "workflows": [item]}
    )
