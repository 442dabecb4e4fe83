"""Dask by a clock that nobody sets.

It waits until instants of the calendar, between two messages as well as for a connection. Where the
calendar is set back by an hour in between, nothing is sent for an hour, and no task begins or is
known to have ended; set forward, what has just begun is too late (dask/distributed #4528, open).
Tornado's loop, which it waits by, reads the calendar too.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from distributed import metrics
from tornado.ioloop import IOLoop

_SINCE = time.time() - time.monotonic()


def _steady() -> float:
    """The calendar's time as it was when this process began, and what has passed since."""
    return _SINCE + time.monotonic()


def count_steadily() -> None:
    """From now on Dask counts so in this process; doing it twice changes nothing."""
    calendar = metrics.time
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "distributed" and getattr(module, "time", None) is calendar:
            vars(module)["time"] = _steady
    loop: Any = IOLoop
    loop.time = staticmethod(_steady)
