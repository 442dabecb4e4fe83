"""What an expression may give: numbers, texts, truth, lists of them, and two that are neither true
nor false."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeAlias


class Nothing(Enum):
    """No value: ``UNDEFINED`` where a name has none, ``ERROR`` where there can be none. Neither
    counts as true."""

    UNDEFINED = "undefined"
    ERROR = "error"

    def __bool__(self) -> bool:
        return False


UNDEFINED = Nothing.UNDEFINED
ERROR = Nothing.ERROR

Value: TypeAlias = bool | int | float | str | Nothing | tuple[Any, ...] | None
"""What stands in an ad or comes out of an expression; None is taken for undefined."""
Ad: TypeAlias = Mapping[str, Any]
"""A host, a job, a queue, a grid as it is known: names and plain values, lists and ads in it."""
