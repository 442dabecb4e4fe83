"""What is wrong with a document, all of it, in words: which line, which field, what was meant
perhaps."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

Path = tuple[str | int, ...]
MOST_TOLD = 20
_MISSING = "is missing"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where in the document (``workflows.0.tasks``), in which line, and
    what."""

    field: str
    what: str
    line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.field}: {self.what}"


def problems_of(
    error: ValidationError, model: type[BaseModel], lines: Callable[[Path], int | None]
) -> list[Problem]:
    """Everything that is wrong, one for each field, in the order of the lines."""
    found: dict[Path, Problem] = {}
    for one in error.errors(include_url=False):
        place, owner = _walk(model, tuple(one["loc"]))
        if place in found:  # the arms of a union: none of them took it
            told = found[place].what
            if "neither" not in told:
                what = f"is neither of what it may be: {_shown(one['input'])}"
                found[place] = Problem(found[place].field, what, found[place].line)
            continue
        line = lines(place[:-1] if one["type"] == "missing" else place)
        field = ".".join(map(str, place)) or "document"
        found[place] = Problem(field, _words(dict(one), place, owner), line)
    return sorted(_said_once(found), key=lambda problem: problem.line or 0)


_FOLLOWS = ("needs at least", "must be text")
"""What is not wrong itself where something inside is: a list is too short, a mapping is no text
either."""


def _said_once(found: Mapping[Path, Problem]) -> Iterator[Problem]:
    """Without what only follows: a list that is empty because its entries are wrong, the key that a
    typo was for."""
    meant = {p.what.partition("did you mean ")[2].strip("'?") for p in found.values()}
    around = {place[:depth] for place in found for depth in range(len(place))}
    for place, problem in found.items():
        if not (place in around and problem.what.startswith(_FOLLOWS)) and not (
            problem.what == _MISSING and str(place[-1]) in meant
        ):
            yield problem


def _walk(model: type[BaseModel], place: Path) -> tuple[Path, type[BaseModel] | None]:
    """A place without the names that Pydantic puts in for the arms of a union; the model that its
    last key is of."""
    kept: list[str | int] = []
    kinds: list[Any] = [model]
    owner: type[BaseModel] | None = None
    for part in place:
        models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        known = [_field(kind, part) for kind in models]
        arms = {kind.__name__ for kind in models} if len(kinds) > 1 else set()
        if arms and not any(known) and (part in arms or _tag(part)):
            continue
        if isinstance(part, int) or models or not kept:
            kept.append(part)
            owner = models[0] if models and not isinstance(part, int) else owner
            inner = [a for a in known if a is not None] or (kinds if isinstance(part, int) else [])
            kinds = [leaf for annotation in inner for leaf in _leaves(annotation)]
        elif not _tag(part):
            kept.append(part)
    return tuple(kept), owner


def _field(model: type[BaseModel], name: str | int) -> Any:
    for key, field in model.model_fields.items():
        if name in (key, field.alias):
            return field.annotation
    return None


def _leaves(annotation: object) -> Iterator[Any]:
    arguments = get_args(annotation)
    if not arguments:
        yield annotation
    for argument in arguments:
        yield from _leaves(argument)


def _tag(part: str | int) -> bool:
    """True for what names an arm of a union, as ``str`` or ``function-after[…]``."""
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
    "greater_than": ("gt", "must be over"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be below"),
    "less_than_equal": ("le", "must be at most"),
}
_PLAIN = {
    "finite_number": "must be a finite number",
    "int_from_float": "must be a whole number",
    "model_type": "must be a mapping of keys to values",
    "dict_type": "must be a mapping of keys to values",
    "mapping_type": "must be a mapping of keys to values",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "string_type": "must be text: put it in quotes",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
}


def _words(one: Mapping[str, Any], place: Path, owner: type[BaseModel] | None) -> str:
    kind, given = str(one["type"]), one.get("input")
    if kind == "missing":
        return _MISSING
    if kind == "extra_forbidden":
        return f"unknown key{_meant(str(place[-1]), _keys(owner))}"
    if kind in ("float_parsing", "int_parsing", "float_type", "int_type"):
        whole = "whole " if kind.startswith("int") else ""
        return f"must be a {whole}number, is {_shown(given)}"
    if kind == "string_too_short":
        return "must not be empty"
    if kind in _PLAIN:
        return f"{_PLAIN[kind]}, is {_shown(given)}"
    return _limit_words(kind, given, one.get("ctx") or {}) or str(one["msg"]).removeprefix(
        "Value error, "
    )


