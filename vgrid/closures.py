"""Closed windows of a site as its availability: when a job can start, and what that does to a
forecast.

A job cannot start at an instant from which it would run into a window that leaves it too few
processors, nor inside the window: such starts move to the window's end. While no processor at all
is left, the queue stands still, so later starts move by as much: of 204 simulated jobs that a
window delays, starts are then 9 hours off on average, and 23 hours if only those inside the window
move. All instants are seconds from now; windows themselves are on the clock of 1970
(:class:`vgrads.kernel.closures.Closure`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.kernel.closures import LOCAL, WEEK_S, Closure, closures_of, local_words
from vgrads.kernel.units import format_count, format_duration
from vgrads.vgrid.catalog import Site

if TYPE_CHECKING:  # drivers and bags know closures, and need no forecasts
    from vgrads.qbets.forecast import Bound
    from vgrads.qbets.state_forecast import AnyForecast
    from vgrads.vgrid.varq import WaitOracle

Floats = NDArray[np.float64]
Spans = tuple[tuple[float, float], ...]
Reported = Mapping[str, tuple[Closure, ...]]
"""Site → the closures that it reported."""
HORIZON_S = 92 * 86400.0
"""How far ahead windows of every week are looked at; others are looked at whenever they are."""
_FAR_S = 30 * 365 * 86400.0
_NEAR_S = 1e-6  # of an instant: differences and sums of instants are rounded
_MINUTE_S = 60.0  # time limits of batch systems are whole minutes
_TRIES = 8
_CLOCKS_S = 7200.0  # by which a week may be shorter, where clocks change


def find_closures(
    site: Site, now_s: float, reported: Reported | None = None, horizon_s: float = HORIZON_S
) -> tuple[Closure, ...]:
    """Return the closures of a site that are not over at ``now_s`` (seconds since 1970), stated and
    reported ones, the earliest first."""
    stated = closures_of(site.closed, site.zone, now_s, now_s + _FAR_S, horizon_s)
    more = (reported or {}).get(site.name, ())
    both = [*stated, *(closure for closure in more if closure.end_s > now_s)]
    return tuple(sorted(both, key=lambda closure: (closure.begin_s, closure.end_s)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedStart:
    """How a closure moves the start of a job. ``start_s``: its start, from now; ``inf``: never.
    ``shorter_s``: the longest wall time that ends before the closure begins, for a job that waits
    as long as this one would; None if there is none. ``left``: the processors that the closure
    leaves."""

    closure: Closure
    start_s: float
    shorter_s: float | None
    left: int


@dataclass(frozen=True, kw_only=True)
class Availability:
    """When jobs of one queue of a site can start. ``now_s``: seconds since 1970; ``zone``: of the
    site; ``closures``: those that concern the queue, the earliest first. ``stops``: the queue
    stands still while no processor is left; False if waits without closures include that."""

    now_s: float
    zone: str = LOCAL
    closures: tuple[Closure, ...] = ()
    stops: bool = True

    def at(self, now_s: float) -> Availability:
        """Return the same seen from another instant."""
        return replace(self, now_s=now_s, closures=self._later(now_s))

    def _later(self, now_s: float) -> tuple[Closure, ...]:
        return tuple(closure for closure in self.closures if closure.end_s > now_s)

    @cached_property
    def _still(self) -> Spans:
        """When no processor is left, from now; spans do not touch."""
        whole = [c for c in self.closures if self.stops and not c.left]
        rows = ((c.begin_s - self.now_s, c.end_s - self.now_s) for c in whole)
        return tuple(
            (begin_s, end_s) for begin_s, end_s, _ in _merge_spans((*r, False) for r in rows)
        )

    def closed_to(self, procs: int) -> tuple[Closure, ...]:
        """Return the closures that leave fewer processors than this."""
        return tuple(closure for closure in self.closures if closure.left < procs)

    def no_starts(self, procs: int, walltime_s: float) -> Spans:
        """Return between which instants such a job cannot start; at either end it can. The last
        ends at ``inf`` if windows of every week are too close to each other for it."""
        rows = (
            (c.begin_s - walltime_s - self.now_s, c.end_s - self.now_s, c.weekly)
            for c in self.closed_to(procs)
        )
        spans: list[tuple[float, float]] = []
        for begin_s, end_s, weeks in _merge_spans(rows):
            if weeks:
                spans.append((begin_s, math.inf))
                break
            spans.append((begin_s, end_s))
        return tuple(spans)

    def starts(
        self, procs: int, walltime_s: float, waits_s: ArrayLike, submit_in_s: float = 0.0
    ) -> Floats:
        """Return the waits of such a job if they would be ``waits_s`` without any closure; same
        shape, NaN stays NaN."""
        waits = np.asarray(waits_s, dtype=np.float64)
        start = submit_in_s + waits
        later = np.zeros_like(waits)
        # in order of time: each span delays what the earlier ones have delayed already
        for begin_s, end_s in self._still:
            first_s = max(begin_s, submit_in_s)
            if end_s > first_s:
                later = np.where(start + later > first_s, later + (end_s - first_s), later)
        moved = np.where(later > 0, waits + later, waits)
        for begin_s, end_s in self.no_starts(procs, walltime_s):
            at = submit_in_s + moved
            moved = np.where((at > begin_s) & (at < end_s), end_s - submit_in_s, moved)
        return moved

    def waits(
        self, procs: int, walltime_s: float, within_s: ArrayLike, submit_in_s: float = 0.0
    ) -> Floats:
        """Return the longest waits that, without any closure, lead to a start within these times:
        the inverse of :meth:`starts`; negative where nothing starts in time. Same shape."""
        within = np.asarray(within_s, dtype=np.float64)
        for begin_s, end_s in self.no_starts(procs, walltime_s):
            at = submit_in_s + within
            inside = (at > begin_s + _NEAR_S) & (at < end_s - _NEAR_S)
            within = np.where(inside, begin_s - submit_in_s, within)
        at = submit_in_s + within
        lost = np.zeros_like(within)
        for begin_s, end_s in self._still:
            first_s = max(begin_s, submit_in_s)
            lost += np.clip(at - first_s, 0.0, max(0.0, end_s - first_s))
        return np.where(lost > 0, within - lost + _NEAR_S, within)

    def open_spans(self, until_s: float, procs: int = 1) -> Spans:
        """Return the spans of time from now until ``until_s`` in which so many processors are
        left throughout."""
        spans, begin_s = [], 0.0
        rows = (
            (c.begin_s - self.now_s, c.end_s - self.now_s, False) for c in self.closed_to(procs)
        )
        for closed_s, end_s, _ in _merge_spans(rows):
            if closed_s > begin_s:
                spans.append((begin_s, min(closed_s, until_s)))
            begin_s = max(begin_s, end_s)
        spans.append((begin_s, until_s))
        return tuple((first_s, last_s) for first_s, last_s in spans if first_s < last_s)

    def during(self, begin_s: float, end_s: float) -> tuple[Closure, ...]:
        """Return the closures that are at some time between two instants from now."""
        return tuple(
            c
            for c in self.closures
            if c.begin_s - self.now_s < end_s and c.end_s - self.now_s > begin_s
        )

    def moved_start(
        self, procs: int, walltime_s: float, wait_s: float, submit_in_s: float = 0.0
    ) -> MovedStart | None:
        """Return the closure that moves the start of such a job, which without any would wait
        ``wait_s``; None if none does."""
        start_s = submit_in_s + float(self.starts(procs, walltime_s, wait_s, submit_in_s))
        first_s = submit_in_s + wait_s
        if not start_s > first_s:
            return None
        hit = [
            c
            for c in self.closed_to(procs)
            if first_s < c.end_s - self.now_s and start_s > c.begin_s - walltime_s - self.now_s
        ]
        closures = hit or [
            c for c in self.closures if not c.left and c.begin_s < self.now_s + start_s
        ]
        closure = closures[0]
        fits_s = closure.begin_s - self.now_s - first_s
        whole_s = fits_s // _MINUTE_S * _MINUTE_S
        return MovedStart(
            closure=closure,
            start_s=start_s,
            shorter_s=whole_s if _MINUTE_S <= whole_s < walltime_s else None,
            left=closure.left,
        )

    def words(self, move: MovedStart) -> str:
        """Say which closure moves a start, and which request it would not move: "starts after the
        maintenance of 5 Dec 18:00, unless it asks for at most 11h 20m"."""
        name = self.name(move.closure)
        less = []
        if move.shorter_s is not None:
            less.append(f"at most {format_duration(move.shorter_s)}")
        if move.left:
            less.append(f"at most {format_count(move.left, 'processor')}")
        unless = f", unless it asks for {' or for '.join(less)}" if less else ""
        if math.isinf(move.start_s):
            return f"never starts: {name} is repeated before it would end{unless}"
        return f"starts after {name}{unless}"

    def name(self, closure: Closure) -> str:
        """Name a closure: "the maintenance of 5 Dec 18:00"."""
        return f"the {closure.words} of {local_words(closure.begin_s, self.zone, self.now_s)}"

    def describe(self, closure: Closure) -> str:
        """Describe a closure in one line: "closed from 5 Dec 18:00 to 8 Dec 08:00: maintenance"."""
        begin, end = (
            local_words(s, self.zone, self.now_s) for s in (closure.begin_s, closure.end_s)
        )
        left = f", {format_count(closure.left, 'processor', 'are')} left" if closure.left else ""
        weekly = ", every week" if closure.weekly else ""
        return f"closed from {begin} to {end}{left}{weekly}: {closure.words}"


