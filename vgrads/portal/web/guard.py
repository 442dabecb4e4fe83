"""Checks of every request: authentication, size and rate limits, audit log."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vgrads.kernel.errors import SiteError
from vgrads.kernel.rate_limiter import RateLimiter, parse_rate
from vgrads.portal.records.access import EVERYBODY_HERE, AccessControl, Principal, secret_digest
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import AuditRow
from vgrads.portal.web import problems
from vgrads.portal.web.checked_routes import authorise, bounded, requires
from vgrads.portal.web.checks.exchange import SAFE, Exchange, RequestRefused, UserRequests
from vgrads.portal.web.embedding.forecast_access import (
    ANYBODY,
    FORECASTS,
    PUBLIC_RATE,
    ForecastAccess,
    may_open,
)
from vgrads.portal.web.meters import Meters

COOKIE = "vgrads_session"
_ENTRANCE = ("/login", "/login/form", "/logout")
_MOST_UNKNOWN = 4096  # bytes of an unauthenticated body; tokens are shorter
_REMEMBERED_S = 5.0  # of a token's lookup; a revoked one is valid that long
_LOGINS = "10/minute"  # wrong secrets: of one secret, and from one address
_UNWRITTEN = ("/permits/", "/completions")  # too many; no person decides
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
class RequestLimits:
    """Limits: bodies in bytes, requests by rate (as ``200/second``; empty: any), ``at_once``:
    requests of one user, event streams included. ``tokens``: required of every user.

    ``url``: public address of the service, where it differs from its own view. ``own``: the digest
    of the single secret of a personal service. ``forecasts``: who else may query forecasts.
    """

    tokens: bool = False
    rate: str = ""
    at_once: int = 128
    body: int = 32 * 2**20
    upload: int = 256 * 2**20
    url: str = ""
    own: str = ""
    forecasts: ForecastAccess = field(default_factory=ForecastAccess)


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, store: Store, limits: RequestLimits, meters: Meters) -> None:
        self._app, self._store, self._limits, self._meters = app, store, limits, meters
        self._access = AccessControl(store.engine)
        self._principals: dict[str, tuple[float, Principal | None]] = {}
        self._all: Mapping[str, Principal] = {}
        self._taken_s, self._lock = -1.0, threading.Lock()
        self._limiter = RateLimiter()
        self._requests = UserRequests(limits.at_once)
        self._rate = parse_rate(limits.rate) if limits.rate else None
        self._logins, self._public_rate = parse_rate(_LOGINS), parse_rate(PUBLIC_RATE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, Headers(scope=scope))

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status, exchange.begun = message["status"], True
                self._add_headers(MutableHeaders(scope=message), exchange)
            await send(message)

        try:
            scope.setdefault("state", {}).update(principal=None, forget=self.forget)
            await self._admit(exchange)
            scope["state"].update(
                principal=exchange.principal, turn=self._requests.turn_of(exchange)
            )
            with self._requests.counted(exchange):
                async with self._requests.alone_if_large(exchange):
                    await self._app(scope, bounded(receive, self._most(exchange)), answer)
        except RequestRefused as refused:
            await refused.response(scope, receive, answer)
        except Exception:
            _log.exception("%s %s failed", exchange.method, exchange.path)
            # the status has been sent: only a broken connection tells the client
            if exchange.begun:
                raise
            await problems.refusal(scope, 500, *problems.FAULT)(scope, receive, answer)
        finally:
            await self._write_down(exchange)

    async def _admit(self, exchange: Exchange) -> None:
        """Check user, rate and size before any of the body is read."""
        forecasts = self._limits.forecasts
        permission = forecasts.preflight(*exchange.what)
        # a browser sends a preflight request without credentials
        if permission is not None:
            raise RequestRefused(permission)
        foreign = forecasts.is_foreign(*exchange.what)
        if not foreign:
            self._refuse_other_origins(exchange)
        secret = _find_secret(exchange.headers, cookies=not foreign)
        if secret:
            cached = self._principals.get(secret)
            if cached is not None and cached[0] > time.monotonic():
                exchange.principal = cached[1]
            else:
                exchange.principal = await run_in_threadpool(self._find, secret, exchange)
        elif not self._limits.tokens:
            exchange.principal = EVERYBODY_HERE
        else:
            exchange.principal = forecasts.without_token(exchange.method, exchange.path)
        self._refuse_too_often(exchange)
        if exchange.principal is None and not _is_open(exchange):
            raise RequestRefused(problems.unknown(exchange.scope))
        if exchange.principal is not None and not may_open(exchange.principal, exchange.path):
            raise RequestRefused(problems.unreadable(exchange.scope))
        length = exchange.headers.get("content-length", "")
        if length.isdigit() and int(length) > self._most(exchange):
            raise RequestRefused(problems.too_large(exchange.scope, self._most(exchange)))

    def _refuse_too_often(self, exchange: Exchange) -> None:
        """Limit the requests of each user, and of each address that has none."""
        rate, key = self._rate, exchange.who
        if exchange.principal is not None and exchange.anonymous:
            rate, key = self._public_rate, f"{ANYBODY} {exchange.address}"
        if rate is not None and not self._limiter.hit(rate, key):
            wait_s = self._limiter.wait_s(rate, key)
            raise RequestRefused(problems.too_often(exchange.scope, wait_s))

    def _find(self, secret: str, exchange: Exchange) -> Principal | None:
        """Return the owner of a secret. Wrong secrets are rate-limited, by secret and by address;
        valid ones never."""
        digest = secret_digest(secret)
        if self._limits.own:
            # in constant time, so that the time tells nothing of the secret
            return EVERYBODY_HERE if compare_digest(digest, self._limits.own) else None
        if not self._limiter.test(self._logins, "secret", digest):
            raise RequestRefused(self._slowed(exchange, "secret", digest))
        # an address that guesses is answered from memory, and costs the database nothing
        noisy = not self._limiter.test(self._logins, "address", exchange.address)
        principal = self._snapshot().get(digest) if noisy else self._access.find(secret)
        if principal is None:
            self._limiter.hit(self._logins, "secret", digest)
            if not self._limiter.hit(self._logins, "address", exchange.address):
                raise RequestRefused(self._slowed(exchange, "address", exchange.address))
            return None
        if len(self._principals) > 10_000:
            self._principals.clear()
        self._principals[secret] = (time.monotonic() + _REMEMBERED_S, principal)
        return principal

    def _snapshot(self) -> Mapping[str, Principal]:
        """Return the owners of all secrets, at most one second old: guessing causes no load on the
        database."""
        with self._lock:
            if time.monotonic() - self._taken_s > 1.0:
                self._all, self._taken_s = self._access.everybody(), time.monotonic()
            return self._all

    def _slowed(self, exchange: Exchange, *what: str) -> Response:
        return problems.too_often(exchange.scope, self._limiter.wait_s(self._logins, *what))

    def forget(self, secret: str) -> None:
        """Forget what was read of a session that has begun or ended, at once."""
        with self._lock:
            self._principals.pop(secret, None)
            self._taken_s = -1.0

    def _refuse_other_origins(self, exchange: Exchange) -> None:
        """Reject changes from pages of other origins; our own pages and programs may make them."""
        origin = exchange.headers.get("origin")
        if exchange.method in SAFE or origin is None:
            return
        own = f"{exchange.scope.get('scheme', 'http')}://{exchange.headers.get('host', '')}"
        if origin not in (own, self._limits.url or own):
            raise RequestRefused(
                problems.refusal(
                    exchange.scope,
                    403,
                    "Request from another origin",
                    f"Origin: '{origin}' is not this service",
                )
            )

    def _most(self, exchange: Exchange) -> int:
        if exchange.anonymous:
            return _MOST_UNKNOWN
        large = exchange.path.endswith("/history") or _adds_tasks(exchange.path)
        return self._limits.upload if large else self._limits.body

    def _add_headers(self, headers: MutableHeaders, exchange: Exchange) -> None:
        headers.update(self._limits.forecasts.response_headers(*exchange.what))
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        if not exchange.path.startswith("/static/"):
            headers.setdefault("cache-control", "no-cache" if "etag" in headers else "no-store")

    async def _write_down(self, exchange: Exchange) -> None:
        method, seconds = exchange.method, time.perf_counter() - exchange.began_s
        route = getattr(exchange.scope.get("route"), "path", "other")
        self._meters.requests.labels(method, route, str(exchange.status)).inc()
        # a stream lasts as long as its client stays
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
        is_authenticated = exchange.principal is not None or exchange.path in _ENTRANCE
        if (
            is_authenticated
            and method not in SAFE
            # a flood of rejected requests must not fill the audit log
            and exchange.status != 429
            and not _check_unwritten(exchange.path)
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
            ) as error:  # the request has been processed, or rejected
                _log.error("the audit log cannot be written: %s", error)


def _adds_tasks(path: str) -> bool:
    return path.startswith("/v1/bags/") and (path.endswith("/tasks") or "/parts/" in path)


def _check_unwritten(path: str) -> bool:
    return (
        _adds_tasks(path)
        or path == FORECASTS
        or path.startswith(_LEDGER)
        or (path.startswith("/v1/runs/") and any(part in path for part in _UNWRITTEN))
    )


def _find_secret(headers: Headers, cookies: bool) -> str:
    """Return the secret of a request: a bearer token, or a session's cookie, where they count."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme:
        # another scheme is a wrong secret and not the absence of one
        return token.strip() if scheme.lower() == "bearer" else "none"
    if not cookies:
        return ""
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return cookie.value if cookie else ""