def _limit_words(kind: str, given: object, limits: Mapping[str, Any]) -> str:
    """What is wrong with a value that is beyond what may be; empty for anything else."""
    if kind in _NUMBERS:
        name, words = _NUMBERS[kind]
        return f"{words} {limits[name]:g}, is {_shown(given)}"
    if kind in ("literal_error", "enum"):
        known = re.findall(r"'([^']*)'", str(limits.get("expected", "")))
        return (
            f"{_shown(given)} is none of {', '.join(known)}{_meant(str(given), known, tell=False)}"
        )
    least, most = limits.get("min_length"), limits.get("max_length")
    told = {
        "too_short": f"needs at least {least} {'entry' if least == 1 else 'entries'}",
        "too_long": f"has more than {most} entries",
        "string_too_long": f"has more than {most} characters",
        "string_pattern_mismatch": f"{_shown(given)} has signs that are not allowed here",
    }
    return told.get(kind, "")


def _keys(owner: type[BaseModel] | None) -> list[str]:
    return (
        [] if owner is None else [field.alias or key for key, field in owner.model_fields.items()]
    )


def _meant(given: str, known: list[str], tell: bool = True) -> str:
    """What was meant perhaps; else, if wanted, what there is."""
    close = difflib.get_close_matches(given, known, n=1, cutoff=0.6)
    if not close and not tell:
        return ""
    return (
        f"; did you mean '{close[0]}'?"
        if close
        else f" (known: {', '.join(known)})"
        if known
        else ""
    )


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


class Sourced(dict[str, Any]):
    """A mapping that was read from a text, and knows in which line each of its values stands."""

    def __init__(self, values: Mapping[str, Any], text: str, kind: str) -> None:
        super().__init__(values)
        self._text, self._kind = text, kind

    def as_written(self, key: str) -> Any:
        """The value of a top-level key with its scalars as they are written: ``1.50``, ``010`` and
        ``yes`` are texts."""
        if self._kind == "json":
            parsed = json.loads(self._text, parse_int=str, parse_float=str, parse_constant=str)
        elif self._kind == "yaml":
            parsed = yaml.load(self._text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
        else:
            parsed = self
        return parsed.get(key)

    def replaced(self, **values: object) -> Sourced:
        """The same with other values of some keys."""
        return Sourced({**self, **values}, self._text, self._kind)

    def line(self, place: Path) -> int | None:
        """The line of a value, or of the nearest one around it; None where that cannot be told."""
        if self._kind == "toml":
            return next((self._tables[p] for p in _around(place) if p in self._tables), None)
        return _yaml_line(self._root, place)

    @cached_property
    def _tables(self) -> dict[Path, int]:
        return _toml_lines(self._text)

    @cached_property
    def _root(self) -> Any:
        try:
            return yaml.compose(self._text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (yaml.YAMLError, RecursionError):
            return None


def _around(place: Path) -> Iterator[Path]:
    """A place, and those that it lies in, the nearest first."""
    return (place[:depth] for depth in range(len(place), 0, -1))


def _yaml_line(node: Any, place: Path) -> int | None:
    if node is None:
        return None
    line = int(node.start_mark.line) + 1
    for part in place:
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


def _toml_lines(text: str) -> dict[Path, int]:
    """The line of every header and key."""
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            table = _toml_table(header, counts)
            found.setdefault(table, number)
        elif key:
            found.setdefault((*table, *key[1].strip("\"'").split(".")), number)
    return found


def _toml_table(header: re.Match[str], counts: dict[Path, int]) -> Path:
    names = header[2].split(".")
    here: Path = ()
    for depth, name in enumerate(part.strip().strip("\"'") for part in names):
        here = (*here, name)
        if header[1] == "[[" and depth == len(names) - 1:
            counts[here] = counts.get(here, -1) + 1
            for deeper in [
                one for one in counts if len(one) > len(here) and one[: len(here)] == here
            ]:
                del counts[deeper]  # lists inside begin anew
        if here in counts:
            here = (*here, counts[here])
    return here
