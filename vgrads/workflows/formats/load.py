"""Open a workflow file: find out its format and read it. One format a module beside this one."""

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
from vgrads.workflows.formats.nextflow import is_trace, read_trace
from vgrads.workflows.formats.pegasus import read_pegasus
from vgrads.workflows.formats.snakefile import read_snakefile
from vgrads.workflows.formats.wfformat import parse_json, read_wfformat
from vgrads.workflows.runtimes import Runtimes

UNDERSTOOD = (
    "understood: WfFormat, DAX, Pegasus 5, DAGMan, Makeflow, Snakefile, CWL, Nextflow's "
    "trace of a finished run; "
    "what another system has: as WfFormat (wfcommons.org), or its tasks inline in a set "
    "(docs/sets.md)"
)
_SNAKEFILE = re.compile(r"^(rule|checkpoint)([ \t]+\w+[ \t]*:|[ \t]*:[ \t]*(#.*)?$)", re.MULTILINE)
_CWL = re.compile(r"^cwlVersion[ \t]*:", re.MULTILINE)
_NEXTFLOW = re.compile(r"^(process\s+\w+|workflow(\s+\w+)?)\s*\{|^nextflow\.", re.MULTILINE)
_DAGMAN = re.compile(r"^\s*JOB\s+\S+\s+\S+", re.IGNORECASE | re.MULTILINE)
_PEGASUS = re.compile(r"^(x-pegasus|pegasus)\s*:", re.MULTILINE)
_SET = re.compile(r"^(workflows|deadline)[ \t]*:", re.MULTILINE)
_FLOWING_SET = re.compile(r"\b(workflows|deadline)[ \t]*:")
_MAKEFLOW = re.compile(r"^[^\s#=][^=\n]*:[^\n]*\n[ \t]+\S", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Source:
    """A file that is to be read, with what comes beside it: see :func:`load_workflow`."""

    path: Path
    text: str
    runtimes: Runtimes
    inputs: Path | None

    @property
    def where(self) -> str:
        return str(self.path)


def _refuse_script(source: _Source) -> Workflow:
    raise InputError(
        "is a Nextflow script: which tasks there are is known only as it runs",
        where=source.where,
        fix="run it once, on small data too, with '-with-trace trace.txt', and give trace.txt",
    )


_READERS: Mapping[str, Callable[[_Source], Workflow]] = {
    "Snakefile": lambda s: read_snakefile(s.path, s.runtimes, s.inputs),
    "Nextflow script": _refuse_script,
    "Nextflow trace": lambda s: read_trace(s.path, s.runtimes, s.inputs),
    "CWL": lambda s: read_cwl(s.path, s.runtimes, s.inputs),
    "WfFormat": lambda s: read_wfformat(parse_json(s.text, s.where), s.where),
    "DAX": lambda s: read_dax(s.text, s.where),
    "Pegasus": lambda s: read_pegasus(s.text, s.where, s.runtimes),
    "DAGMan": lambda s: read_dagman(s.text, s.where, s.runtimes),
    "Makeflow": lambda s: read_makeflow(s.text, s.where, s.runtimes),
}
_WITH_INPUTS = ("Snakefile", "Nextflow trace", "CWL")
_ASK_OTHERS = ("Snakefile", "CWL")  # read by their own programs
SET = "set"


def format_of(path: Path, text: str) -> str:
    """What a file is, by its name where that says it and else by its text: a key of the readers,
    ``set``, or empty."""
    name, suffix, start = path.name.lower(), path.suffix.lower(), text.lstrip()[:1]
    if name == "snakefile" or suffix == ".smk":
        return "Snakefile"
    if start == "<":
        return "DAX"
    if start == "{":
        return _of_json(text)
    if is_trace(text):
        return "Nextflow trace"
    looks = (
        ("CWL", _CWL),
        ("Pegasus", _PEGASUS),
        (SET, _SET),
        ("Snakefile", _SNAKEFILE),
        ("Nextflow script", _NEXTFLOW),
        ("DAGMan", _DAGMAN),
        ("Makeflow", _MAKEFLOW),
    )
    return next((found for found, pattern in looks if pattern.search(text)), "")


def _of_json(text: str) -> str:
    """Of a JSON document its keys tell; one that cannot be read may be a set in YAML's braces, else
    WfFormat's reader says what is wrong."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return SET if _FLOWING_SET.search(text) else "WfFormat"
    if "cwlVersion" in document:
        return "CWL"
    return SET if "workflows" in document or "deadline" in document else "WfFormat"


def is_workflow(found: str) -> bool:
    """True for a format of workflows: neither a set's, nor an unknown one."""
    return found not in ("", SET)


def load_workflow(
    path: Path, runtimes: Runtimes | None = None, inputs: Path | None = None
) -> Workflow:
    """The workflow in a file (plain, gzip or xz); InputError names the file and what is wrong.

    ``runtimes`` gives seconds by task or kind of task to formats that carry none. ``inputs`` is
    what the workflow works on: the input object of CWL, a configuration file of a Snakefile, the
    work folder of a Nextflow run.
    """
    text = read_text(path)
    if not text.strip():
        raise InputError("the file is empty", where=str(path))
    found = format_of(path, text)
    if found == SET:
        raise InputError(
            "is a set and no workflow", where=str(path), fix="give it to 'vgrads plan'"
        )
    if not found:
        raise InputError("unknown workflow format", where=str(path), fix=UNDERSTOOD)
    if inputs is not None and found not in _WITH_INPUTS:
        raise InputError(f"{found} takes no inputs", where=str(path), fix="leave 'inputs' away")
    if found in _ASK_OTHERS and path.suffix.lower() in (".gz", ".xz"):
        raise InputError(
            f"is compressed, and who reads {found} unpacks nothing",
            where=str(path),
            fix="unpack it",
        )
    return _READERS[found](_Source(path, text, runtimes or {}, inputs))
