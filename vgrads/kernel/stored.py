"""Names of dataclass fields in stored documents and journals.

A renamed field keeps the name under which earlier versions stored it, so old documents can still be
read, and new ones have the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields
from functools import cache
from typing import Any

_KEY = "stored_as"


def stored_as(name: str, default: Any = MISSING) -> Any:
    """Return a dataclass field that is stored under ``name``.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Point:
    ...     x: int = stored_as("left", default=0)
    >>> stored_names(Point)
    {'x': 'left'}
    """
    return field(default=default, metadata=stored_under(name))


def stored_under(name: str) -> Mapping[str, str]:
    """Return the metadata of a field without a default: type checkers take every other call for
    one."""
    return {_KEY: name}


def stored_name(item: Field[Any]) -> str:
    """Return the name under which a dataclass field is stored."""
    return str(item.metadata.get(_KEY, item.name))


def stored_names(kind: Any) -> Mapping[str, str]:
    """Return field name → stored name, for a dataclass or an instance."""
    return _names_of(kind if isinstance(kind, type) else type(kind))


@cache
def _names_of(kind: Any) -> Mapping[str, str]:
    return {item.name: stored_name(item) for item in fields(kind)}


def as_stored(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass instance by stored name; values are not copied."""
    return {stored: getattr(value, name) for name, stored in stored_names(value).items()}


def from_stored(kind: Any, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Convert stored names back to field names, as arguments of ``kind``; unknown names remain."""
    names = {old: name for name, old in stored_names(kind).items()}
    return {names.get(old, old): value for old, value in stored.items()}
