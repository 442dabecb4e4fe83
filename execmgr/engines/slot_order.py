"""An order for the agents of a slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vgrads.exchange.values import Triple
from vgrads.execmgr.tasks.agent_orders import AgentOrder


@dataclass(frozen=True, slots=True)
class SlotOrder:
    """An order for the agents of a slot."""

    key: Triple
    slot: str
    procs: int
    order: AgentOrder

    @property
    def is_live(self) -> bool:
        """Return True where the agent reports what it prints while it runs."""
        return bool(self.order.settings["live"])

    def encoded(self, procs: int) -> list[Any]:
        """Return it as an agent with so many processors gets it."""
        order = self.order
        settings = {**order.settings, "procs": min(self.procs, procs)}
        return [*self.key, order.command, dict(order.inputs), list(order.outputs), settings]
