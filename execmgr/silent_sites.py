"""Sites that do not answer are asked again, less and less often."""

from __future__ import annotations

from dataclasses import dataclass

from vgrads.execmgr.core.states import Event, SiteSilent
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import SiteError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class _Silence:
    next_s: float
    pause_s: float


class SilentSites:
    """Which sites do not answer, and when each is asked next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._silent: dict[str, _Silence] = {}

    def may_ask(self, site: str) -> bool:
        """True where the site answers, or its pause is over."""
        return self._clock.now() >= self.next_s(site)

    def next_s(self, site: str) -> float:
        """When a site may be asked."""
        silence = self._silent.get(site)
        return silence.next_s if silence is not None else float("-inf")

    def heard(self, site: str) -> None:
        """The site has answered."""
        self._silent.pop(site, None)

    def note(self, site: str, error: SiteError) -> list[Event]:
        """Pause, doubling; the first silence is told."""
        now, before = self._clock.now(), self._silent.get(site)
        pause_s = min(_LONGEST_PAUSE_S, before.pause_s * 2) if before else _FIRST_PAUSE_S
        self._silent[site] = _Silence(now + pause_s, pause_s)
        return [] if before else [SiteSilent(at_s=now, site=site, reason=str(error))]
