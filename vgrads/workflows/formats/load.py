"""Open a workflow file: detect its format and read it. One module per format."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vgrads.kernel.errors import InputError
from vgrads.kernel.files import read_text
from vgrads.workflows.dag import Workflow
from vgrads.workflows.formats.cwl import read_cwl
from vgrads.workflows.formats.dagman import read_dagman
from vgrads.workflows.formats.dax import read_dax
from vgrads.workflows.formats.makeflow import read_makeflow
from vgrads.workflows.formats.makeflow_jx import read_makeflow_jx
from vgrads.workflows.formats.nextflow import is_trace, read_trace
from vgrads.workflows.formats.pegasus import read_pegasus
from vgrads.workflows.formats.reading import MOST_TASKS, Reading
from vgrads.workflows.formats.snakefile import NO_OPTIONS, SnakemakeOptions, read_snakefile
from vgrads.workflows.formats.wfformat import parse_json, read_wfformat
from vgrads.workflows.runtimes import Runtimes

UNDERSTOOD = (
    "supported: WfFormat, DAX, Pegasus 5, DAGMan, Makeflow, Snakefile, CWL, the Nextflow "
    "trace of a finished run; "
    "convert other workflows to WfFormat (wfcommons.org), or list their tasks inline in a "
    "set (docs/sets.md)"
)
_SNAKEFILE = re.compile(r"^(rule|checkpoint)([ \t]+\w+[ \t]*:|[ \t]*:[ \t]*(#.*)?$)", re.MULTILINE)
_CWL = re.compile(r"^cwlVersion[ \t]*:", re.MULTILINE)
_NEXTFLOW = re.compile(r"^(process\s+\w+|workflow(\s+\w+)?)\s*\{|^nextflow\.", re.MULTILINE)
_DAGMAN = re.compile(
    r"^\s*(JOB\s+\S+\s+\S+|SPLICE\s+\S+\s+\S+|SUBDAG\s+EXTERNAL\s+\S+\s+\S+"
    r"|PARENT\s+\S.*\sCHILD\s+\S+)",
    re.IGNORECASE | re.MULTILINE,
)
_PEGASUS = re.compile(r"^(x-pegasus|pegasus)\s*:", re.MULTILINE)
_SET = re.compile(r"^(workflows|deadline)[ \t]*:", re.MULTILINE)
_FLOWING_SET = re.compile(r"\b(workflows|deadline)[ \t]*:")
_JX = re.compile(r'"rules"\s*:')
_MAKEFLOW = re.compile(
    r"^(?:[^\s#=][^=\n]*)?:[^\n]*\n(?:(?:@?\w+[ \t]*\+?=|\.[A-Z]+[ \t])[^\n]*\n)*[ \t]+\S",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class _Source:
    """A file to be read, with its accompanying data: see :func:`load_workflow`."""

    path: Path
    text: str
    runtimes: Runtimes
    inputs: Path | None
    options: SnakemakeOptions
    entry: str
    reading: Reading

    @property
    def where(self) -> str:
        return str(self.path)


def _refuse_script(source: _Source) -> Workflow:
    raise InputError(
        "is a Nextflow script, whose tasks are known only while it runs",
        where=source.where,
        fix="run it once (small data are enough) with '-with-trace trace.txt', and use trace.txt",
    )


_READERS: Mapping[str, Callable[[_Source], Workflow]] = {
    "Snakefile": lambda s: read_snakefile(s.path, s.runtimes, s.inputs, s.options),
    "Nextflow script": _refuse_script,
    "Nextflow trace": lambda s: read_trace(s.path, s.runtimes, s.reading, s.inputs),
    "CWL": lambda s: read_cwl(s.path, s.runtimes, s.inputs, s.entry),
    "WfFormat": lambda s: read_wfformat(parse_json(s.text, s.where), s.where, s.reading),
    "DAX": lambda s: read_dax(s.text, s.runtimes, s.reading),
    "Pegasus": lambda s: read_pegasus(s.text, s.runtimes, s.reading),
    "DAGMan": lambda s: read_dagman(s.text, s.runtimes, s.reading),
    "Makeflow": lambda s: read_makeflow(s.text, s.runtimes, s.reading),
    "Makeflow in JX": lambda s: read_makeflow_jx(s.text, s.runtimes, s.reading, s.inputs),
}
ALONE = ("WfFormat", "DAX", "Makeflow")
"""Formats of which one text is enough: nothing is asked of other programs, or read of a folder."""
_WITH_INPUTS = ("Snakefile", "Nextflow trace", "CWL", "Makeflow in JX")
_ASK_OTHERS = ("Snakefile", "CWL")  # read by their own programs
_SUFFIXES = {".dag": "DAGMan", ".makeflow": "Makeflow", ".mf": "Makeflow"}
SET = "set"


def format_of(path: Path, text: str) -> str:
    """Return the format of a file, by its name if possible, otherwise by its text: a key of the
    readers, ``set``, or empty."""
    name, suffix, start = path.name.lower(), path.suffix.lower(), text.lstrip()[:1]
    if name == "snakefile" or suffix == ".smk":
        return "Snakefile"
    if suffix == ".jx":
        return "Makeflow in JX"
    if start == "<":
        return "DAX"
    if start == "{":
        return _detect_json(text)
    if is_trace(text):
        return "Nextflow trace"
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    looks = (
        ("CWL", _CWL),
        ("Pegasus", _PEGASUS),
        (SET, _SET),
        ("Snakefile", _SNAKEFILE),
        ("Nextflow script", _NEXTFLOW),
        ("DAGMan", _DAGMAN),
        ("Makeflow", _MAKEFLOW),
    )
    return next((name for name, pattern in looks if pattern.search(text)), "")


def _detect_json(text: str) -> str:
    """Return the format of a JSON document by its keys; an unreadable one may be a set in YAML's
    flow style, or have expressions of JX; otherwise WfFormat's reader reports the error."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        if _FLOWING_SET.search(text):
            return SET
        return "Makeflow in JX" if _JX.search(text) else "WfFormat"
    if "rules" in document:
        return "Makeflow in JX"
    if "cwlVersion" in document:
        return "CWL"
    return SET if "workflows" in document or "deadline" in document else "WfFormat"


