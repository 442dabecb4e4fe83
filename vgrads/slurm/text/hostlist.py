"""Lists of hosts: ``n[1-3,08],login`` (HOSTLIST in scontrol(1))."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product
from math import prod

from vgrads.kernel.units import format_count
from vgrads.slurm.arrays import runs
from vgrads.slurm.errors import SlurmError

_MOST_HOSTS = 65_536
"""Names of a list, as in Slurm (MAX_RANGE of its hostlist)."""

_ELEMENT = re.compile(r"[^,\[\]]*(?:\[[^\]]*\][^,\[\]]*)*")
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_NUMBERED = re.compile(r"(.*?)(\d+)$")


def expand_hostlist(text: str) -> list[str]:
    """Return the names of a list, in its order. SlurmError where these are too many.

    >>> expand_hostlist("login,n[08-10,12]")
    ['login', 'n08', 'n09', 'n10', 'n12']
    """
    names: list[str] = []
    for element in _ELEMENT.findall(text.strip()):
        if element:
            parts = _BRACKETS.split(element)
            choices = [list(_format_numbers(p)) if n % 2 else [p] for n, p in enumerate(parts)]
            _check_count(len(names) + prod(map(len, choices)))
            names.extend(map("".join, product(*choices)))
    return names


def _check_count(count: int) -> None:
    if count > _MOST_HOSTS:
        raise SlurmError(
            f"error: a list of {format_count(count, 'host')}: it may have {_MOST_HOSTS} at most"
        )


def fold_hostlist(names: Iterable[str]) -> str:
    """Return a list for names: those that differ in their last number share brackets.

    >>> fold_hostlist(["n1", "n2", "n3", "n5", "m"])
    'n[1-3,5],m'
    """
    groups: dict[tuple[str, int], list[int]] = {}
    texts: dict[tuple[str, int], str] = {}
    for name in names:
        match = _NUMBERED.match(name)
        if match is None:
            groups.setdefault((name, -1), [])
            texts[name, -1] = name
            continue
        # n08, n09 and n10 have one width, which the first of them shows by its zero
        width = len(match[2]) if match[2].startswith("0") or _wide(match, groups) else 0
        groups.setdefault((match[1], width), []).append(int(match[2]))
    return ",".join(_fold(prefix, width, numbers) for (prefix, width), numbers in groups.items())


def _wide(match: re.Match[str], groups: dict[tuple[str, int], list[int]]) -> bool:
    """Whether names with as many digits, the first a zero, came before."""
    return (match[1], len(match[2])) in groups


def _fold(prefix: str, width: int, numbers: list[int]) -> str:
    if width < 0:
        return prefix
    parts = [
        f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in runs(numbers)
    ]
    if len(parts) == 1 and "-" not in parts[0]:
        return prefix + parts[0]
    return f"{prefix}[{','.join(parts)}]"


def _format_numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        low, _, high = part.partition("-")
        if low.isdigit() and high.isdigit():
            # before the range is made
            _check_count(int(high) - int(low) + 1)
            yield from (f"{n:0{len(low)}d}" for n in range(int(low), int(high) + 1))
        else:
            yield part
