"""The OpenAPI description: FastAPI's, with the actual error responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

Json = dict[str, Any]
_PROBLEM = {
    "title": "Problem",
    "description": "RFC 9457: description of the problem; `field` names the invalid field.",
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
    "403": "The token does not have the required scope",
    "404": "Not found",
    "409": "The current state does not allow this request",
    "412": "The plan has changed",
    "413": "The body is too large",
    "422": "Something in the request is not valid",
    "429": "Too many requests",
    "503": "Currently not reachable",
}
_UNCHANGED = "304"


def describe(app: FastAPI) -> Callable[[], Json]:
    """Return ``app.openapi``, with problem documents for every operation and the code for unchanged
    content."""

    def openapi() -> Json:
        if app.openapi_schema is None:
            result = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            schemas = result.setdefault("components", {}).setdefault("schemas", {})
            schemas |= {"Problem": _PROBLEM} | _set_schemas()
            for methods in result["paths"].values():
                for operation in methods.values():
                    _complete(operation)
            app.openapi_schema = result
        return app.openapi_schema

    return openapi


def _set_schemas() -> Json:
    """Return the schemas of sets and bags: parsed outside the framework, since they may be
    large."""
    # imported late: the service starts without these documents
    from vgrads.dispatch.document import BagDocument
    from vgrads.portal.jobs.release_documents import JointSubmissionDocument, MailDocument
    from vgrads.workflows.sets import SetDocument

    result: Json = {}
    for model in (SetDocument, BagDocument, MailDocument, JointSubmissionDocument):
        whole = model.model_json_schema(ref_template="#/components/schemas/{model}")
        result |= whole.pop("$defs", {}) | {model.__name__: whole}
    return result


def _complete(operation: Json) -> None:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for code, text in _REFUSALS.items():
        operation["responses"][code] = {"description": text, "content": content}
    if "If-None-Match" in operation.get("description", "") or operation["operationId"].startswith(
        "read_"
    ):
        operation["responses"][_UNCHANGED] = {"description": "Unchanged: If-None-Match is its ETag"}
