"""A queue of future events, ordered by ``(time, priority, sequence)``.

The sequence number orders simultaneous events by insertion, so that a simulation is a function of
its inputs and its seed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class EventQueue(Generic[Item]):
    """Push and pop in O(log n); cancelling is O(1) and leaves a tombstone until popped."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []
        self._items: dict[int, Item] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._items)

    def push(self, time_s: float, item: Item, priority: int = 0) -> int:
        """Add an event and return a ticket; lower ``priority`` goes first among simultaneous
        ones."""
        # NaN compares as false with all numbers and would break the order of the heap
        if math.isnan(time_s):
            raise ValueError("an event needs a time, not NaN")
        ticket = self._next
        self._next += 1
        self._items[ticket] = item
        heapq.heappush(self._heap, (time_s, priority, ticket))
        return ticket

    def cancel(self, ticket: int) -> None:
        """Remove an event; a ticket already popped is no error."""
        self._items.pop(ticket, None)

    def peek_time(self) -> float:
        """Return the time of the next event, ``inf`` if there is none."""
        while self._heap and self._heap[0][2] not in self._items:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def pop(self) -> tuple[float, Item]:
        """Remove and return the next ``(time, event)``; IndexError when empty."""
        self.peek_time()
        time_s, _, ticket = heapq.heappop(self._heap)
        return time_s, self._items.pop(ticket)

    def pop_until(self, time_s: float) -> Iterator[tuple[float, Item]]:
        """Pop all events with time ≤ ``time_s``, including those pushed in the process."""
        while self._items and self.peek_time() <= time_s:
            yield self.pop()

    def check(self) -> None:
        """Check that every live ticket is in the heap exactly once."""
        live = [entry[2] for entry in self._heap if entry[2] in self._items]
        if sorted(live) != sorted(self._items):
            raise AssertionError(f"heap {self._heap} and items {self._items} disagree")
