"""The description of the REST interface as a person reads it: routes in groups, their fields, and a
command for each; made of the OpenAPI description."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup, escape

Json = dict[str, Any]
_PLACE = "#/components/schemas/"
_SENTENCE_END = re.compile(r"(?<=\.)\s")
_BOUNDS = (
    ("minimum", "≥ {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "≤ {}"),
    ("exclusiveMaximum", "< {}"),
    ("maxLength", "at most {} characters"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiField:
    """A field of a request or a type. ``place``: path, query, header or body; ``anchor``: its
    address within the page."""

    name: str
    kind: Markup
    place: str
    is_required: bool
    meaning: str
    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoute:
    """A route. ``sentence``: the first of ``about``; ``body``, ``answer``: types of these, empty
    where there is none; ``example``: an answer; ``command``: a request."""

    name: str
    method: str
    path: str
    sentence: str
    about: str
    fields: tuple[ApiField, ...]
    body: Markup
    answer: Markup
    example: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiType:
    """A type that requests or answers have."""

    name: str
    about: str
    fields: tuple[ApiField, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiReference:
    """Routes by the name of their group, and types."""

    groups: Mapping[str, tuple[ApiRoute, ...]]
    types: tuple[ApiType, ...]

    def find(self, text: str) -> ApiReference:
        """Return the routes and types that have all words of a text; all for an empty one."""
        words = text.casefold().split()
        groups = {
            name: tuple(route for route in routes if _has(route, words, name))
            for name, routes in self.groups.items()
        }
        return ApiReference(
            groups={name: routes for name, routes in groups.items() if routes},
            types=tuple(kind for kind in self.types if _has(kind, words)),
        )


def _has(entry: ApiRoute | ApiType, words: Iterable[str], group: str = "") -> bool:
    parts = [group, entry.name, entry.about]
    if isinstance(entry, ApiRoute):
        parts += [entry.method, entry.path, entry.answer.striptags()]
    for field in entry.fields:
        parts += [field.name, field.meaning]
    text = " ".join(parts).casefold()
    return all(word in text for word in words)


def read_reference(description: Json, url: str, tokens: bool) -> ApiReference:
    """Read an OpenAPI description. ``url``: of the service; ``tokens``: requests need one."""
    groups: dict[str, list[ApiRoute]] = {}
    writer = _RouteReader(description["components"]["schemas"], url, tokens)
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            group = groups.setdefault(operation["tags"][0], [])
            group.append(writer.read(path, method.upper(), operation))
    schemas = sorted(description["components"]["schemas"].items())
    types = (
        ApiType(
            name=name,
            about=" ".join(schema.get("description", "").split()),
            fields=tuple(_list_body_fields(f"type-{name}", schema, "")),
        )
        for name, schema in schemas
    )
    return ApiReference(
        groups={name: tuple(group) for name, group in sorted(groups.items())}, types=tuple(types)
    )


class _RouteReader:
    """Reads operations. ``schemas``: by name; ``url``: of the service; ``tokens``: requests need
    one."""

    def __init__(self, schemas: Json, url: str, tokens: bool) -> None:
        self._schemas, self._url, self._tokens = schemas, url, tokens

    def read(self, path: str, method: str, operation: Json) -> ApiRoute:
        """Read an operation."""
        name = operation["operationId"]
        about = str(operation.get("description") or operation["summary"])
        media, body = _find_media_type(operation.get("requestBody", {}).get("content", {}))
        fields = [_describe_parameter(name, entry) for entry in operation.get("parameters", ())]
        parameters = {field.anchor for field in fields}
        fields += (  # one of the body may have the name of another in the path
            replace(field, anchor=f"{field.anchor}.body") if field.anchor in parameters else field
            for field in _list_body_fields(name, self._resolve(body.get("schema", {})), "body")
        )
        success = next(part for code, part in operation["responses"].items() if code[0] == "2")
        kind, answer = _find_media_type(success.get("content", {}))
        return ApiRoute(
            name=name,
            method=method,
            path=path,
            sentence=_SENTENCE_END.split(" ".join(about.split()))[0].rstrip(".;:") + ".",
            about=about,
            fields=tuple(fields),
            body=_find_type(media, body),
            answer=_find_type(kind, answer),
            example=_format_example(answer.get("example", "")),
            command=self._command(path, method, operation, (media, body)),
        )

    def _resolve(self, schema: Json) -> Json:
        """Return the schema of an object: that which a reference names, or the first of several."""
        for choice in schema.get("anyOf", ()):
            if "$ref" in choice:
                return self._resolve(choice)
        if "$ref" in schema:
            resolved: Json = self._schemas[schema["$ref"].removeprefix(_PLACE)]
            return resolved
        return schema

    def _command(self, path: str, method: str, operation: Json, content: tuple[str, Json]) -> str:
        """Return the command that makes a request with the examples of its fields."""
        query = []
        for entry in operation.get("parameters", ()):
            examples = entry["schema"].get("examples", [entry["name"].upper()])
            if entry["in"] == "path":
                path = path.replace(f"{{{entry['name']}}}", str(examples[0]))
            elif entry["in"] == "query" and entry.get("required"):
                query.append(f"{entry['name']}={examples[0]}")
        where = f"{self._url}{path}{'?' if query else ''}{'&'.join(query)}"
        parts = ["curl" if method == "GET" else f"curl -X {method}", shlex.quote(where)]
        if self._tokens and path.startswith("/v1/"):
            parts.append('-H "Authorization: Bearer $VGRADS_TOKEN"')
        media, body = content
        if media:
            parts.append(f"-H 'Content-Type: {media}'")
            parts.append(self._data(media, body))
        return " \\\n  ".join(parts)

    def _data(self, media: str, body: Json) -> str:
        if media.endswith("octet-stream"):
            return "--data-binary @FILE"
        schema = self._resolve(body["schema"])
        example = body.get("example") or next(iter(schema.get("examples", ())), None)
        if example is None:
            example = self._example(schema)
        text = example if isinstance(example, str) else json.dumps(example)
        return f"--data-binary {shlex.quote(text)}"

    def _example(self, schema: Json) -> object:
        """Return an example of the required fields of a type."""
        schema = self._resolve(schema)
        if "examples" in schema:
            return schema["examples"][0]
        if "properties" in schema:
            required = schema.get("required", ())
            properties = schema["properties"].items()
            return {name: self._example(part) for name, part in properties if name in required}
        if "enum" in schema:
            return schema["enum"][0]
        kind = schema.get("type") or schema.get("anyOf", [{}])[0].get("type", "string")
        if kind == "array":
            return [self._example(schema.get("items", {}))]
        return {"integer": 1, "number": 1.0, "boolean": True, "object": {}}.get(kind, "…")


def _find_media_type(content: Json) -> tuple[str, Json]:
    """Return the media type of a content, JSON if it is one of them, and what is said of it."""
    for media in ("application/json", *content):
        if media in content:
            return media, content[media]
    return "", {}


def _find_type(media: str, content: Json) -> Markup:
    """Return the type of a content; of files, and of text in lines, that of the media."""
    part = content.get("x-line") or content.get("x-data")
    if part is None and media.endswith("/json"):
        part = content["schema"]
    if part is None:
        return escape(media)
    several = "" if media.endswith("/json") else f" in each part of {media}"
    return Markup("{}{}").format(_describe_type(part), several)


def _describe_parameter(route: str, entry: Json) -> ApiField:
    schema = entry["schema"]
    return ApiField(
        name=entry["name"],
        kind=_describe_type(schema),
        place=entry["in"],
        is_required=entry.get("required", False),
        meaning=_describe_meaning(schema | {"description": entry.get("description", "")}),
        anchor=f"{route}.{entry['name']}",
    )


def _list_body_fields(owner: str, schema: Json, place: str) -> Iterator[ApiField]:
    for name, part in schema.get("properties", {}).items():
        yield ApiField(
            name=name,
            kind=_describe_type(part),
            place=place,
            is_required=name in schema.get("required", ()),
            meaning=_describe_meaning(part),
            anchor=f"{owner}.{name}",
        )


def _describe_meaning(schema: Json) -> str:
    """Return what a field means, within which bounds, and its default."""
    parts = [schema.get("description", "").strip()]
    # the bounds of an optional value are in one of its choices
    for choice in (schema, *schema.get("anyOf", ())):
        bounds = ((choice[name], text) for name, text in _BOUNDS if name in choice)
        parts += [text.format(f"{bound:,}".removesuffix(".0")) for bound, text in bounds]
    # a description may state the default in its own words
    if schema.get("default") not in (None, "", [], {}) and "Default" not in parts[0]:
        parts.append(f"default {json.dumps(schema['default'])}")
    first, *rest = parts
    details = ", ".join(rest)
    if first and details:
        return f"{first.rstrip('.')}: {details}."
    return first or details


def _describe_type(schema: Json) -> Markup:
    """Return the type of a field in words; those of the description are links to them."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_PLACE)
        return Markup('<a href="#type-{0}">{0}</a>').format(name)
    if "enum" in schema:
        return Markup(", ").join(Markup("<code>{}</code>").format(v) for v in schema["enum"])
    if "const" in schema:
        return Markup("<code>{}</code>").format(schema["const"])
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        # choices that differ only in what is not shown are named once
        return Markup(" or ").join(dict.fromkeys(map(_describe_type, choices)))
    kind = schema.get("type", "any value")
    if kind == "array":
        return Markup("list of {}").format(_describe_type(schema.get("items", {})))
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return Markup("object of {}").format(_describe_type(schema["additionalProperties"]))
    words = " or ".join(kind) if isinstance(kind, list) else kind
    return escape(f"{words} ({schema['format']})" if "format" in schema else words)


def _format_example(example: object) -> str:
    if isinstance(example, str):
        return example
    return json.dumps(example, indent=2, ensure_ascii=False)
