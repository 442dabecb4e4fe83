"""How a dispatcher stands: the fold of its journal (:func:`vgrads.dispatch.core.fold.apply`), in
columns that are changed in place.

This departs from the immutable state of planned runs, for two million tasks (decision 0020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vgrads.bags.record import HostRecord
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.slots import SlotRequest
from vgrads.dispatch.core.state_check import check


@dataclass(slots=True)
class Owner:
    """Whose bags: processor seconds that they have had, divided by weight."""

    had: float = 0.0


@dataclass(frozen=True, slots=True)
class Effect:
    """What an end came to: ``counts``: it decided the task; ``again``: something waits now that did
    not; ``elsewhere``: the hosts that also have the task."""

    counts: bool
    again: bool = False
    elsewhere: Sequence[int] = ()


@dataclass
class State:
    """Bags by number, hosts by number, owners by name, slots by id, what is known of machines by
    site and machine."""

    bags: dict[int, BagState] = field(default_factory=dict)
    hosts: dict[int, Host] = field(default_factory=dict)
    by_id: dict[str, int] = field(default_factory=dict)
    owners: dict[str, Owner] = field(default_factory=dict)
    slots: dict[str, SlotRequest] = field(default_factory=dict)
    records: dict[str, HostRecord] = field(default_factory=dict)
    now_s: float = 0.0

    def check(self) -> None:
        """AssertionError where what is kept twice differs."""
        check(self)
