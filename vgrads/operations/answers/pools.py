"""Answers about pools of nodes and the managers that lease them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from vgrads.operations.fields import About


@dataclass(frozen=True, kw_only=True)
class ManagerPublished:
    """What the pools decided for a manager."""

    pools: Annotated[Sequence[Mapping[str, Any]], About("Entries of the pools.")]


@dataclass(frozen=True, kw_only=True)
class ManagerCapacity:
    """Processors that a manager can keep busy: 90 % interval, and what limits it."""

    low: Annotated[float, About("At least.", "processors", 100.0)]
    value: Annotated[float, About("Probably.", "processors", 120.0)]
    high: Annotated[float, About("At most.", "processors", 150.0)]
    bottleneck: Annotated[str, About("What limits it.", example="network")]
    tasks: Annotated[float, About("Observed tasks.", example=1000.0)]
    cycle_s: Annotated[float, About("Time for a task.", "s", 2.2)]
    execution_s: Annotated[float, About("Of that, its command.", "s", 2.0)]
    resources: Annotated[
        Mapping[str, Sequence[float]],
        About("The interval for each resource.", example={"network": [100.0, 120.0, 150.0]}),
    ]


@dataclass(frozen=True, kw_only=True)
class Manager:
    """A manager that leases nodes of pools. How agents reach it is for scope ``pool`` alone."""

    name: Annotated[str, About("Name.", example="night-runs")]
    owner: Annotated[str, About("Who runs it.", example="ann")]
    age_s: Annotated[float, About("Since it was published.", "s", 12.0)]
    silent: Annotated[bool, About("Whether it no longer counts.", example=False)]
    id: Annotated[str, About("Identifies its process.", example="5c1d")]
    project: Annotated[str, About("Project.", example="climate")]
    period_s: Annotated[float, About("Between publications.", "s", 30.0)]
    waiting: Annotated[int, About("Demand that waits.", "processors", 40)]
    running: Annotated[int, About("At work.", "processors", 20)]
    procs: Annotated[int, About("At hand.", "processors", 20)]
    by_pool: Annotated[Mapping[str, int], About("Those of each pool.", example={"mine": 20})]
    bags: Annotated[Sequence[str], About("Bags that it works on.", example=["bag-0123456789"])]
    capacity: Annotated[ManagerCapacity | None, About("What it can keep busy.")]
    arrived: Annotated[int, About("Tasks that came.", example=1000)]
    failing: Annotated[bool, About("Whether its tasks fail.", example=False)]
    contact: Annotated[str | None, About("Address for agents.")] = None
    certificate: Annotated[str | None, About("Its certificate.")] = None
    slot: Annotated[str | None, About("Slot of its agents.")] = None
    key: Annotated[str | None, About("Key of its agents.")] = None


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool: its decision for each manager, and the reasons."""

    name: Annotated[str, About("Name.", example="mine")]
    owner: Annotated[str, About("Who runs it.", example="ann")]
    age_s: Annotated[float, About("Since it was published.", "s", 12.0)]
    silent: Annotated[bool, About("Whether it no longer counts.", example=False)]
    id: Annotated[str, About("Identifies its process.", example="77ab")]
    period_s: Annotated[float, About("Between decisions.", "s", 30.0)]
    procs: Annotated[int, About("Processors of a worker.", "processors", 8)]
    policy: Annotated[str, About("Policy.", example="capacity")]
    max_workers: Annotated[int, About("Most workers.", "workers", 50)]
    decisions: Annotated[Mapping[str, int], About("Of each manager.", "workers", {"night-runs": 3})]
    claim_age_s: Annotated[Mapping[str, float], About("Age of each manager's demand.", "s")]
    requests: Annotated[Mapping[str, int], About("Demand of each manager.", "workers", key="asked")]
    other_pools: Annotated[Sequence[str], About("Other pools.", key="seen")]
    decided: Annotated[int, About("Decided, in sum.", "workers", 3)]
    running: Annotated[int, About("Running.", "workers", 3)]
    hosts: Annotated[int, About("Hosts.", example=3)]
    coming: Annotated[int, About("Requested, not there.", "workers", 0)]
    capacity: Annotated[float | None, About("What the managers can keep busy.", "processors")]
    problem: Annotated[str, About("What hinders it.")]
    reasons: Annotated[Sequence[str], About("Of the last decision.", example=["40 wait"])]
    working: Annotated[Mapping[str, Any], About("Numbers behind the decision.")]


@dataclass(frozen=True, kw_only=True)
class PoolMoment:
    """A pool at an instant."""

    at_s: Annotated[float, About("Since 1970.", "s", 1795900725.0)]
    decided: Annotated[int | None, About("Decided.", "workers", 3)]
    running: Annotated[int | None, About("Running.", "workers", 3)]
    capacity: Annotated[float | None, About("What the managers can keep busy.", "processors")]


@dataclass(frozen=True, kw_only=True)
class PoolDetails(Pool):
    """A pool, also over time."""

    moments: Annotated[Sequence[PoolMoment], About("Oldest first.")]
