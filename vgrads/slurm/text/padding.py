"""Padding of columns, which the program of a command writes out: what the service holds and sends
does not grow with the width that a format states.

A run of one character is sent as NUL, its length, and the character. No other text of a table has
NUL: neither arguments nor scripts may.
"""

from __future__ import annotations

import re

from vgrads.slurm.errors import SlurmError

MAX_WIDTH = 1_000_000
"""The widest column, in characters."""
_SHORT = 300  # ordinary columns are sent as they are
_RUN = re.compile("\0([0-9]+)([^0-9])")


def run_of(character: str, count: int) -> str:
    """Return a run of a character (no digit), in the form that is sent."""
    return character * count if count < _SHORT else f"\0{count}{character}"


def pad_left(text: str, width: int) -> str:
    """Return a text at the right of a column."""
    return run_of(" ", width - len(text)) + text


def pad_right(text: str, width: int) -> str:
    """Return a text at the left of a column."""
    return text + run_of(" ", width - len(text))


def expanded(text: str, most: int) -> str:
    """Return a text with its runs written out; ValueError if it is longer than ``most``."""
    size = len(text) + sum(int(run[1]) for run in _RUN.finditer(text))
    if size > most:
        raise ValueError(f"{size:,} characters")
    return _RUN.sub(lambda run: run[2] * int(run[1]), text)


def parse_width(digits: str) -> int:
    """Return a stated width; 0 for an empty text. ValueError where it is no number, SlurmError
    where it is too large."""
    size = digits.removeprefix("-").lstrip("0") or "0"
    if size.isdigit() and (len(size) > len(str(MAX_WIDTH)) or int(size) > MAX_WIDTH):
        raise SlurmError(
            f"error: a column of {size[:20]} characters: it may have {MAX_WIDTH} at most"
        )
    return -int(size) if digits.startswith("-") else int(size)
