"""Binding: from the request for a slot to the moment at which it can take a task.

What was observed of it at each site corrects what the site's description states, and tells when to
ask for a slot that a plan uses: as late as costs no probability.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from vgrads.vgrid.acquisition import Acquisition
from vgrads.vgrid.catalog import Site
from vgrads.vgrid.slot import Slot, StartCurve
from vgrads.vgrid.varq import STEP_S

_OVERHEAD_WEIGHT = 4.0
"""Observations that the stated boot time counts for."""
_RATE_WEIGHT = 20.0
"""Observations that a stated probability counts for."""
_POINTS = 9


@dataclass(frozen=True, kw_only=True)
class Binding:
    """How slots of a site come about: overhead after the grant, chance of a grant, chance of
    survival.

    ``overhead`` is the distribution of the time from grant to ready; ``observed`` counts what it
    was learned from beyond the site's description.
    """

    overhead: StartCurve
    acquire: float
    up: float
    observed: int = 0

    def granted_at_once(self) -> StartCurve:
        """P(ready by t) where a request is granted or refused at once."""
        return StartCurve(self.overhead.times_s, self.overhead.probabilities * self.acquire)

    def after(self, waits: StartCurve) -> StartCurve:
        """P(ready by t) where the grant takes a wait first: the two distributions added."""
        middles = (np.arange(_POINTS) + 0.5) / _POINTS
        delays = np.unique(self.overhead.ready_at(middles * self.overhead.probabilities[-1]))
        if not delays.any():
            return StartCurve(waits.times_s, waits.probabilities * self.acquire)
        points = self.overhead.ready_at(middles)
        tail = waits.times_s[-1:] + points  # the last of the waits ends after each delay
        times = np.union1d(waits.times_s + points[0], tail)
        padded = np.append(0.0, waits.probabilities)
        found = [np.searchsorted(waits.times_s + delay, times, side="right") for delay in points]
        chances = np.mean([padded[rows] for rows in found], axis=0)
        return StartCurve(times, np.maximum.accumulate(chances) * self.acquire)


def learn_binding(site: Site, queue: str, seen: Iterable[Acquisition]) -> Binding:
    """The site's description, corrected by what was seen of one of its queues; each weighs as its
    observations.

    The queue of a cloud is a market: on demand ("") or spot. Requests that were neither granted nor
    refused, withdrawn while they waited, tell nothing.
    """
    records = [record for record in seen if (record.site, record.queue) == (site.name, queue)]
    ready = [
        r.ready_s - r.granted_s
        for r in records
        if r.ready_s is not None and r.granted_s is not None
    ]
    decided = [r for r in records if r.refused or r.granted_s is not None]
    lived = [r for r in records if r.ready_s is not None and r.ended_s is not None]
    return Binding(
        overhead=_overhead(site, np.array(ready)),
        observed=len(ready),
        acquire=_rate(site.slot_acquire, sum(not r.refused for r in decided), len(decided)),
        up=_rate(site.slot_up, sum(not r.broken for r in lived), len(lived)),
    )


def _rate(stated: float, successes: int, trials: int) -> float:
    """Posterior mean under a beta distribution with the stated mean."""
    return (_RATE_WEIGHT * stated + successes) / (_RATE_WEIGHT + trials)


def _overhead(site: Site, seen: NDArray[np.float64]) -> StartCurve:
    """Stated boot times, log-normal as in :func:`vgrads.simulator.cloud.boot_time`, and the
    observed ones."""
    stated, shares = _stated_overhead(site)
    times = np.concatenate([stated, seen])
    weights = np.concatenate([shares * _OVERHEAD_WEIGHT, np.ones(len(seen))])
    order = np.argsort(times, kind="stable")
    reached = np.cumsum(weights[order])
    return StartCurve(times[order], np.minimum(reached / reached[-1], 1.0))


def _stated_overhead(site: Site) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Boot times and their probabilities; one value where there is no spread."""
    if site.boot_s <= 0 or site.boot_spread <= 0:
        return np.array([site.boot_s]), np.ones(1)
    z = np.linspace(-3.0, 4.0, 141)
    shares = np.diff(ndtr(z), prepend=0.0)
    return site.boot_s * np.exp(site.boot_spread * z), shares / shares.sum()


_AT_ONCE = 256  # starts that are looked at together


def latest_submission(slot: Slot, starts_s: Sequence[float]) -> float:
    """Latest instant at which every one of ``starts_s`` is met as surely as by asking at once.

    Asking later also means asking for less wall time, which never lowers the probability, so the
    offer's curve, shifted, is a lower bound. A fixed slot is asked for when it is.
    """
    if slot.fixed:
        return slot.submit_s
    if not starts_s:
        return 0.0
    delays = np.append(np.arange(0.0, min(starts_s), STEP_S), min(starts_s))
    enough = np.ones(len(delays), dtype=bool)
    final_s = slot.curve.times_s[-1] + delays[-1] + STEP_S if len(slot.curve.times_s) else 0.0
    starts = np.array(sorted({start_s for start_s in starts_s if start_s < final_s}))
    for begin in range(0, len(starts), _AT_ONCE):  # later starts lose nothing by waiting
        some = starts[begin : begin + _AT_ONCE, None]
        enough &= (slot.curve.by_all(some - delays) >= slot.curve.by_all(some) - 1e-3).all(axis=0)
    return float(delays[np.flatnonzero(enough)[-1]]) if enough.any() else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One of several requests that stand for one group of nodes."""

    id: str
    cluster: str
    nodes: int
    granted: bool = False


def surplus(requests: Iterable[Request], least: int, tight: bool) -> tuple[str, ...]:
    """Requests to cancel because those granted suffice: all others, in the order given.

    A tight group is served by one cluster, the first whose grants are enough; a loose one by all
    together. Granted ones beyond what is needed are given back, the last first.
    """
    asked = list(requests)
    granted: dict[str, int] = {}
    for request in asked:
        if request.granted:
            place = request.cluster if tight else ""
            granted[place] = granted.get(place, 0) + request.nodes
    served = next((place for place, nodes in granted.items() if nodes >= least), None)
    if served is None:
        return ()
    kept, needed = set(), least
    for request in asked:
        if request.granted and needed > 0 and (not tight or request.cluster == served):
            kept.add(request.id)
            needed -= request.nodes
    return tuple(request.id for request in asked if request.id not in kept)
