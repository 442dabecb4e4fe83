"""JSON schemas of answers, from their dataclasses, and examples of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from vgrads.operations.fields import FieldDescription, describe_fields

Json = dict[str, Any]
_PLACE = "#/components/schemas/"
_PLAIN: dict[Any, Json] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    NoneType: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    Any: {},
}
_EXAMPLES: dict[Any, Any] = {
    str: "",
    bool: True,
    int: 0,
    float: 0.0,
    datetime: "2026-03-01T12:00:00+00:00",
}


def answer_class(name: str) -> type:
    """Return the class that a declaration names, as ``sets.SetDetails``."""
    module, _, kind = name.partition(".")
    result: type = getattr(import_module(f"vgrads.operations.answers.{module}"), kind)
    return result


class AnswerSchemas:
    """The schemas of answers that a description refers to, by name."""

    def __init__(self) -> None:
        self.schemas: Json = {}
        self._classes: dict[str, type] = {}

    def resolve(self, content: Mapping[str, Json]) -> Json:
        """Return the content of an answer with references to schemas, and examples."""
        return {media: self._media(media, entry) for media, entry in content.items()}

    def _media(self, media: str, entry: Json) -> Json:
        result = {key: self._part(part) for key, part in entry.items()}
        for name, wrap in (("x-line", "{}\n"), ("x-data", "data: {}\n\n")):
            if name in entry:
                result["example"] = wrap.format(json.dumps(_find_declared_example(entry[name])))
        if media.endswith("json") and "schema" in entry:
            result["example"] = _find_declared_example(entry["schema"])
        return result

    def _part(self, part: object) -> object:
        if isinstance(part, Mapping):
            if "$ref" in part:
                return self._reference(answer_class(part["$ref"]))
            return {key: self._part(value) for key, value in part.items()}
        return [self._part(value) for value in part] if isinstance(part, list) else part

    def _reference(self, kind: type) -> Json:
        name = kind.__name__
        if self._classes.setdefault(name, kind) is not kind:
            raise TypeError(f"two answers have the name {name}")
        if name not in self.schemas:
            self.schemas[name] = {}  # of one that refers to itself
            self.schemas[name] = self._object(kind)
        return {"$ref": f"{_PLACE}{name}"}

    def _object(self, kind: type) -> Json:
        entries = describe_fields(kind)
        return {
            "title": kind.__name__,
            "description": " ".join((kind.__doc__ or "").split()),
            "type": "object",
            "required": [entry.key for entry in entries if entry.is_required],
            "properties": {entry.key: self._property(entry) for entry in entries},
        }

    def _property(self, entry: FieldDescription) -> Json:
        about = entry.about
        text = f"{about.help} In {about.unit}." if about.unit else about.help
        examples = {} if about.example is None else {"examples": [about.example]}
        return self._schema(entry.type) | {"description": text} | examples

    def _schema(self, kind: object) -> Json:
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return self._reference(kind)
        origin, parts = get_origin(kind), get_args(kind)
        if origin is Literal:
            return {"type": "string", "enum": list(parts)}
        if origin in (Union, UnionType):
            return {"anyOf": [self._schema(part) for part in parts]}
        if origin is Sequence:
            return {"type": "array", "items": self._schema(parts[0])}
        if origin is Mapping:
            return {"type": "object", "additionalProperties": self._schema(parts[1])}
        raise TypeError(f"an answer cannot have the type {kind}")


def example_of(kind: type) -> Json:
    """Return an example of an answer, of the examples of its fields."""
    return {
        entry.key: _make_field_example(entry)
        for entry in describe_fields(kind)
        if entry.is_required or entry.about.example is not None
    }


def _make_field_example(entry: FieldDescription) -> object:
    return _make_type_example(entry.type) if entry.about.example is None else entry.about.example


def _make_type_example(kind: object) -> object:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return example_of(kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return parts[0]
    if origin in (Union, UnionType):
        return next((_make_type_example(part) for part in parts if _is_object(part)), None)
    if origin is Sequence:
        return [_make_type_example(parts[0])] if _is_object(parts[0]) else []
    return {} if origin is Mapping else _EXAMPLES.get(kind)


def _is_object(kind: object) -> bool:
    return dataclasses.is_dataclass(kind) or kind is datetime


def _find_declared_example(schema: Json) -> object:
    if "anyOf" in schema:
        return _find_declared_example(schema["anyOf"][0])
    if schema.get("type") == "array":
        return [_find_declared_example(schema["items"])]
    return example_of(answer_class(schema["$ref"])) if "$ref" in schema else None
