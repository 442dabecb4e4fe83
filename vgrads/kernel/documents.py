"""Documents that users write (YAML, JSON, TOML) → checked models, with errors that name the field.

Decision 0002 explains why Pydantic models are also used here, and not only in the portal.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from vgrads.kernel.document_kinds import refuse_other_kind
from vgrads.kernel.errors import InputError
from vgrads.kernel.files import read_text
from vgrads.kernel.problems import MAX_REPORTED, Sourced, list_problems
from vgrads.kernel.units import LONGEST_S

_SMALLEST = 1e-6
"""Smaller values are input errors, and overflow if something is divided by them."""


def _reject_tiny(value: float) -> float:
    if 0 < value < _SMALLEST:
        raise ValueError(f"must be 0 or at least {_SMALLEST:g}, is {value:g}")
    return value


Seconds = Annotated[
    float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False), AfterValidator(_reject_tiny)
]
"""A time in a document: at most thirty years."""
NotNegative = Annotated[
    float, Field(ge=0, le=1e12, allow_inf_nan=False), AfterValidator(_reject_tiny)
]
"""A size, a rate or a price."""
Positive = Annotated[float, Field(ge=_SMALLEST, le=1e12, allow_inf_nan=False)]
"""The same without 0, where it would be meaningless."""
Count = Annotated[int, Field(ge=1, le=100_000_000)]
"""A number of things: cores, jobs, workflows."""


def _name_of_variable(value: str) -> str:
    if not (value.isascii() and value.isidentifier()):
        raise ValueError(f"'{value}' is not a valid name of a variable")
    if value.startswith("VGRADS_"):
        raise ValueError(f"'{value}' is never passed to tasks")
    return value


Variable = Annotated[str, Field(max_length=200), AfterValidator(_name_of_variable)]
"""The name of a variable that may be passed to tasks."""


class Document(BaseModel):
    """Base of all documents: unknown keys are errors, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: object, info: ValidationInfo) -> Any:
        """Reject booleans for numbers: Pydantic would accept ``false`` as 0, and YAML reads ``no``
        as false, which is hardly ever intended."""
        if (value is True or value is False) and not _takes_truth(cls, str(info.field_name)):
            raise ValueError(f"must not be {str(value).lower()}")
        if not _holds_documents(cls, str(info.field_name)) and _has_nul(value):
            raise ValueError("must not contain a NUL character")
        return value


def _has_nul(value: object) -> bool:
    """True if a text, or one in plain collections, has a NUL character."""
    left = [value]
    while left:  # no recursion: documents may be nested deeply
        item = left.pop()
        if isinstance(item, str):
            if "\0" in item:
                return True
        elif isinstance(item, dict):
            left += item.keys()
            left += item.values()
        elif isinstance(item, list | tuple):
            left += item
    return False


@cache
def _takes_truth(model: type[BaseModel], field: str) -> bool:
    """True if a field may be a boolean."""
    return _mentions_kind(model.model_fields[field].annotation, bool)


@cache
def _holds_documents(model: type[BaseModel], field: str) -> bool:
    """True if a field contains documents, which check their own texts and name their own fields."""
    return _contains_document(model.model_fields[field].annotation)


def _contains_document(annotation: object) -> bool:
    own = isinstance(annotation, type) and issubclass(annotation, Document)
    return own or any(map(_contains_document, get_args(annotation)))


def _mentions_kind(annotation: object, kind: type) -> bool:
    return annotation in (kind, Any) or any(_mentions_kind(a, kind) for a in get_args(annotation))


Model = TypeVar("Model", bound=Document)


Value = TypeVar("Value")


def as_value_error(parse: Callable[[], Value]) -> Value:
    """Call a parser and convert its InputError into the ValueError that a validator needs."""
    try:
        return parse()
    except InputError as error:
        raise ValueError(error.without_place) from error


