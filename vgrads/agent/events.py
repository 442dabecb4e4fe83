"""The events that an agent's loop waits for: a signal, its connection, process exits, other
threads.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import selectors
import signal
from contextlib import suppress
from typing import Any

from .link import ManagerConnection, ring_of


class Events:
    """A selector, and a pipe through which signals and other threads wake the loop."""

    def __init__(self) -> None:
        self._wakeup_pipe, wakeup_writer = os.pipe()
        for fd in (self._wakeup_pipe, wakeup_writer):
            # set_wakeup_fd requires it of the writing end; the other is emptied without waiting
            os.set_blocking(fd, False)
        self.ring = ring_of(wakeup_writer)
        """Wakes the loop, from any thread."""
        self.signalled = 0
        """The last signal that requested the end of this process; 0: none."""
        signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        self._selector = selectors.DefaultSelector()
        self.add(self._wakeup_pipe, "bell")
        self._link: ManagerConnection | None = None
        self._awaited = 0  # events that the connection is waited for

    def _on_signal(self, number: int, _: object) -> None:
        self.signalled = number

    def add(self, descriptor: int, name: str) -> None:
        """Also wait for this descriptor to become readable."""
        self._selector.register(descriptor, selectors.EVENT_READ, name)

    def follow(self, link: ManagerConnection | None) -> None:
        """Wait for this connection, ``link``, from now on; the previous one is closed."""
        if link is not self._link:
            if self._link is not None:
                with suppress(OSError, ValueError, KeyError):
                    self._selector.unregister(self._link)
                self._link.close()
            self._link, self._awaited = link, 0
        if link is None:
            return
        awaited = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.blocked else 0)
        if awaited != self._awaited:
            change: Any = self._selector.modify if self._awaited else self._selector.register
            change(link, awaited, "link")
            self._awaited = awaited

    def wait(self, timeout_s: float) -> set[str]:
        """Return the names of the events that occurred, after this many seconds at most."""
        ready = {key.data for key, _ in self._selector.select(timeout_s)}
        if "bell" in ready:
            with suppress(BlockingIOError):
                os.read(self._wakeup_pipe, 65536)
        return ready

    def close(self) -> None:
        """Stop waiting for events and close the selector."""
        self._selector.close()
