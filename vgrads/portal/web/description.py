"""The OpenAPI description: FastAPI's requests, with the declared answers and problem documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from vgrads.portal.web.checked_routes import CheckedRoute, required_scopes
from vgrads.portal.web.problems import PROBLEM_TYPES

Json = dict[str, Any]
_PROBLEM = {
    "title": "Problem",
    "description": "RFC 9457: description of the problem; `field` names the invalid field.",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {
            "type": "string",
            "format": "uri-reference",
            "description": "Kind of problem; it does not change.",
            "examples": [PROBLEM_TYPES[404]],
        },
        "title": {"type": "string", "description": "The kind in words."},
        "status": {"type": "integer", "description": "Status of the answer.", "examples": [404]},
        "detail": {"type": "string", "description": "What is wrong."},
        "field": {
            "type": ["string", "null"],
            "description": "Field of the body, query or path that is wrong.",
        },
    },
}
_REFUSALS = {
    400: "The body cannot be parsed",
    401: "A token is needed",
    403: "The token does not have the required scope",
    404: "Not found",
    408: "The body did not come in time",
    409: "The current state does not allow this request",
    412: "The plan or goal has changed",
    413: "The body is too large",
    422: "Something in the request is not valid",
    428: "If-Match is needed",
    429: "Too many requests",
    501: "Not installed at this service",
    503: "Currently not reachable",
    507: "No room to store it",
}
_ALWAYS, _WITH_BODY = (401, 422, 429), (400, 408, 413)
_LINK = {
    "Link": {
        "description": 'The next page: `<…?after=…>; rel="next"`; absent on the last one.',
        "schema": {"type": "string"},
    }
}
_OF_FRAMEWORK = ("HTTPValidationError", "ValidationError")


def describe(app: FastAPI) -> Callable[[], Json]:
    """Return ``app.openapi``, with the declared answers of every operation."""

    def openapi() -> Json:
        if app.openapi_schema is None:
            app.openapi_schema = _describe(app)
        return app.openapi_schema

    return openapi


def _describe(app: FastAPI) -> Json:
    # imported late: the service starts without the schemas of answers
    from vgrads.portal.web.answer_schemas import AnswerSchemas

    result = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    answer_schemas = AnswerSchemas()
    for route, operation in _list_operations(app, result["paths"]):
        assert route.declared_answer is not None
        operation["summary"] = operation["operationId"].replace("_", " ").capitalize()
        content = answer_schemas.resolve(route.declared_answer.content)
        operation["responses"] = _describe_responses(route, content, "requestBody" in operation)
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    for name in _OF_FRAMEWORK:
        schemas.pop(name, None)
    schemas |= {"Problem": _PROBLEM} | _set_schemas()
    if twice := schemas.keys() & answer_schemas.schemas.keys():
        raise TypeError(f"an answer and a request have the name {', '.join(sorted(twice))}")
    schemas |= answer_schemas.schemas
    return result


def _list_operations(app: FastAPI, paths: Json) -> Iterator[tuple[CheckedRoute, Json]]:
    for route in app.routes:
        if isinstance(route, CheckedRoute) and route.declared_answer is not None:
            for method in route.methods or ():
                yield route, paths[route.path_format][method.lower()]


def _describe_responses(route: CheckedRoute, content: Json, has_body: bool) -> Json:
    declared = route.declared_answer
    assert declared is not None
    success: Json = {"description": "Success"}
    if content:
        success["content"] = content
    if declared.is_list:
        success["headers"] = _LINK
    responses = {str(route.status_code or 200): success}
    if declared.unchanged:
        responses["304"] = {"description": "Unchanged: If-None-Match is its ETag"}
    return responses | {
        str(code): _describe_refusal(code) for code in _list_errors(route, has_body)
    }


def _list_errors(route: CheckedRoute, has_body: bool) -> list[int]:
    """Return the error codes of an operation, in their order."""
    assert route.declared_answer is not None
    codes = set(route.declared_answer.errors)
    if route.path.startswith("/v1/"):
        codes |= {*_ALWAYS, *(_WITH_BODY if has_body else ())}
    if required_scopes(route.dependant):
        codes.add(403)
    return sorted(codes)


def _describe_refusal(code: int) -> Json:
    text = _REFUSALS[code]
    example = {"type": PROBLEM_TYPES[code], "title": text, "status": code, "detail": text}
    schema = {"$ref": "#/components/schemas/Problem"}
    content = {"application/problem+json": {"schema": schema, "example": example}}
    return {"description": text, "content": content}


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
