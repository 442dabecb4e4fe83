"""Open a workflow file: find out its format and read it. One format a module beside this one."""

from __future__ import annotations

from pathlib import Path

from kernel.errors import InputError
from kernel.files import read_text
from workflows.dag import Workflow
from workflows.dax import read_dax
from workflows.wfformat import parse_json, read_wfformat


def load_workflow(path: Path) -> Workflow:
    """The workflow in a file (plain, gzip or xz); InputError names the file and what is wrong."""
    where = str(path)
    text = read_text(path)
    if not text.strip():
        raise InputError("the file is empty", where=where)
    start = text.lstrip()[:1]
    if start == "{":
        return read_wfformat(parse_json(text, where), where)
    if start == "<":
        return read_dax(text, where)
    raise InputError(
        "unknown workflow format", where=where, fix="known: WfFormat 1.3 to 1.5 (JSON), DAX (XML)"
    )
