"""Pegasus as task records: kickstart's output for each task (XML to 4.9, YAML since 5.0), and DAX
profiles.

For kickstart the main job counts: its duration is execution without staging, ``maxrss`` (KiB) its
peak memory, the node's name its machine. A task that a signal ended from outside would have taken
longer; other exits than 0 are failures. Pegasus's own tasks (transfers, cleaning, folders) are
omitted. Blocks are found line by line, so other text of a task is harmless, and an XML block has no
document type: entities cannot be declared. https://pegasus.isi.edu/documentation/reference-guide/
(kickstart)
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import yaml

from vgrads.kernel.errors import InputError
from vgrads.traces.lines import open_lines
from vgrads.traces.task_lines import (
    BACKWARDS,
    KILLED,
    NO_TIME,
    Broken,
    Item,
    parse_number,
    parse_task_instant,
)
from vgrads.traces.task_record import TaskRecord

_OWN = {
    "transfer",
    "dirmanager",
    "cleanup",
    "rc-client",
    "worker",
    "chmod",
    "create_dir",
    "stage_in",
    "stage_out",
}
_KILLS = {
    signal.SIGKILL,
    signal.SIGTERM,
    signal.SIGXCPU,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGHUP,
    signal.SIGINT,
}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, if available


@dataclass(frozen=True, slots=True)
class _Invocation:
    """The common facts of an invocation in XML and in YAML."""

    transformation: str
    derivation: str
    workflow: str
    stamp: str
    machine: str
    duration: object
    start: object
    raw_status: object
    maxrss_kib: object
    inputs: tuple[object, ...]
    program: str


def read_kickstart_xml(path: Path) -> Iterator[Item]:
    """Read each ``<invocation>`` of a file of kickstart's output."""
    for line, block in _read_xml_blocks(path):
        try:
            root = ElementTree.fromstring(block)
        except ElementTree.ParseError as error:
            yield Broken(line, "invocation", f"is not valid XML: {error}")
            continue
        yield _make_record(_read_xml(root), line)


def _read_xml_blocks(path: Path) -> Iterator[tuple[int, str]]:
    block: list[str] = []
    began = 0
    for number, line in enumerate(open_lines(path), 1):
        # other output of the job may be on the same lines, before and after
        if "<invocation" in line:
            began, block = number, [line[line.index("<invocation") :]]
        elif block:
            block.append(line)
        if block and "</invocation>" in block[-1]:
            block[-1] = block[-1][: block[-1].index("</invocation>") + len("</invocation>")]
            yield began, "".join(block)
            block = []
    # a file that is cut off: the part is not valid XML and is reported as broken
    if block:
        yield began, "".join(block)


def _tag(element: Element) -> str:
    return element.tag.rsplit("}", 1)[-1]


def _read_xml(root: Element) -> _Invocation:
    own = {_tag(child): child for child in root}
    main = own.get("mainjob", Element("mainjob"))
    parts = {_tag(child): child for child in main}
    uname = next((e for e in root.iter() if _tag(e) == "uname"), Element("uname"))
    files = [e for e in main.iter() if _tag(e) == "file" and e.get("name")]
    return _Invocation(
        transformation=root.get("transformation", ""),
        derivation=root.get("derivation", ""),
        workflow=root.get("wf-label", ""),
        stamp=root.get("wf-stamp", ""),
        machine=root.get("hostname", "") or uname.get("nodename", ""),
        duration=main.get("duration"),
        start=main.get("start"),
        raw_status=parts.get("status", Element("status")).get("raw"),
        maxrss_kib=parts.get("usage", Element("usage")).get("maxrss"),
        inputs=tuple(_read_initial_sizes(root)),
        program=files[0].get("name", "") if files else "",
    )


def _read_initial_sizes(root: Element) -> Iterator[object]:
    for call in root:
        if _tag(call) == "statcall" and call.get("id") == "initial" and call.get("lfn"):
            yield next((e.get("size") for e in call if _tag(e) == "statinfo"), None)


def read_kickstart_yaml(path: Path) -> Iterator[Item]:
    """Read each ``- invocation:`` of a file of kickstart's output."""
    for line, block in _read_yaml_blocks(path):
        try:
            listed = yaml.load(block, Loader=_LOADER)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            yield Broken(line, "invocation", f"is not valid YAML: {str(error).splitlines()[0]}")
            continue
        entry = listed[0] if isinstance(listed, list) and listed else None
        if isinstance(entry, Mapping):
            yield _make_record(_read_yaml(entry), line)
        else:
            yield Broken(line, "invocation", "is not a mapping")


