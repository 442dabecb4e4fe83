"""The limit of file descriptors of this process, and the message when none are left.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import errno
import os
import resource

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_SPARE = 16
"""Descriptors reserved for other uses: file copies, databases, connections."""


def descriptor_limit() -> int:
    """Return the limit of file descriptors (setrlimit(2)); -1: unlimited."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def has_room(descriptors: int) -> bool:
    """Return True where this many descriptors are free, plus a reserve for other uses of this
    process."""
    limit = descriptor_limit()
    try:
        return limit < 0 or len(os.listdir("/proc/self/fd")) + descriptors + _SPARE <= limit  # noqa: PTH208
    except OSError as error:
        return error.errno not in NO_DESCRIPTORS  # without /proc the number is unknown


def explain_limit(error: OSError) -> OSError:
    """Return the message of a system error, with advice where no descriptors are left."""
    if error.errno not in NO_DESCRIPTORS:
        return error
    return OSError(
        f"too many open files: the limit is {descriptor_limit()}; raise it where vgrads or "
        "its slots start (ulimit -n 1024)"
    )
