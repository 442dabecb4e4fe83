"""Connections that end at another process, over TCP or on this machine.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

_ABORT = struct.pack("ii", 1, 0)


def connect_here(path: str, timeout_s: float) -> socket.socket:
    """Connect to a socket of this machine. Raise OSError where nobody listens."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout_s)
    try:
        connection.connect(path)
    except FileNotFoundError:  # a manager that ended for good has removed its folder
        connection.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, f"no socket {path}") from None
    except OSError:
        connection.close()
        raise
    return connection


def connect_tcp(
    address: tuple[str, int],
    timeout_s: float | None = None,
    source: tuple[str, int] | None = None,
) -> socket.socket:
    """Connect to (host, port). Raise OSError where nobody listens.

    A port of this machine from which the kernel also takes the ports of clients may be given to the
    very socket that connects to it: TCP then connects the socket to itself (RFC 9293, 3.5,
    simultaneous open), which would read its own request as the answer and keep the port from the
    server that is about to come back.
    """
    connection = socket.create_connection(address, timeout_s, source)
    try:
        if connection.getsockname() != connection.getpeername():
            return connection
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)  # no TIME-WAIT
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    except OSError:
        connection.close()
        raise
