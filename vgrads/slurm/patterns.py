"""Names of a job's output files: ``%j``, ``%4a`` and the like (FILENAME PATTERN in sbatch(1))."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

NO_INDEX = 4294967294
"""What Slurm prints for %a where there is no array."""
_PLACEHOLDER = re.compile(r"%(\d*)([AabJjNnstux%])")
_NUMBERS = frozenset("AabJjnst")
_WIDEST = 10


@dataclass(frozen=True)
class PatternValues:
    """What the placeholders of one job stand for; ``array_id`` is None outside arrays."""

    job: int
    name: str
    user: str
    node: str = ""
    array_id: int | None = None
    array_index: int | None = None
    node_number: int = 0
    task: int = 0
    step: str = "batch"


def default_output(*, is_array: bool) -> str:
    """Return the pattern of the output file where none was stated."""
    return "slurm-%A_%a.out" if is_array else "slurm-%j.out"


def expand_pattern(pattern: str, values: PatternValues) -> str:
    """Replace the placeholders; a backslash in the pattern switches this off and is removed.

    >>> expand_pattern("%x_%4j.%%", PatternValues(12, "sort", "ann"))
    'sort_0012.%'
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")
    index = NO_INDEX if values.array_index is None else values.array_index
    texts = {
        "A": str(values.job if values.array_id is None else values.array_id),
        "a": str(index),
        "b": str(index % 10),
        "J": str(values.job) if values.step == "batch" else f"{values.job}.{values.step}",
        "j": str(values.job),
        "N": values.node.partition(".")[0],
        "n": str(values.node_number),
        "s": values.step,
        "t": str(values.task),
        "u": values.user,
        "x": values.name,
        "%": "%",
    }

    def replaced(match: re.Match[str]) -> str:
        width, letter = min(int(match[1] or 0), _WIDEST), match[2]
        return texts[letter].zfill(width) if letter in _NUMBERS else texts[letter]

    return _PLACEHOLDER.sub(replaced, pattern)


def output_path(pattern: str, folder: str, values: PatternValues) -> str:
    """Return the absolute path of an output file; relative names lie in the job's folder."""
    return posixpath.join(folder, expand_pattern(pattern, values))
