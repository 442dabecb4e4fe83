"""What every reader shares: the files that a workflow's file names, and the closing line on what
was read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vgrads.kernel.errors import InputError
from vgrads.kernel.files import read_text
from vgrads.kernel.units import format_count
from vgrads.kernel.user_files import Identity, identity_of
from vgrads.workflows.dag import Workflow

MOST_TASKS = 1_000_000
MOST_EDGES = 10_000_000
"""Tasks and edges of one workflow: a few lines that name each other can describe any number."""
_MOST_FOLLOWED = 50_000
_DEEPEST = 50
_LARGEST = 2**28
_LONGEST_LINE = 990
"""Characters of a note in the document of a set are limited (``vgrads/workflows/sets.py``)."""
_MOST_NAMED = 8


@dataclass(slots=True)
class Reading:
    """One workflow as it is read, from all its files: opens them, and counts what has no effect.
    ``alone``: its text came without a folder, so that none may be opened."""

    path: Path
    most_tasks: int = MOST_TASKS
    alone: bool = False
    _counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _listed: dict[str, dict[str, None]] = field(default_factory=dict)
    _remarks: dict[str, None] = field(default_factory=dict)
    _texts: dict[Path, str] = field(default_factory=dict)
    _open: list[tuple[Identity | None, Path]] = field(default_factory=list)
    _followed: int = 0

    def count(self, noun: str, verb: str, what: str, number: int = 1) -> None:
        """Count things that have no effect: ``count("script", "are", "not run")``."""
        self._counts[noun, verb, what] += number

    def list(self, what: str, name: str) -> None:
        """List a name once among those of which ``what`` is true: ``list("not used", "DOT")``."""
        self._listed.setdefault(what, {})[name] = None

    def say(self, text: str) -> None:
        """Add a part to the closing line, once."""
        self._remarks[text] = None

    def closing_line(self, workflow: Workflow) -> str:
        """Return what was read, and then what of the files has no effect."""
        tasks = workflow.tasks.values()
        edges = sum(len(task.parents) for task in tasks)
        retries = sum(any(rule.retries for rule in task.environment.errors) for task in tasks)
        read = [format_count(len(tasks), "task"), format_count(edges, "edge")]
        if retries:
            read.append(format_count(retries, "retry"))
        parts = [
            *(
                f"{format_count(n, noun, verb)} {what}"
                for (noun, verb, what), n in self._counts.items()
            ),
            *(f"{what}: {_enumerate_names(list(names))}" for what, names in self._listed.items()),
            *self._remarks,
        ]
        line = "; ".join((", ".join(read), *parts))
        return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"

    def limit(self, tasks: int, edges: int, place: str) -> None:
        """Raise InputError for more tasks or edges than can be read."""
        if tasks > self.most_tasks or edges > MOST_EDGES:
            most = format_count(self.most_tasks, "task")
            raise InputError(
                f"describes more than {most} or {MOST_EDGES:,} edges",
                where=place,
                fix="split the workflow; submit independent tasks as a bag",
            )

    @contextmanager
    def follow(self, path: Path, place: str) -> Iterator[str]:
        """Return the text of a file that is named at ``place``, while it is read. InputError if it
        cannot be read, is being read already, or there are too many."""
        self._refuse_other(path, place)
        identity = identity_of(path)
        if not self._open:
            self._open.append((identity_of(self.path), self.path))
        if identity is None:
            raise InputError(f"names {path}, which does not exist", where=place)
        # by identity: links give one file several paths
        names = [str(file) for opened, file in self._open if opened == identity]
        if names:
            chain = " → ".join(str(file) for _, file in (*self._open, (identity, path)))
            raise InputError(f"names a file that contains this line: {chain}", where=place)
        self._followed += 1
        if self._followed > _MOST_FOLLOWED or len(self._open) > _DEEPEST:
            raise InputError(
                f"names files {_DEEPEST} deep, or more than {_MOST_FOLLOWED:,} of them", where=place
            )
        self._open.append((identity, path))
        yield self.text(path, place)
        self._open.pop()

    def text(self, path: Path, place: str) -> str:
        """Return the text of a file that is named at ``place``; InputError if it cannot be read."""
        self._refuse_other(path, place)
        if path not in self._texts:
            try:
                if path.stat().st_size > _LARGEST:
                    raise InputError(f"has more than {_LARGEST:,} bytes")
                self._texts[path] = read_text(path, any_kind=False)
            except InputError as error:
                raise InputError(f"names {path}, which {error.what}", where=place) from None
            except OSError as error:
                message = f"names {path}, which cannot be read: {error.strerror}"
                raise InputError(message, where=place) from None
        return self._texts[path]

    def _refuse_other(self, path: Path, place: str) -> None:
        if self.alone:
            raise InputError(f"names the file {path.name}, which is not in this text", where=place)


def with_line(name: str, pattern: str, text: str) -> str:
    """Return a name with the first line of a text where a pattern matches, if any does."""
    match = re.search(pattern, text, re.MULTILINE)
    return f"{name} (line {text.count(chr(10), 0, match.start()) + 1})" if match else name


def _enumerate_names(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
