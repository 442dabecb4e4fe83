"""What stands before every request: who it is, how much and how often they may ask, what is written
down."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
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

from vgrads.kernel.errors import SiteError
from vgrads.portal.records.access import EVERYBODY_HERE, Access, Principal, secret_digest
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import AuditRow
from vgrads.portal.web.figures import Meters
from vgrads.portal.web.problems import FAULT, refusal

COOKIE = "vgrads_session"
_SAFE = ("GET", "HEAD", "OPTIONS")
_METHODS = (*_SAFE, "POST", "PUT", "PATCH", "DELETE")
_ENTRANCE = ("/login", "/logout")
_MOST_UNKNOWN = 4096  # bytes of a body from somebody who is not known: a token is shorter
_REMEMBERED_S = 5.0  # a token that was looked up; a revoked one opens that long
_LOGINS = "10/minute"  # wrong secrets: one of them, and all from one address
_UNWRITTEN = ("/turns/", "/ends")  # too many, and no decision of a person
_LEDGER = ("/v1/managers/", "/v1/pools/")  # the same
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_log = logging.getLogger("vgrads.access")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bodies in bytes, requests by rate (as ``200/second``; empty: any). ``tokens``: asked of
    everybody.

    ``url``: under which people know the service, where that is another than it sees itself.
    ``own``: the digest of the one secret that opens a service which is somebody's own.
    """

    tokens: bool = False
    rate: str = ""
    body: int = 32 * 2**20
    upload: int = 256 * 2**20
    url: str = ""
    own: str = ""


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
    begun: bool = False
    began_s: float = field(default_factory=time.perf_counter)

    @property
    def path(self) -> str:
        return str(self.scope["path"])

    @property
    def method(self) -> str:
        """As HTTP knows it: anybody may send any word."""
        method = str(self.scope["method"])
        return method if method in _METHODS else "OTHER"

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
        self._all: Mapping[str, Principal] = {}
        self._taken_s, self._lock = -1.0, threading.Lock()
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
                exchange.status, exchange.begun = message["status"], True
                self._dress(MutableHeaders(scope=message), exchange)
            await send(message)

        try:
            scope.setdefault("state", {}).update(principal=None, forget=self.forget)
            await self._admit(exchange)
            scope["state"]["principal"] = exchange.principal
            await self._app(scope, _bounded(receive, self._most(exchange)), answer)
        except Refused as refused:
            await refused.response(scope, receive, answer)
        except Exception:
            _log.exception("%s %s failed", exchange.method, exchange.path)
            if exchange.begun:
                raise
            await refusal(scope, 500, *FAULT)(scope, receive, answer)
        finally:
            await self._write_down(exchange)

    async def _admit(self, exchange: _Exchange) -> None:
        """Who it is, how often, how much: asked before anything of the body is looked at."""
        self._refuse_other_origins(exchange)
        secret = _secret(exchange.headers)
        if secret:
            exchange.principal = await run_in_threadpool(self._find, secret, exchange)
        elif not self._limits.tokens:
            exchange.principal = EVERYBODY_HERE
        if self._rate is not None and not self._limiter.hit(self._rate, exchange.who):
            reset_s = self._limiter.get_window_stats(self._rate, exchange.who).reset_time
            raise Refused(_too_often(exchange.scope, reset_s))
        if exchange.principal is None and not _is_open(exchange):
            raise Refused(_unknown(exchange.scope))
        length = exchange.headers.get("content-length", "")
        if length.isdigit() and int(length) > self._most(exchange):
            raise Refused(_too_large(exchange.scope, self._most(exchange)))

    def _find(self, secret: str, exchange: _Exchange) -> Principal | None:
        """Whose secret it is. Wrong ones are slowed, by what they are and where they come from;
        right ones never."""
        kept = self._known.get(secret)
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        digest = secret_digest(secret)
        if self._limits.own:
            return EVERYBODY_HERE if compare_digest(digest, self._limits.own) else None
        if not self._limiter.test(self._logins, "secret", digest):
            raise Refused(self._slowed(exchange, "secret", digest))
        noisy = not self._limiter.test(self._logins, "address", exchange.address)
        found = self._snapshot().get(digest) if noisy else self._access.find(secret)
        if found is None:
            self._limiter.hit(self._logins, "secret", digest)
            if not self._limiter.hit(self._logins, "address", exchange.address):
                raise Refused(self._slowed(exchange, "address", exchange.address))
            return None
        if len(self._known) > 10_000:
            self._known.clear()
        self._known[secret] = (time.monotonic() + _REMEMBERED_S, found)
        return found

    def _snapshot(self) -> Mapping[str, Principal]:
        """Whose every secret is, as of the last second: whoever guesses makes the database no
        work."""
        with self._lock:
            if time.monotonic() - self._taken_s > 1.0:
                self._all, self._taken_s = self._access.everybody(), time.monotonic()
            return self._all

    def _slowed(self, exchange: _Exchange, *what: str) -> Response:
        reset_s = self._limiter.get_window_stats(self._logins, *what).reset_time
        return _too_often(exchange.scope, reset_s)

    def forget(self, secret: str) -> None:
        """A session has ended: at once."""
        self._known.pop(secret, None)

    def _refuse_other_origins(self, exchange: _Exchange) -> None:
        """What changes something may come from our own pages or from programs, not from pages of
        others."""
        origin = exchange.headers.get("origin")
        if exchange.method in _SAFE or origin is None:
            return
        own = f"{exchange.scope.get('scheme', 'http')}://{exchange.headers.get('host', '')}"
        if origin not in (own, self._limits.url or own):
            raise Refused(
                refusal(
                    exchange.scope,
                    403,
                    "Another site's page",
                    f"Origin: '{origin}' is not this service",
                )
            )

    def _most(self, exchange: _Exchange) -> int:
        if exchange.principal is None:
            return _MOST_UNKNOWN
        large = exchange.path.endswith("/history") or _adds_tasks(exchange.path)
        return self._limits.upload if large else self._limits.body

    def _dress(self, headers: MutableHeaders, exchange: _Exchange) -> None:
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        if not exchange.path.startswith("/static/"):
            headers.setdefault("cache-control", "no-cache" if "etag" in headers else "no-store")

    async def _write_down(self, exchange: _Exchange) -> None:
        method, seconds = exchange.method, time.perf_counter() - exchange.began_s
        route = getattr(exchange.scope.get("route"), "path", "other")
        self._meters.requests.labels(method, route, str(exchange.status)).inc()
        if not route.endswith("/events"):
            self._meters.seconds.labels(method, route).observe(seconds)
        _log.info(
            "%s %s",
            method,
            exchange.path,
            extra={
                "method": method,
                "path": exchange.path,
                "status": exchange.status,
                "user": exchange.who,
                "address": exchange.address,
                "ms": round(1000 * seconds, 2),
            },
        )
        known = exchange.principal is not None or exchange.path in _ENTRANCE
        if (
            known
            and method not in _SAFE
            and exchange.status != 429
            and not _unwritten(exchange.path)
        ):
            row = AuditRow(
                at_s=time.time(),
                user=exchange.who,
                action=method,
                object=exchange.path[:500],
                status=exchange.status,
                address=exchange.address,
            )
            try:
                await run_in_threadpool(self._store.add, row)
            except (
                SQLAlchemyError,
                SiteError,
            ) as error:  # what was asked has been done, or refused
                _log.error("the audit log cannot be written: %s", error)


