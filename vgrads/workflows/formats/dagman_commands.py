"""The commands of HTCondor DAGMan files, line by line, before they are understood."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vgrads.kernel.errors import InputError

NODES = ("JOB", "FINAL", "SERVICE", "PROVISIONER")
UNUSED = (
    *("CONFIG", "DOT", "ENV", "JOBSTATE_LOG", "NODE_STATUS_FILE", "SAVE_POINT_FILE"),
    "SET_JOB_ATTR",
)
NOT_HONOURED = ("ABORT_DAG_ON", "CATEGORY", "MAXJOBS", "PRE_SKIP", "PRIORITY", "TOLERANCE")
_WORD = re.compile(r"""(?:[^\s"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')+""")
_QUOTED = re.compile(r""""((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'""")


class DagCommand(NamedTuple):
    """A command with its words and, of an inline description, the lines; ``rest``: all after the
    command, as written."""

    place: str
    command: str
    words: Sequence[str]
    rest: str
    inline: str | None


def read_commands(text: str, where: str) -> Iterator[DagCommand]:
    """Return the commands of a file, with continued lines and inline descriptions."""
    lines = enumerate(text.splitlines(), 1)
    pending, first = "", 0
    for number, line in lines:
        bare = line.strip()
        if not bare or bare.startswith(("#", "//")):
            continue
        first = first if pending else number
        pending = f"{pending} {bare}" if pending else bare
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        yield _read_command(pending, lines, f"{where}: line {first}")
        pending = ""
    if pending.strip():
        yield _read_command(pending, lines, f"{where}: line {first}")


def _read_command(line: str, lines: Iterator[tuple[int, str]], place: str) -> DagCommand:
    typed, *after = line.split(maxsplit=1)
    command, rest = typed.upper().replace("-", "_"), after[0] if after else ""
    # what follows these has a syntax of its own
    if command in ("SCRIPT", "VARS", *UNUSED, *NOT_HONOURED):
        return DagCommand(place, command, (), rest, None)
    words = [unquote(word) for word in _WORD.findall(rest)]
    if command not in (*NODES, "SUBMIT_DESCRIPTION") or len(words) < 2:
        return DagCommand(place, command, words, rest, None)
    if not words[1].startswith(("{", "@=")):
        return DagCommand(place, command, words, rest, None)
    end = "}" if words[1].startswith("{") else f"@{words[1][2:]}"
    inline: list[str] = []
    for _, inner in lines:
        bare = inner.strip()
        if bare == end or bare.startswith(f"{end} "):
            words = [words[0], "", *bare[len(end) :].split()]
            return DagCommand(place, command, words, rest, "\n".join(inline))
        inline.append(inner)
    raise InputError(f"the description has no end '{end}'", where=place)


def unquote(word: str) -> str:
    """Remove quotes, within which a backslash escapes the next character."""
    return _QUOTED.sub(lambda m: re.sub(r"\\(.)", r"\1", m[1] if m[2] is None else m[2]), word)


def take_words(statement: DagCommand, number: int, usage: str) -> Sequence[str]:
    """Return the words of a command; InputError unless there are so many."""
    if len(statement.words) != number:
        raise InputError(f"write {usage}", where=statement.place)
    return statement.words


def parse_count(text: str, place: str) -> int:
    """Parse a number that is not negative; InputError names its line."""
    if not text.isdecimal():
        raise InputError(f"'{text}' is not a number", where=place)
    return int(text)
