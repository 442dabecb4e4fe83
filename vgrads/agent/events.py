"""What an agent's loop waits for: a signal, its connection, ends of processes, other threads.

Shipped to hosts: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import selectors
import signal
from contextlib import suppress
from typing import Any

from .link import Link, ring_of


class Events:
    """One selector, and a bell that signals and other threads ring."""

    def __init__(self) -> None:
        self._bell, ringer = os.pipe()
        for one in (self._bell, ringer):
            os.set_blocking(one, False)
        self.ring = ring_of(ringer)
        """Wakes the loop, from any thread."""
        self.signalled = 0
        """The last signal that asked this process to end; 0: none has."""
        signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        self._selector = selectors.DefaultSelector()
        self.add(self._bell, "bell")
        self._link: Link | None = None
        self._awaited = 0  # of the connection: what it is waited for

    def _on_signal(self, number: int, _: object) -> None:
        self.signalled = number

    def add(self, descriptor: int, name: str) -> None:
        """Wait for this to become readable, too."""
        self._selector.register(descriptor, selectors.EVENT_READ, name)

    def follow(self, link: Link | None) -> None:
        """Wait for this connection, ``link``, from now on; the one before is closed."""
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
        """The names of what has come up, after so long (seconds) at most."""
        ready = {key.data for key, _ in self._selector.select(timeout_s)}
        if "bell" in ready:
            with suppress(BlockingIOError):
                os.read(self._bell, 65536)
        return ready

    def close(self) -> None:
        """Wait for nothing more."""
        self._selector.close()
