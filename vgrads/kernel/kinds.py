"""Kinds of tasks, derived from names and programs."""

from __future__ import annotations

import re

_NUMBERED = re.compile(r"([_.-](ID)?\d+)$")


def without_number(name: str) -> str:
    """Return a task's name as a kind: without the numbers and ids at its end.

    >>> [without_number(n) for n in ("mProject_ID0000012", "cpuhog_00000003", "bowtie2")]
    ['mProject', 'cpuhog', 'bowtie2']
    """
    while (shorter := _NUMBERED.sub("", name)) and shorter != name:
        name = shorter
    return name


def recorded_kind(name: str, program: str) -> str:
    """Return the kind of a recorded task: its program, if its name begins with that; otherwise its
    name without numbers and without the prefix of its process."""
    if program and name.startswith(program):
        return program
    return re.split(r"[.:]", without_number(name))[-1] or name
