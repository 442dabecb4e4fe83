"""What could be had: one query to all sites for processors from now to the deadline.

The paper's aggressive policy (SC'09 §3.2.1): ask every site for the whole time, decide afterwards.
Slots are as wide as the widest task needs, as many as the site may hold: narrow jobs come sooner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vgrads.drivers.api import SPOT
from vgrads.vgrid.acquisition import Acquisition
from vgrads.vgrid.binding import Binding, learn_binding
from vgrads.vgrid.catalog import Catalog, NodeType, Queue, Site
from vgrads.vgrid.slot import Slot, StartCurve, certain_from
from vgrads.vgrid.varq import STEP_S, WaitOracle

_CURVE_POINTS = 2000
Oracles = Mapping[tuple[str, str], WaitOracle]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRequest:
    """Slots of at least ``procs`` processors, at most ``count`` a site, from now until
    ``until_s``."""

    procs: int
    count: int
    until_s: float
    confidence: float = 0.95


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What has been seen of the sites: wait histories of queues, and how acquiring slots went.

    ``basis``: what else than a history an oracle rests on.
    """

    oracles: Oracles = field(default_factory=dict)
    seen: Sequence[Acquisition] = ()
    basis: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def binding(self, site: Site, queue: str = "") -> Binding:
        """How slots of a site's queue come about; as the catalogue states it where nothing was
        seen."""
        return learn_binding(site, queue, self.seen)


def offer_slots(catalog: Catalog, known: Knowledge, request: OfferRequest) -> tuple[Slot, ...]:
    """Offers of all sites; a queue without history as its operator states."""
    found: list[Slot] = []
    for site in catalog.sites:
        if site.kind == "batch":
            for queue in site.queues:
                found += batch_offers(site, queue, known, request)
        else:
            for node in site.nodes:
                found += instant_offers(site, node, known, request)
    return tuple(found)


def batch_offers(site: Site, queue: Queue, known: Knowledge, request: OfferRequest) -> list[Slot]:
    """Equal slots; the n-th finds n − 1 of ours waiting before it and is less sure to come.

    Of a queue without history only what its operator states is known; without that it is nothing.
    """
    oracle, binding = known.oracles.get((site.name, queue.name)), known.binding(site, queue.name)
    procs = _whole_nodes(min(request.procs, queue.max_procs), site.nodes[0], queue.max_procs)
    walltime_s = min(request.until_s, queue.max_walltime_s)
    curves: dict[int, StartCurve] = {}
    found = []
    for ahead in range(min(queue.max_procs // procs, queue.max_jobs, request.count)):
        group = oracle.group(procs, walltime_s, ahead) if oracle else 0
        if group not in curves:
            shape = (procs, walltime_s, ahead)
            waits = certain_from(queue.stated_wait_s, queue.stated_probability)
            if oracle is not None:
                waits = _wait_curve(oracle, shape, request.confidence)
            curves[group] = binding.after(waits)
        name = f"{site.name}-{queue.name}-{ahead + 1}"
        slot = _slot((site, site.nodes[0]), name, procs, curves[group], walltime_s, binding.up)
        basis = known.basis.get((site.name, queue.name), "" if oracle else "stated")
        found.append(
            replace(slot, queue=queue.name, shared=f"{site.name}/{queue.name}", basis=basis)
        )
    return found


def _wait_curve(oracle: WaitOracle, shape: tuple[int, float, int], confidence: float) -> StartCurve:
    """GETPROB from now on, for a job of this shape (processors, wall time, of ours ahead)."""
    procs, walltime_s, ahead = shape
    times = np.arange(0.0, walltime_s, max(STEP_S, walltime_s / _CURVE_POINTS))
    chances = oracle.probability(procs, walltime_s, times, confidence, ahead)
    return StartCurve(times, np.maximum.accumulate(chances))


def instant_offers(
    site: Site, node: NodeType, known: Knowledge, request: OfferRequest
) -> list[Slot]:
    """Slots of one type of node, granted at once or refused; on demand, and on the spot market.

    The spot market is a quota of its own, as large as the site.
    """
    procs = _whole_nodes(min(request.procs, site.procs), node, site.procs)
    count = min(site.procs // procs, request.count)
    prefix = f"{site.name}-{node.name}" if len(site.nodes) > 1 else site.name
    markets = [("", prefix)]
    if node.spot_price_usd_per_hour is not None:
        markets.append((SPOT, f"{prefix}-{SPOT}"))
    found = []
    for market, name in markets:
        binding = known.binding(site, market)
        curve = binding.granted_at_once()
        for n in range(1, count + 1):
            slot = _slot((site, node), f"{name}-{n}", procs, curve, request.until_s, binding.up)
            found.append(_on_spot(slot, node, request.until_s) if market else slot)
    return found


def _on_spot(slot: Slot, node: NodeType, length_s: float) -> Slot:
    """The same slot on the spot market: cheaper, and taken away at the market's rate."""
    lives = math.exp(-node.spot_interruptions_per_hour * slot.nodes * length_s / 3600.0)
    price = node.spot_price_usd_per_hour or 0.0
    return replace(slot, queue=SPOT, up=slot.up * lives, price_usd_per_hour=price)


def _whole_nodes(procs: int, node: NodeType, limit: int) -> int:
    """Processors rounded up to whole nodes, as far as the limit allows."""
    rounded = math.ceil(procs / node.cores) * node.cores
    return rounded if rounded <= limit else limit


def _slot(
    place: tuple[Site, NodeType], name: str, procs: int, curve: StartCurve, end_s: float, up: float
) -> Slot:
    """A slot that nothing else depends on; ``up`` before the nodes' own failures are counted."""
    site, node = place
    nodes = math.ceil(procs / node.cores)
    survives = math.exp(-nodes * end_s / site.node_mtbf_s)
    return Slot(
        id=name,
        site=site.name,
        queue="",
        kind=site.kind,
        procs=procs,
        curve=curve,
        end_s=end_s,
        shared=name,
        up=up * survives,
        speed=node.speed,
        price_usd_per_hour=node.price_usd_per_hour,
        billing_s=site.billing_s,
        nodes=nodes,
        node_type=node.name,
        memory_mib=node.memory_mib,
        task_failure=site.task_failure,
        containers=site.containers,
        resources=tuple((name, units * nodes) for name, units in node.resources),
    )
