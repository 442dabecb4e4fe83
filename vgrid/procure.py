"""Which slots to ask for: the best that limits allow, as a small integer programme.

A group needs ``least`` nodes at once. Slots are chosen so that their expected nodes reach a target,
at the least penalty: money first, then what the caller ranks by. The target rises until the joint
probability, over scenarios in which slots of one queue come early or late together, is what was
asked: surplus slots are the price of sureness, and are cancelled once enough were granted
(:func:`vgrads.vgrid.binding.surplus`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vgrads.vgrid.catalog import Catalog
from vgrads.vgrid.fate import slot_fate
from vgrads.vgrid.offers import Knowledge
from vgrads.vgrid.programme import Answer, Limits, greedy, solve
from vgrads.vgrid.request import GridRequest, Group
from vgrads.vgrid.shapes import Choice, Excluded, group_choices
from vgrads.vgrid.slot import Slot

SCENARIOS = 4096
_RISES = (1.0, 1.1, 1.25, 1.45, 1.7, 2.0, 2.5, 3.2, 4.0, 6.0, 10.0, 20.0)
Bools = NDArray[np.bool_]
Solver = Callable[[Sequence[Choice], Group, float, Limits], Answer | None]


@dataclass(frozen=True, kw_only=True)
class GroupOffer:
    """The slots chosen for a group, and how surely it gets its nodes."""

    group: Group
    choices: tuple[Choice, ...]
    probability: float
    excluded: tuple[Excluded, ...]
    considered: int
    solver: str
    gap: float | None
    """How much the objective may lie above the best, as a share; None where nobody can say."""


@dataclass(frozen=True, kw_only=True)
class GridOffer:
    """What a request can have: all groups together from its start on."""

    request: GridRequest
    groups: tuple[GroupOffer, ...]
    probability: float
    standard_error: float
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def enough(self) -> bool:
        """True where the probability asked for is reached."""
        return self.probability >= self.request.probability

    @property
    def cost_usd(self) -> float:
        """What all slots cost if every one is granted and held to the deadline."""
        return round(sum(c.cost_usd for g in self.groups for c in g.choices), 2)

    def check(self) -> None:
        """Budget, the order of positions, no group over its most, tight groups whole."""
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
                        f"{pools[choice.pool]} processors of {choice.room} in {choice.pool}"
                    )


def _check_group(offer: GroupOffer) -> None:
    clusters: dict[str, list[Choice]] = {}
    for choice in offer.choices:
        clusters.setdefault(choice.cluster, []).append(choice)
    for name, chosen in clusters.items():
        nodes, positions = sum(c.width for c in chosen), sorted(c.position for c in chosen)
        widths = {c.width for c in chosen}
        whole = offer.group.coupling == "loose" or nodes >= offer.group.least
        first = positions[0]
        if len(widths) > 1 or positions != list(range(first, first + len(chosen))) or not whole:
            raise AssertionError(f"{name}: widths {widths}, positions {positions}, {nodes} nodes")


def procure(
    catalog: Catalog, known: Knowledge, request: GridRequest, seed: int = 0, solver: Solver = solve
) -> GridOffer:
    """Slots for every group, one after the other, the largest first, under the limits that are
    left."""
    limits = Limits.of(catalog, request)
    offers: dict[str, GroupOffer] = {}
    met: dict[str, Bools] = {}
    seconds = {"offers": 0.0, "procure": 0.0}
    for group in sorted(request.groups, key=lambda g: -g.least * g.cores):
        begin = time.perf_counter()
        choices, excluded = group_choices(catalog, known, request, group)
        choices = [c for c in choices if c.position > limits.jobs_used(c) and c.probability > 0]
        asked = time.perf_counter()
        answer, met[group.name] = _reach(choices, (request, group, limits), seed, solver)
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
        seconds["offers"] += asked - begin
        seconds["procure"] += time.perf_counter() - asked
    together = float(np.logical_and.reduce(list(met.values())).mean())
    return GridOffer(
        request=request,
        groups=tuple(offers[group.name] for group in request.groups),
        probability=together,
        standard_error=float(np.sqrt(together * (1 - together) / SCENARIOS)),
        seconds=seconds,
    )


def _reach(
    choices: Sequence[Choice], wanted: tuple[GridRequest, Group, Limits], seed: int, solver: Solver
) -> tuple[Answer, Bools]:
    """The first target at which the group is as sure as asked; else the surest that was found.

    Several groups must hold together, so each is asked for its share of the request's failure.
    """
    request, group, limits = wanted
    each = 1.0 - (1.0 - request.probability) / len(request.groups)
    best = Answer(choices=(), solver="none", gap=None)
    met = np.zeros(SCENARIOS, dtype=bool)
    fates: dict[str, Bools] = {}
    for rise in _RISES:
        target = each * group.least * rise
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
    chosen: Sequence[Choice], group: Group, request: GridRequest, seed: int, fates: dict[str, Bools]
) -> Bools:
    """Scenarios in which the group has its nodes from the start to the deadline.

    ``fates`` remembers those of single slots from one call to the next.
    """
    nodes: dict[str, NDArray[np.int64]] = {}
    for choice in chosen:
        key = f"{choice.slot.id}/{choice.width}"
        if key not in fates:
            fates[key] = _lives(choice.slot, request, seed)
        cluster = choice.cluster if group.coupling == "tight" else "any"
        nodes[cluster] = nodes.get(cluster, 0) + fates[key] * np.int64(choice.width)
    met = np.zeros(SCENARIOS, dtype=bool)
    for count in nodes.values():
        met |= count >= group.least
    return met


def _lives(slot: Slot, request: GridRequest, seed: int) -> Bools:
    """Scenarios in which a slot, asked for at its instant, is there from the start to the
    deadline."""
    held_s = request.deadline_s - slot.submit_s
    ready, broken = slot_fate(replace(slot, end_s=held_s), SCENARIOS, seed)
    return np.asarray((ready <= request.start_by_s - slot.submit_s) & (broken >= held_s))
