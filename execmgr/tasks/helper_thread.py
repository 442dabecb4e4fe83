"""A thread that processes items one after the other, started with the first item."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

Piece = TypeVar("Piece")


class HelperThread(Generic[Piece]):
    """``work`` takes items from the queue until it finds None, the end mark."""

    def __init__(self, name: str, work: Callable[[SimpleQueue[Piece | None]], None]) -> None:
        self._name, self._work = name, work
        self._waiting: SimpleQueue[Piece | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._beginning = threading.Lock()

    def put(self, piece: Piece) -> None:
        """Enqueue an item."""
        with self._beginning:
            self._begin()
        self._waiting.put(piece)

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, args=(self._waiting,), daemon=True, name=self._name
            )
            self._thread.start()

    def close(self) -> None:
        """Return when all items are processed."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None
