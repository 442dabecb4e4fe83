"""HTCondor submit descriptions: processors, memory, command and number of the jobs of a node.

Only these are read; conditions and included files are not evaluated.
https://htcondor.readthedocs.io/en/latest/man-pages/condor_submit.html
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from vgrads.kernel.errors import InputError

Macros = Mapping[str, str]
_COMMAND = re.compile(r"([+A-Za-z_][\w.]*)\s*=\s*(.*)$", re.DOTALL)
_QUEUE = re.compile(r"queue\b\s*(.*)$", re.IGNORECASE | re.DOTALL)
_ITEMS = re.compile(
    r"(?P<each>\S+\s+)??(?:[\w,\s]+?\s+)??(?P<how>in|from|matching)\b(?P<rest>.*)$",
    re.IGNORECASE | re.DOTALL,
)
_MACRO = re.compile(r"\$\(\s*([A-Za-z_][\w.]*)\s*(?::([^()]*))?\)")
_SIZE = re.compile(r"(\d+(?:\.\d*)?)\s*([KMGT]?)B?$", re.IGNORECASE)
_MIB_OF = {"K": 2**-10, "": 1.0, "M": 1.0, "G": 2.0**10, "T": 2.0**20}
_AT_RUN_TIME = re.compile(r"\$\$|\$[A-Z]\w*\(|\$F\w*\(")
_UNKNOWN_BEFORE = frozenset(
    ("cluster", "clusterid", "dagmanjobid", "failed_count", "dag_status", "dag_parent_names")
)
_NOT_EVALUATED = re.compile(r"(if|elif|else|endif|include|use)\b\s*(?!\s*=)", re.IGNORECASE)
_DEEPEST, _LONGEST = 20, 100_000


@dataclass(slots=True)
class SubmitDescription:
    """A description: its commands by name in lower case, and what it says on the number of jobs.
    ``conditional``: parts depend on what is known only as it is submitted."""

    name: str
    where: str
    commands: dict[str, str] = field(default_factory=dict)
    queue: str = ""
    items: int | None = None
    conditional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJob:
    """A job of a node. ``unread``: requests that are expressions, of which the default is used."""

    procs: int
    memory_mib: float
    command: str
    inputs: tuple[str, ...]
    program: str
    unread: tuple[str, ...]


def parse_submit(text: str, name: str, where: str) -> SubmitDescription:
    """Parse a submit description; lines that are no commands have no effect here."""
    result = SubmitDescription(name, where)
    lines = _join(text)
    for line in lines:
        command, queue = _COMMAND.match(line), _QUEUE.match(line)
        if command:
            result.commands[command[1].lower()] = command[2].strip()
        elif queue:
            result.queue = queue[1].strip()
            if result.queue.endswith("("):  # its items follow, one a line
                result.items = sum(1 for _ in iter(lambda: next(lines, ")"), ")"))
        elif _NOT_EVALUATED.match(line):
            result.conditional = True
    return result


def _join(text: str) -> Iterator[str]:
    """Return lines that are not empty, without comments; continued ones joined."""
    pending = ""
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("#"):
            continue
        pending += bare
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        if pending:
            yield pending
        pending = ""
    if pending:
        yield pending


def expand(text: str, macros: Macros) -> str | None:
    """Replace the macros of a text, undefined ones by nothing; None if one has no value before the
    job runs."""
    # macros may be defined by others, and even by themselves
    for _ in range(_DEEPEST):
        if _AT_RUN_TIME.search(text) or len(text) > _LONGEST:
            return None
        macro = _MACRO.search(text)
        if macro is None:
            return text
        name = macro[1].lower()
        if name not in macros and name in _UNKNOWN_BEFORE:
            return None
        text = _MACRO.sub(lambda m: macros.get(m[1].lower(), m[2] or ""), text)
    return None


def count_jobs(description: SubmitDescription, macros: Macros) -> int:
    """Return the number of jobs of a description. InputError where it is not in the text."""
    queue = expand(description.queue, macros)
    if queue == "":
        return 1
    number, _, rest = (queue or "?").partition(" ")
    if not rest and number.isdecimal():
        return int(number)
    items = _ITEMS.match(queue or "")
    if items is not None:
        each = int(items["each"] or 1) if (items["each"] or "1").strip().isdecimal() else 1
        listed = items["rest"].strip()
        if description.items is not None:
            return each * description.items
        if items["how"].lower() == "in" and not listed.startswith("["):
            return each * len(re.findall(r"[^\s,()]+", listed))
    raise InputError(
        f"the number of jobs of 'queue {description.queue[:80]}' is not in the description",
        where=description.where,
        fix="write 'queue N'",
    )


def parse_memory_mib(text: str) -> float | None:
    """Parse an amount of memory, in MiB unless it has another unit; None if it is none."""
    size = _SIZE.match(text.strip())
    return None if size is None else float(size[1]) * _MIB_OF[size[2].upper()]


def read_job(macros: Macros) -> NodeJob:
    """Return a job of a description; ``macros``, by names in lower case, include its commands."""
    unread = []
    procs = 1
    for name in ("request_cpus", "machine_count"):
        if macros.get(name):
            number = expand(macros[name], macros) or ""
            if number.strip().isdecimal() and int(number):
                procs *= int(number)
            else:
                unread.append(name)
    memory_mib = 0.0
    if macros.get("request_memory"):
        size_mib = parse_memory_mib(expand(macros["request_memory"], macros) or "")
        memory_mib = size_mib or 0.0
        if size_mib is None:
            unread.append("request_memory")
    program = expand(macros.get("executable", ""), macros) or ""
    arguments = expand(macros.get("arguments") or macros.get("args", ""), macros)
    given = expand(macros.get("transfer_input_files", ""), macros) or ""
    command = "" if not program or arguments is None else _make_command(program, arguments, macros)
    files = [name.strip() for name in given.split(",")]
    if command and not program.startswith("/") and macros.get("transfer_executable", "") != "false":
        files.insert(0, program)
    return NodeJob(
        procs=procs,
        memory_mib=memory_mib,
        command=command,
        inputs=tuple(dict.fromkeys(_list_inside(files))) if command else (),
        program=program.rpartition("/")[2],
        unread=tuple(unread),
    )


def _list_inside(files: list[str]) -> Iterator[str]:
    """Return files below the folder, as they can be named to a task."""
    for name in files:
        bare = name.removeprefix("./")
        if bare and not bare.startswith("/") and ":" not in bare and ".." not in bare.split("/"):
            yield bare.rstrip("/")


def _make_command(program: str, arguments: str, macros: Macros) -> str:
    own = program if "/" in program else f"./{program}"
    source = expand(macros.get("input", ""), macros)
    words = shlex.join([own, *_split(arguments)])
    return f"{words} < {shlex.quote(source)}" if source else words


def _split(arguments: str) -> list[str]:
    """Split arguments: the new syntax is in double quotes and has single ones for blanks, the old
    one splits at blanks."""
    text = arguments.strip()
    if len(text) < 2 or not (text[0] == text[-1] == '"'):
        return text.replace('\\"', '"').split()
    words, word, quoted, begun = [], "", False, False
    body, at = text[1:-1].replace('""', '"'), 0
    while at < len(body):
        sign = body[at]
        if sign == "'" and quoted and body[at + 1 : at + 2] == "'":
            word, at = word + "'", at + 1
        elif sign == "'":
            quoted, begun = not quoted, True
        elif sign.isspace() and not quoted:
            if word or begun:
                words.append(word)
            word, begun = "", False
        else:
            word += sign
        at += 1
    return [*words, word] if word or begun else words
