"""Problems of a document as text: line, field, and the probable intention."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

Location = tuple[str | int, ...]
MAX_REPORTED = 20
_MOST_COMPOSED = 4 << 20  # characters: reading a text again for its lines costs more than the text
_MISSING = "is missing"
_CHOICES = " (known: "
_MOST_NAMES = 12


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: its field in the document (``workflows.0.tasks``), its line, its description."""

    field: str
    what: str
    line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.field}: {self.what}"


def list_problems(
    error: ValidationError, model: type[BaseModel], lines: Callable[[Location], int | None]
) -> list[Problem]:
    """Return all problems, one for each field, in the order of the lines."""
    return detail_problems(error.errors(include_url=False), model, lines)


def detail_problems(
    details: Iterable[Mapping[str, Any]],
    model: type[BaseModel] = BaseModel,
    lines: Callable[[Location], int | None] = lambda _: None,
) -> list[Problem]:
    """Return the same from Pydantic's details; without a model, known keys are not named."""
    by_location: dict[Location, Problem] = {}
    for error_details in details:
        location, owner = _strip_union_names(model, tuple(error_details["loc"]))
        if location in by_location:  # alternatives of a union: none of them accepted it
            text = by_location[location].what
            if "neither" not in text and "none of the" not in text:
                what = f"has none of the allowed types: {_format_value(error_details['input'])}"
                by_location[location] = Problem(
                    by_location[location].field, what, by_location[location].line
                )
            continue
        # what is missing has no line: that of the mapping around it is the nearest
        line = lines(location[:-1] if error_details["type"] == "missing" else location)
        field = ".".join(map(str, location)) or "document"
        by_location[location] = Problem(
            field, _phrase_problem(dict(error_details), location, owner), line
        )
    return list(
        _list_once(sorted(_omit_consequences(by_location), key=lambda problem: problem.line or 0))
    )


