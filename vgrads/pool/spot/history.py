"""When spot nodes could be had, as seen so far."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Spell:
    """A time in which spot nodes were available without a break, or were not. ``ended``: False for
    the last one, whose length is censored: it goes on."""

    available: bool
    length_s: float
    ended: bool


@dataclass(frozen=True, slots=True)
class SpotHistory:
    """Availability of spot nodes of one kind at one site: from ``began_s`` on as ``first`` says,
    the opposite from the first of ``changes_s`` on, and so forth. Seconds of the caller's clock.

    The first spell began at some time before: its length counts from ``began_s``.
    """

    began_s: float
    first: bool
    changes_s: tuple[float, ...] = ()

    @property
    def last_s(self) -> float:
        """Return the instant of the last change, or of the begin."""
        return self.changes_s[-1] if self.changes_s else self.began_s

    def is_available(self, now_s: float) -> bool:
        """Return whether nodes were available at an instant."""
        return self.first ^ bool(bisect_right(self.changes_s, now_s) % 2)

    def age_s(self, now_s: float) -> float:
        """Return for how long that has been so."""
        before = bisect_right(self.changes_s, now_s)
        return now_s - (self.changes_s[before - 1] if before else self.began_s)

    def observed(self, now_s: float, available: bool) -> SpotHistory:
        """Return the history with a new observation; one in the past is ignored."""
        if available == self.is_available(now_s) or now_s < self.last_s:
            return self
        return replace(self, changes_s=(*self.changes_s, now_s))

    def as_of(self, now_s: float) -> SpotHistory:
        """Return what had been seen at an earlier instant."""
        return replace(self, changes_s=self.changes_s[: bisect_right(self.changes_s, now_s)])

    def spells(self, now_s: float) -> Iterator[Spell]:
        """Return the spells until now; the last one goes on."""
        since_s, available = self.began_s, self.first
        for at_s in self.changes_s:
            if at_s > now_s:
                break
            yield Spell(available, at_s - since_s, ended=True)
            since_s, available = at_s, not available
        yield Spell(available, max(0.0, now_s - since_s), ended=False)
