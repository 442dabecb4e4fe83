"""Backoff for sites that do not answer."""

from __future__ import annotations

from dataclasses import dataclass

from vgrads.execmgr.core.states import Event, SiteSilent
from vgrads.kernel.backoff import Backoff
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import SiteError

_BACKOFF = Backoff(1.0, 60.0)


@dataclass(frozen=True, slots=True)
class _Silence:
    next_s: float
    pause_s: float
    reason: str


class SiteBackoff:
    """Sites that do not answer, and the next retry of each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._silent: dict[str, _Silence] = {}

    def may_ask(self, site: str) -> bool:
        """True if the site answers, or its backoff is over."""
        return self._clock.now() >= self.next_s(site)

    def next_s(self, site: str) -> float:
        """Return when a site may be called."""
        silence = self._silent.get(site)
        return silence.next_s if silence is not None else float("-inf")

    def reasons(self) -> list[str]:
        """Return the last message of each site that does not answer."""
        return [silence.reason for silence in self._silent.values()]

    def record_answer(self, site: str) -> None:
        """Record that the site has answered."""
        self._silent.pop(site, None)

    def note(self, site: str, error: SiteError) -> list[Event]:
        """Increase the backoff, doubling; the first failure is reported as an event."""
        now, before = self._clock.now(), self._silent.get(site)
        pause_s = _BACKOFF.after(before.pause_s if before else None)
        self._silent[site] = _Silence(now + pause_s, pause_s, str(error))
        return [] if before else [SiteSilent(at_s=now, site=site, reason=str(error))]
