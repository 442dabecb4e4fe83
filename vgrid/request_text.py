"""Text form of requests.

::

    grid storm for 2h from 30m by 6h with 90% under $20 {
      solvers = tight 4..16 nodes [cores >= 8, memory >= 16GiB] rank speed
      farm    = loose 10 nodes
    }

The clauses after the name may be in any order; ``from``, ``with`` and ``under`` may be omitted.
``#`` begins a comment. An error is reported with its line and column.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from vgrads.kernel.errors import InputError
from vgrads.vgrid.request import GridRequest, NodeGroup, parse_request_document

_TOKEN = re.compile(r"\s+|#[^\n]*|(?P<word>>=|[{}\[\],=]|[^\s{}\[\],=>#]+)")
_CLAUSES = {
    "for": "duration",
    "from": "earliest",
    "by": "deadline",
    "with": "probability",
    "under": "budget_usd",
}
_LIMITS = ("cores", "memory", "speed")
_COUPLINGS = ("tight", "loose")


class _RequestReader:
    """Words with their positions, and errors for them."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        self.words: list[tuple[str, int]] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                self._refuse(position, f"unexpected character '{text[position]}'")
            if match["word"]:
                self.words.append((match["word"], position))
            position = match.end()
        self.next = 0

    @property
    def peek(self) -> str:
        return self.words[self.next][0] if self.next < len(self.words) else ""

    def take(self, required: str = "") -> str:
        """Return the next word; if one is required, only that."""
        word = self.peek
        if not word or (required and word != required):
            self.refuse(f"'{required}'" if required else "more")
        self.next += 1
        return word

    def choice(self, choices: Any, what: str) -> str:
        if self.peek not in choices:
            self.refuse(f"{what} ({', '.join(choices)})")
        return self.take()

    def refuse(self, required: str) -> NoReturn:
        text = f"'{self.peek}'" if self.peek else "the end"
        place = self.words[self.next][1] if self.next < len(self.words) else len(self.text)
        self._refuse(place, f"expected {required}, found {text}")

    def _refuse(self, position: int, what: str) -> NoReturn:
        line = self.text.count("\n", 0, position) + 1
        column = position - self.text.rfind("\n", 0, position)
        raise InputError(what, where=f"{self.where}, line {line}, column {column}")


def parse_request(text: str, where: str) -> GridRequest:
    """Parse the request of a text."""
    reader = _RequestReader(text, where)
    reader.take("grid")
    document: dict[str, Any] = {"name": reader.take()}
    while reader.peek != "{":
        clause = reader.choice(_CLAUSES, "a clause or '{'")
        field = _CLAUSES[clause]
        if field in document:
            # the error is reported at the clause, not after it
            reader.next -= 1
            reader.refuse(f"'{clause}' once")
        word = reader.take()
        document[field] = word.removeprefix("$") if clause == "under" else word
    reader.take("{")
    document["groups"] = []
    while reader.peek != "}":
        document["groups"].append(_group(reader))
    reader.take("}")
    if reader.peek:
        reader.refuse("the end")
    return parse_request_document(document, where)


def _group(reader: _RequestReader) -> dict[str, Any]:
    group: dict[str, Any] = {"name": reader.take()}
    reader.take("=")
    group["coupling"] = reader.choice(_COUPLINGS, "a coupling")
    group["nodes"] = reader.take()
    if reader.peek not in ("node", "nodes"):
        reader.refuse("'nodes'")
    reader.take()
    if reader.peek == "[":
        reader.take()
        while reader.peek != "]":
            limit = reader.choice(_LIMITS, "a limit")
            reader.take(">=")
            group[limit] = reader.take()
            # words end at spaces: `4GiB` is one of them, `4 GiB` two
            if reader.peek in ("GiB", "MiB", "GB", "MB", "TiB"):
                group[limit] += reader.take()
            if reader.peek != "]":
                reader.take(",")
        reader.take("]")
    if reader.peek == "rank":
        reader.take()
        group["rank"] = reader.choice(("probability", "speed", "price", "start"), "a rank")
    return group


def write_request(request: GridRequest) -> str:
    """Return the text of a request; :func:`parse_request` returns the same request."""
    head = (
        f"grid {request.name} for {request.duration_s:g}s from {request.earliest_s:g}s by "
        f"{request.deadline_s:g}s with {request.probability:.12g}"
    )
    budget = "" if request.budget_usd is None else f" under ${request.budget_usd:.12g}"
    lines = "".join(f"  {_group_text(group)}\n" for group in request.groups)
    return f"{head}{budget} {{\n{lines}}}\n"


def _group_text(group: NodeGroup) -> str:
    count = str(group.least) if group.least == group.most else f"{group.least}..{group.most}"
    limits = [f"cores >= {group.cores}"]
    if group.memory_mib is not None:
        limits.append(f"memory >= {group.memory_mib:.12g}MiB")
    if group.speed:
        limits.append(f"speed >= {group.speed:.12g}")
    return f"{group.name} = {group.coupling} {count} nodes [{', '.join(limits)}] rank {group.rank}"
