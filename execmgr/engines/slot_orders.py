"""Orders for the agents of slots: waiting for a node, or sent by an earlier manager."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from vgrads.exchange.values import Triple
from vgrads.execmgr.engines.slot_agent import SlotAgent
from vgrads.execmgr.engines.slot_order import SlotOrder


class WaitingOrders:
    """Orders that wait for a node of their slot, in the order of the plan."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[SlotOrder]] = {}

    def add(self, order: SlotOrder, first: bool = False) -> None:
        """Add an order, at the end or as the ``first``."""
        queue = self._queues.setdefault(order.slot, deque())
        (queue.appendleft if first else queue.append)(order)

    def cancel(self, key: Triple) -> None:
        """Remove an order, if it waits."""
        for queue in self._queues.values():
            for order in [order for order in queue if order.key == key]:
                queue.remove(order)

    def distribute(self, agents: Iterable[SlotAgent]) -> None:
        """Assign orders to nodes with room; one that fits no node of its slot starts on the first,
        and reaches the others by a launcher of its own."""
        available = [agent for agent in agents if agent.is_available]
        for slot, queue in self._queues.items():
            here = [agent for agent in available if agent.slot == slot] if queue else []
            while queue and here:
                chosen = _choose_node(queue[0], here)
                # orders start in the plan's order: a smaller one does not pass
                if chosen is None:
                    break
                chosen.assign(queue.popleft())


def _choose_node(order: SlotOrder, here: list[SlotAgent]) -> SlotAgent | None:
    if order.procs > max(agent.procs for agent in here):
        return min(here, key=lambda agent: agent.node)
    emptiest = max(here, key=lambda agent: (agent.free, -agent.node))
    return emptiest if emptiest.free >= order.procs else None


@dataclass
class ExpectedOrders:
    """Orders that an earlier manager sent: key → slot and processors. ``_since_s``: since when
    agents of a slot are here."""

    patience_s: float
    _orders: dict[Triple, tuple[str, int]] = field(default_factory=dict)
    _since_s: dict[str, float] = field(default_factory=dict)

    def add(self, key: Triple, slot: str, procs: int) -> None:
        """Expect an order."""
        self._orders[key] = (slot, procs)

    def take(self, key: Triple) -> int:
        """Remove an order; return its processors, 0 if it was not expected."""
        return self._orders.pop(key, ("", 0))[1]

    def missing(self, agents: Iterable[SlotAgent], now: float) -> list[Triple]:
        """Remove and return the orders of slots whose agents are all here, or here for long: none
        of them has these."""
        if not self._orders:
            return []
        here: dict[str, list[SlotAgent]] = {}
        for agent in agents:
            if agent.here:
                here.setdefault(agent.slot, []).append(agent)
        complete = {
            slot
            for slot, nodes in here.items()
            if len(nodes) >= nodes[0].nodes
            or now - self._since_s.setdefault(slot, now) > self.patience_s
        }
        keys = [key for key, (slot, _) in self._orders.items() if slot in complete]
        for key in keys:
            del self._orders[key]
        return keys
