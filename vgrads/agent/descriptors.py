"""How many descriptors this process may have, and what is told where there are none left.

Shipped to hosts: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import errno
import os
import resource

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_SPARE = 16
"""Descriptors that are left for all else: files that are copied, databases, connections."""


def descriptor_limit() -> int:
    """How many descriptors this process may have (setrlimit(2)); -1: as many as it likes."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def has_room(descriptors: int) -> bool:
    """True where as many descriptors are free, and some more for all else that this process
    does."""
    limit = descriptor_limit()
    try:
        return limit < 0 or len(os.listdir("/proc/self/fd")) + descriptors + _SPARE <= limit  # noqa: PTH208
    except OSError as error:
        return error.errno not in NO_DESCRIPTORS  # without /proc nobody knows


def explain_limit(error: OSError) -> OSError:
    """An error of the system, with what to do where there are no descriptors left."""
    if error.errno not in NO_DESCRIPTORS:
        return error
    return OSError(
        f"too many open files: the limit is {descriptor_limit()}; raise it where vgrads or "
        "its slots start (ulimit -n 1024)"
    )
