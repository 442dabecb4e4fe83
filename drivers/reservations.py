"""Announced closures of batch systems: from reservations of nodes.

Times that a site prints are compared with its own clock, which it prints too: only differences
count, so a clock that is wrong by minutes does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from vgrads.kernel.closures import MAINTENANCE, Closure
from vgrads.kernel.errors import SiteError

NOW = 'date "+%s %Y-%m-%dT%H:%M:%S"'
"""The command that prints the site's clock."""
_DAY_S = 86400.0
_REPEATS_S = 92 * _DAY_S
"""How far ahead reservations and calendars that repeat are looked at."""


@dataclass(frozen=True, slots=True)
class SiteClock:
    """A site's clock as printed: seconds since 1970, and local time."""

    unix_s: float
    local: datetime

    def until_s(self, text: str) -> float | None:
        """Return the seconds until an instant that the site printed as seconds since 1970 or in
        local time; None for any other text."""
        if text.isdigit():
            return float(text) - self.unix_s
        try:
            return (datetime.fromisoformat(text) - self.local).total_seconds()
        except (ValueError, TypeError):
            return None


def read_clock(line: str, site: str) -> SiteClock:
    """Parse what :data:`NOW` prints. Raise SiteError for any other text."""
    seconds, _, local = line.strip().partition(" ")
    try:
        return SiteClock(float(seconds), datetime.fromisoformat(local))
    except ValueError as error:
        raise SiteError(f"printed no clock: {line[:80]!r}", site=site, transient=True) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReservation:
    """A reservation from ``begin_in_s`` to ``end_in_s``, from now. ``nodes``: whole nodes, or, of
    these, only so many ``procs``; ``every_s``: it is repeated every day or week (0: it is not)."""

    words: str
    begin_in_s: float
    end_in_s: float
    nodes: frozenset[str]
    procs: int | None = None
    every_s: float = 0.0

    def occurrences(self) -> Iterator[NodeReservation]:
        """Return the reservation, and its repetitions as far as they are looked at."""
        yield self
        later_s = self.every_s
        while later_s and self.begin_in_s + later_s < _REPEATS_S:
            begin_in_s, end_in_s = self.begin_in_s + later_s, self.end_in_s + later_s
            yield replace(self, begin_in_s=begin_in_s, end_in_s=end_in_s)
            later_s += self.every_s

    def of_nodes(self, nodes: Mapping[str, int]) -> NodeReservation:
        """Return the same, as one of whole nodes if it takes all of their processors."""
        every = sum(nodes.get(name, 0) for name in self.nodes)
        is_whole = self.procs is not None and self.procs >= every
        return replace(self, procs=None) if is_whole else self

    def taken(self, nodes: Mapping[str, int]) -> int:
        """Return the processors that it takes of these nodes."""
        whole = sum(procs for name, procs in nodes.items() if name in self.nodes)
        return whole if self.procs is None else min(whole, self.procs)


def find_closures_by_queue(
    reservations: Sequence[NodeReservation],
    queues: Mapping[str, Mapping[str, int]],
    now_s: float,
) -> tuple[Closure, ...]:
    """Return the closures of queues, given as node → processors, from reservations. ``now_s``:
    seconds since 1970, here."""
    results: dict[tuple[float, float, str, int, bool], tuple[set[str], set[str]]] = {}
    node_procs = {name: procs for own in queues.values() for name, procs in own.items()}
    whole = [r for each in reservations for r in each.of_nodes(node_procs).occurrences()]
    for queue, own in queues.items():
        for begin_s, end_s, active in _split_segments([r for r in whole if r.taken(own)]):
            key = (
                begin_s,
                end_s,
                _describe_reservations(active),
                _count_unreserved(active, own),
                _is_weekly(active),
            )
            # equal closures of several queues become one
            names, nodes = results.setdefault(key, (set(), set()))
            names.add(queue)
            nodes.update(*(r.nodes for r in active))
    return tuple(
        Closure(
            begin_s=now_s + begin_s,
            end_s=now_s + end_s,
            words=words,
            left=left,
            # empty: all queues of the site
            queues=frozenset() if names == set(queues) else frozenset(names),
            nodes=frozenset(nodes),
            weekly=weekly,
            reported=True,
        )
        for (begin_s, end_s, words, left, weekly), (names, nodes) in sorted(
            results.items(), key=lambda item: item[0]
        )
    )


def _count_unreserved(active: Sequence[NodeReservation], nodes: Mapping[str, int]) -> int:
    """Return the processors of these nodes that no reservation takes."""
    reserved = frozenset().union(*(r.nodes for r in active if r.procs is None))
    others = {name: procs for name, procs in nodes.items() if name not in reserved}
    parts = sum(r.taken(others) for r in active if r.procs is not None)
    return max(0, sum(others.values()) - parts)


def _describe_reservations(active: Sequence[NodeReservation]) -> str:
    words = [r.words for r in active]
    return MAINTENANCE if MAINTENANCE in words else words[0]


def _is_weekly(active: Sequence[NodeReservation]) -> bool:
    return any(r.every_s for r in active)


def _split_segments(
    reservations: Sequence[NodeReservation],
) -> Iterator[tuple[float, float, list[NodeReservation]]]:
    """Return the stretches of time in which the same reservations are active, if any are."""
    marks = sorted({s for r in reservations for s in (max(0.0, r.begin_in_s), r.end_in_s)})
    for begin_s, end_s in pairwise(marks):
        active = [r for r in reservations if r.begin_in_s <= begin_s and r.end_in_s >= end_s]
        if active and end_s > 0:
            # a reservation that has begun keeps its own beginning
            first_s = min(r.begin_in_s for r in active) if begin_s == 0 else begin_s
            yield first_s, end_s, active
