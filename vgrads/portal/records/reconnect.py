"""Detection of a database that is unreachable for a while, and waiting for it.

A transaction whose commit was in progress when the connection broke may have been written or not.
So a retry is marked as such, and checks first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import URL, ExceptionContext

from vgrads.kernel.backoff import Backoff
from vgrads.kernel.errors import SiteError

_BACKOFF = Backoff(0.1, 2.0)
_CONNECT_S, _SILENCE_S = 5, 20
"""Timeouts of opening a connection, and of an answer on an open one, in seconds."""
_STATES = ("08", "57P01", "57P02", "57P03", "53300")
"""Prefixes of PostgreSQL's codes of a lost connection: it stops, starts, or has too many
connections."""
_log = logging.getLogger("vgrads.records")
_T = TypeVar("_T")


class DatabaseLost(SiteError):
    """There is no connection to the database, or it broke; the transaction may have been written or
    not."""


def is_lost(context: ExceptionContext) -> bool:
    """Return True for an error of a broken or missing connection."""
    if context.dialect.name != "postgresql":
        return False
    state = getattr(context.original_exception, "sqlstate", None)
    # without a state: the connection itself failed, before any answer
    return context.is_disconnect or state is None or str(state).startswith(_STATES)


def connection_options(url: URL) -> dict[str, Any]:
    """Return the connection options of a URL: finite timeouts; settings in the URL have
    precedence."""
    if url.get_backend_name() != "postgresql":
        return {}
    required = {"connect_timeout": _CONNECT_S, "tcp_user_timeout": _SILENCE_S * 1000}
    return {
        "pool_pre_ping": True,
        "connect_args": {name: value for name, value in required.items() if name not in url.query},
    }


def await_database(work: Callable[[bool], _T], until_s: Callable[[], float]) -> _T:
    """Run work on the database; while it is unreachable, retry up to an instant of the monotonic
    clock.

    ``work`` is called with True where an earlier try may have been written. Raises DatabaseLost
    when the time is up.
    """
    pause_s, again = _BACKOFF.first_s, False
    while True:
        try:
            return work(again)
        except DatabaseLost as error:
            left_s = until_s() - time.monotonic()
            if left_s <= 0:
                raise
            if not again:
                _log.warning("%s; waiting for it up to %.0f s", error, left_s)
            again = True
            time.sleep(min(pause_s, left_s))
            pause_s = _BACKOFF.after(pause_s)
