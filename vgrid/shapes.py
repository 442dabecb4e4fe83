"""In which shapes can a number of nodes be asked for? One wide slot, or several narrower ones.

Narrow jobs slip through where wide ones wait; every user of a batch queue guesses at this. Here
each width is asked for at its own probability, the n-th slot of a queue finding n − 1 of ours
before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from vgrads.drivers.api import SPOT
from vgrads.kernel.units import format_duration
from vgrads.vgrid.binding import latest_submission
from vgrads.vgrid.catalog import Catalog, NodeType, Queue, Site
from vgrads.vgrid.offers import Knowledge, OfferRequest, batch_offers, instant_offers
from vgrads.vgrid.request import GridRequest, Group
from vgrads.vgrid.slot import Slot

_NARROWEST = 16
"""A group is made of at most about this many slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A cluster, named ``site/queue`` or ``site/node type``."""

    name: str
    site: Site
    node: NodeType
    queue: Queue | None = None

    @property
    def procs(self) -> int:
        """Processors that one slot may have."""
        return self.queue.max_procs if self.queue else self.site.procs


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A slot that a group could have. Of one cluster only slots of one width are taken, in order.

    ``pool`` names the processors that it draws on together with others, ``room`` how many they are.
    """

    slot: Slot
    cluster: str
    pool: str
    room: int
    width: int
    position: int
    probability: float
    cost_usd: float
    node_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A place that cannot serve a group, and why."""

    place: str
    reason: str


def group_choices(
    catalog: Catalog, known: Knowledge, request: GridRequest, group: Group
) -> tuple[list[Choice], list[Excluded]]:
    """Every slot that would serve a group, in every width, and the places that cannot."""
    found: list[Choice] = []
    left_out: list[Excluded] = []
    for place in _places(catalog):
        reason = group.unfit(place.node) or _limit(request, group, place)
        if reason:
            left_out.append(Excluded(place=place.name, reason=reason))
            continue
        for width in _widths(group, place.procs // place.node.cores):
            slots = _slots(place, known, request, (width, group.most))
            found += _of_width(place, width, request, slots)
    return found, left_out


def _places(catalog: Catalog) -> Iterator[Place]:
    """Queues of batch sites, types of node elsewhere."""
    for site in catalog.sites:
        for queue in site.queues:
            yield Place(
                name=f"{site.name}/{queue.name}", site=site, node=site.nodes[0], queue=queue
            )
        for node in () if site.queues else site.nodes:
            yield Place(name=f"{site.name}/{node.name or 'nodes'}", site=site, node=node)


def _limit(request: GridRequest, group: Group, place: Place) -> str:
    """A limit of the place that rules it out; empty if none does."""
    nodes, jobs = place.procs // place.node.cores, place.queue.max_jobs if place.queue else 1
    if not nodes:
        return f"at most {place.procs} processors, less than one node"
    if group.coupling == "tight" and nodes * jobs < group.least:
        return f"at most {nodes} nodes, {group.least} are needed in one cluster"
    if place.queue and place.queue.max_walltime_s < request.duration_s:
        longest, wanted = (
            format_duration(s) for s in (place.queue.max_walltime_s, request.duration_s)
        )
        return f"jobs may take {longest}, {wanted} are needed"
    return ""


def _widths(group: Group, limit: int) -> list[int]:
    """Nodes a slot: the group's least and most, and powers of two down to a sixteenth of the
    most."""
    powers = [2**n for n in range(limit.bit_length()) if group.most <= 2**n * _NARROWEST]
    asked = {*powers, group.least, group.most, min(limit, group.most)}
    return sorted(width for width in asked if width <= min(limit, group.most))


def _slots(
    place: Place, known: Knowledge, request: GridRequest, shape: tuple[int, int]
) -> list[Slot]:
    """Slots of a width that last until the deadline, as many as the group could ever use."""
    width, most = shape
    asked = OfferRequest(
        procs=width * place.node.cores, count=-(-most // width), until_s=request.deadline_s
    )
    if place.queue:
        return batch_offers(place.site, place.queue, known, asked)
    return instant_offers(place.site, place.node, known, asked)


def _of_width(place: Place, width: int, request: GridRequest, slots: list[Slot]) -> list[Choice]:
    """Slots as choices; those of the spot market are a cluster of their own."""
    found, counted = [], Counter[str]()
    submits: dict[int, float] = {}
    for slot in slots:
        if id(slot.curve) not in submits:  # equal slots share their curve
            submits[id(slot.curve)] = max(
                request.earliest_s, latest_submission(slot, [request.start_by_s])
            )
        submit_s = submits[id(slot.curve)]
        lane = f"{place.name}/{slot.queue}" if slot.queue == SPOT else place.name
        counted[lane] += 1
        held_s = request.deadline_s - submit_s
        pool = f"{place.site.name}/{slot.queue}" if slot.queue else place.site.name
        choice = Choice(
            slot=replace(slot, submit_s=submit_s),
            cluster=lane,
            pool=pool,
            room=place.procs,
            width=width,
            position=counted[lane],
            probability=slot.curve.by(request.start_by_s - submit_s) * slot.up,
            cost_usd=slot.cost_usd(held_s),
            node_hours=slot.nodes * held_s / 3600.0,
        )
        found.append(choice)
    return found
