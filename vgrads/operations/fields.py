"""What the fields of requests and answers mean, for every interface: commands, REST, Python and the
reference are made of it.

A request or answer is a frozen dataclass; each field is ``name: Annotated[type, About(...)]``.
Interfaces read these from the class when they are generated or described, never when a command
starts.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class About:
    """A field: ``help``, one or two sentences; ``unit`` (s, MiB, USD, processors); an ``example``;
    bounds of a number, where ``above`` and ``below`` exclude their value."""

    help: str
    unit: str = ""
    example: Any = None
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDescription:
    """A field of a request or answer, as declared. ``default``: MISSING for a required one."""

    name: str
    type: Any
    about: About
    default: Any
    marks: tuple[Any, ...] = ()

    @property
    def is_required(self) -> bool:
        """Return True where the field has no default."""
        return self.default is MISSING


def describe_fields(of: type) -> tuple[FieldDescription, ...]:
    """Return the fields of a request or answer. Raise TypeError for one without an
    :class:`About`."""
    hints = get_type_hints(of, include_extras=True)
    return tuple(_describe(of, entry, hints[entry.name]) for entry in dataclasses.fields(of))


def _describe(of: type, entry: dataclasses.Field[Any], hint: Any) -> FieldDescription:
    marks: tuple[Any, ...] = ()
    kind = hint
    while get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        marks = (*more, *marks)
    abouts = [mark for mark in marks if isinstance(mark, About)]
    if not abouts:
        raise TypeError(f"{of.__name__}.{entry.name} has no About")
    default = entry.default
    if entry.default_factory is not MISSING:
        default = entry.default_factory()
    others = tuple(mark for mark in marks if not isinstance(mark, About))
    return FieldDescription(
        name=entry.name, type=kind, about=abouts[-1], default=default, marks=others
    )