def _read_yaml_blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Return entries: the first line and the lines indented below it."""
    block: list[str] = []
    began = 0
    for number, line in enumerate(open_lines(path), 1):
        if block and line.strip() and not line.startswith((" ", "\t")):
            yield began, "".join(block)
            block = []
        if line.startswith("- invocation:"):
            began, block = number, [line]
        elif block:
            block.append(line)
    if block:
        yield began, "".join(block)


def _require_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _require_text(value: object) -> str:
    return "" if value is None else str(value)


def _read_yaml(entry: Mapping[str, Any]) -> _Invocation:
    main = _require_mapping(entry.get("mainjob"))
    files = [_require_mapping(file) for file in _require_mapping(entry.get("files")).values()]
    return _Invocation(
        transformation=_require_text(entry.get("transformation")),
        derivation=_require_text(entry.get("derivation")),
        workflow=_require_text(entry.get("wf-label")),
        stamp=_require_text(entry.get("wf-stamp")),
        machine=_require_text(
            _require_mapping(entry.get("machine")).get("uname_nodename") or entry.get("hostname")
        ),
        duration=main.get("duration"),
        start=main.get("start"),
        raw_status=_require_mapping(main.get("status")).get("raw"),
        maxrss_kib=_require_mapping(main.get("usage")).get("maxrss"),
        inputs=tuple(f.get("size") for f in files if f.get("lfn") and not f.get("output")),
        program=_require_text(_require_mapping(main.get("executable")).get("file_name")),
    )


def _make_record(invocation: _Invocation, line: int) -> Item:
    space, _, name = invocation.transformation.rpartition("::")
    kind = name.split(":")[0]
    if space == "pegasus" or kind in _OWN:
        return "staging"
    took, status = parse_number(invocation.duration), parse_number(invocation.raw_status)
    if not kind or (took is None and invocation.duration is not None):
        return Broken(
            line, "mainjob: duration" if kind else "transformation", "is missing or not a number"
        )
    if took is None:
        return NO_TIME
    if took < 0:
        return BACKWARDS
    stopped = status is not None and _is_stopped(int(status))
    if status and not stopped:
        return "failed"
    begun, peak = parse_task_instant(invocation.start), parse_number(invocation.maxrss_kib)
    sizes = [
        size
        for value in invocation.inputs
        if (size := parse_number(value)) is not None and size >= 0
    ]
    return TaskRecord(
        kind=kind,
        seconds=took,
        finished=not stopped,
        workflow=invocation.workflow,
        run=invocation.stamp,
        task=invocation.derivation,
        machine=invocation.machine,
        input_bytes=sum(sizes) if sizes and len(sizes) == len(invocation.inputs) else None,
        memory_bytes=peak * 1024 if peak and peak > 0 else None,
        tool=PurePosixPath(invocation.program).name,
        ended_at_s=None if begun is None else begun + took,
    )


def _is_stopped(raw: int) -> bool:
    """Return whether a status of ``wait`` means that the task was killed from outside, itself or
    below its shell."""
    if not 0 < raw < 1 << 16:
        return False
    return (os.WIFSIGNALED(raw) and os.WTERMSIG(raw) in _KILLS) or (
        os.WIFEXITED(raw) and os.WEXITSTATUS(raw) in KILLED
    )


def read_dax_tasks(text: str, where: str) -> Iterator[Item]:
    """Read the jobs of a DAX with their profiled run times; a production DAX has none, and its jobs
    are not records."""
    # entities may expand without bound, or name other files
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputError(
            "contains a document type or entities, which are not accepted in a DAX", where=where
        )
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise InputError(f"is not valid XML: {error}", where=where) from error
    jobs = [job for job in root.iter() if _tag(job) == "job"]
    if not jobs:
        raise InputError("contains no jobs", where=where)
    for job in jobs:
        yield _read_dax_job(job, root.get("name") or "")


def _read_dax_job(job: Element, workflow: str) -> Item:
    place = f"job '{job.get('id', '')}'"
    took = parse_number(job.get("runtime"))
    if job.get("runtime") is None:
        return NO_TIME
    if took is None or not job.get("name"):
        return Broken(0, f"{place}: runtime", "is not a number, or the job has no name")
    if took < 0:
        return BACKWARDS
    uses = [e for e in job if _tag(e) == "uses" and e.get("link") == "input"]
    sizes = [size for e in uses if (size := parse_number(e.get("size"))) is not None and size >= 0]
    return TaskRecord(
        kind=job.get("name", ""),
        seconds=took,
        workflow=job.get("namespace") or workflow,
        run=workflow,
        task=job.get("id", ""),
        input_bytes=sum(sizes) if sizes and len(sizes) == len(uses) else None,
    )