def _adds_tasks(path: str) -> bool:
    return path.startswith("/v1/bags/") and path.endswith("/tasks")


def _unwritten(path: str) -> bool:
    return (
        _adds_tasks(path)
        or path.startswith(_LEDGER)
        or (path.startswith("/v1/runs/") and any(part in path for part in _UNWRITTEN))
    )


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


def _is_open(exchange: _Exchange) -> bool:
    """Where people come who are not known yet: pages, which lead them to the entrance, and the
    entrance."""
    if exchange.path.startswith("/v1/"):
        return False
    return exchange.method in _SAFE or exchange.path in _ENTRANCE


def _unknown(scope: Scope) -> Response:
    answer = refusal(scope, 401, "Unauthorized", "a token is needed: Authorization: Bearer …")
    answer.headers["WWW-Authenticate"] = "Bearer"
    answer.headers["Connection"] = "close"  # the body is not read
    return answer


def _too_often(scope: Scope, reset_s: float) -> Response:
    response = refusal(scope, 429, "Too many requests", "too many requests; see Retry-After")
    response.headers["Retry-After"] = str(max(1, round(reset_s - time.time())))
    response.headers["Connection"] = "close"
    return response


def _too_large(scope: Scope, most: int) -> Response:
    answer = refusal(
        scope, 413, "The body is too large", f"body: at most {most} bytes", field="body"
    )
    answer.headers["Connection"] = "close"
    return answer


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
Lender = Annotated[Principal, needs("pool")]
