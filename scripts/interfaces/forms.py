"""Types and conversions of values: at the command line, in Python, in REST."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from vgrads.operations.fields import FieldDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """How an interface writes a type: ``kind``, an annotation; ``convert``, an expression with
    ``{0}`` for the value and ``{1}`` for the name in errors, empty where nothing is converted; the
    names that both need."""

    kind: str
    convert: str = ""
    needs: tuple[str, ...] = ()


_UNITS = "vgrads.kernel.units"
_ARGUMENTS = "vgrads.interface.arguments"
ON_COMMAND_LINE = {
    "duration": Written(
        kind="str", convert='parse_duration({0}, "{1}")', needs=(f"{_UNITS}:parse_duration",)
    ),
    "share": Written(
        kind="str", convert='parse_probability({0}, "{1}")', needs=(f"{_UNITS}:parse_probability",)
    ),
    "instant": Written(
        kind="str", convert='parse_instant({0}, "{1}")', needs=(f"{_UNITS}:parse_instant",)
    ),
    "deadline": Written(kind="str"),
    "names": Written(kind="str"),
    "speed": Written(
        kind="str", convert='parse_speed({0}, "{1}")', needs=(f"{_UNITS}:parse_speed",)
    ),
}
IN_PYTHON = {
    "duration": Written(
        kind="Duration",
        convert='seconds_of({0}, "{1}")',
        needs=(f"{_ARGUMENTS}:Duration", f"{_ARGUMENTS}:seconds_of"),
    ),
    "share": Written(
        kind="float | str",
        convert='parse_probability({0}, "{1}")',
        needs=(f"{_UNITS}:parse_probability",),
    ),
    "instant": Written(
        kind="Instant",
        convert='instant_of({0}, "{1}")',
        needs=(f"{_ARGUMENTS}:Instant", f"{_ARGUMENTS}:instant_of"),
    ),
    "deadline": Written(
        kind="Duration | datetime",
        convert='deadline_text({0}, "{1}")',
        needs=(
            f"{_ARGUMENTS}:Duration",
            f"{_ARGUMENTS}:deadline_text",
            "datetime:datetime",
        ),
    ),
    "speed": Written(
        kind="float | str", convert='parse_speed({0}, "{1}")', needs=(f"{_UNITS}:parse_speed",)
    ),
    "names": Written(
        kind="str | Sequence[str]",
        convert="joined_names({0})",
        needs=(f"{_ARGUMENTS}:joined_names", "collections.abc:Sequence"),
    ),
    "path": Written(
        kind="FileName",
        convert="path_of({0})",
        needs=(f"{_ARGUMENTS}:FileName", f"{_ARGUMENTS}:path_of"),
    ),
}


def is_optional(kind: Any) -> bool:
    """Return True where None is a value."""
    return get_origin(kind) in (UnionType, Union) and NoneType in get_args(kind)


def is_list(kind: Any) -> bool:
    """Return True for a tuple of values."""
    return get_origin(kind) is tuple


def base_name(field: FieldDescription) -> str:
    """Return the name of the type without None, or of the items of a list."""
    kind = field.type
    if is_list(kind):
        kind = get_args(kind)[0]
    plain = [item for item in get_args(kind) if item is not NoneType] or [kind]
    return " | ".join(item.__name__ for item in plain)


def has_path(field: FieldDescription) -> bool:
    """Return True for the name of a file."""
    return field.type is Path or Path in get_args(field.type)


def import_lines(names: Sequence[str]) -> str:
    """Return import statements for ``module:name``."""
    return "\n".join(
        f"from {module} import {name}"
        for module, name in sorted({tuple(text.split(":")) for text in names})
    )


def address(of: Any) -> str:
    """Return ``module:name`` of a class or function."""
    return f"{of.__module__}:{of.__name__}"
