"""Time and cost of work against how many hosts it is given, and the sizes worth telling of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vgrads.kernel.units import billed_s

_SOON = 1.01
"""So near to the quickest counts as the quickest: of these the fewest hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Of a host: dollars an hour, begun periods of ``billing_s`` are paid whole (0: by the
    second)."""

    usd_per_hour: float = 0.0
    billing_s: float = 0.0

    def of(self, hosts: int, seconds: float) -> float:
        """Dollars of some hosts for so long."""
        return hosts * billed_s(seconds, self.billing_s) / 3600.0 * self.usd_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """``hosts`` from the moment they are asked for: ``seconds`` until all is done, how much of what
    they are there for is work (``efficiency``), what they cost."""

    hosts: int
    seconds: float
    efficiency: float
    cost_usd: float


def curve(
    run_s: Callable[[int], float], work_s: float, most: int, price: Price, wait_s: float = 0.0
) -> list[Sized]:
    """Sizes from 1 host to ``most``, each about a seventh more than the last. ``run_s``: how long
    so many hosts work; ``work_s``: host seconds of work in all; ``wait_s``: until hosts come."""
    found = []
    for hosts in sorted(
        {*range(1, min(most, 8) + 1), *(min(most, round(1.15**k)) for k in range(1, 90))}
    ):
        seconds = run_s(hosts)
        found.append(
            Sized(
                hosts=hosts,
                seconds=wait_s + seconds,
                cost_usd=price.of(hosts, seconds),
                efficiency=min(1.0, work_s / (hosts * seconds)) if seconds > 0 else 0.0,
            )
        )
    return found


def told(sizes: Sequence[Sized], deadline_s: float | None) -> dict[str, Sized]:
    """``quickest``: the fewest hosts that are nearly as quick as any; ``cheapest``; ``knee``: where
    time × host seconds is least; ``in time``: the cheapest, then the fewest, by the deadline, if
    any is."""
    quick_s = min(one.seconds for one in sizes)
    found = {
        "quickest": next(one for one in sizes if one.seconds <= quick_s * _SOON),
        "cheapest": min(sizes, key=lambda one: (one.cost_usd, one.seconds)),
        "knee": min(sizes, key=lambda one: one.seconds * one.seconds * one.hosts),
    }
    in_time = [one for one in sizes if deadline_s is not None and one.seconds <= deadline_s]
    if in_time:
        found["in time"] = min(in_time, key=lambda one: (one.cost_usd, one.hosts))
    return found
