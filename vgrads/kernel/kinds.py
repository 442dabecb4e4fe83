"""By what tasks are taken for alike where only their names and programs are known."""

from __future__ import annotations

import re

_NUMBERED = re.compile(r"([_.-](ID)?\d+)$")


def without_number(name: str) -> str:
    """A task's name as a kind: without the numbers and ids at its end.

    >>> without_number("mProject_ID0000012"), without_number("cpuhog_00000003"),
    without_number("bowtie2") ('mProject', 'cpuhog', 'bowtie2')
    """
    while (shorter := _NUMBERED.sub("", name)) and shorter != name:
        name = shorter
    return name


def recorded_kind(name: str, program: str) -> str:
    """The kind of a task that was recorded: its program, if its name begins with that; else its
    name without numbers and without what a process is part of."""
    if program and name.startswith(program):
        return program
    return re.split(r"[.:]", without_number(name))[-1] or name