def _list_once(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Name the known keys only with the first of the unknown keys of the same kind."""
    listed = set()
    for problem in problems:
        what, mark, _ = problem.what.partition(_CHOICES)
        yield replace(problem, what=what) if mark and problem.what in listed else problem
        listed.add(problem.what)


_FOLLOWS = ("needs at least", "must be text")
"""Problems that only follow from a problem inside: a list is too short, a mapping is also not text.
"""


def _omit_consequences(by_location: Mapping[Location, Problem]) -> Iterator[Problem]:
    """Omit problems that only follow from others: a list that is empty because its entries are
    wrong, the key for which another is a typo."""
    intended = {p.what.partition("did you mean ")[2].strip("'?") for p in by_location.values()}
    around = {location[:depth] for location in by_location for depth in range(len(location))}
    for location, problem in by_location.items():
        if not (location in around and problem.what.startswith(_FOLLOWS)) and not (
            problem.what == _MISSING and str(location[-1]) in intended
        ):
            yield problem


def _strip_union_names(
    model: type[BaseModel], location: Location
) -> tuple[Location, type[BaseModel] | None]:
    """Return a location without the names that Pydantic inserts for alternatives of a union, and
    the model of its last key."""
    path: list[str | int] = []
    kinds: list[Any] = [model]
    owner: type[BaseModel] | None = None
    for part in location:
        models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        fields = [_find_field(kind, part) for kind in models]
        arms = {kind.__name__ for kind in models} if len(kinds) > 1 else set()
        if arms and not any(fields) and (part in arms or _tag(part)):
            continue
        if isinstance(part, int) or models or not path:
            path.append(part)
            owner = models[0] if models and not isinstance(part, int) else owner
            inner = [a for a in fields if a is not None] or (kinds if isinstance(part, int) else [])
            kinds = [leaf for annotation in inner for leaf in _list_leaves(annotation)]
        elif not _tag(part):
            path.append(part)
    return tuple(path), owner


def _find_field(model: type[BaseModel], name: str | int) -> Any:
    for key, field in model.model_fields.items():
        if name in (key, field.alias):
            return field.annotation
    return None


def _list_leaves(annotation: object) -> Iterator[Any]:
    arguments = get_args(annotation)
    if not arguments:
        yield annotation
    for argument in arguments:
        yield from _list_leaves(argument)


def _tag(part: str | int) -> bool:
    """True for the name of an alternative of a union, such as ``str`` or ``function-after[…]``."""
    return str(part) in (
        "str",
        "constrained-str",
        "float",
        "int",
        "bool",
        "datetime",
        "date",
    ) or "[" in str(part)


_NUMBERS = {
    "greater_than": ("gt", "must be above"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be below"),
    "less_than_equal": ("le", "must be at most"),
}
_PLAIN = {
    "finite_number": "must be a finite number",
    "int_from_float": "must be a whole number",
    "model_attributes_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "dict_type": "must be a mapping of keys to values",
    "mapping_type": "must be a mapping of keys to values",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "string_type": "must be text: put it in quotes",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
}
_FORMS = {
    "datetime": "not an instant: write it as 2026-11-28T08:00:00Z",
    "timezone": "an instant without a time zone: end it with Z",
    "date": "not a date: write it as 2026-11-28",
    "json": "not JSON",
    "url": "not a URL",
    "uuid": "not a UUID",
    "bytes": "not text",
}
"""Kinds of values, by the first word of Pydantic's kind of error."""


def _phrase_problem(
    detail: Mapping[str, Any], location: Location, owner: type[BaseModel] | None
) -> str:
    kind, value = str(detail["type"]), detail.get("input")
    if kind == "missing":
        return _MISSING
    if kind == "json_invalid":
        return f"is not JSON: {(detail.get('ctx') or {}).get('error', 'it cannot be parsed')}"
    if kind == "extra_forbidden":
        return f"unknown key{suggest(str(location[-1]), _list_keys(owner))}"
    if kind in ("float_parsing", "int_parsing", "float_type", "int_type"):
        whole = "whole " if kind.startswith("int") else ""
        return f"must be a {whole}number, is {_format_value(value)}"
    if kind == "string_too_short":
        return "must not be empty"
    if kind in _PLAIN:
        return f"{_PLAIN[kind]}, is {_format_value(value)}"
    if kind in ("value_error", "assertion_error"):  # our own words
        return str(detail["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return (
        _limit_words(kind, value, detail.get("ctx") or {})
        or f"{_format_value(value)} is {_FORMS.get(kind.partition('_')[0], 'not a valid value')}"
    )


def value_problem(detail: Mapping[str, Any]) -> str:
    """Return what is wrong with a single value, by Pydantic's details."""
    return _phrase_problem(detail, (), None)


def _limit_words(kind: str, value: object, limits: Mapping[str, Any]) -> str:
    """Describe a value beyond its limits; empty for anything else."""
    if kind in _NUMBERS:
        name, words = _NUMBERS[kind]
        return f"{words} {limits[name]:g}, is {_format_value(value)}"
    if kind in ("literal_error", "enum"):
        expected = re.findall(r"'([^']*)'", str(limits.get("expected", "")))
        intended = suggest(str(value), expected, report=False)
        return f"{_format_value(value)} is none of {', '.join(expected)}{intended}"
    least, most = limits.get("min_length"), limits.get("max_length")
    payload = {
        "too_short": f"needs at least {least} {'entry' if least == 1 else 'entries'}",
        "too_long": f"has more than {most} entries",
        "string_too_long": f"has more than {most} characters",
        "string_pattern_mismatch": (
            f"{_format_value(value)} contains characters that are not allowed here"
        ),
    }
    return payload.get(kind, "")


def _list_keys(owner: type[BaseModel] | None) -> list[str]:
    """Return the keys of a document, its own before those that several kinds have."""
    if owner is None:
        return []
    own = owner.__annotations__
    fields = sorted(owner.model_fields.items(), key=lambda item: item[0] not in own)
    return [field.alias or key for key, field in fields]


def suggest(text: str, choices: Iterable[str], report: bool = True) -> str:
    """Return a question about the most similar choice; otherwise, if requested, all choices. A
    mapping states how its choices are written."""
    written = choices if isinstance(choices, Mapping) else {name: name for name in choices}
    close = difflib.get_close_matches(text, written, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{written[close[0]]}'?"
    return f"{_CHOICES}{_join_first_names(list(written.values()))})" if report and written else ""


def _join_first_names(names: Sequence[str]) -> str:
    """Return names in a line, at most a dozen."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _format_value(value: object) -> str:
    text = repr(value[:60]) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


class Sourced(dict[str, Any]):
    """A mapping read from a text, with the line of each of its values."""

    def __init__(self, values: Mapping[str, Any], text: str, kind: str) -> None:
        super().__init__(values)
        self._text, self._kind = text, kind

    def as_written(self, key: str) -> Any:
        """Return the value of a top-level key with its scalars as written: ``1.50``, ``010`` and
        ``yes`` are texts."""
        if self._kind == "json":
            parsed = json.loads(self._text, parse_int=str, parse_float=str, parse_constant=str)
        elif self._kind == "yaml":
            # the base loader keeps every scalar as it is written
            parsed = yaml.load(self._text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
        else:
            parsed = self
        return parsed.get(key)

    def replaced(self, **values: object) -> Sourced:
        """Return the same mapping with other values of some keys."""
        return Sourced({**self, **values}, self._text, self._kind)

    def line(self, location: Location) -> int | None:
        """Return the line of a value, or of the nearest one around it; None if unknown."""
        if self._kind == "toml":
            return next(
                (self._tables[p] for p in _list_enclosing(location) if p in self._tables), None
            )
        # also for JSON, which YAML contains as far as lines matter
        return _find_yaml_line(self._root, location)

    def line_of(self, place: str) -> int | None:
        """Return the line of a place as errors name it (``workflows.0.tasks: …``), or of the
        nearest around it; None if it is not in the text."""
        names = place.partition(":")[0].split(".")
        if names[0] not in self:
            return None
        return self.line(tuple(int(name) if name.isdigit() else name for name in names))

    @cached_property
    def _tables(self) -> dict[Location, int]:
        return _find_toml_lines(self._text)

    @cached_property
    def _root(self) -> Any:
        if len(self._text) > _MOST_COMPOSED:
            return None
        try:
            return yaml.compose(self._text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (yaml.YAMLError, RecursionError):
            return None


def _list_enclosing(location: Location) -> Iterator[Location]:
    """Return a location and those that contain it, the nearest first."""
    return (location[:depth] for depth in range(len(location), 0, -1))


def _find_yaml_line(node: Any, location: Location) -> int | None:
    if node is None:
        return None
    line = int(node.start_mark.line) + 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            pairs = [(key, value) for key, value in node.value if key.value == str(part)]
            if not pairs:
                break
            line, node = int(pairs[0][0].start_mark.line) + 1, pairs[0][1]
        elif (
            isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value)
        ):
            node = node.value[part]
            line = int(node.start_mark.line) + 1
        else:
            break
    return line


_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_\"'.-]+)\s*=")


def _find_toml_lines(text: str) -> dict[Location, int]:
    """Return the line of every header and key."""
    result: dict[Location, int] = {}
    counts: dict[Location, int] = {}
    table: Location = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            table = _find_toml_table(header, counts)
            result.setdefault(table, number)
        elif key:
            result.setdefault((*table, *key[1].strip("\"'").split(".")), number)
    return result


def _find_toml_table(header: re.Match[str], counts: dict[Location, int]) -> Location:
    names = header[2].split(".")
    here: Location = ()
    for depth, name in enumerate(part.strip().strip("\"'") for part in names):
        here = (*here, name)
        if header[1] == "[[" and depth == len(names) - 1:
            counts[here] = counts.get(here, -1) + 1
            for deeper in [
                count for count in counts if len(count) > len(here) and count[: len(here)] == here
            ]:
                del counts[deeper]  # lists inside start again
        if here in counts:
            here = (*here, counts[here])
    return here
