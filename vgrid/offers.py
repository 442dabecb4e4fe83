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
from vgrads.vgrid.closures import ALWAYS, Availability, Spans, closed
from vgrads.vgrid.slot import Slot, StartCurve, make_certain_curve
from vgrads.vgrid.varq import STEP_S, WaitOracle

_CURVE_POINTS = 2000
_MOST_STAYS = 32
"""How many spans between closures are offered: the longest."""
_LENGTHS = 12
"""How many wall times are compared for a slot that must end before a closure."""
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

    ``basis``: the basis of an oracle other than a history; ``own``: jobs of the user by queue;
    ``availabilities``: when jobs of a queue can start, of a site without queues under ``""``.
    """

    oracles: Oracles = field(default_factory=dict)
    observed: Sequence[Acquisition] = ()
    basis: Mapping[tuple[str, str], str] = field(default_factory=dict)
    own: Mapping[tuple[str, str], OwnJobs] = field(default_factory=dict)
    availabilities: Mapping[tuple[str, str], Availability] = field(default_factory=dict)

    def availability(self, site: Site, queue: str = "") -> Availability:
        """Return when jobs of a site's queue can start; at any time if nothing is known."""
        return self.availabilities.get((site.name, queue), ALWAYS)

    def oracle(self, site: Site, queue: str) -> WaitOracle | None:
        """Return the oracle of a queue, with its closures; None if there is none."""
        key = (site.name, queue)
        if key not in self.oracles:
            return None
        from_site = key in self.basis  # whose estimates know its closures
        availability = replace(self.availability(site, queue), stops=not from_site)
        return closed(self.oracles[key], availability)

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
                slots += offer_batch_slots(site, queue, knowledge, request)
        else:
            for node in site.nodes:
                slots += offer_instant_slots(site, node, knowledge, request)
    return tuple(slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stay:
    """A stay at a site: requested at ``submit_s`` for ``walltime_s``, of use from ``begin_s`` until
    ``end_s``. ``fixed``: not requested at another instant."""

    submit_s: float
    walltime_s: float
    begin_s: float
    end_s: float
    fixed: bool = False

    @property
    def suffix(self) -> str:
        """What is added to names of slots; nothing for a stay from now on."""
        return f"-after-{self.begin_s / 3600.0:.1f}h" if self.fixed else ""


def offer_batch_slots(
    site: Site, queue: Queue, knowledge: Knowledge, request: OfferRequest
) -> list[Slot]:
    """Return equal slots; the n-th has n − 1 of ours waiting before it, after those that wait
    already, and is less probable.

    For a queue without history only the operator's statement is known; without that the probability
    is 0. If the site closes before ``until_s``, no slot lasts across: some end before, others are
    for the time after.
    """
    procs = _round_to_nodes(min(request.procs, queue.max_procs), site.nodes[0], queue.max_procs)
    own = knowledge.own.get((site.name, queue.name), OwnJobs())
    left = queue.max_jobs - own.total
    stays = _list_stays(site, queue, knowledge, request, procs)
    at_once = sum(not stay.submit_s for stay in stays)
    results = []
    for stay in stays:
        # jobs for the time after a closure wait from now on: they share the limit with the others
        most = left if stay.submit_s or at_once < 2 else left // 2 + (left % 2 and not stay.fixed)
        count = min(queue.max_procs // procs, most, request.count)
        results += _make_batch_slots(
            (site, queue), knowledge, request.confidence, (procs, count), stay
        )
    return results


def _make_batch_slots(
    place: tuple[Site, Queue],
    knowledge: Knowledge,
    confidence: float,
    size: tuple[int, int],
    stay: _Stay,
) -> list[Slot]:
    """Return ``count`` slots of so many processors for one stay."""
    (site, queue), (procs, count) = place, size
    oracle, binding = knowledge.oracle(site, queue.name), knowledge.binding(site, queue.name)
    availability = knowledge.availability(site, queue.name)
    own = knowledge.own.get((site.name, queue.name), OwnJobs())
    curves: dict[int, StartCurve] = {}
    results = []
    for ahead in range(own.ahead, own.ahead + count):
        group = oracle.group(procs, stay.walltime_s, ahead) if oracle else 0
        if group not in curves:
            if oracle is not None:
                waits = _wait_curve(oracle, (procs, stay, ahead), confidence)
            else:
                wait_s = float(
                    availability.starts(procs, stay.walltime_s, queue.stated_wait_s, stay.submit_s)
                )
                waits = make_certain_curve(
                    stay.submit_s + wait_s,
                    queue.stated_probability if math.isfinite(wait_s) else 0.0,
                )
            # one curve for all slots of a group: a forecast takes far longer than a look-up
            curves[group] = binding.after(waits)
        name = f"{site.name}-{queue.name}{stay.suffix}-{ahead - own.ahead + 1}"
        slot = _make_slot((site, site.nodes[0]), name, procs, curves[group], stay, binding.up)
        basis = knowledge.basis.get((site.name, queue.name), "" if oracle else "stated")
        results.append(
            replace(slot, queue=queue.name, shared=f"{site.name}/{queue.name}", basis=basis)
        )
    return results


def _list_stays(
    site: Site, queue: Queue, knowledge: Knowledge, request: OfferRequest, procs: int
) -> list[_Stay]:
    """Return the stays in a queue until ``until_s`` that cross no closure.

    The last is for the time after all closures. Its job may be submitted now, if the queue permits
    one that long: the site lets it wait until then. Otherwise it is submitted when the site opens.
    """
    until_s, longest_s = request.until_s, queue.max_walltime_s
    spans = _sort_longest(knowledge.availability(site, queue.name).open_spans(until_s, procs))
    stays = []
    for begin_s, end_s in spans:
        if len(spans) == 1 and not begin_s:
            length_s = min(until_s, longest_s)
            return [_Stay(submit_s=0.0, walltime_s=length_s, begin_s=0.0, end_s=length_s)]
        if end_s >= until_s and until_s <= longest_s and begin_s:
            stay = _Stay(
                submit_s=0.0, walltime_s=until_s, begin_s=begin_s, end_s=until_s, fixed=True
            )
        else:
            length_s = min(end_s - begin_s, longest_s)
            if end_s < until_s:
                oracle = knowledge.oracle(site, queue.name)
                wait_s = queue.stated_wait_s
                length_s = _find_best_length(oracle, wait_s, (procs, begin_s, end_s), length_s)
            stay = _Stay(
                submit_s=begin_s,
                walltime_s=length_s,
                begin_s=begin_s,
                end_s=begin_s + length_s,
                fixed=begin_s > 0,
            )
        if stay.walltime_s > 0:
            stays.append(stay)
    return stays


def _sort_longest(spans: Spans) -> Spans:
    """Return the longest spans, in order."""
    ranked = sorted(spans, key=lambda span: span[0] - span[1])
    return tuple(sorted(ranked[:_MOST_STAYS]))


def _find_best_length(
    oracle: WaitOracle | None, wait_s: float, shape: tuple[int, float, float], longest_s: float
) -> float:
    """Return the wall time of a job, submitted when a span begins, that it most likely has before
    the span ends: a longer one must start sooner. In whole minutes, as batch systems count."""
    procs, begin_s, end_s = shape
    if oracle is None:
        return max(0.0, min(longest_s, end_s - begin_s - wait_s)) // 60.0 * 60.0
    slack = np.concatenate([[0.0], np.geomspace(60.0, end_s - begin_s, _LENGTHS)])
    lengths = np.unique(np.minimum(longest_s, end_s - begin_s - slack) // 60.0 * 60.0)
    expected = [
        length_s
        * float(
            oracle.probability(procs, length_s, end_s - begin_s - length_s, submit_in_s=begin_s)
        )
        for length_s in lengths[lengths > 0].tolist()
    ]
    return float(lengths[lengths > 0][int(np.argmax(expected))]) if expected else 0.0


def _wait_curve(oracle: WaitOracle, shape: tuple[int, _Stay, int], confidence: float) -> StartCurve:
    """Return GETPROB from now on, for a job of this shape (processors, stay, own jobs ahead)."""
    procs, stay, ahead = shape
    walltime_s = stay.walltime_s
    times = np.arange(0.0, walltime_s, max(STEP_S, walltime_s / _CURVE_POINTS))
    if stay.begin_s > stay.submit_s:  # many jobs start as soon as a site opens
        times = np.union1d(times, [stay.begin_s - stay.submit_s])
    chances = oracle.probability(procs, walltime_s, times, confidence, ahead, stay.submit_s)
    return StartCurve(times + stay.submit_s, np.maximum.accumulate(chances))


def offer_instant_slots(
    site: Site, node: NodeType, knowledge: Knowledge, request: OfferRequest
) -> list[Slot]:
    """Return slots of one type of node, granted at once or refused; on demand, and on the spot
    market.

    The spot market has a separate quota, as large as the site. If the site closes before
    ``until_s``, slots end before, and others are requested when it opens again.
    """
    procs = _round_to_nodes(min(request.procs, site.procs), node, site.procs)
    availability = knowledge.availability(site)
    prefix = f"{site.name}-{node.name}" if len(site.nodes) > 1 else site.name
    markets = [("", prefix)]
    if node.spot_price_usd_per_hour is not None:
        markets.append((SPOT, f"{prefix}-{SPOT}"))
    results = []
    for market, name in markets:
        binding = knowledge.binding(site, market)
        curve = binding.granted_at_once()
        for begin_s, end_s in _sort_longest(availability.open_spans(request.until_s, procs)):
            stay = _Stay(
                submit_s=begin_s,
                walltime_s=end_s - begin_s,
                begin_s=begin_s,
                end_s=end_s,
                fixed=begin_s > 0,
            )
            ready = StartCurve(curve.times_s + begin_s, curve.probabilities)
            left = min((c.left for c in availability.during(begin_s, end_s)), default=site.procs)
            for n in range(1, min(site.procs, left) // procs + 1)[: request.count]:
                slot = _make_slot(
                    (site, node), f"{name}{stay.suffix}-{n}", procs, ready, stay, binding.up
                )
                length_s = end_s - begin_s
                results.append(_move_to_spot(slot, node, length_s) if market else slot)
    return results


def _move_to_spot(slot: Slot, node: NodeType, length_s: float) -> Slot:
    """Return the same slot on the spot market: cheaper, and interrupted at the market's rate."""
    # the probability that none of its nodes is interrupted, at a constant rate
    lifetimes_s = math.exp(-node.spot_interruptions_per_hour * slot.nodes * length_s / 3600.0)
    price = node.spot_price_usd_per_hour or 0.0
    return replace(slot, queue=SPOT, up=slot.up * lifetimes_s, price_usd_per_hour=price)


def _round_to_nodes(procs: int, node: NodeType, limit: int) -> int:
    """Return processors rounded up to whole nodes, as far as the limit permits."""
    rounded = math.ceil(procs / node.cores) * node.cores
    return rounded if rounded <= limit else limit


def _make_slot(
    place: tuple[Site, NodeType], name: str, procs: int, curve: StartCurve, stay: _Stay, up: float
) -> Slot:
    """Return an independent slot; ``up`` without the nodes' own failures."""
    site, node = place
    nodes = math.ceil(procs / node.cores)
    survives = math.exp(-nodes * (stay.end_s - stay.begin_s) / site.node_mtbf_s)
    return Slot(
        id=name,
        site=site.name,
        queue="",
        kind=site.kind,
        procs=procs,
        curve=curve,
        end_s=stay.end_s,
        submit_s=stay.submit_s,
        fixed=stay.fixed,
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
