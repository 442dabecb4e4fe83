"""What could be had: one query to all sites for processors from now to the deadline.

The paper's aggressive policy (SC'09 §3.2.1): ask every site for the whole time, decide afterwards.
Slots are as wide as the widest task needs, as many as the site may hold: narrow jobs come sooner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from vgrid.catalog import Catalog, Queue, Site
from vgrid.slot import Slot, StartCurve, certain_from
from vgrid.varq import STEP_S, WaitOracle

_CURVE_POINTS = 2000
Oracles = Mapping[tuple[str, str], WaitOracle]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRequest:
    """Slots of at least ``procs`` processors, at most ``count`` a site, from now until ``until_s``."""

    procs: int
    count: int
    until_s: float
    confidence: float = 0.95


def offer_slots(catalog: Catalog, oracles: Oracles, request: OfferRequest) -> tuple[Slot, ...]:
    """Offers of all sites; a queue without history is offered with probability 0."""
    found: list[Slot] = []
    for site in catalog.sites:
        if site.kind == "batch":
            for queue in site.queues:
                found += _batch_offers(site, queue, oracles.get((site.name, queue.name)), request)
        else:
            found += _instant_offers(site, request)
    return tuple(found)


def _batch_offers(
    site: Site, queue: Queue, oracle: WaitOracle | None, request: OfferRequest
) -> list[Slot]:
    """Equal slots; the n-th finds n − 1 of ours waiting before it and is less sure to come."""
    procs = _whole_nodes(min(request.procs, queue.max_procs), site, queue.max_procs)
    walltime_s = min(request.until_s, queue.max_walltime_s)
    curves: dict[int, StartCurve] = {}
    found = []
    for ahead in range(min(queue.max_procs // procs, queue.max_jobs, request.count)):
        group = oracle.group(procs, walltime_s, ahead) if oracle else 0
        if group not in curves:
            curves[group] = _queue_curve(
                site, oracle, (procs, walltime_s, ahead), request.confidence
            )
        slot = _slot(
            site, f"{site.name}-{queue.name}-{ahead + 1}", procs, curves[group], walltime_s
        )
        found.append(replace(slot, queue=queue.name, shared=f"{site.name}/{queue.name}"))
    return found


def _queue_curve(
    site: Site, oracle: WaitOracle | None, shape: tuple[int, float, int], confidence: float
) -> StartCurve:
    """GETPROB from now on, for a job of this shape (processors, wall time, of ours ahead)."""
    procs, walltime_s, ahead = shape
    times = np.arange(0.0, walltime_s, max(STEP_S, walltime_s / _CURVE_POINTS))
    if oracle is None:
        return StartCurve(times + site.boot_s, np.zeros_like(times))
    chances = oracle.probability(procs, walltime_s, times, confidence, ahead) * site.slot_acquire
    return StartCurve(times + site.boot_s, np.maximum.accumulate(chances))


def _instant_offers(site: Site, request: OfferRequest) -> list[Slot]:
    procs = _whole_nodes(min(request.procs, site.procs), site, site.procs)
    curve = _boot_curve(site)
    count = min(site.procs // procs, request.count)
    return [
        _slot(site, f"{site.name}-{n}", procs, curve, request.until_s) for n in range(1, count + 1)
    ]


def _boot_curve(site: Site) -> StartCurve:
    """Log-normal boot times as in :func:`simulator.cloud.boot_time`; a step where there is no spread."""
    if site.boot_s <= 0 or site.boot_spread <= 0:
        return certain_from(site.boot_s, site.slot_acquire)
    z = np.linspace(-3.0, 4.0, 141)
    return StartCurve(site.boot_s * np.exp(site.boot_spread * z), ndtr(z) * site.slot_acquire)


def _whole_nodes(procs: int, site: Site, limit: int) -> int:
    """Processors rounded up to whole nodes, as far as the limit allows."""
    rounded = math.ceil(procs / site.cores_per_node) * site.cores_per_node
    return rounded if rounded <= limit else limit


def _slot(site: Site, name: str, procs: int, curve: StartCurve, end_s: float) -> Slot:
    """A slot that nothing else depends on."""
    return Slot(
        id=name, site=site.name, queue="", kind=site.kind, procs=procs, curve=curve, end_s=end_s, shared=name,
        up=site.slot_up, speed=site.speed, price_usd_per_hour=site.price_usd_per_hour, billing_s=site.billing_s,
        nodes=math.ceil(procs / site.cores_per_node),
    )  # fmt: skip
