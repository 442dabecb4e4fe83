"""A slot: processors at a site until an instant, and how surely they are there by any moment."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.kernel.units import billed_s
from vgrads.workflows.needs import Needs

Floats = NDArray[np.float64]
_SHARES = (0.5, 0.75, 0.9, 0.97, 1.0)


@dataclass(frozen=True, eq=False)
class StartCurve:
    """P(the slot is ready by t): a step function, right-continuous, never falling.

    ``times_s`` ascending, ``probabilities`` ascending in [0, 1], of equal length; 0 before the
    first.
    """

    times_s: Floats
    probabilities: Floats

    def by(self, instant_s: float) -> float:
        """P(ready by ``instant_s``)."""
        times_s, probabilities = self._steps
        position = bisect_right(times_s, instant_s)
        return probabilities[position - 1] if position else 0.0

    @cached_property
    def _steps(self) -> tuple[list[float], list[float]]:
        """As lists: a single answer is found in them several times as fast as in arrays."""
        times_s, probabilities = (
            np.asarray(a, np.float64).tolist() for a in (self.times_s, self.probabilities)
        )
        return times_s, probabilities

    def by_all(self, instants_s: ArrayLike) -> Floats:
        """:meth:`by` for many instants; same shape back."""
        rows = np.searchsorted(self.times_s, np.asarray(instants_s, dtype=np.float64), side="right")
        return np.append(0.0, self.probabilities)[rows]

    def ready_at(self, chances: ArrayLike) -> Floats:
        """Inverse: for uniform draws, when the slot is ready; ``inf`` where it never is."""
        position = np.searchsorted(
            self.probabilities, np.asarray(chances, dtype=np.float64), side="left"
        )
        return np.append(self.times_s, np.inf)[position]

    @property
    def best(self) -> float:
        """P(ready at all)."""
        return float(self.probabilities[-1]) if len(self.probabilities) else 0.0

    @cached_property
    def milestones(self) -> tuple[tuple[float, float], ...]:
        """``(time, probability)`` where these shares of the best reachable probability are first
        met."""
        if not len(self.times_s) or self.probabilities[-1] <= 0:
            return ()
        wanted = np.array(_SHARES) * self.probabilities[-1]
        found = np.searchsorted(self.probabilities, wanted, side="left").clip(
            max=len(self.times_s) - 1
        )
        rows = {(float(self.times_s[i]), float(self.probabilities[i])) for i in found}
        return tuple(sorted(rows))

    def check(self) -> None:
        """Ascending times, non-falling probabilities within [0, 1]."""
        p = self.probabilities
        if np.any(np.diff(self.times_s) < 0) or np.any(np.diff(p) < 0) or np.any((p < 0) | (p > 1)):
            raise AssertionError(f"no start curve: {self.times_s}, {p}")


def certain_from(instant_s: float, probability: float = 1.0) -> StartCurve:
    """A slot that is ready at a known instant, if it is granted at all."""
    return StartCurve(np.array([instant_s]), np.array([probability]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Slot:
    """An offer of processors from a site, on a clock whose zero is the instant of planning.

    ``drift``: the logarithm of how much slower its site was seen to be than stated, which is in
    ``speed`` already; ``doubt``: the share of run times' errors of sites that is still open.
    ``shared`` names what its start depends on together with others: slots of one queue are granted
    or delayed together (:mod:`vgrads.vgrid.fate`). ``up`` is the probability that it lives to its
    end once it is ready. ``basis``: what its curve rests on where that is not a history of waits.
    ``fixed``: it is asked for at ``submit_s``, whatever a plan has in mind; its curve is what
    follows from that. ``containers``: engines that its machines have; ``resources``: units of what
    it has beside processors.
    """

    id: str
    site: str
    queue: str
    kind: str
    procs: int
    curve: StartCurve
    end_s: float
    shared: str
    submit_s: float = 0.0
    up: float = 1.0
    speed: float = 1.0
    price_usd_per_hour: float = 0.0
    billing_s: float = 3600.0
    nodes: int = 1
    node_type: str = ""
    memory_mib: float | None = None
    task_failure: float = 0.0
    basis: str = ""
    fixed: bool = False
    drift: float = 0.0
    doubt: float = 1.0
    containers: tuple[str, ...] = ()
    resources: tuple[tuple[str, int], ...] = ()

    def seen_slower(self, drift: float, doubt: float) -> Slot:
        """The same where tasks were seen to take ``exp(drift)`` times what its speed says."""
        return replace(self, speed=self.speed * math.exp(-drift), drift=drift, doubt=doubt)

    def as_stated(self) -> Slot:
        """The same before anything was seen of it."""
        return replace(self, speed=self.speed * math.exp(self.drift), drift=0.0, doubt=1.0)

    def holds(self, needs: Needs) -> bool:
        """True where a task fits; memory that nobody stated suffices.

        Units of resources go with processors: of P processors with G units a task that needs g
        takes up at least its share of them, so whatever runs beside it, no more than G are in use.
        """
        if needs.procs > self.procs or not self.runs(needs.engine):
            return False
        if needs.resources:
            mine = dict(self.resources)
            if any(
                needs.procs * mine.get(name, 0) < units * self.procs
                for name, units in needs.resources
            ):
                return False
        if self.memory_mib is None or needs.memory_mib <= 0:
            return True
        return needs.memory_mib <= self.memory_for(needs.procs)

    def runs(self, engine: str) -> bool:
        """True where its machines have an engine for containers (``any``: whichever; empty: none is
        needed)."""
        return (
            not engine or engine in self.containers or (engine == "any" and bool(self.containers))
        )

    def memory_for(self, procs: int) -> float:
        """MiB of the nodes that so many processors are spread over; ``inf`` where nobody stated
        any."""
        nodes = -(-procs * self.nodes // self.procs)
        return math.inf if self.memory_mib is None else self.memory_mib * nodes

    @property
    def paid(self) -> bool:
        """True where the slot costs money."""
        return self.price_usd_per_hour > 0

    def cost_usd(self, held_s: float) -> float:
        """Price of holding the slot this long from when it is ready: started billing units of every
        node, to the cent."""
        if not self.paid or held_s <= 0:
            return 0.0
        paid_s = billed_s(held_s, self.billing_s)
        return round(self.nodes * paid_s / 3600.0 * self.price_usd_per_hour + 1e-9, 2)
