"""State of a slot that a dispatcher requested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from vgrads.dispatch.core.events import SlotChanged, list_event_fields
from vgrads.kernel.values import field_values


def name_source(site: str, market: str) -> str:
    """Return the name of a source of nodes."""
    return f"{site} {market}" if market else site


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRequest:
    """A request for nodes at a site, and its state.

    ``agents``: how many were requested, at ``requested_s``; ``state``: of the site's job
    (:class:`vgrads.drivers.api.SlotState`); ``joined``: an agent has joined; ``closing``: why it is
    being released; ``revoked``: its key is no longer accepted; ``market``: empty, or that of spot
    nodes; ``length_s``: for how long it was requested, if less than its source permits. One without
    a ``site`` was not requested here: it belongs to an agent that joined by invitation.
    """

    id: str
    site: str = ""
    agents: int = 0
    requested_s: float = 0.0
    state: int = 0
    reason: str = ""
    ready_s: float | None = None
    closing: str = ""
    joined: bool = False
    ended: bool = False
    revoked: bool = False
    market: str = ""
    ended_s: float | None = None
    length_s: float | None = None

    @property
    def source(self) -> str:
        """Return the name of its source of nodes: the site, and for spot nodes the market."""
        return name_source(self.site, self.market)

    @property
    def occupied(self) -> bool:
        """Return True while the site may hold resources for it."""
        return bool(self.site) and not self.ended

    @property
    def open(self) -> bool:
        """Return True while it is held and will be kept."""
        return self.occupied and not self.closing

    def changed(self, event: SlotChanged) -> SlotRequest:
        """Return the slot after an event."""
        return replace(self, **list_event_fields(event))

    def as_json(self) -> dict[str, Any]:
        """Encode it for a snapshot."""
        blank = SlotRequest(id=self.id)
        empty = field_values(blank)
        return {name: value for name, value in field_values(self).items() if value != empty[name]}


def decode_slot(id: str, stored: Mapping[str, Any]) -> SlotRequest:
    """Decode a slot of a snapshot."""
    return SlotRequest(**{**stored, "id": id})
