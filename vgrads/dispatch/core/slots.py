"""A slot that a dispatcher requested, as it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from vgrads.dispatch.core.events import SlotChanged, fields_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRequest:
    """A request for hosts at a site, and what became of it.

    ``hosts``: how many were requested, at ``asked_s``; ``state``: of the site's job
    (:class:`vgrads.drivers.api.SlotState`); ``joined``: an agent has come; ``closing``: why it is
    being released; ``revoked``: its key opens nothing any more. One without a ``site`` was not
    requested here: it is of an agent that came by invitation.
    """

    id: str
    site: str = ""
    hosts: int = 0
    asked_s: float = 0.0
    state: int = 0
    reason: str = ""
    ready_s: float | None = None
    closing: str = ""
    joined: bool = False
    ended: bool = False
    revoked: bool = False

    @property
    def held(self) -> bool:
        """True while the site may have something of it."""
        return bool(self.site) and not self.ended

    @property
    def open(self) -> bool:
        """True while it is held and is to stay so."""
        return self.held and not self.closing

    def changed(self, event: SlotChanged) -> SlotRequest:
        """The same after an event."""
        return replace(self, **fields_of(event))

    def as_json(self) -> dict[str, Any]:
        """What is known of it, for a snapshot."""
        blank = SlotRequest(id=self.id)
        names = [one.name for one in fields(self)]
        return {n: getattr(self, n) for n in names if getattr(self, n) != getattr(blank, n)}


def slot_from_json(id: str, stored: Mapping[str, Any]) -> SlotRequest:
    """A slot of a snapshot."""
    return SlotRequest(**{**stored, "id": id})
