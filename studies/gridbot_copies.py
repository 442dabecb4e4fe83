"""GridBot's comparisons of replication (SC'09, section 7): the table of collaborative grids, Figure 9, Figure 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from kernel.streams import stream
from studies.gridbot_grid import GRIDS, HOUR_S, Field, scaled

JOBS = 30_000
BUFFER = 1500
"""Jobs in GridBot's scheduling buffer (section 7): as few waiting jobs are its tail."""
_BAD = "(Job.{0}.Host.ErrorRate > 0.01 || !Job.{0}.Host.RecentSuccess || Job.{0}.Age > 1800)"
COMMON = {"Concurrency": "1", "Deadline": "3600"}
PERMISSIVE = {"ReplicationRequirements": "Job.NumberOfReplicas < 5"}
RESTRICTIVE = {
    "ReplicationRequirements": f"Job.NumberOfReplicas < 3 && ({_BAD.format('Replica1')} || {_BAD.format('Replica2')})"
}
RELIABLE = {"JobRequirements": "Tail ? Host.ErrorRate <= 0.01 && Host.RecentSuccess : true"}
"""Unreliable: an error rate above one in a hundred, or no recent success. Ours begins at one in twenty, so that a host is
reliable from its eighth success in a row."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """What a bag came to: hours until its last job ended; in per cent of its jobs copies, results of which one was there,
    and copies called off before they ended; in per cent of the useful time that of both."""

    hours: float
    replicas: float
    waste: float
    called_off: float
    vain: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """A policy of the table. ``printed``: replicas %, waste %, hours; ``beat_s``: hosts say so often that they work."""

    name: str
    policy: Mapping[str, str]
    named: Mapping[str, Any]
    printed: tuple[float, float, float] | None = None
    beat_s: float = inf


def rows(scale: float) -> list[Row]:
    """The paper's five, and ours."""
    tail = {"tail_below": max(1, round(BUFFER * scale)), "most_copies": 5}
    return [
        Row(name="permissive, permissive", policy=PERMISSIVE, named=tail, printed=(58, 30, 4.1)),
        Row(name="restrictive, restrictive", policy=RESTRICTIVE | RELIABLE, named=tail, printed=(11, 7, 3.2)),
        Row(name="permissive, restrictive", policy=PERMISSIVE | RELIABLE, named=tail, printed=(73, 57, 4.2)),
        Row(name="none, permissive", policy={}, named=tail, printed=(0, 0, 5.1)),
        Row(name="none, restrictive", policy=RELIABLE, named=tail, printed=(0, 0, 5.8)),
        Row(name="learned", policy={}, named={"learns": True}),
        Row(name="learned, hosts that beat", policy={}, named={"learns": True}, beat_s=60.0),
    ]  # fmt: skip


def play_row(row: Row, seed: int, scale: float) -> Played:
    """30,000 jobs of 10 to 15 minutes in the collaborative grids."""
    jobs = round(JOBS * scale)
    lengths_s = stream(seed, "gridbot", "lengths").uniform(600.0, 900.0, jobs)
    field = Field(scaled(GRIDS, scale), seed, [lengths_s], beat_s=row.beat_s, lost_s=3 * row.beat_s)
    field.add(0, jobs, {**COMMON, **row.policy}, **row.named)
    field.play()
    return played(field, 0, float(lengths_s.sum()))


def played(field: Field, number: int, useful_s: float) -> Played:
    """How a bag fared, where it was alone."""
    bag, hosts = field.core.state.bags[number], field.hosts
    share = 100.0 / len(bag.tasks)
    return Played(
        hours=((bag.ended_s or inf) - bag.came_s) / HOUR_S, replicas=share * bag.copied, waste=share * hosts.discarded,
        called_off=share * hosts.called_off, vain=100.0 * hosts.vain_s / useful_s,
    )  # fmt: skip


def table(seeds: Sequence[int], scale: float) -> dict[str, list[Played]]:
    """Every row on every seed."""
    return {row.name: [play_row(row, seed, scale) for seed in seeds] for row in rows(scale)}
