"""A database that cannot be reached for a while: how that is noticed, and how one waits until it
can.

A transaction whose commit was under way when the connection broke may have been written or not. So
whoever tries again is told that it does, and looks first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import URL, ExceptionContext

from vgrads.kernel.errors import SiteError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_CONNECT_S, _SILENCE_S = 5, 20
"""For which an answer is waited for when a connection is opened, and on one that is open."""
_STATES = ("08", "57P01", "57P02", "57P03", "53300")
"""What PostgreSQL's codes of a lost connection begin with: it stops, starts, or has too many
connections."""
_log = logging.getLogger("vgrads.records")
_T = TypeVar("_T")


class DatabaseLost(SiteError):
    """There is no connection to the database, or it broke; what was being written may be there or
    not."""


def is_lost(context: ExceptionContext) -> bool:
    """True for an error that a connection broke, or that there is none."""
    if context.dialect.name != "postgresql":
        return False
    state = getattr(context.original_exception, "sqlstate", None)
    return context.is_disconnect or state is None or str(state).startswith(_STATES)


def connection_options(url: URL) -> dict[str, Any]:
    """How connections of a URL are opened: none is waited for without end; what the URL says itself
    stands."""
    if url.get_backend_name() != "postgresql":
        return {}
    wanted = {"connect_timeout": _CONNECT_S, "tcp_user_timeout": _SILENCE_S * 1000}
    return {
        "pool_pre_ping": True,
        "connect_args": {name: value for name, value in wanted.items() if name not in url.query},
    }


def await_database(work: Callable[[bool], _T], until_s: Callable[[], float]) -> _T:
    """Do what needs the database; where that is lost, again and again up to an instant of the
    monotonic clock.

    ``work`` is given True where an earlier try may have been written down. DatabaseLost when the
    time is up.
    """
    pause_s, again = _FIRST_PAUSE_S, False
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
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
