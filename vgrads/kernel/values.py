"""Fields of values."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any


def field_values(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass instance by name; values are not copied, as
    :func:`dataclasses.asdict` does."""
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _list_names(kind)}


@cache
def _list_names(kind: Any) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))
