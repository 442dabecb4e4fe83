"""Shapes of requests for a number of nodes: one wide slot, or several narrower ones.

Narrow jobs start where wide ones wait; users of batch queues have to guess the best shape. Here
each width is evaluated at its own probability, with n − 1 of our slots before the n-th slot of a
queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from vgrads.drivers.api import SPOT
from vgrads.kernel.units import format_count, format_duration
from vgrads.vgrid.binding import find_latest_submission
from vgrads.vgrid.catalog import Catalog, NodeType, Queue, Site
from vgrads.vgrid.offers import Knowledge, OfferRequest, offer_batch_slots, offer_instant_slots
from vgrads.vgrid.request import GridRequest, NodeGroup
from vgrads.vgrid.slot import Slot

_NARROWEST = 16
"""Approximate maximum number of slots of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterName:
    """A cluster, named ``site/queue`` or ``site/node type``."""

    name: str
    site: Site
    node: NodeType
    queue: Queue | None = None

    @property
    def procs(self) -> int:
        """Maximum processors of one slot."""
        return self.queue.max_procs if self.queue else self.site.procs


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOption:
    """A slot that a group could have. Of one cluster only slots of one width are taken, in order.

    ``pool`` names the processors that it shares with others, ``room`` is their number.
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
    """A queue or type of node that cannot serve a group, and the reason."""

    place: str
    reason: str


def group_choices(
    catalog: Catalog, knowledge: Knowledge, request: GridRequest, group: NodeGroup
) -> tuple[list[SlotOption], list[Excluded]]:
    """Return every slot that would serve a group, in every width, and the queues or types of node
    that cannot."""
    slot_options: list[SlotOption] = []
    left_out: list[Excluded] = []
    for cluster in _list_places(catalog):
        reason = group.unfit(cluster.node) or _limit(request, group, cluster)
        if reason:
            left_out.append(Excluded(place=cluster.name, reason=reason))
            continue
        reason = "nothing"
        for width in _list_widths(group, cluster.procs // cluster.node.cores):
            reason = _find_closure(cluster, knowledge, request, width)
            if not reason:
                slots = _list_slots(cluster, knowledge, request, (width, group.most))
                slot_options += _list_choices(cluster, width, request, slots)
        if reason and not any(option.cluster == cluster.name for option in slot_options):
            left_out.append(Excluded(place=cluster.name, reason=reason))
    return slot_options, left_out


def _list_places(catalog: Catalog) -> Iterator[ClusterName]:
    """Return queues of batch sites, types of node elsewhere."""
    for site in catalog.sites:
        for queue in site.queues:
            yield ClusterName(
                name=f"{site.name}/{queue.name}", site=site, node=site.nodes[0], queue=queue
            )
        for node in () if site.queues else site.nodes:
            yield ClusterName(name=f"{site.name}/{node.name or 'nodes'}", site=site, node=node)


def _limit(request: GridRequest, group: NodeGroup, cluster: ClusterName) -> str:
    """Return a limit that excludes the cluster; empty if there is none."""
    nodes, jobs = (
        cluster.procs // cluster.node.cores,
        cluster.queue.max_jobs if cluster.queue else 1,
    )
    if not nodes:
        return f"at most {format_count(cluster.procs, 'processor')}, less than one node"
    if group.coupling == "tight" and nodes * jobs < group.least:
        return f"at most {format_count(nodes, 'node')}, {group.least} are needed in one cluster"
    if cluster.queue and cluster.queue.max_walltime_s < request.duration_s:
        longest, required = (
            format_duration(s) for s in (cluster.queue.max_walltime_s, request.duration_s)
        )
        return f"jobs may take {longest}, {required} are needed"
    return ""


def _find_closure(
    cluster: ClusterName, knowledge: Knowledge, request: GridRequest, width: int
) -> str:
    """Return the closure that slots of a width would run into; empty if there is none."""
    availability = knowledge.availability(cluster.site, cluster.queue.name if cluster.queue else "")
    closed = availability.during(request.start_by_s, request.deadline_s)
    procs = width * cluster.node.cores
    return next((availability.describe(c) for c in closed if c.left < procs), "")


def _list_widths(group: NodeGroup, limit: int) -> list[int]:
    """Return nodes per slot: the group's least and most, and powers of two down to a sixteenth of
    the most."""
    powers = [2**n for n in range(limit.bit_length()) if group.most <= 2**n * _NARROWEST]
    requested = {*powers, group.least, group.most, min(limit, group.most)}
    return sorted(width for width in requested if width <= min(limit, group.most))


def _list_slots(
    cluster: ClusterName, knowledge: Knowledge, request: GridRequest, shape: tuple[int, int]
) -> list[Slot]:
    """Return slots of a width that last until the deadline, as many as the group could ever use."""
    width, most = shape
    offer_request = OfferRequest(
        procs=width * cluster.node.cores, count=-(-most // width), until_s=request.deadline_s
    )
    if cluster.queue:
        slots = offer_batch_slots(cluster.site, cluster.queue, knowledge, offer_request)
    else:
        slots = offer_instant_slots(cluster.site, cluster.node, knowledge, offer_request)
    if any(slot.fixed for slot in slots):  # it closes before: only slots for the time after serve
        return [slot for slot in slots if slot.fixed and slot.end_s >= request.deadline_s]
    return slots


def _list_choices(
    cluster: ClusterName, width: int, request: GridRequest, slots: list[Slot]
) -> list[SlotOption]:
    """Return slots as choices; those of the spot market are a separate cluster."""
    results, counted = [], Counter[str]()
    submits: dict[int, float] = {}
    for slot in slots:
        if id(slot.curve) not in submits:  # equal slots share their curve
            submit_s = find_latest_submission(slot, [request.start_by_s])
            submits[id(slot.curve)] = submit_s if slot.fixed else max(request.earliest_s, submit_s)
        submit_s = submits[id(slot.curve)]
        lane = f"{cluster.name}/{slot.queue}" if slot.queue == SPOT else cluster.name
        counted[lane] += 1
        duration_s = request.deadline_s - submit_s
        ready_by_s = request.start_by_s - slot.zero_s(submit_s)
        pool = f"{cluster.site.name}/{slot.queue}" if slot.queue else cluster.site.name
        choice = SlotOption(
            slot=replace(slot, submit_s=submit_s),
            cluster=lane,
            pool=pool,
            room=cluster.procs,
            width=width,
            position=counted[lane],
            probability=slot.curve.by(ready_by_s) * slot.up,
            cost_usd=slot.cost_usd(duration_s),
            node_hours=slot.nodes * duration_s / 3600.0,
        )
        results.append(choice)
    return results
