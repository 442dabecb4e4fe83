"""What stands before every request: who it is, how much and how often they may ask, what is written down."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Annotated, Any

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portal.records.access import EVERYBODY_HERE, Access, Principal
from portal.records.store import Store
from portal.records.tables import AuditRow
from portal.web.figures import Meters
from portal.web.problems import problem

COOKIE = "vgrads_session"
_SAFE = ("GET", "HEAD", "OPTIONS")
_REMEMBERED_S = 5.0  # a token that was looked up; a revoked one opens that long
_LOGINS = "10/minute"  # secrets that were wrong, from one address
_UNWRITTEN = ("/turns/", "/ends")  # too many, and no decision of a person
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}  # fmt: skip
_log = logging.getLogger("vgrads.access")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bodies in bytes, requests by rate (as ``200/second``; empty: any). ``tokens``: asked of everybody."""

    tokens: bool = False
    rate: str = ""
    body: int = 32 * 2**20
    upload: int = 256 * 2**20


class Refused(Exception):
    """A request that goes no further."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


@dataclass
class _Exchange:
    """One request as it goes through."""

    scope: Scope
    headers: Headers
    principal: Principal | None = None
    status: int = 500
    began_s: float = field(default_factory=time.perf_counter)

    @property
    def path(self) -> str:
        return str(self.scope["path"])

    @property
    def address(self) -> str:
        client = self.scope.get("client")
        return client[0] if client else ""

    @property
    def who(self) -> str:
        return self.principal.user if self.principal else self.address


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, store: Store, limits: Limits, meters: Meters) -> None:
        self._app, self._store, self._limits, self._meters = app, store, limits, meters
        self._access = Access(store.engine)
        self._known: dict[str, tuple[float, Principal | None]] = {}
        self._limiter = FixedWindowRateLimiter(MemoryStorage())
        self._rate = parse(limits.rate) if limits.rate else None
        self._logins = parse(_LOGINS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, Headers(scope=scope))

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                self._dress(MutableHeaders(scope=message), exchange)
            await send(message)

        try:
            await self._admit(exchange)
            scope.setdefault("state", {})["principal"] = exchange.principal
            await self._app(scope, _bounded(receive, self._most(exchange)), answer)
        except Refused as refused:
            await refused.response(scope, receive, answer)
        finally:
            await self._write_down(exchange)

    async def _admit(self, exchange: _Exchange) -> None:
        _refuse_other_origins(exchange)
        secret = _secret(exchange.headers)
        if secret:
            exchange.principal = await run_in_threadpool(self._find, secret, exchange.address)
        elif not self._limits.tokens:
            exchange.principal = EVERYBODY_HERE
        if self._rate is not None and not self._limiter.hit(self._rate, exchange.who):
            raise Refused(
                _too_often(self._limiter.get_window_stats(self._rate, exchange.who).reset_time)
            )
        length = exchange.headers.get("content-length", "")
        if length.isdigit() and int(length) > self._most(exchange):
            raise Refused(_too_large(self._most(exchange)))

    def _find(self, secret: str, address: str) -> Principal | None:
        kept = self._known.get(secret)
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        if not self._limiter.test(self._logins, "login", address):
            reset = self._limiter.get_window_stats(self._logins, "login", address).reset_time
            raise Refused(_too_often(reset))
        found = self._access.find(secret)
        if found is None:
            self._limiter.hit(self._logins, "login", address)
            return None
        if len(self._known) > 10_000:
            self._known.clear()
        self._known[secret] = (time.monotonic() + _REMEMBERED_S, found)
        return found

    def _most(self, exchange: _Exchange) -> int:
        return self._limits.upload if exchange.path.endswith("/history") else self._limits.body

    def _dress(self, headers: MutableHeaders, exchange: _Exchange) -> None:
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        if not exchange.path.startswith("/static/"):
            headers.setdefault("cache-control", "no-cache" if "etag" in headers else "no-store")

    async def _write_down(self, exchange: _Exchange) -> None:
        method, seconds = exchange.scope["method"], time.perf_counter() - exchange.began_s
        route = getattr(exchange.scope.get("route"), "path", "other")
        self._meters.requests.labels(method, route, str(exchange.status)).inc()
        if not route.endswith("/events"):
            self._meters.seconds.labels(method, route).observe(seconds)
        _log.info(
            "%s %s", method, exchange.path,
            extra={
                "method": method, "path": exchange.path, "status": exchange.status, "user": exchange.who,
                "address": exchange.address, "ms": round(1000 * seconds, 2),
            },
        )  # fmt: skip
        if method not in _SAFE and exchange.status != 429 and not _unwritten(exchange.path):
            row = AuditRow(
                at_s=time.time(), user=exchange.who, action=method, object=exchange.path[:500],
                status=exchange.status, address=exchange.address,
            )  # fmt: skip
            try:
                await run_in_threadpool(self._store.add, row)
            except SQLAlchemyError:  # what was asked has been done, or refused: that stands
                _log.exception("the audit log cannot be written")


def _unwritten(path: str) -> bool:
    return path.startswith("/v1/runs/") and any(part in path for part in _UNWRITTEN)


def _secret(headers: Headers) -> str:
    """The secret that a request carries: a bearer token, or a session's cookie."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme:
        return token.strip() if scheme.lower() == "bearer" else "none"
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def _refuse_other_origins(exchange: _Exchange) -> None:
    """What changes something may come from our own pages or from programs, not from pages of others."""
    origin = exchange.headers.get("origin")
    if exchange.scope["method"] in _SAFE or origin is None:
        return
    if origin.partition("://")[2] != exchange.headers.get("host", ""):
        raise Refused(
            problem(403, "Another site's page", f"Origin: '{origin}' is not this service")
        )


def _too_often(reset_s: float) -> Response:
    response = problem(429, "Too many requests", "too many requests; see Retry-After")
    response.headers["Retry-After"] = str(max(1, round(reset_s - time.time())))
    return response


def _too_large(most: int) -> Response:
    return problem(413, "The body is too large", f"body: at most {most} bytes", field="body")


def _bounded(receive: Receive, most: int) -> Callable[[], Awaitable[Message]]:
    """``receive``, until more than ``most`` bytes have come."""
    came = 0

    async def bounded() -> Message:
        nonlocal came
        message = await receive()
        came += len(message.get("body", b""))
        if came > most:
            raise HTTPException(413, f"body: at most {most} bytes")
        return message

    return bounded


_bearer = HTTPBearer(auto_error=False, description="A token of `vgrads token create`.")


def needs(scope: str) -> Any:
    """A dependency: the principal of a request, who must have a scope."""

    def principal(
        request: Request,
        _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None,
    ) -> Principal:
        found: Principal | None = request.scope["state"]["principal"]
        if found is None:
            raise HTTPException(
                401, "a token is needed: Authorization: Bearer …", {"WWW-Authenticate": "Bearer"}
            )
        if not found.may(scope):
            raise HTTPException(403, f"the token does not have the scope '{scope}'")
        return found

    return Depends(principal)


READ = needs("read")
"""For routes that do not ask who it is."""
Reader = Annotated[Principal, READ]
Submitter = Annotated[Principal, needs("submit")]
Operator = Annotated[Principal, needs("operate")]
