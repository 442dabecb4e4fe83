"""How a route declares its answers: the description is made of it when it is first requested
(:mod:`vgrads.portal.web.description`); the service starts without.

A schema is named by its module and class in :mod:`vgrads.operations.answers`
(``sets.SetDetails``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
DECLARED = "x-declared-answer"
JSON, LINES, EVENTS = "application/json", "application/x-ndjson", "text/event-stream"


@dataclass(frozen=True)
class DeclaredAnswer:
    """``content``: media type → description, whose references name classes. ``errors``: codes that
    are this operation's own; ``unchanged``: it answers 304. ``is_list``: of pages."""

    content: Mapping[str, Json]
    errors: tuple[int, ...] = ()
    unchanged: bool = False
    is_list: bool = False


def answers(
    content: str | Json,
    *,
    operation: str,
    tag: str,
    errors: tuple[int, ...] = (),
    unchanged: bool = False,
    extra: Json | None = None,
) -> dict[str, Any]:
    """Return the arguments of a route: the class of its JSON answer, or content by media type; its
    operationId; its tag; its own error codes; ``extra``: further parts of its description."""
    by_media = json_of(content) if isinstance(content, str) else content
    is_list = by_media.get(JSON, {}).get("schema", {}).get("type") == "array"
    declared = DeclaredAnswer(by_media, errors, unchanged, is_list)
    return {
        "operation_id": operation,
        "tags": [tag],
        "openapi_extra": {**(extra or {}), DECLARED: declared},
    }


NOTHING: Json = {}
"""The content of answers without a body."""


def json_of(*names: str) -> Json:
    """Return the content of a JSON answer of this class, or of one of these."""
    refs = [{"$ref": name} for name in names]
    return {JSON: {"schema": refs[0] if len(refs) == 1 else {"anyOf": refs}}}


def list_of(name: str) -> Json:
    """Return the content of a list of answers of this class, in pages."""
    return {JSON: {"schema": {"type": "array", "items": {"$ref": name}}}}


def lines_of(name: str) -> Json:
    """Return the content of a stream: on each line an answer of this class."""
    return {LINES: {"schema": {"type": "string"}, "x-line": {"$ref": name}}}


def events_of(*names: str) -> Json:
    """Return the content of server-sent events, whose data is an answer of one of these classes."""
    return {EVENTS: {"schema": {"type": "string"}, "x-data": json_of(*names)[JSON]["schema"]}}


def files_of(*media: str) -> Json:
    """Return the content of files of these types."""
    return {kind: {"schema": {"type": "string", "format": "binary"}} for kind in media}
