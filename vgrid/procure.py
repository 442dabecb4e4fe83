"""Choice of the slots to request: the best within the limits, as a small integer programme.

A group needs ``least`` nodes at once. Slots are chosen so that their expected nodes reach a target,
at the least penalty: money first, then the caller's rank. The target rises until the joint
probability, over scenarios in which slots of one queue come early or late together, is the
requested one: surplus slots are the price of a higher probability, and are cancelled once enough
were granted (:func:`vgrads.vgrid.binding.find_surplus`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.units import format_count
from vgrads.vgrid.availability import sample_availability
from vgrads.vgrid.catalog import Catalog
from vgrads.vgrid.offers import Knowledge
from vgrads.vgrid.programme import RemainingLimits, SlotSelection, greedy, solve
from vgrads.vgrid.request import GridRequest, NodeGroup
from vgrads.vgrid.shapes import Excluded, SlotOption, group_choices
from vgrads.vgrid.slot import Slot

SCENARIOS = 4096
_RISES = (1.0, 1.1, 1.25, 1.45, 1.7, 2.0, 2.5, 3.2, 4.0, 6.0, 10.0, 20.0)
Bools = NDArray[np.bool_]
Solver = Callable[[Sequence[SlotOption], NodeGroup, float, RemainingLimits], SlotSelection | None]


@dataclass(frozen=True, kw_only=True)
class GroupOffer:
    """The slots chosen for a group, and the probability that it gets its nodes."""

    group: NodeGroup
    choices: tuple[SlotOption, ...]
    probability: float
    excluded: tuple[Excluded, ...]
    considered: int
    solver: str
    gap: float | None
    """Upper bound of the relative distance of the objective from the best; None if unknown."""


@dataclass(frozen=True, kw_only=True)
class GridOffer:
    """Offer for a request: all groups together from its start on."""

    request: GridRequest
    groups: tuple[GroupOffer, ...]
    probability: float
    standard_error: float
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def enough(self) -> bool:
        """True if the requested probability is reached."""
        return self.probability >= self.request.probability

    @property
    def cost_usd(self) -> float:
        """Cost of all slots if every one is granted and held to the deadline."""
        return round(sum(c.cost_usd for g in self.groups for c in g.choices), 2)

    def check(self) -> None:
        """Check the budget, the order of positions, that no group exceeds its maximum, that tight
        groups are whole."""
        budget = self.request.budget_usd
        if budget is not None and self.cost_usd > budget:
            raise AssertionError(f"{self.cost_usd} over the budget of {budget}")
        pools: dict[str, int] = {}
        for offer in self.groups:
            _check_group(offer)
            for choice in offer.choices:
                pools[choice.pool] = pools.get(choice.pool, 0) + choice.slot.procs
                if pools[choice.pool] > choice.room:
                    raise AssertionError(
                        f"{format_count(pools[choice.pool], 'processor')} of {choice.room} in "
                        f"{choice.pool}"
                    )


def _check_group(offer: GroupOffer) -> None:
    clusters: dict[str, list[SlotOption]] = {}
    for choice in offer.choices:
        clusters.setdefault(choice.cluster, []).append(choice)
    for name, chosen in clusters.items():
        nodes, positions = sum(c.width for c in chosen), sorted(c.position for c in chosen)
        widths = {c.width for c in chosen}
        whole = offer.group.coupling == "loose" or nodes >= offer.group.least
        first = positions[0]
        if len(widths) > 1 or positions != list(range(first, first + len(chosen))) or not whole:
            raise AssertionError(
                f"{name}: widths {widths}, positions {positions}, {format_count(nodes, 'node')}"
            )


def procure(
    catalog: Catalog,
    knowledge: Knowledge,
    request: GridRequest,
    seed: int = 0,
    solver: Solver = solve,
) -> GridOffer:
    """Choose slots for every group, one after the other, the largest first, within the remaining
    limits."""
    limits = RemainingLimits.of(catalog, request)
    offers: dict[str, GroupOffer] = {}
    met: dict[str, Bools] = {}
    seconds = {"offers": 0.0, "procure": 0.0}
    for group in sorted(request.groups, key=lambda g: -g.least * g.cores):
        begin = time.perf_counter()
        choices, excluded = group_choices(catalog, knowledge, request, group)
        # groups before this one have taken the first positions of some clusters
        choices = [c for c in choices if c.position > limits.jobs_used(c) and c.probability > 0]
        requested = time.perf_counter()
        answer, met[group.name] = _find_reach(choices, (request, group, limits), seed, solver)
        limits = limits.less(answer.choices)
        offers[group.name] = GroupOffer(
            group=group,
            choices=answer.choices,
            probability=float(met[group.name].mean()),
            excluded=tuple(excluded),
            considered=len(choices),
            solver=answer.solver,
            gap=answer.gap,
        )
        seconds["offers"] += requested - begin
        seconds["procure"] += time.perf_counter() - requested
    # each group was drawn in the same scenarios: slots of one queue are late together
    together = float(np.logical_and.reduce(list(met.values())).mean())
    return GridOffer(
        request=request,
        groups=tuple(offers[group.name] for group in request.groups),
        probability=together,
        standard_error=float(np.sqrt(together * (1 - together) / SCENARIOS)),
        seconds=seconds,
    )


def _find_reach(
    choices: Sequence[SlotOption],
    required: tuple[GridRequest, NodeGroup, RemainingLimits],
    seed: int,
    solver: Solver,
) -> tuple[SlotSelection, Bools]:
    """Return the selection for the first target at which the group has the requested probability;
    otherwise the most probable one found.

    Several groups must hold together, so each gets its share of the request's failure probability.
    """
    request, group, limits = required
    each = 1.0 - (1.0 - request.probability) / len(request.groups)
    best = SlotSelection(choices=(), solver="none", gap=None)
    met = np.zeros(SCENARIOS, dtype=bool)
    fates: dict[str, Bools] = {}
    # the solver counts expected nodes: where slots fail together, more are needed for the same
    for rise in _RISES:
        target = each * group.least * rise
        # the solver may run out of time; the greedy choice is always made
        answer = solver(choices, group, target, limits) or greedy(choices, group, target, limits)
        if answer is None:
            break
        there = group_met(answer.choices, group, request, seed, fates)
        if there.mean() > met.mean():
            best, met = answer, there
        if met.mean() >= each:
            break
    return best, met


def group_met(
    chosen: Sequence[SlotOption],
    group: NodeGroup,
    request: GridRequest,
    seed: int,
    fates: dict[str, Bools],
) -> Bools:
    """Scenarios in which the group has its nodes from the start to the deadline.

    ``fates`` caches those of single slots between calls.
    """
    nodes: dict[str, NDArray[np.int64]] = {}
    for choice in chosen:
        key = f"{choice.slot.id}/{choice.width}"
        if key not in fates:
            fates[key] = _draw_lifetimes(choice.slot, request, seed)
        cluster = choice.cluster if group.coupling == "tight" else "any"
        nodes[cluster] = nodes.get(cluster, 0) + fates[key] * np.int64(choice.width)
    met = np.zeros(SCENARIOS, dtype=bool)
    for count in nodes.values():
        met |= count >= group.least
    return met


def _draw_lifetimes(slot: Slot, request: GridRequest, seed: int) -> Bools:
    """Scenarios in which a slot, requested at its instant, is available from the start to the
    deadline."""
    zero_s = slot.zero_s(slot.submit_s)
    duration_s = request.deadline_s - zero_s
    ready, broken = sample_availability(replace(slot, end_s=duration_s), SCENARIOS, seed)
    return np.asarray((ready <= request.start_by_s - zero_s) & (broken >= duration_s))
