"""Open a workflow file: find out its format and read it. One format a module beside this one."""

from __future__ import annotations

import re
from pathlib import Path

from kernel.errors import InputError
from kernel.files import read_text
from workflows.dag import Workflow
from workflows.dagman import read_dagman
from workflows.dax import read_dax
from workflows.makeflow import read_makeflow
from workflows.pegasus import read_pegasus
from workflows.runtimes import Runtimes
from workflows.wfformat import parse_json, read_wfformat

_DAGMAN = re.compile(r"^\s*JOB\s+\S+\s+\S+", re.IGNORECASE | re.MULTILINE)
_PEGASUS = re.compile(r"^(x-pegasus|pegasus)\s*:", re.MULTILINE)
_MAKEFLOW = re.compile(r"^[^\s#=][^=\n]*:[^\n]*\n[ \t]+\S", re.MULTILINE)


def load_workflow(path: Path, runtimes: Runtimes | None = None) -> Workflow:
    """The workflow in a file (plain, gzip or xz); InputError names the file and what is wrong.

    ``runtimes`` gives seconds by task or kind of task to formats that carry none.
    """
    where = str(path)
    text = read_text(path)
    if not text.strip():
        raise InputError("the file is empty", where=where)
    start = text.lstrip()[:1]
    if start == "{":
        return read_wfformat(parse_json(text, where), where)
    if start == "<":
        return read_dax(text, where)
    if _PEGASUS.search(text):
        return read_pegasus(text, where, runtimes or {})
    if _DAGMAN.search(text):
        return read_dagman(text, where, runtimes or {})
    if _MAKEFLOW.search(text):
        return read_makeflow(text, where, runtimes or {})
    raise InputError(
        "unknown workflow format",
        where=where,
        fix="known: WfFormat, DAX, Pegasus 5, DAGMan, Makeflow",
    )
