"""Binding: from the request for a slot until it can run a task.

Observations at each site correct the site's description, and determine when to request a slot that
a plan uses: as late as costs no probability.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from vgrads.vgrid.acquisition import Acquisition
from vgrads.vgrid.catalog import Site
from vgrads.vgrid.slot import Slot, StartCurve
from vgrads.vgrid.varq import STEP_S

_OVERHEAD_WEIGHT = 4.0
"""Weight of the stated boot time, in observations."""
_RATE_WEIGHT = 20.0
"""Weight of a stated probability, in observations."""
_POINTS = 9
LOSS = 1e-3
"""Probability of a start that a later request may lose."""


@dataclass(frozen=True, kw_only=True)
class Binding:
    """Binding of slots of a site: overhead after the grant, probability of a grant, probability of
    survival.

    ``overhead`` is the distribution of the time from grant to ready; ``observed`` is the number of
    observations beyond the site's description.
    """

    overhead: StartCurve
    acquire: float
    up: float
    observed: int = 0

    @property
    def delays_s(self) -> NDArray[np.float64]:
        """Times from grant to ready, equally probable."""
        return self.overhead.ready_at((np.arange(_POINTS) + 0.5) / _POINTS)

    def granted_at_once(self) -> StartCurve:
        """Return P(ready by t) if a request is granted or refused at once."""
        return StartCurve(self.overhead.times_s, self.overhead.probabilities * self.acquire)

    def after(self, waits: StartCurve) -> StartCurve:
        """Return P(ready by t) if the grant takes a wait first: the sum of the two
        distributions."""
        middles = (np.arange(_POINTS) + 0.5) / _POINTS
        delays = np.unique(self.overhead.ready_at(middles * self.overhead.probabilities[-1]))
        if not delays.any():
            return StartCurve(waits.times_s, waits.probabilities * self.acquire)
        points = self.delays_s
        tail = waits.times_s[-1:] + points  # the longest wait ends after each delay
        times = np.union1d(waits.times_s + points[0], tail)
        padded = np.append(0.0, waits.probabilities)
        results = [np.searchsorted(waits.times_s + delay, times, side="right") for delay in points]
        chances = np.mean([padded[rows] for rows in results], axis=0)
        # a mean of rising curves rises, but for rounding
        return StartCurve(times, np.maximum.accumulate(chances) * self.acquire)


def learn_binding(site: Site, queue: str, acquisitions: Iterable[Acquisition]) -> Binding:
    """Return the site's description, corrected by observations of one of its queues; each weighs as
    its observations.

    The queue of a cloud is a market: on demand ("") or spot. Requests that were neither granted nor
    refused, but cancelled while they waited, are no observations.
    """
    records = [
        record for record in acquisitions if (record.site, record.queue) == (site.name, queue)
    ]
    ready = [
        r.ready_s - r.granted_s
        for r in records
        if r.ready_s is not None and r.granted_s is not None
    ]
    decided = [r for r in records if r.refused or r.granted_s is not None]
    lived = [r for r in records if r.ready_s is not None and r.ended_s is not None]
    return Binding(
        overhead=_combine_overheads(site, np.array(ready)),
        observed=len(ready),
        acquire=_rate(site.slot_acquire, sum(not r.refused for r in decided), len(decided)),
        up=_rate(site.slot_up, sum(not r.broken for r in lived), len(lived)),
    )


def _rate(stated: float, successes: int, trials: int) -> float:
    """Return the posterior mean under a beta distribution with the stated mean."""
    return (_RATE_WEIGHT * stated + successes) / (_RATE_WEIGHT + trials)


def _combine_overheads(site: Site, observed: NDArray[np.float64]) -> StartCurve:
    """Combine stated boot times, log-normal as in :func:`vgrads.simulator.cloud.sample_boot_time`,
    and the observed ones."""
    stated, shares = _read_stated_overhead(site)
    times = np.concatenate([stated, observed])
    weights = np.concatenate([shares * _OVERHEAD_WEIGHT, np.ones(len(observed))])
    order = np.argsort(times, kind="stable")
    reached = np.cumsum(weights[order])
    return StartCurve(times[order], np.minimum(reached / reached[-1], 1.0))


def _read_stated_overhead(site: Site) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return boot times and their probabilities; one value if there is no spread."""
    if site.boot_s <= 0 or site.boot_spread <= 0:
        return np.array([site.boot_s]), np.ones(1)
    z = np.linspace(-3.0, 4.0, 141)
    shares = np.diff([NormalDist().cdf(x) for x in z], prepend=0.0)
    return site.boot_s * np.exp(site.boot_spread * z), shares / shares.sum()


_AT_ONCE = 256  # starts that are processed together


def find_latest_submission(slot: Slot, starts_s: Sequence[float]) -> float:
    """Return the latest instant at which every one of ``starts_s`` is met with the same probability
    as by a request at once.

    A later request also needs less wall time, which never lowers the probability, so the offer's
    curve, shifted, is a lower bound. A fixed slot is requested at its fixed time.
    """
    if slot.fixed:
        return slot.submit_s
    if not starts_s:
        return 0.0
    # the start itself is a candidate too, even between two steps
    delays = np.append(np.arange(0.0, min(starts_s), STEP_S), min(starts_s))
    enough = np.ones(len(delays), dtype=bool)
    final_s = slot.curve.times_s[-1] + delays[-1] + STEP_S if len(slot.curve.times_s) else 0.0
    starts = np.array(sorted({start_s for start_s in starts_s if start_s < final_s}))
    for begin in range(0, len(starts), _AT_ONCE):  # later starts lose nothing by waiting
        some = starts[begin : begin + _AT_ONCE, None]
        enough &= (slot.curve.by_all(some - delays) >= slot.curve.by_all(some) - LOSS).all(axis=0)
    return float(delays[np.flatnonzero(enough)[-1]]) if enough.any() else 0.0


@dataclass(frozen=True, slots=True)
class PricedRequest:
    """When a slot is requested, and what it costs at most in USD if it is ready at once."""

    submit_s: float
    usd: float


def price_request(slot: Slot, times_s: Sequence[tuple[float, float]]) -> PricedRequest:
    """Return the request of a slot for tasks with these starts and ends: at the latest instant
    without loss of probability, paid for until the last end."""
    submit_s = find_latest_submission(slot, [start_s for start_s, _ in times_s])
    return PricedRequest(submit_s, slot.cost_usd(max(end_s for _, end_s in times_s) - submit_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingRequest:
    """One of several requests for one group of nodes."""

    id: str
    cluster: str
    nodes: int
    granted: bool = False


def find_surplus(requests: Iterable[BindingRequest], least: int, tight: bool) -> tuple[str, ...]:
    """Return requests to cancel because those granted suffice: all others, in the given order.

    A tight group is served by one cluster, the first with enough grants; a loose one by all
    together. Granted ones beyond the needed are released, the last first.
    """
    binding_requests = list(requests)
    granted: dict[str, int] = {}
    for request in binding_requests:
        if request.granted:
            place = request.cluster if tight else ""
            granted[place] = granted.get(place, 0) + request.nodes
    served = next((place for place, nodes in granted.items() if nodes >= least), None)
    if served is None:
        return ()
    kept, needed = set(), least
    for request in binding_requests:
        if request.granted and needed > 0 and (not tight or request.cluster == served):
            kept.add(request.id)
            needed -= request.nodes
    return tuple(request.id for request in binding_requests if request.id not in kept)
