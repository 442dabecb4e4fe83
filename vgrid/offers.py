"""Offers: one query to all sites for processors from now to the deadline.

The paper's aggressive policy (SC'09 §3.2.1): ask every site for the whole time, decide afterwards.
Slots are as wide as the widest task needs, as many as the site may hold: narrow jobs start sooner.
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
    """Slots of at least ``procs`` processors, at most ``count`` per site, from now until
    ``until_s``."""

    procs: int
    count: int
    until_s: float
    confidence: float = 0.95


@dataclass(frozen=True, slots=True)
class OwnJobs:
    """Jobs of the user in a queue: ``ahead`` of new ones without being in the queue's oracle, and
    ``total`` including those, which count towards the queue's limit of jobs."""

    ahead: int = 0
    total: int = 0


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """Observations of the sites: wait histories of queues, and acquisitions of slots.

    ``basis``: the basis of an oracle other than a history; ``own``: jobs of the user by queue.
    """

    oracles: Oracles = field(default_factory=dict)
    observed: Sequence[Acquisition] = ()
    basis: Mapping[tuple[str, str], str] = field(default_factory=dict)
    own: Mapping[tuple[str, str], OwnJobs] = field(default_factory=dict)

    def binding(self, site: Site, queue: str = "") -> Binding:
        """Return the binding of slots of a site's queue; as the catalogue states it without
        observations."""
        return learn_binding(site, queue, self.observed)


def offer_slots(catalog: Catalog, knowledge: Knowledge, request: OfferRequest) -> tuple[Slot, ...]:
    """Return offers of all sites; for a queue without history as its operator states."""
    slots: list[Slot] = []
    for site in catalog.sites:
        if site.kind == "batch":
            for queue in site.queues:
                slots += batch_offers(site, queue, knowledge, request)
        else:
            for node in site.nodes:
                slots += instant_offers(site, node, knowledge, request)
    return tuple(slots)


def batch_offers(
    site: Site, queue: Queue, knowledge: Knowledge, request: OfferRequest
) -> list[Slot]:
    """Return equal slots; the n-th has n − 1 of ours waiting before it, after those that wait
    already, and is less probable.

    For a queue without history only the operator's statement is known; without that the probability
    is 0.
    """
    oracle, binding = (
        knowledge.oracles.get((site.name, queue.name)),
        knowledge.binding(site, queue.name),
    )
    procs = _whole_nodes(min(request.procs, queue.max_procs), site.nodes[0], queue.max_procs)
    walltime_s = min(request.until_s, queue.max_walltime_s)
    curves: dict[int, StartCurve] = {}
    results = []
    own = knowledge.own.get((site.name, queue.name), OwnJobs())
    count = min(queue.max_procs // procs, queue.max_jobs - own.total, request.count)
    for ahead in range(own.ahead, own.ahead + count):
        group = oracle.group(procs, walltime_s, ahead) if oracle else 0
        if group not in curves:
            shape = (procs, walltime_s, ahead)
            waits = certain_from(queue.stated_wait_s, queue.stated_probability)
            if oracle is not None:
                waits = _wait_curve(oracle, shape, request.confidence)
            curves[group] = binding.after(waits)
        name = f"{site.name}-{queue.name}-{ahead - own.ahead + 1}"
        slot = _slot((site, site.nodes[0]), name, procs, curves[group], walltime_s, binding.up)
        basis = knowledge.basis.get((site.name, queue.name), "" if oracle else "stated")
        results.append(
            replace(slot, queue=queue.name, shared=f"{site.name}/{queue.name}", basis=basis)
        )
    return results


def _wait_curve(oracle: WaitOracle, shape: tuple[int, float, int], confidence: float) -> StartCurve:
    """Return GETPROB from now on, for a job of this shape (processors, wall time, own jobs
    ahead)."""
    procs, walltime_s, ahead = shape
    times = np.arange(0.0, walltime_s, max(STEP_S, walltime_s / _CURVE_POINTS))
    chances = oracle.probability(procs, walltime_s, times, confidence, ahead)
    return StartCurve(times, np.maximum.accumulate(chances))


def instant_offers(
    site: Site, node: NodeType, knowledge: Knowledge, request: OfferRequest
) -> list[Slot]:
    """Return slots of one type of node, granted at once or refused; on demand, and on the spot
    market.

    The spot market has a separate quota, as large as the site.
    """
    procs = _whole_nodes(min(request.procs, site.procs), node, site.procs)
    count = min(site.procs // procs, request.count)
    prefix = f"{site.name}-{node.name}" if len(site.nodes) > 1 else site.name
    markets = [("", prefix)]
    if node.spot_price_usd_per_hour is not None:
        markets.append((SPOT, f"{prefix}-{SPOT}"))
    results = []
    for market, name in markets:
        binding = knowledge.binding(site, market)
        curve = binding.granted_at_once()
        for n in range(1, count + 1):
            slot = _slot((site, node), f"{name}-{n}", procs, curve, request.until_s, binding.up)
            results.append(_on_spot(slot, node, request.until_s) if market else slot)
    return results


def _on_spot(slot: Slot, node: NodeType, length_s: float) -> Slot:
    """Return the same slot on the spot market: cheaper, and interrupted at the market's rate."""
    lifetimes_s = math.exp(-node.spot_interruptions_per_hour * slot.nodes * length_s / 3600.0)
    price = node.spot_price_usd_per_hour or 0.0
    return replace(slot, queue=SPOT, up=slot.up * lifetimes_s, price_usd_per_hour=price)


def _whole_nodes(procs: int, node: NodeType, limit: int) -> int:
    """Return processors rounded up to whole nodes, as far as the limit permits."""
    rounded = math.ceil(procs / node.cores) * node.cores
    return rounded if rounded <= limit else limit


def _slot(
    place: tuple[Site, NodeType], name: str, procs: int, curve: StartCurve, end_s: float, up: float
) -> Slot:
    """Return an independent slot; ``up`` without the nodes' own failures."""
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
