"""Messages of an agent to its manager, retransmitted until acknowledged.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

from collections import deque
from typing import Any

_MOST_BYTES, _MOST_ENDS = 1 << 20, 2000  # limits of one message


class Outbox:
    """Ends of tasks, returned tasks, received inputs: each in the order in which it was added."""

    def __init__(self) -> None:
        self._new: dict[str, list[Any]] = {"ended": [], "returned": [], "cached": []}
        self._sent: deque[tuple[int, str, Any]] = deque()  # (message number, kind, item)
        self._most_bytes = _MOST_BYTES

    def add(self, kind: str, item: object) -> None:
        """Add an item of kind ended, returned or cached."""
        self._new[kind].append(item)

    @property
    def is_new(self) -> bool:
        """Return True where there is news to report."""
        return any(self._new.values())

    @property
    def all_acknowledged(self) -> bool:
        """Return True where there is no news, and all of it was acknowledged."""
        return not self._sent and not self.is_new

    def report(self, seq: int) -> dict[str, list[Any]]:
        """Return the news that fits into the message of this number, by kind."""
        payload = {}
        bytes_left = self._most_bytes
        for kind, news in self._new.items():
            count = 0
            while count < min(len(news), _MOST_ENDS) and bytes_left > 0:
                bytes_left -= 100 + (2 * sum(map(len, news[count][7:])) if kind == "ended" else 0)
                count += 1
            if count:
                payload[kind] = news[:count]
                self._sent.extend((seq, kind, item) for item in news[:count])
                del news[:count]
        return payload

    def acknowledge(self, seq: int) -> list[Any]:
        """Record that the manager has received all up to this message; return the tasks whose ends
        were in it."""
        acknowledged = []
        while self._sent and self._sent[0][0] <= seq:
            _, kind, item = self._sent.popleft()
            if kind != "cached":
                acknowledged.append(tuple(item[:3]))
        return acknowledged

    def shrink(self) -> None:
        """Reduce the message size: the manager rejects messages of this size."""
        if self._most_bytes == 1:  # then a single end without its output
            for _, kind, item in self._sent:
                if kind == "ended":
                    item[7] = item[8] = ""
        self._most_bytes = max(1, self._most_bytes // 8)

    def resend(self) -> None:
        """Queue all unacknowledged news again."""
        for kind, news in self._new.items():
            news[:0] = [item for _, text, item in self._sent if text == kind]
        self._sent.clear()