def load_mapping(path: Path) -> dict[str, Any]:
    """Load the top-level mapping of a YAML, JSON or TOML file."""
    text = read_text(path)
    if not text.strip():
        raise InputError("the file is empty", where=str(path))
    suffix = path.suffix.lower()
    return parse_mapping(
        text, str(path), suffix.lstrip(".") if suffix in (".toml", ".json") else "yaml"
    )


def parse_mapping(text: str, where: str, kind: str = "yaml") -> Sourced:
    """Parse the mapping of a text of a kind (yaml, json, toml); InputError states where it cannot
    be read."""
    try:
        parsed = _PARSERS[kind](text)
    except yaml.MarkedYAMLError as error:
        number = error.problem_mark.line + 1 if error.problem_mark else None
        line = f" in line {number}" if number else ""
        raise InputError(
            f"cannot be parsed: {error.problem or error.context}{line}", where=where
        ).at_line(number) from error
    except RecursionError as error:
        raise InputError("is nested too deeply", where=where) from error
    except InputError as error:
        raise error.within(where) from None
    except (
        yaml.YAMLError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
    ) as error:
        # from constructors of values: invalid date, invalid number, a mapping as a key
        raise InputError(
            f"cannot be parsed: {' '.join(str(error).split())}", where=where
        ) from error
    if not isinstance(parsed, dict):
        raise InputError("must be a mapping of keys to values", where=where)
    return Sourced(parsed, text, kind)


_MOST_REPEATED = 20_000
"""Limit of values that aliases of a YAML document may add: a few lines can expand to billions."""


def _read_yaml(text: str) -> Any:
    # before the values are built, which would take all memory
    _refuse_floods(text)
    return yaml.load(text, Loader=_YAML)


_YAML: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _refuse_floods(text: str) -> None:
    """Raise InputError if nested aliases expand a text far beyond its size."""
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = []  # anchor, values before it
    count = repeated = 0
    for event in yaml.parse(text, Loader=_YAML):
        if isinstance(event, yaml.AliasEvent):
            size = sizes.get(str(event.anchor), 1)
            count, repeated = count + size, repeated + size
            if repeated > _MOST_REPEATED:
                raise InputError("repeats too much through aliases", fix="write it without aliases")
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, count))
            count += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            if anchor is not None:
                sizes[anchor] = count - before
        elif isinstance(event, yaml.ScalarEvent):
            count += 1


_PARSERS: dict[str, Callable[[str], Any]] = {
    "yaml": _read_yaml,
    "json": json.loads,
    "toml": tomllib.loads,
}


def validate(model: type[Model], data: object, where: str) -> Model:
    """Validate ``data`` as a model; the InputError lists all problems, with line numbers where
    known."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # a document of another kind would otherwise be refused field by field
        refuse_other_kind(model.model_fields, data, where)
        raise document_error(error, model, data, where) from error


def validate_field(model: type[Model], data: object) -> Model:
    """Validate ``data`` as a model; the InputError's place is the first wrong field."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first, *_ = matrix_problems = list_problems(error, model, _find_lines(data))
        what, more = _join_problems(error, model, data)
        if len(matrix_problems) == 1:
            what = f"line {first.line}: {first.what}" if first.line else first.what
        raise InputError(what, more, where=first.field).at_line(first.line) from error


def document_error(
    error: ValidationError, model: type[BaseModel], data: object, where: str
) -> InputError:
    """Convert a Pydantic error into an InputError with all problems of a document."""
    return InputError(*_join_problems(error, model, data), where=where)


def _join_problems(
    error: ValidationError, model: type[BaseModel], data: object
) -> tuple[str, tuple[str, ...]]:
    """Return the message in one line, and all problems if there are several."""
    lines = [str(problem) for problem in list_problems(error, model, _find_lines(data))]
    if len(lines) == 1:
        return lines[0], ()
    more = len(lines) - MAX_REPORTED
    shown = lines[:MAX_REPORTED] + ([f"and {more} more"] if more > 0 else [])
    return f"{len(lines)} errors", tuple(shown)


def _find_lines(data: object) -> Callable[[tuple[str | int, ...]], int | None]:
    return data.line if isinstance(data, Sourced) else lambda _: None