def _merge_spans(rows: Iterable[tuple[float, float, bool]]) -> list[tuple[float, float, bool]]:
    """Return spans (begin, end, weekly) joined where they overlap, in order. The third is then true
    if one holds windows of every week that begin a week apart: there is no end to it."""
    spans: list[tuple[float, float, float, float]] = []  # begin, end, first and last weekly begin
    for begin_s, end_s, weekly in sorted(rows):
        first_s, last_s = (begin_s, begin_s) if weekly else (math.inf, -math.inf)
        if spans and begin_s < spans[-1][1]:
            from_s, to_s, least_s, most_s = spans.pop()
            spans.append((from_s, max(to_s, end_s), min(least_s, first_s), max(most_s, last_s)))
        else:
            spans.append((begin_s, end_s, first_s, last_s))
    return [
        (begin_s, end_s, last_s - first_s > WEEK_S - _CLOCKS_S)
        for begin_s, end_s, first_s, last_s in spans
    ]


ALWAYS = Availability(now_s=0.0)
"""A queue without closures."""


def find_availability(
    site: Site,
    queue: str = "",
    now_s: float = 0.0,
    reported: Reported | None = None,
) -> Availability:
    """Return when jobs of a queue of a site can start, seen from ``now_s`` (seconds since 1970)."""
    closures = find_closures(site, now_s, reported)
    return Availability(
        now_s=now_s,
        zone=site.zone,
        closures=tuple(closure for closure in closures if closure.concerns(queue)),
    )


