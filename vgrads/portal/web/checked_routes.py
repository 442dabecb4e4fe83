"""Routes that check the caller's scope and the size of the body before any of it is read.

FastAPI reads and parses a body before it resolves dependencies, on the event loop. So the scope is
checked here first, bodies that the framework parses are small, and others are parsed elsewhere
(:func:`checked_body`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, TypeVar

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import compile_path, get_name
from starlette.types import Message

from vgrads.kernel.errors import InputError
from vgrads.kernel.problems import suggest
from vgrads.portal.jobs import children
from vgrads.portal.records.access import Principal
from vgrads.portal.web.answers import DECLARED, DeclaredAnswer

MOST_PARSED = 2**20
"""Bytes of a body that the framework parses on the event loop."""
SILENCE_S = 30.0
"""Longest pause between parts of a body."""
_CLOSE = {"Connection": "close"}  # the body is not read
_SCOPES: dict[Callable[..., Any], str] = {}
_Model = TypeVar("_Model", bound=BaseModel)
Think = Callable[..., Awaitable[Any]]
"""Calls a function in another process (:meth:`vgrads.portal.jobs.supervisor.Supervisor.think`)."""


def requires(scope: str, dependency: Callable[..., Any]) -> None:
    """Register the scope that a dependency requires."""
    _SCOPES[dependency] = scope


def authorise(request: Request, scope: str) -> Principal:
    """Return the principal of a request. HTTPException 401 without one, 403 without the scope."""
    result: Principal | None = request.scope["state"]["principal"]
    if result is None:
        raise HTTPException(
            401,
            "a token is needed: Authorization: Bearer …",
            {"WWW-Authenticate": "Bearer", **_CLOSE},
        )
    if not result.may(scope):
        raise HTTPException(403, f"the token does not have the scope '{scope}'", _CLOSE)
    return result


def required_scopes(dependant: Dependant) -> set[str]:
    """Return the scopes that a route's dependencies require."""
    own = {_SCOPES[dependant.call]} if dependant.call in _SCOPES else set()
    return own.union(*map(required_scopes, dependant.dependencies))


def query_names(dependant: Dependant) -> list[str]:
    """Return the names of a route's query parameters."""
    names = []
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            names += [entry.alias or name for name, entry in model.model_fields.items()]
        else:
            names.append(field.alias)
    return names + [name for part in dependant.dependencies for name in query_names(part)]


def refuse_unknown_parameters(request: Request, names: Sequence[str]) -> None:
    """Raise InputError for a query parameter that a route does not have: a wrong name would change
    the answer in silence."""
    for name in request.query_params:
        if name not in names:
            what = f"unknown query parameter{suggest(name, names)}"
            raise InputError(what, where=name[:60])


def turn_of(request: Request) -> AbstractAsyncContextManager[None]:
    """Return the context in which a short request of its user is worked on."""
    turn: asyncio.Lock | None = request.scope["state"].get("turn")
    return nullcontext() if turn is None else turn


class CheckedRoute(APIRoute):
    """A route with these checks. FastAPI derives its models from the endpoint when it is first
    requested or described: for all routes that takes longer than the rest of a service's start."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        name: str | None = None,
        methods: set[str] | list[str] | None = None,
        **options: object,
    ) -> None:
        # what requests are matched by
        self.path, self.endpoint, self.name = path, endpoint, name or get_name(endpoint)
        self.methods = {method.upper() for method in methods or ["GET"]}
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self._options: dict[str, Any] = {"name": name, "methods": methods, **options}
        extra = dict(self._options.get("openapi_extra") or {})
        self.declared_answer: DeclaredAnswer | None = extra.pop(DECLARED, None)
        self._options["openapi_extra"] = extra or None

    def __getattr__(self, attribute: str) -> object:
        """Derive the other attributes, which are not there yet."""
        if attribute.startswith("__") or "_options" not in vars(self) or "app" in vars(self):
            raise AttributeError(f"a route has no '{attribute}'")
        super().__init__(self.path, self.endpoint, **self._options)
        return getattr(self, attribute)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, scopes = super().get_route_handler(), sorted(required_scopes(self.dependant))
        parameters = query_names(self.dependant) if self.path.startswith("/v1/") else None
        most = MOST_PARSED if self.body_field is not None else None
        is_short = not iscoroutinefunction(self.endpoint) and not isasyncgenfunction(self.endpoint)

        async def checked(request: Request) -> Response:
            for scope in scopes:
                authorise(request, scope)
            if parameters is not None:
                refuse_unknown_parameters(request, parameters)
            if most is not None:
                request = Request(request.scope, bounded(request.receive, most))
                await request.body()  # a slow client takes no turn
            async with turn_of(request) if is_short else nullcontext():
                return await handle(request)

        return checked


def bounded(
    receive: Callable[[], Awaitable[Message]], most: int, silence_s: float = SILENCE_S
) -> Callable[[], Awaitable[Message]]:
    """Wrap ``receive`` with a limit of ``most`` bytes. HTTPException 413 for more, 408 if the rest
    of the body does not come within ``silence_s`` of its last part."""
    came, is_whole = 0, False

    async def limited() -> Message:
        nonlocal came, is_whole
        if is_whole:  # waits for the end of the connection
            return await receive()
        try:
            async with asyncio.timeout(silence_s):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, f"body: nothing came for {silence_s:.0f} s", _CLOSE) from None
        came += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        if came > most:
            raise HTTPException(413, f"body: at most {most} bytes", _CLOSE)
        return message

    return limited


def kind_of(content_type: str) -> str:
    """Return ``json`` or ``yaml``. Raise InputError for types that a form of another site's page
    could send."""
    match = re.fullmatch(
        r"(?:application|text)/(?:[\w.-]+\+)?(?:x-)?(json|yaml)",
        content_type.partition(";")[0].strip(),
    )
    if match is None:
        raise InputError("must be application/json or application/yaml", where="Content-Type")
    return match[1]


async def checked_body(model: type[_Model], request: Request, think: Think) -> _Model:
    """Read a JSON body and check it: a small one in a thread, a large one by ``think``, in another
    process, since no other request is answered meanwhile. InputError if it is not
    valid."""
    if kind_of(request.headers.get("content-type", "")) != "json":
        raise InputError("must be application/json", where="Content-Type")
    body = await request.body()
    check: Think = think if len(body) > MOST_PARSED else run_in_threadpool
    document: _Model = await check(children.check_body, model, body)
    return document


def body_of(model: str) -> dict[str, Any]:
    """Return the description of a route whose body, a model of this name, is read by
    :func:`checked_body`."""
    reference = {"$ref": f"#/components/schemas/{model}"}
    content = {"application/json": {"schema": reference}}
    return {"requestBody": {"required": True, "content": content}}
