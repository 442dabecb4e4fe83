"""Documents that people write (YAML, JSON, TOML) → checked models, with errors that name the field.

Decision 0002 says why Pydantic models stand at these borders too, and not only in the portal.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from kernel.errors import InputError
from kernel.files import read_text


class Document(BaseModel):
    """Base of all documents: unknown keys are errors, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic would take ``false`` for 0, YAML takes ``no`` for false: hardly ever what was meant."""
        if (value is True or value is False) and not _takes_truth(cls, str(info.field_name)):
            raise ValueError(f"must not be {str(value).lower()}")
        return value


@cache
def _takes_truth(model: type[BaseModel], field: str) -> bool:
    """True where a field may be true or false."""
    return _mentions(model.model_fields[field].annotation, bool)


def _mentions(annotation: Any, kind: type) -> bool:
    return annotation in (kind, Any) or any(_mentions(a, kind) for a in get_args(annotation))


Model = TypeVar("Model", bound=Document)


Value = TypeVar("Value")


def as_value_error(parse: Callable[[], Value]) -> Value:
    """What a parser gives; its complaint as the ValueError that a validator needs."""
    try:
        return parse()
    except InputError as error:
        raise ValueError(f"{error.what} ({error.fix})" if error.fix else error.what) from error


def load_mapping(path: Path) -> dict[str, Any]:
    """The top-level mapping of a YAML, JSON or TOML file."""
    where = str(path)
    text = read_text(path)
    if not text.strip():
        raise InputError("the file is empty", where=where)
    try:
        parsed = _parse(text, path.suffix.lower())
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(
            f"cannot be parsed: {error.problem or error.context}{line}", where=where
        ) from error
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise InputError(f"cannot be parsed: {error}".replace("\n", " "), where=where) from error
    except RecursionError as error:
        raise InputError("is nested too deeply", where=where) from error
    if not isinstance(parsed, dict):
        raise InputError("must be a mapping of keys to values", where=where)
    return parsed


def _parse(text: str, suffix: str) -> Any:
    if suffix == ".toml":
        return tomllib.loads(text)
    return json.loads(text) if suffix == ".json" else yaml.safe_load(text)


def validate(model: type[Model], data: Any, where: str) -> Model:
    """``data`` as a model; InputError names the first wrong field as ``a.0.b`` and counts the rest."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InputError(first_problem(error), where=where) from error


def first_problem(error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    first = problems[0]
    field = ".".join(str(part) for part in first["loc"]) or "document"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{field}: {first['msg'].removeprefix('Value error, ')}{more}"
