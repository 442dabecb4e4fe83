"""Answers about virtual grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from vgrads.operations.answers.sets import PromiseEstimate, SlotOfPlan
from vgrads.operations.fields import About


@dataclass(frozen=True, kw_only=True)
class ExcludedPlace:
    """A place that was left out."""

    place: Annotated[str, About("Site and queue or nodes.", example="ec2/nodes")]
    reason: Annotated[str, About("Why.", example="at most 8 nodes, 16 are needed")]


@dataclass(frozen=True, kw_only=True)
class OfferForGroup:
    """The offer for a group of nodes."""

    name: Annotated[str, About("Name of the group.", example="solvers")]
    coupling: Annotated[str, About("tight or loose.", example="tight")]
    probability: Annotated[float, About("That it has its nodes.", example=0.96)]
    nodes: Annotated[int, About("Nodes on offer.", example=16)]
    needed: Annotated[int, About("Nodes needed.", example=16)]
    considered: Annotated[int, About("Slots that were considered.", example=92)]
    solver: Annotated[str | None, About("Solver.", example="highs")]
    gap: Annotated[float | None, About("How much better others might be.", example=0.0)]
    slots: Annotated[Sequence[str], About("Ids of the slots.", example=["kth-default-1"])]
    excluded: Annotated[Sequence[ExcludedPlace], About("Places that were left out.")]


@dataclass(frozen=True, kw_only=True)
class OfferTreeNode:
    """A grid, a site, a cluster or a slot; further fields depend on its kind."""

    kind: Annotated[str, About("grid, site, cluster or slot.", example="slot")]
    name: Annotated[str, About("Name.", example="kth-default-1")]
    nodes: Annotated[int, About("Nodes.", example=8)]
    cost_usd: Annotated[float, About("At most.", "USD", 0.0)]
    slots: Annotated[int | None, About("Slots in it.", example=2)] = None
    probability: Annotated[float | None, About("Of a grid or slot.", example=0.98)] = None
    enough: Annotated[bool | None, About("Of a grid: as probable as requested.")] = None
    children: Annotated[Sequence[OfferTreeNode] | None, About("Parts.")] = None
    group: Annotated[str | None, About("Group of a slot.", example="solvers")] = None
    site: Annotated[str | None, About("Site of a slot.", example="kth")] = None
    procs: Annotated[int | None, About("Of a slot.", "processors", 8)] = None
    submit_s: Annotated[float | None, About("When a slot is requested.", "s", 12420.0)] = None
    likely_s: Annotated[float | None, About("Likely start of a slot.", "s", 12450.0)] = None
    shared: Annotated[str | None, About("What a slot's start depends on.")] = None


@dataclass(frozen=True, kw_only=True)
class VirtualGrid:
    """An offer of nodes, as ``vgrads sites offers --json``. Instants count from the request."""

    id: Annotated[str, About("Id of the offer.", example="grid-0123456789")]
    name: Annotated[str, About("Name of the request.", example="storm")]
    request: Annotated[str, About("The request as text.", example="grid storm for 7200s …")]
    enough: Annotated[bool, About("Whether it is as probable as requested.")]
    probability: Annotated[float, About("That all nodes are there.", example=0.96)]
    standard_error: Annotated[float, About("Of the probability.", example=0.003)]
    requested: Annotated[float, About("Requested probability.", example=0.9)]
    start_by_s: Annotated[float, About("Start.", "s", 14400.0)]
    deadline_s: Annotated[float, About("End.", "s", 21600.0)]
    cost_usd: Annotated[float, About("At most.", "USD", 0.0)]
    budget_usd: Annotated[float | None, About("Most cost.", "USD", 20.0)]
    groups: Annotated[Sequence[OfferForGroup], About("Of each group.")]
    tree: Annotated[OfferTreeNode, About("Grid, sites, clusters, slots.")]
    seconds: Annotated[Mapping[str, float], About("What each step took.", "s", {"offers": 0.2})]


@dataclass(frozen=True, kw_only=True)
class OfferedSlot(SlotOfPlan):
    """A slot on offer as a lane of the chart."""

    ready_p5_s: Annotated[float | None, About("5th of a hundred starts; null: never.", "s")]
    ready_p50_s: Annotated[float | None, About("50th of a hundred starts.", "s", 30.0)]
    ready_p95_s: Annotated[float | None, About("95th of a hundred starts.", "s")]
    state: Annotated[str, About("State of the slot.", example="offered")]


@dataclass(frozen=True, kw_only=True)
class GridChart:
    """The chart of an offer: slots without placements."""

    name: Annotated[str, About("Name of the request.", example="storm")]
    deadline_s: Annotated[float, About("End.", "s", 21600.0)]
    needed: Annotated[int, About("0: there are no workflows.", example=0)]
    now_s: Annotated[None, About("Null: nothing runs.")]
    workflows: Annotated[Sequence[str], About("None.")]
    promise: Annotated[PromiseEstimate, About("That all nodes are there.")]
    cost_usd: Annotated[float, About("At most.", "USD", 0.0)]
    placements: Annotated[Sequence[str], About("None.")]
    slots: Annotated[Sequence[OfferedSlot], About("Lanes.")]
    facts: Annotated[str, About("The request as text.", example="grid storm for 7200s …")]
