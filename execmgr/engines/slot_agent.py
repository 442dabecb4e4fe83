"""One agent of a slot, as a run's manager sees it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from vgrads.exchange.messages import HEARTBEAT_S
from vgrads.exchange.values import Hello, Triple
from vgrads.execmgr.engines.slot_order import SlotOrder

_LIVE_BEAT_S = 2.0  # between reports of what tasks print


@dataclass(slots=True, kw_only=True)
class SlotAgent:
    """An agent: its node, its process, its orders.

    ``slot_name``: the name of its slot at the site, which each request for the slot changes;
    ``assigned``: its orders and their processors; ``orders``: those of this manager;
    ``unconfirmed``: numbers of messages, each with the ends in it that the journal does not have
    yet; ``news_seq``: number of its last message with news; ``answered_seq``: of the last one that
    was acknowledged.
    """

    id: str
    slot: str
    slot_name: str
    node: int
    nodes: int
    procs: int
    incarnation: str
    number: int = 0
    contact_s: float = 0.0
    here: bool = True
    leaving: bool = False
    stopping: bool = False  # its next answer tells it to end
    seq: int = 0
    news_seq: int = 0
    answered_seq: int = 0
    assigned: dict[Triple, int] = field(default_factory=dict)
    orders: dict[Triple, SlotOrder] = field(default_factory=dict)
    unconfirmed: deque[tuple[int, set[Triple]]] = field(default_factory=deque)
    to_send: list[SlotOrder] = field(default_factory=list)
    to_cancel: list[Triple] = field(default_factory=list)
    past_incarnations: set[str] = field(default_factory=set)

    @property
    def free(self) -> int:
        """Return the number of processors without an order."""
        return self.procs - sum(self.assigned.values())

    @property
    def is_available(self) -> bool:
        """Return True while it accepts orders."""
        return self.here and not self.leaving

    @property
    def awaits_answer(self) -> bool:
        """Return True while it has news that is not acknowledged."""
        return self.news_seq > self.answered_seq

    def assign(self, order: SlotOrder) -> None:
        """Send an order with the next answer."""
        self.assigned[order.key] = order.procs
        self.to_send.append(order)

    def drop(self, key: Triple) -> bool:
        """Remove an order; return False if the agent did not have it."""
        self.orders.pop(key, None)
        return self.assigned.pop(key, None) is not None

    def cancel(self, key: Triple) -> None:
        """Cancel an order, sent or not."""
        if any(order.key == key for order in self.to_send):
            self.to_send = [order for order in self.to_send if order.key != key]
            self.drop(key)
        elif key in self.assigned:
            self.to_cancel.append(key)

    def lose_all(self) -> tuple[list[SlotOrder], list[Triple]]:
        """Remove all orders; return those that were not sent, and those that were."""
        unsent, self.to_send = self.to_send, []
        waiting = {order.key for order in unsent}
        sent = [key for key in self.assigned if key not in waiting]
        self.to_cancel += sent  # for an agent that returns
        self.assigned.clear()
        self.orders.clear()
        return unsent, sent

    def compare(self, reported: Iterable[Triple], take_expected: Callable[[Triple], int]) -> None:
        """Compare lists after a new connection: take over orders of an earlier manager, send lost
        ones again, cancel those that nobody needs. ``take_expected``: returns the processors of an
        order that an earlier manager sent, 0 for others, and expects it no more."""
        present = set(reported)
        for key in present - self.assigned.keys():
            procs = take_expected(key)
            if procs:
                self.assigned[key] = procs
            else:
                self.to_cancel.append(key)
        waiting = {order.key for order in self.to_send}
        lost = self.assigned.keys() - present - waiting
        self.to_send += [order for key, order in self.orders.items() if key in lost]

    def begin_anew(self, incarnation: str) -> None:
        """Continue with another process on the same node."""
        self.past_incarnations.add(self.incarnation)
        self.incarnation, self.leaving = incarnation, False
        # a new process numbers its messages from the start
        self.seq = self.news_seq = self.answered_seq = 0
        self.unconfirmed.clear()
        self.to_cancel.clear()

    def confirmed_seq(self) -> int:
        """Return the number of the last message of which the journal has all ends."""
        while self.unconfirmed and not self.unconfirmed[0][1]:
            self.unconfirmed.popleft()
        # only what precedes the first end that the journal does not have yet
        return self.unconfirmed[0][0] - 1 if self.unconfirmed else self.seq

    def needs_answer(self) -> bool:
        """Return True where there is something to send."""
        acknowledges = self.answered_seq < min(self.confirmed_seq(), self.news_seq)
        return bool(acknowledges or self.to_send or self.to_cancel or self.stopping)

    def answer(self) -> dict[str, Any]:
        """Return the next answer to the agent."""
        self.answered_seq = self.confirmed_seq()
        live = any(order.is_live for order in (*self.orders.values(), *self.to_send))
        beat_s = _LIVE_BEAT_S if live else HEARTBEAT_S
        payload: dict[str, Any] = {"seq": self.answered_seq, "beat_s": beat_s}
        if self.to_send:
            payload["give"] = [order.encoded(self.procs) for order in self.to_send]
            self.orders.update((order.key, order) for order in self.to_send)
            self.to_send = []
        if self.to_cancel:
            payload["cancel"], self.to_cancel = self.to_cancel, []
        if self.stopping:
            payload["stop"], self.stopping = True, False
        return payload


def register_agent(id_: str, incarnation: str, hello: Hello, slot: str) -> SlotAgent:
    """Return an agent as it introduces itself."""
    return SlotAgent(
        id=id_,
        slot=slot,
        slot_name=hello.slot,
        node=hello.node,
        nodes=hello.nodes,
        procs=hello.procs,
        incarnation=incarnation,
    )
