"""``map`` in chunks whose size follows the observed run times of the items."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from math import ceil
from typing import Any

_TARGET_S = 0.1  # of a chunk: so an exchange costs a hundredth of it
_MOST_ITEMS = 10_000
_IN_FLIGHT = 4  # chunks for each place
Submit = Callable[..., Future[Any]]


def run_chunk(function: Callable[..., Any], rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Call a function for each row of arguments."""
    return [function(*row) for row in rows]


class ChunkedMap:
    """Calls of one function for many rows: submitted in chunks, a few at a time, in order.

    ``count``: of the rows; None where they may be endless. Then those whose results nobody has
    taken are few, and rows are read by whoever takes results, in no other thread.
    """

    def __init__(
        self,
        submit: Submit,
        function: Callable[..., Any],
        rows: Iterator[Sequence[Any]],
        count: int | None,
        places: int,
        size: int | None,
    ) -> None:
        self._submit, self._function, self._rows = submit, function, rows
        self._left, self._places, self._size = count, places, size
        self._futures: list[Future[Any]] = []
        self._is_read = False
        self._taken = 0  # chunks whose results are being read
        self._running = self._done_items = 0
        self._ran_s = 0.0
        # reentrant: a future that is done already calls back while a chunk is being added
        self._changed = threading.Condition(threading.RLock())
        self._stopped = False
        self._feed()

    def _next_size(self) -> int:
        if self._size is not None:
            return self._size
        if not self._done_items:
            return 1
        each_s = max(self._ran_s / self._done_items, 1e-7)
        # half of an equal share of what is left, so that all places end at about the same time
        most = _MOST_ITEMS if self._left is None else ceil(self._left / self._places / 2)
        return max(1, min(_MOST_ITEMS, int(_TARGET_S / each_s), most))

    def _has_room(self) -> bool:
        most = _IN_FLIGHT * self._places
        if self._left is None:
            return len(self._futures) - self._taken < most
        return self._size is not None or self._running < most

    def _feed(self) -> None:
        with self._changed:
            while not self._is_read and not self._stopped and self._has_room():
                rows = list(islice(self._rows, self._next_size()))
                if self._left is not None:
                    self._left -= len(rows)
                self._is_read = not rows or self._left == 0
                if not rows:
                    break
                self._running += 1
                future = self._submit(run_chunk, self._function, rows)
                self._futures.append(future)
                future.add_done_callback(partial(self._on_done, len(rows)))
            self._changed.notify_all()

    def _on_done(self, items: int, future: Future[Any]) -> None:
        with self._changed:
            self._running -= 1
            if not future.cancelled() and future.exception() is None:
                self._done_items += items
                self._ran_s += getattr(future, "ran_s", 0.0)
        if self._left is None:
            return
        try:
            self._feed()
        except RuntimeError:  # the executor was shut down: the rest is not submitted
            with self._changed:
                self._stopped = True
                self._changed.notify_all()

    def results(self, timeout: float | None) -> Iterator[Any]:
        """Return the results in order, waiting for each; TimeoutError after ``timeout`` seconds
        from now."""
        return self._results(None if timeout is None else time.monotonic() + timeout)

    def _results(self, end_s: float | None) -> Iterator[Any]:
        number = 0
        try:
            while (future := self._chunk(number, end_s)) is not None:
                self._futures[number] = None  # type: ignore[call-overload]  # frees its values
                left_s = None if end_s is None else end_s - time.monotonic()
                values: list[Any] = future.result(left_s)
                future = None
                number += 1
                if self._left is None:
                    self._taken = number
                    self._feed()
                values.reverse()  # a value that was passed on is not referenced from here
                while values:
                    yield values.pop()
        finally:
            with self._changed:
                self._stopped = True
            for future in self._futures[number:]:
                if future is not None:
                    future.cancel()

    def _chunk(self, number: int, end_s: float | None) -> Future[Any] | None:
        """Wait until a chunk was submitted; None where there is none."""
        with self._changed:
            while number >= len(self._futures):
                if self._is_read:
                    return None
                if self._stopped:
                    raise RuntimeError("cannot schedule new futures after shutdown")
                left_s = None if end_s is None else end_s - time.monotonic()
                if not self._changed.wait(left_s):
                    raise TimeoutError
            return self._futures[number]