@dataclass(frozen=True, kw_only=True)
class ClosedOracle:
    """GETPROB of a queue of a site with closures (:class:`vgrads.vgrid.varq.WaitOracle`)."""

    inner: WaitOracle
    availability: Availability

    def group(self, procs: int, walltime_s: float, ahead: int = 0) -> int:
        """Return a different group for every wall time: windows distinguish them."""
        return hash((self.inner.group(procs, walltime_s, ahead), procs, walltime_s))

    def probability(
        self,
        procs: int,
        walltime_s: float,
        within_s: ArrayLike,
        confidence: float = 0.95,
        ahead: int = 0,
        submit_in_s: float = 0.0,
    ) -> Floats:
        """Return P(wait ≤ d) of a job that crosses no closure, submitted in ``submit_in_s``; same
        shape. Never falls with time."""
        waits = self.availability.waits(procs, walltime_s, within_s, submit_in_s)
        # the oracle takes no negative waits; their chance is set to 0 below
        chances = self.inner.probability(
            procs, walltime_s, np.maximum(waits, 0.0), confidence, ahead, submit_in_s
        )
        return np.where(waits >= -_NEAR_S, chances, 0.0)

    def chance(self, procs: int, walltime_s: float, submit_in_s: float, by_s: float) -> float:
        """Return P(a job that is submitted in ``submit_in_s`` has started by ``by_s``), both from
        now."""
        within_s = by_s - submit_in_s
        if within_s < 0:
            return 0.0
        return float(self.probability(procs, walltime_s, within_s, submit_in_s=submit_in_s))


