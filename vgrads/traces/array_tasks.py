"""Tasks of job arrays as batch systems write them."""

from __future__ import annotations

import re

_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def count_tasks(text: str) -> int:
    """Return the number of tasks of an array as batch systems write it; 1 for other text.

    >>> count_tasks("2-1000:1"), count_tasks("1,3,5-9:2"), count_tasks("7"), count_tasks("")
    (999, 5, 1, 1)
    """
    count = 0
    for part in text.split("%", maxsplit=1)[0].split(","):
        match = _TASKS.fullmatch(part.strip())
        if match and match[2]:
            count += max(0, int(match[2]) - int(match[1])) // max(1, int(match[3] or 1)) + 1
        elif match:
            count += 1
    return max(1, count)
