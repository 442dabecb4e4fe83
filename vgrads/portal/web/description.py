"""The OpenAPI description: what FastAPI knows, with the errors as they really leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from vgrads.dispatch.document import BagDocument
from vgrads.workflows.sets import SetDocument

Json = dict[str, Any]
_PROBLEM = {
    "title": "Problem",
    "description": "RFC 9457: what is wrong; `field` names the culprit.",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "field": {"type": ["string", "null"]},
    },
}
_REFUSALS = {
    "400": "The body cannot be parsed",
    "401": "A token is needed",
    "403": "The token has not the scope",
    "404": "There is no such thing",
    "409": "Not now, or not any more",
    "412": "The plan is another one by now",
    "413": "The body is too large",
    "422": "Something in the request is not valid",
    "429": "Too many requests",
    "503": "Not reachable just now",
}
_UNCHANGED = "304"


def describe(app: FastAPI) -> Callable[[], Json]:
    """``app.openapi``, with problem documents for every operation and a code for what is
    unchanged."""

    def openapi() -> Json:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            schemas = found.setdefault("components", {}).setdefault("schemas", {})
            schemas |= {"Problem": _PROBLEM} | _set_schemas()
            for methods in found["paths"].values():
                for operation in methods.values():
                    _complete(operation)
            app.openapi_schema = found
        return app.openapi_schema

    return openapi


def _set_schemas() -> Json:
    """What sets and bags look like: read apart from the framework, for they may be large."""
    found: Json = {}
    for model in (SetDocument, BagDocument):
        whole = model.model_json_schema(ref_template="#/components/schemas/{model}")
        found |= whole.pop("$defs", {}) | {model.__name__: whole}
    return found


def _complete(operation: Json) -> None:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for code, told in _REFUSALS.items():
        operation["responses"][code] = {"description": told, "content": content}
    if "If-None-Match" in operation.get("description", "") or operation["operationId"].startswith(
        "read_"
    ):
        operation["responses"][_UNCHANGED] = {"description": "Unchanged: If-None-Match is its ETag"}
