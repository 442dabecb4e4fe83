"""Dask's streams by the clock that nobody sets.

A stream (``distributed.batched``) waits some milliseconds between messages, until an instant of the calendar. Where the
calendar is set back in between, by an hour say, it sends nothing for an hour, and no task begins or is known to
have ended (dask/distributed #4528, open). Tornado's loop, which it waits by, reads the calendar too.
"""

from __future__ import annotations

import time
from typing import Any

from distributed import batched
from tornado.ioloop import IOLoop


def count_steadily() -> None:
    """From now on this process's streams wait by the monotonic clock; doing it twice changes nothing."""
    module: Any = batched
    module.time = time.monotonic
    loop: Any = IOLoop
    loop.time = staticmethod(time.monotonic)  # its deadlines must count alike
