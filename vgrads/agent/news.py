"""What a host has to tell its manager, and tells again until it is acknowledged.

Shipped to hosts: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

from collections import deque
from typing import Any

_MOST_BYTES, _MOST_ENDS = 1 << 20, 2000  # in a message


class News:
    """Ends of tasks, tasks that are given back, inputs that came: each in the order in which it was
    added."""

    def __init__(self) -> None:
        self._new: dict[str, list[Any]] = {"ended": [], "returned": [], "cached": []}
        self._told: deque[tuple[int, str, Any]] = deque()  # in which message, of which kind, what
        self._most_bytes = _MOST_BYTES

    def add(self, kind: str, one: object) -> None:
        """Of kind ended, returned or cached."""
        self._new[kind].append(one)

    @property
    def is_new(self) -> bool:
        """True where something is to be told."""
        return any(self._new.values())

    @property
    def is_all_known(self) -> bool:
        """True where nothing is to be told, and all was acknowledged."""
        return not self._told and not self.is_new

    def tell(self, seq: int) -> dict[str, list[Any]]:
        """As much as goes into the message of this number, by kind."""
        told = {}
        bytes_left = self._most_bytes
        for kind, news in self._new.items():
            count = 0
            while count < min(len(news), _MOST_ENDS) and bytes_left > 0:
                bytes_left -= 100 + (
                    2 * (len(news[count][7]) + len(news[count][8])) if kind == "ended" else 0
                )
                count += 1
            if count:
                told[kind] = news[:count]
                self._told.extend((seq, kind, one) for one in news[:count])
                del news[:count]
        return told

    def acknowledge(self, seq: int) -> list[Any]:
        """The manager knows all up to this message: the tasks among it."""
        known = []
        while self._told and self._told[0][0] <= seq:
            _, kind, one = self._told.popleft()
            if kind != "cached":
                known.append(tuple(one[:3]))
        return known

    def shrink(self) -> None:
        """The manager does not take messages of this size."""
        if self._most_bytes == 1:  # a single end: without what it printed, then
            for _, kind, one in self._told:
                if kind == "ended":
                    one[7] = one[8] = ""
        self._most_bytes = max(1, self._most_bytes // 8)

    def tell_again(self) -> None:
        """All that was not acknowledged is to be told again."""
        for kind, news in self._new.items():
            news[:0] = [one for _, told, one in self._told if told == kind]
        self._told.clear()
