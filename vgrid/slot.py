"""A slot: processors at a site until an instant, and the probability that they are ready by each
instant."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.kernel.units import billed_usd
from vgrads.workflows.needs import Needs

Floats = NDArray[np.float64]
_ANY = 1e-9  # smallest probability that counts
_SHARES = (0.5, 0.75, 0.9, 0.97, 1.0)
NOW_S = 60.0
"""Texts say of a slot that likely starts within this time that it starts now."""


@dataclass(frozen=True, eq=False)
class StartCurve:
    """P(the slot is ready by t): a step function, right-continuous, non-decreasing.

    ``times_s`` ascending, ``probabilities`` ascending in [0, 1], of equal length; 0 before the
    first.
    """

    times_s: Floats
    probabilities: Floats

    def by(self, instant_s: float) -> float:
        """Return P(ready by ``instant_s``)."""
        times_s, probabilities = self._steps
        position = bisect_right(times_s, instant_s)
        return probabilities[position - 1] if position else 0.0

    @cached_property
    def _steps(self) -> tuple[list[float], list[float]]:
        """The steps as lists: single look-ups are several times as fast as in arrays."""
        times_s, probabilities = (
            np.asarray(a, np.float64).tolist() for a in (self.times_s, self.probabilities)
        )
        return times_s, probabilities

    def by_all(self, instants_s: ArrayLike) -> Floats:
        """Return :meth:`by` for many instants; same shape."""
        rows = np.searchsorted(self.times_s, np.asarray(instants_s, dtype=np.float64), side="right")
        return np.append(0.0, self.probabilities)[rows]

    def ready_at(self, chances: ArrayLike) -> Floats:
        """Inverse: return for uniform draws when the slot is ready; ``inf`` if never."""
        position = np.searchsorted(
            self.probabilities, np.asarray(chances, dtype=np.float64), side="left"
        )
        return np.append(self.times_s, np.inf)[position]

    def reaches_s(self, share: float) -> float:
        """Return the first instant with this share of the highest probability, with any probability
        for 0; ``inf`` if there is none."""
        times_s, probabilities = self._steps
        if not probabilities or probabilities[-1] <= 0:
            return math.inf
        return times_s[bisect_left(probabilities, max(share * probabilities[-1], _ANY))]

    @property
    def best(self) -> float:
        """P(ready at all)."""
        return float(self.probabilities[-1]) if len(self.probabilities) else 0.0

    @cached_property
    def milestones(self) -> tuple[tuple[float, float], ...]:
        """``(time, probability)`` at which certain shares of the best reachable probability are
        first reached."""
        if not len(self.times_s) or self.probabilities[-1] <= 0:
            return ()
        required = np.array(_SHARES) * self.probabilities[-1]
        result = np.searchsorted(self.probabilities, required, side="left").clip(
            max=len(self.times_s) - 1
        )
        rows = {(float(self.times_s[i]), float(self.probabilities[i])) for i in result}
        return tuple(sorted(rows))

    def check(self) -> None:
        """Check for ascending times and non-decreasing probabilities within [0, 1]."""
        p = self.probabilities
        if np.any(np.diff(self.times_s) < 0) or np.any(np.diff(p) < 0) or np.any((p < 0) | (p > 1)):
            raise AssertionError(f"no start curve: {self.times_s}, {p}")


def make_certain_curve(instant_s: float, probability: float = 1.0) -> StartCurve:
    """Return the curve of a slot that is ready at a known instant, if it is granted at all."""
    return StartCurve(np.array([instant_s]), np.array([probability]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Slot:
    """An offer of processors from a site, on a clock whose zero is the instant of planning.

    ``drift``: the logarithm of the observed slowdown of its site relative to its description, which
    is included in ``speed``; ``doubt``: the remaining share of the run time errors of sites.
    ``shared`` names the common source of its start with others: slots of one queue are granted or
    delayed together (:mod:`vgrads.vgrid.availability`). ``up`` is the probability that it lives to
    its end once it is ready. ``basis``: the basis of its curve if that is not a history of waits.
    ``fixed``: it is requested at ``submit_s``, independently of a plan; its curve assumes that.
    ``containers``: container engines of its machines; ``resources``: units of its resources other
    than processors.
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

    def slowed(self, drift: float, doubt: float) -> Slot:
        """Return the same if tasks were observed to take ``exp(drift)`` times the run time expected
        from its speed."""
        return replace(self, speed=self.speed * math.exp(-drift), drift=drift, doubt=doubt)

    def zero_s(self, submit_s: float) -> float:
        """Return the instant from which the times of its curve count if it is requested at
        ``submit_s``."""
        return 0.0 if self.fixed else submit_s

    def later(self, by_s: float) -> Slot:
        """Return the same on a clock that began so much earlier."""
        if not self.fixed:
            return replace(self, end_s=self.end_s + by_s)
        # the curve of a fixed slot counts from the zero of the clock, not from its request
        curve = StartCurve(self.curve.times_s + by_s, self.curve.probabilities)
        return replace(self, curve=curve, end_s=self.end_s + by_s, submit_s=self.submit_s + by_s)

    def as_stated(self) -> Slot:
        """Return the same without any observations."""
        return replace(self, speed=self.speed * math.exp(self.drift), drift=0.0, doubt=1.0)

    def holds(self, needs: Needs) -> bool:
        """True if a task fits; unstated memory suffices.

        Units of resources are proportional to processors: of P processors with G units a task that
        needs g occupies at least its share of them, so at most G are in use by all tasks together.
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
        """True if its machines have a container engine (``any``: every one; empty: none is
        needed)."""
        return (
            not engine or engine in self.containers or (engine == "any" and bool(self.containers))
        )

    def memory_for(self, procs: int) -> float:
        """Return the MiB of the nodes over which this many processors are spread; ``inf`` if not
        stated."""
        nodes = -(-procs * self.nodes // self.procs)
        return math.inf if self.memory_mib is None else self.memory_mib * nodes

    @property
    def paid(self) -> bool:
        """True if the slot costs money."""
        return self.price_usd_per_hour > 0

    def cost_usd(self, duration_s: float) -> float:
        """Return the price of holding the slot this long after it is ready: started billing units
        of every node, to the cent."""
        if not self.paid or duration_s <= 0:
            return 0.0
        price = self.price_usd_per_hour
        # half a cent must be rounded up even if its binary form is slightly less
        return round(billed_usd(self.nodes, duration_s, self.billing_s, price) + 1e-9, 2)
