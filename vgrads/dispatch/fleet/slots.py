"""The slots that a fleet requested: the request to the site, and the number of agents still to
join."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from vgrads.dispatch.core.events import SlotChanged
from vgrads.dispatch.core.state import SlotRequest, State
from vgrads.dispatch.fleet.site_view import FleetSite, SiteInventory
from vgrads.drivers.api import SlotSpec
from vgrads.execmgr.pilots import Pilot
from vgrads.execmgr.slot_names import spec_id
from vgrads.pool.view import RequestView


class FleetSlots:
    """``came``: how many agents of each slot have joined so far."""

    def __init__(
        self,
        state: State,
        sites: Sequence[FleetSite],
        pilot_environment: Callable[[str], Mapping[str, str]],
    ) -> None:
        self._state, self.sites, self._pilot_environment = state, sites, pilot_environment
        self.came: Counter[str] = Counter()

    def count(self) -> None:
        """Count the agents that have joined."""
        self.came = Counter(agent.slot for agent in self._state.agents.values())

    def place(self, slot: str) -> str:
        """Return the site of a slot."""
        return self._state.slots[slot].site

    def spec(self, slot_id: str, run: str, pilot: Pilot | None = None) -> SlotSpec:
        """Return the request for a site: as many nodes as agents, with an agent on each."""
        slot = self._state.slots[slot_id]
        where = self.place_of(slot.source)
        environment = dict(self._pilot_environment(slot_id)) if pilot else {}
        return SlotSpec(
            id=spec_id(slot_id, run),
            name=slot_id,
            site=where.site,
            queue=where.market or where.queue,
            nodes=slot.agents,
            procs=where.procs * slot.agents,
            duration_s=self.length_s(slot_id),
            node_type=where.node_type,
            environment={**environment, **(pilot.environment if pilot else {})},
            pilot=pilot.command if pilot else "",
            every_node=slot.agents > 1,
        )

    def length_s(self, slot_id: str) -> float:
        """Return for how long a slot is requested."""
        slot = self._state.slots[slot_id]
        return slot.length_s or self.place_of(slot.source).longest_s

    def occupied(self) -> Counter[str]:
        """Return the slots of each site that have not ended."""
        slots = self._state.slots.values()
        return Counter(s.source for s in slots if s.occupied)

    def open_slots(self) -> list[tuple[str, SlotRequest]]:
        """Return the slots that are held and will be kept, by name."""
        return [(name, slot) for name, slot in self._state.slots.items() if slot.open]

    def missing(self, name: str, slot: SlotRequest, now_s: float) -> int:
        """Return the number of agents of a request that are still to join; some nodes start later
        than others, and some never."""
        late = slot.ready_s is not None and now_s - slot.ready_s > self.boot_s(slot.source)
        return 0 if late else max(0, slot.agents - self.came[name])

    def boot_s(self, source: str) -> float:
        """Return after which time a node of a source that has not reported is given up."""
        return self.place_of(source).boot_s

    def place_of(self, source: str) -> FleetSite:
        """Return the settings of a source of nodes; of its site where it is not used any more."""
        # the market, if any, follows the site after a space (name_source)
        site = source.partition(" ")[0]
        return next(
            (p for p in self.sites if p.name == source),
            next((p for p in self.sites if p.site in (source, site)), self.sites[0]),
        )


def requested(name: str, where: FleetSite, agents: int, now_s: float) -> SlotChanged:
    """Return the record of a new request."""
    return SlotChanged(
        id=name,
        site=where.site,
        agents=agents,
        requested_s=now_s,
        market=where.market or None,
        length_s=where.longest_s if where.limit else None,
    )


def present(state: State, slots: FleetSlots, now_s: float) -> dict[str, SiteInventory]:
    """Return the resources of each source, by its name."""
    by_source = {where.name: SiteInventory() for where in slots.sites}
    for agent in state.agents.values():
        slot = state.slots.get(agent.slot)
        # an agent that joined by invitation counts for its site
        source = slot.source if slot is not None and slot.site else agent.site
        if agent.here and source in by_source:
            by_source[source].agents.append(agent)
    for name, slot in slots.open_slots():
        if slot.source in by_source and (missing := slots.missing(name, slot, now_s)):
            request = RequestView(id=name, nodes=missing, requested_s=slot.requested_s)
            by_source[slot.source].requests.append(request)
    for source, count in slots.occupied().items():
        if source in by_source:
            by_source[source].occupied = count
    return by_source