@dataclass(frozen=True, kw_only=True)
class ClosedForecast(ClosedOracle):
    """GETBOUND and GETPROB of a queue of a site with closures: inverse to each other."""

    inner: AnyForecast

    def bounds(
        self, procs: int, walltime_s: float, probabilities: ArrayLike, confidence: float = 0.95
    ) -> Floats:
        """Return GETBOUND for many probabilities; NaN if history is too short, ``inf`` if such a
        job never starts. The result has the same shape."""
        plain = self.inner.bounds(procs, walltime_s, probabilities, confidence)
        return self.availability.starts(procs, walltime_s, plain)

    def bound(
        self, procs: int, walltime_s: float, probability: float, confidence: float = 0.95
    ) -> Bound:
        """Return the wait that is not exceeded with this probability; None with the reason if such
        a job never starts."""
        plain = self.inner.bound(procs, walltime_s, probability, confidence)
        if plain.bound_s is None:
            return plain
        bound_s = float(self.availability.starts(procs, walltime_s, plain.bound_s))
        if math.isfinite(bound_s):
            return replace(plain, bound_s=bound_s)
        reason = self.explanation(procs, walltime_s, probability, confidence)
        return replace(plain, bound_s=None, reason=reason)

    def moved_start(
        self, procs: int, walltime_s: float, probability: float, confidence: float = 0.95
    ) -> MovedStart | None:
        """Return the closure that moves this bound, with the longest wall time whose own bound it
        does not move; None if none does, or there is no bound."""
        wait_s = self._plain_s(procs, walltime_s, probability, confidence)
        move = None if wait_s is None else self.availability.moved_start(procs, walltime_s, wait_s)
        for _ in range(_TRIES):  # shorter jobs may wait longer: the groups of jobs are learned
            if move is None or move.shorter_s is None:
                return move
            wait_s = self._plain_s(procs, move.shorter_s, probability, confidence)
            if (
                wait_s is None
                or self.availability.moved_start(procs, move.shorter_s, wait_s) is None
            ):
                return move
            left_s = move.closure.begin_s - self.availability.now_s - wait_s
            shorter_s = min(left_s, move.shorter_s - _MINUTE_S) // _MINUTE_S * _MINUTE_S
            move = replace(move, shorter_s=shorter_s if shorter_s >= _MINUTE_S else None)
        return None if move is None else replace(move, shorter_s=None)

    def _plain_s(
        self, procs: int, walltime_s: float, probability: float, confidence: float
    ) -> float | None:
        bound_s = float(self.inner.bounds(procs, walltime_s, probability, confidence))
        return None if math.isnan(bound_s) else bound_s

    def explanation(
        self, procs: int, walltime_s: float, probability: float, confidence: float = 0.95
    ) -> str | None:
        """Say which closure moves this bound and which request it would not move; None if none
        does."""
        move = self.moved_start(procs, walltime_s, probability, confidence)
        return None if move is None else self.availability.words(move)


def closed(oracle: WaitOracle, availability: Availability) -> WaitOracle:
    """Return the oracle of a queue with its closures: the same if it has none."""
    if not availability.closures:
        return oracle
    return ClosedOracle(inner=oracle, availability=availability)


def close_forecast(
    forecast: AnyForecast, availability: Availability
) -> AnyForecast | ClosedForecast:
    """Return the forecast of a queue with its closures: the same if it has none."""
    if not availability.closures:
        return forecast
    return ClosedForecast(inner=forecast, availability=availability)
