"""Values of an expression: numbers, texts, truth values, lists of them, and two that are neither
true nor false."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeAlias


class Nothing(Enum):
    """No value: ``UNDEFINED`` where a name has none, ``ERROR`` where none is possible. Neither
    counts as true."""

    UNDEFINED = "undefined"
    ERROR = "error"

    def __bool__(self) -> bool:
        return False


UNDEFINED = Nothing.UNDEFINED
ERROR = Nothing.ERROR

Value: TypeAlias = bool | int | float | str | Nothing | tuple[Any, ...] | None
"""A value in an ad or of an expression; None counts as undefined."""
Operand: TypeAlias = Any
"""A :data:`Value` of which an operator or function looks up the kind itself."""
Ad: TypeAlias = Mapping[str, Any]
"""The ad of a node, job, queue or grid: names and plain values, lists and ads."""
