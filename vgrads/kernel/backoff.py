"""Exponential backoff: the pauses between tries of something that fails.

Programs that are sent to nodes as one file, and the agent, have their own: they cannot import this.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses in seconds: the first, and each later one ``factor`` times as long, up to the longest.

    >>> steps = Backoff(1.0, 5.0)
    >>> [steps.pause_s(count) for count in (0, 1, 2, 3, 5000)]
    [1.0, 2.0, 4.0, 5.0, 5.0]
    >>> steps.after(None), steps.after(2.0), steps.after(4.0)
    (1.0, 4.0, 5.0)
    """

    first_s: float
    longest_s: float
    factor: float = 2.0

    def after(self, pause_s: float | None) -> float:
        """Return the pause after one of this length; the first after none."""
        return self.first_s if pause_s is None else min(self.longest_s, self.factor * pause_s)

    def pause_s(self, count: int) -> float:
        """Return the pause after so many earlier ones."""
        pause_s = self.first_s
        for _ in range(count):
            if pause_s >= self.longest_s:
                break
            pause_s *= self.factor
        return min(self.longest_s, pause_s)
