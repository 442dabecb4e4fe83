"""What is expected of a kind without records: from the tools that its name or command names, its
input size and its processors.

Each tool has a distribution over kinds that use it, in different workflows or of different owners:
number, mean and variance of the logarithm of the run time at a usual size on one processor. Numbers
fitted to recorded workflows come with the package (``scripts/fit_tools.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources
from itertools import pairwise
from math import log
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from vgrads.runtimes.laws import Array
from vgrads.runtimes.levels import MEAN
from vgrads.traces.task_lines import find_programs
from vgrads.traces.task_record import TaskRecord

USUAL_BYTES = 1e7
SIZE_POWER, WIDTH_POWER = 0.25, 0.4
"""Powers of input size and of processors by which run times of different programs differ; chosen,
as are the numbers below, on 14 families of recorded workflows, each left out in turn."""
FAMILY_SD = 1.5
"""Standard deviation of the logarithm that kinds without records share in one workflow."""
OWNERS = 3
"""Owners who must have run a tool before its distribution serves others."""
_BETWEEN = 2.0
"""Standard deviation of the means of tools."""
_WITHIN, _WITHIN_COUNT = 0.8, 3.0
"""Standard deviation between kinds that use one tool, and the number of kinds that it counts as."""
_ODD, _ODD_SD = 0.25, 2.5
"""Share of kinds that have little in common with others of the same tool."""
_LONGER_NAME = 0.5
"""Number of kinds by which a whole name or a pair of words is preferred to one word."""
_TIMES = (0.05, 1e9)
_WORD = re.compile(r"[a-z0-9]+")
_CAPITAL = re.compile(r"([a-z0-9])([A-Z][a-z])")
_ENDING = re.compile(r"\.(py|sh|r|pl|jar)$", re.IGNORECASE)


class ToolLevel(NamedTuple):
    """Kinds that use one tool: their number, mean and variance of the logarithms of their run
    times, as distances from :data:`MEAN`."""

    kinds: float
    mean: float
    variance: float = _WITHIN**2


Tools = Mapping[str, ToolLevel]
NO_TOOLS: Tools = MappingProxyType({})


@lru_cache(maxsize=256)  # a task is asked for at every site
def list_names(kind: str, command: str = "") -> tuple[str, ...]:
    """Return the names under which a task's tool may be listed: program, pairs of words, words.

    >>> list_names("ALIGN:SAMTOOLS_SORT")
    ('samtools sort', 'samtools', 'sort')
    >>> list_names("fit", "/usr/bin/bwa mem -t 4 x.fa")
    ('/bwa', 'bwa mem', 'bwa', 'mem', 'fit')
    """
    programs = dict(find_programs(command))
    if not programs and command.strip():  # only settings, or a command such as echo
        programs = {command.split(maxsplit=1)[0]: command}
    names: dict[str, None] = {}
    for program, part in programs.items():
        if len(programs) == 1:  # else a short one may only prepare for another
            names[f"/{program.lower()}"] = None
        after = part.partition(program)[2].split()[:1]
        names |= dict.fromkeys(_list_names(" ".join([program, *(w for w in after if w.isalpha())])))
    last = re.split(r"[:.]", _ENDING.sub("", kind))[-1]
    words = _split_words(last)
    if len(words) == 1 and not programs:
        names[f"/{words[0]}"] = None
    return tuple(names | dict.fromkeys(_list_names(last)))


def _list_names(text: str) -> list[str]:
    words = _split_words(_ENDING.sub("", text.strip()))
    return [*(f"{a} {b}" for a, b in pairwise(words)), *words]


def _split_words(text: str) -> list[str]:
    return _WORD.findall(_CAPITAL.sub(r"\1 \2", text).lower())


def by_size(input_bytes: float | None, procs: int) -> float:
    """Return by how much the logarithm of a run time exceeds that of a usual size on one
    processor."""
    size = log(max(input_bytes, 1e3) / USUAL_BYTES) if input_bytes else 0.0
    return SIZE_POWER * size + WIDTH_POWER * log(procs)


def level_of(records: Iterable[TaskRecord]) -> float:
    """Return the level of a kind, at a usual size on one processor, from :data:`MEAN`."""
    values = [
        log(min(max(r.seconds, _TIMES[0]), _TIMES[1])) - by_size(r.input_bytes, r.procs)
        for r in records
    ]
    return sum(values) / len(values) - MEAN


def of_kinds(kinds: Iterable[tuple[Collection[str], float]]) -> Tools:
    """Return the distribution of every name, from the names and the level of each kind."""
    levels: dict[str, list[float]] = {}
    for names, level in kinds:
        for name in names:
            levels.setdefault(name, []).append(level)
    return {name: _compute_level(values) for name, values in sorted(levels.items())}


def of_families(families: Iterable[Tools]) -> Tools:
    """Return the distributions over families of workflows: each counts once."""
    means = ((name, level.mean) for tools in families for name, level in tools.items())
    return of_kinds(([name], mean) for name, mean in means)


def sums_of(owners: Iterable[Tools]) -> dict[str, list[float]]:
    """Return, of the means of the owners who ran a tool: number, sum, and sum of squares; of those
    tools of which :func:`without` may say something."""
    sums: dict[str, list[float]] = {}
    for tools in owners:
        for name, level in tools.items():
            entry = sums.setdefault(name, [0, 0.0, 0.0])
            for at in range(3):
                entry[at] += level.mean**at
    return {name: entry for name, entry in sorted(sums.items()) if entry[0] >= OWNERS}


def without(sums: Mapping[str, Sequence[float]], own: Tools) -> Tools:
    """Return the distributions over owners but one, of tools that enough of them have run."""
    results = {}
    for name, numbers in sums.items():
        mine = [1, own[name].mean, own[name].mean ** 2] if name in own else [0, 0, 0]
        count, total, squares = (a - b for a, b in zip(numbers, mine, strict=True))
        if count >= OWNERS:
            # rounding of the differences must not make it negative
            spread = max(0.0, squares - total**2 / count)
            results[name] = ToolLevel(
                count, total / count, _compute_pooled_variance(count - 1, spread)
            )
    return results


def joined(*several: Tools) -> Tools:
    """Return the distributions of all: kinds of one name together."""
    result: dict[str, ToolLevel] = {}
    for tools in several:
        for name, new in tools.items():
            old = result.get(name)
            result[name] = new if old is None else _share_tool(old, new)
    return result


@cache
def load_shipped() -> Tools:
    """Return the distributions that come with the package."""
    text = resources.files(__package__).joinpath("tools.json").read_text(encoding="utf-8")
    return from_json(json.loads(text))


def to_json(tools: Tools) -> dict[str, list[float]]:
    """Return the distributions as JSON."""
    return {name: [round(number, 3) for number in level] for name, level in tools.items()}


def from_json(document: Mapping[str, Sequence[float]]) -> Tools:
    """Read the output of :func:`to_json`."""
    return {name: ToolLevel(*level) for name, level in document.items()}


def choose_best(names: Iterable[str], tools: Tools) -> str:
    """Return the listed name that says most about a task; empty if none is listed."""

    def rank(name: str) -> float:
        longer = _LONGER_NAME if " " in name or name.startswith("/") else 0.0
        return tools[name].kinds + longer

    return max((name for name in names if name in tools), key=rank, default="")


def expected(level: ToolLevel) -> tuple[float, Array]:
    """Return what is expected of the next kind that uses a tool: the weight of this knowledge, and
    the parts (3, 2) of the distribution of its level: weights, means, variances."""
    kinds, mean, variance = level
    precision = kinds / variance + _BETWEEN**-2
    middle = MEAN + mean * kinds / variance / precision
    spreads = [variance + 1 / precision, max(_ODD_SD**2, variance)]
    parts = np.array([[1 - _ODD, _ODD], [middle, middle], spreads])
    return kinds / (kinds + _LONGER_NAME), parts


def _compute_level(values: Sequence[float]) -> ToolLevel:
    mean = sum(values) / len(values)
    squares = sum((value - mean) ** 2 for value in values)
    return ToolLevel(float(len(values)), mean, _compute_pooled_variance(len(values) - 1, squares))


def _compute_pooled_variance(free: float, squares: float) -> float:
    return (_WITHIN_COUNT * _WITHIN**2 + squares) / (_WITHIN_COUNT + free)


def _share_tool(one: ToolLevel, other: ToolLevel) -> ToolLevel:
    kinds = one.kinds + other.kinds
    mean = (one.kinds * one.mean + other.kinds * other.mean) / kinds
    # the squares of each about its own mean, and what the distance of the means adds
    squares = one.kinds * other.kinds / kinds * (one.mean - other.mean) ** 2
    for level in (one, other):
        free = level.kinds - 1
        squares += level.variance * (_WITHIN_COUNT + free) - _WITHIN_COUNT * _WITHIN**2
    return ToolLevel(kinds, mean, _compute_pooled_variance(kinds - 1, squares))