def _is_open(exchange: Exchange) -> bool:
    """Return True for addresses without authentication: pages, which redirect to the login page,
    and the login page."""
    if exchange.path.startswith("/v1/"):
        return False
    return exchange.method in SAFE or exchange.path in _ENTRANCE


def refuse_too_often(limiter: RateLimiter, rate: str, who: Principal) -> None:
    """Limit a user's requests of one kind. HTTPException 429 for those above the ``rate``
    (``10/minute``)."""
    limit = parse_rate(rate)
    if not limiter.hit(limit, who.user):
        wait_s = max(1, round(limiter.wait_s(limit, who.user)))
        raise HTTPException(
            429, f"at most {rate.replace('/', ' a ')}", {"Retry-After": str(wait_s)}
        )


_bearer = HTTPBearer(auto_error=False, description="A token of `vgrads token create`.")


def needs(scope: str) -> Any:
    """Return a dependency: the principal of a request, who must have a scope."""

    async def principal(  # a coroutine: it needs no thread
        request: Request,
        _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None,
    ) -> Principal:
        return authorise(request, scope)

    requires(scope, principal)
    return Depends(principal)


READ = needs("read")
"""For routes that do not use the principal."""
Reader = Annotated[Principal, READ]
Forecaster = Annotated[Principal, needs("forecast")]
Submitter = Annotated[Principal, needs("submit")]
IfMatch = Annotated[str | None, Header(alias="If-Match", max_length=200)]
"""The tag of what is to be changed."""
Operator = Annotated[Principal, needs("operate")]
Lender = Annotated[Principal, needs("pool")]
