"""The slots that a fleet requested: what each asks of its site, and how many agents are to come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from vgrads.dispatch.core.slots import SlotRequest
from vgrads.dispatch.core.state import State
from vgrads.dispatch.fleet.site_view import Place, Present
from vgrads.drivers.api import SlotSpec
from vgrads.execmgr.core.book import spec_id
from vgrads.execmgr.engines.base import Pilot
from vgrads.pool.view import RequestView


class FleetSlots:
    """``came``: how many agents of each slot have come so far."""

    def __init__(
        self,
        state: State,
        places: Sequence[Place],
        pilot_environment: Callable[[str], Mapping[str, str]],
    ) -> None:
        self._state, self.places, self._pilot_environment = state, places, pilot_environment
        self.came: Counter[str] = Counter()

    def count(self) -> None:
        """Count the agents that have come."""
        self.came = Counter(host.slot for host in self._state.hosts.values())

    def place(self, slot: str) -> str:
        """The site of a slot."""
        return self._state.slots[slot].site

    def spec(self, slot_id: str, run: str, pilot: Pilot | None = None) -> SlotSpec:
        """What a request asks a site for: as many nodes as hosts, with an agent on each."""
        slot = self._state.slots[slot_id]
        where = self.place_of(slot.site)
        environment = dict(self._pilot_environment(slot_id)) if pilot else {}
        return SlotSpec(
            id=spec_id(slot_id, run),
            name=slot_id,
            site=where.site,
            queue=where.queue,
            nodes=slot.hosts,
            procs=where.procs * slot.hosts,
            duration_s=where.longest_s,
            node_type=where.node_type,
            environment={**environment, **(pilot.environment if pilot else {})},
            pilot=pilot.command if pilot else "",
            every_node=slot.hosts > 1,
        )

    def held(self) -> Counter[str]:
        """Slots of each site that have not ended."""
        slots = self._state.slots.values()
        return Counter(s.site for s in slots if s.held)

    def open_slots(self) -> list[tuple[str, SlotRequest]]:
        """Those that are held and are to stay so, by name."""
        return [(name, slot) for name, slot in self._state.slots.items() if slot.open]

    def missing(self, name: str, slot: SlotRequest, now_s: float) -> int:
        """Hosts of a request that are still to come; some nodes begin later than others, and some
        never."""
        late = slot.ready_s is not None and now_s - slot.ready_s > self.place_of(slot.site).boot_s
        return 0 if late else max(0, slot.hosts - self.came[name])

    def place_of(self, site: str) -> Place:
        """What was said of a site."""
        return next(p for p in self.places if p.site == site)


def present(state: State, slots: FleetSlots, now_s: float) -> dict[str, Present]:
    """What each site has, by its name."""
    found = {where.site: Present() for where in slots.places}
    for host in state.hosts.values():
        if host.here and host.site in found:
            found[host.site].hosts.append(host)
    for name, slot in slots.open_slots():
        if slot.site in found and (missing := slots.missing(name, slot, now_s)):
            request = RequestView(id=name, hosts=missing, asked_s=slot.asked_s)
            found[slot.site].asked.append(request)
    for site, held in slots.held().items():
        if site in found:
            found[site].held = held
    return found