def is_workflow(text: str) -> bool:
    """True for a format of workflows: neither that of a set, nor an unknown one."""
    return text not in ("", SET)


def split_entry(path: Path) -> tuple[Path, str]:
    """Split ``x.cwl#main`` into a file and the process in it; a file of that whole name counts
    first."""
    name, mark, entry = path.name.rpartition("#")
    if not mark or not name or path.exists():
        return path, ""
    return path.with_name(name), entry


def load_workflow(
    path: Path,
    runtimes: Runtimes | None = None,
    inputs: Path | None = None,
    options: SnakemakeOptions = NO_OPTIONS,
    most_tasks: int = MOST_TASKS,
) -> Workflow:
    """Load the workflow from a file (plain, gzip or xz); InputError names the file and the problem.

    ``runtimes`` has seconds by task or kind of task for formats without run times. ``inputs`` is
    the input of the workflow: the input object of CWL, a configuration file of a Snakefile, the
    work folder of a Nextflow run. ``options`` are for a Snakefile; a CWL file may be followed by
    ``#`` and the name of a process in it. Formats that can describe any number of tasks in a few
    lines are read up to ``most_tasks``.
    """
    path, entry = split_entry(path)
    text = read_text(path)
    if not text.strip():
        raise InputError("the file is empty", where=str(path))
    name = format_of(path, text)
    if name == SET:
        raise InputError("is a set, not a workflow", where=str(path), fix="use 'vgrads plan'")
    if not name:
        raise InputError("unknown workflow format", where=str(path), fix=UNDERSTOOD)
    if entry and name != "CWL":
        raise InputError(f"{name} has no part named '{entry}'", where=f"{path}#{entry}")
    if (options.targets or options.config) and name != "Snakefile":
        raise InputError(f"{name} takes no targets and no configuration", where=str(path))
    if inputs is not None and name not in _WITH_INPUTS:
        raise InputError(f"{name} takes no inputs", where=str(path), fix="remove 'inputs'")
    if name in _ASK_OTHERS and path.suffix.lower() in (".gz", ".xz"):
        raise InputError(
            f"is compressed, but the reader of {name} does not decompress files",
            where=str(path),
            fix="unpack it",
        )
    reading = Reading(path, most_tasks)
    workflow = _READERS[name](_Source(path, text, runtimes or {}, inputs, options, entry, reading))
    return workflow.noted(reading.closing_line(workflow))


def read_alone(text: str, name: str, most_tasks: int) -> Workflow:
    """Read the workflow of a text in one of the formats :data:`ALONE`; it may name no other
    file."""
    path = Path("workflow")
    reading = Reading(path, most_tasks, alone=True)
    workflow = _READERS[name](_Source(path, text, {}, None, NO_OPTIONS, "", reading))
    return workflow.noted(reading.closing_line(workflow))
