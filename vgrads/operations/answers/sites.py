"""Answers about sites, their queues and histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from vgrads.operations.fields import About


@dataclass(frozen=True, kw_only=True)
class UnusedRecords:
    """Records of a history that were not used, for one reason."""

    records: Annotated[int, About("How many.", example=3)]
    first_line: Annotated[int | None, About("Line of the first.", example=17)]


@dataclass(frozen=True, kw_only=True)
class HistoryReading:
    """What became of the lines of a history's file."""

    format: Annotated[str, About("Format.", example="swf")]
    lines: Annotated[int, About("Lines.", example=3939)]
    jobs: Annotated[int, About("Jobs.", example=3932)]
    not_jobs: Annotated[
        Mapping[str, int], About("Lines that are no jobs, by reason.", example={"comment": 7})
    ]
    not_used: Annotated[
        Mapping[str, UnusedRecords], About("Records that were not used, by reason.")
    ]
    notes: Annotated[Sequence[str], About("Remarks.")]
    warnings: Annotated[Sequence[str], About("Unlikely values.")]


@dataclass(frozen=True, kw_only=True)
class StoredHistory:
    """The history of a queue."""

    jobs: Annotated[int, About("Jobs.", example=3932)]
    until: Annotated[str, About("Its end, RFC 3339.", example="2008-12-30T23:38:14Z")]
    log_queue: Annotated[str | None, About("Queue of its log; null: all.", example="default")]
    log_queues: Annotated[int, About("Queues of its log.", example=1)]
    reading: Annotated[HistoryReading | None, About("What became of its lines.")]


@dataclass(frozen=True, kw_only=True)
class QueueOfSite:
    """A queue of a batch site."""

    name: Annotated[str, About("Name.", example="default")]
    max_procs: Annotated[int | None, About("Most of a job.", "processors", 32)]
    max_walltime_s: Annotated[float | None, About("Longest job.", "s", 86400.0)]
    max_jobs: Annotated[int | None, About("Most jobs of a user.", example=2)]
    stated_probability: Annotated[float | None, About("Of a start within the stated wait.")]
    stated_wait_s: Annotated[float | None, About("Stated wait.", "s")]
    history: Annotated[StoredHistory | None, About("Its history.")]
    problem: Annotated[str | None, About("Why its history cannot be read.")] = None


@dataclass(frozen=True, kw_only=True)
class SiteNode:
    """A type of node."""

    type: Annotated[str | None, About("Name.", example="c1.xlarge")]
    cores: Annotated[int, About("Cores.", "processors", 8)]
    memory_mib: Annotated[float | None, About("Memory.", "MiB", 16384.0)]
    resources: Annotated[Mapping[str, float], About("Further resources.", example={"gpu": 1.0})]
    speed: Annotated[float, About("A task of runtime_s takes runtime_s / speed.", example=1.0)]
    price_usd_per_hour: Annotated[float, About("Price.", "USD per hour", 0.68)]
    spot_price_usd_per_hour: Annotated[float | None, About("Spot price.", "USD per hour")]


@dataclass(frozen=True, kw_only=True)
class SlotBinding:
    """From the grant of a slot until it is usable."""

    p5_s: Annotated[float, About("5th of a hundred.", "s")]
    p50_s: Annotated[float, About("50th of a hundred.", "s", 240.0)]
    p95_s: Annotated[float, About("95th of a hundred.", "s", 400.0)]
    acquire: Annotated[float, About("Probability of a grant.", example=1.0)]
    up: Annotated[float, About("Probability that a slot lives to its end.", example=0.97)]
    observed: Annotated[int, About("Observed slots.", example=2)]
    stated_s: Annotated[float, About("As stated.", "s", 240.0)]


@dataclass(frozen=True, kw_only=True)
class ObservedSlots:
    """Slots that runs requested."""

    requested: Annotated[int, About("Requested.", example=2)]
    refused: Annotated[int, About("Refused.", example=0)]
    granted: Annotated[int, About("Granted.", example=2)]
    ready: Annotated[int, About("Usable.", example=2)]
    broken: Annotated[int, About("Lost before their end.", example=0)]


@dataclass(frozen=True, kw_only=True)
class StatedSlots:
    """What the description of a site states."""

    acquire: Annotated[float, About("Probability of a grant.", example=1.0)]
    up: Annotated[float, About("Probability that a slot lives to its end.", example=0.97)]
    boot_s: Annotated[float, About("Start of a node.", "s", 240.0)]


@dataclass(frozen=True, kw_only=True)
class LearnedQueue:
    """What runs observed about a queue, or about a market of a cloud."""

    queue: Annotated[str, About("Queue or market.", example="default")]
    observed: Annotated[ObservedSlots, About("Slots.")]
    stated: Annotated[StatedSlots, About("As stated.")]
    binding: Annotated[SlotBinding, About("As corrected.")]


@dataclass(frozen=True, kw_only=True)
class SiteDescription:
    """A site with its queues, prices, and what runs observed."""

    name: Annotated[str, About("Name.", example="ec2")]
    kind: Annotated[str, About("batch, reservation, dedicated, cloud, local.", example="cloud")]
    driver: Annotated[str, About("Driver.", example="ec2")]
    procs: Annotated[int, About("Processors.", "processors", 128)]
    containers: Annotated[Sequence[str], About("Container programs.", example=["docker"])]
    nodes: Annotated[Sequence[SiteNode], About("Types of nodes.")]
    queues: Annotated[Sequence[QueueOfSite], About("Queues.")]
    binding: Annotated[SlotBinding, About("From a grant to use.")]
    learned: Annotated[Sequence[LearnedQueue], About("Of each queue or market.")]


@dataclass(frozen=True, kw_only=True)
class HistoryUploaded:
    """A history that was stored."""

    site: Annotated[str, About("Site.", example="kth")]
    queue: Annotated[str, About("Queue.", example="default")]
    jobs: Annotated[int, About("Jobs of the file.", example=3932)]
    format: Annotated[str, About("Format as stated, or detected.", example="detected")]
    reading: Annotated[HistoryReading | None, About("What became of its lines.")]
