"""One request in progress, and how many each user has."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from vgrads.portal.records.access import Principal
from vgrads.portal.web import problems
from vgrads.portal.web.checked_routes import MOST_PARSED
from vgrads.portal.web.embedding.forecast_access import ANYBODY

SAFE = ("GET", "HEAD", "OPTIONS")
_METHODS = (*SAFE, "POST", "PUT", "PATCH", "DELETE")


class RequestRefused(Exception):
    """A rejected request."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


@dataclass
class Exchange:
    """One request in progress."""

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
        """Return the HTTP method, if it is a standard one: clients may send any word."""
        method = str(self.scope["method"])
        return method if method in _METHODS else "OTHER"

    @property
    def address(self) -> str:
        client = self.scope.get("client")
        return client[0] if client else ""

    @property
    def who(self) -> str:
        return self.principal.user if self.principal else self.address

    @property
    def anonymous(self) -> bool:
        return self.principal is None or self.principal.user == ANYBODY

    @property
    def what(self) -> tuple[Headers, str, str]:
        return self.headers, self.method, self.path


class UserRequests:
    """The requests of each user that are answered now. ``most``: of one user."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._at_once: Counter[str] = Counter()
        self._large: dict[tuple[int, str], asyncio.Lock] = {}
        self._turns: dict[tuple[int, str], asyncio.Lock] = {}

    @contextmanager
    def counted(self, exchange: Exchange) -> Iterator[None]:
        """Count a request of its user while it is answered."""
        who = exchange.who
        if self._at_once[who] >= self._most:
            raise RequestRefused(problems.too_many(exchange.scope, self._most))
        self._at_once[who] += 1
        try:
            yield
        finally:
            self._at_once[who] -= 1
            # entries without a request are removed, or each address would leave one
            if not self._at_once[who]:
                del self._at_once[who]

    def turn_of(self, exchange: Exchange) -> asyncio.Lock | None:
        """Return the lock with which a user's short requests are worked on one after another, so
        that those of other users are answered in between. Routes that may wait themselves are
        coroutines, and take no turn."""
        if exchange.principal is None:
            return None
        return self._turns.setdefault(_make_lock_key(exchange), asyncio.Lock())

    @asynccontextmanager
    async def alone_if_large(self, exchange: Exchange) -> AsyncIterator[None]:
        """Let a user's large bodies be read and parsed one after another: others wait less."""
        length = exchange.headers.get("content-length", "0")
        # a body without a stated length may be large
        is_large = not length.isdigit() or int(length) > MOST_PARSED
        is_large = is_large or "transfer-encoding" in exchange.headers
        by_line = exchange.path.endswith("/tasks")  # for as long as the client likes
        if exchange.principal is not None and is_large and not by_line:
            async with self._large.setdefault(_make_lock_key(exchange), asyncio.Lock()):
                yield
        else:
            yield


def _make_lock_key(exchange: Exchange) -> tuple[int, str]:
    """Return the user and the event loop: no lock can be shared by two loops."""
    return id(asyncio.get_running_loop()), exchange.who
