"""Plans from which the search begins: the first plan, and rules that anybody could follow."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vgrads.planner.placement.draft import Draft
from vgrads.planner.placement.heft import place_heft
from vgrads.planner.plan import Plan
from vgrads.planner.rules import EVERYTHING
from vgrads.planner.search.orders import NumberedSet, Orders

OWN = "the four phases"
_READY = (0.0, 0.25, 0.5, 0.75)
_TWICE = 0.3  # share of tasks with two replicas in a random plan
_WIDEST, _SHUFFLED = ("every slot without cost", "every slot"), 8  # random orders in these
_RANDOM, _MOST_RANDOM = 1_000, 60  # random plans, and tasks up to which they are tried
_MOST_SITES, _MOST_SINGLE = 4, 4
_MOST_EVERYWHERE = 20_000  # tasks times slots in which they are placed everywhere


class Start(NamedTuple):
    """A plan and the rule that made it."""

    rule: str
    orders: Orders


def starting_plans(problem: NumberedSet, plans: Sequence[Plan]) -> Iterator[Start]:
    """Return the plans from which the search begins, the given ones first."""
    yield from earlier_plans(problem, plans)
    parts, order = _parts(problem), _order(problem)
    yield from _whole_replicas(problem, parts, order, plans[0])
    needed = order[: problem.snapshot.workflow_set.needed]
    for rule, slots in parts.items():
        yield Start(f"one workflow each in {rule}", single_replicas(problem, slots, needed))
        yield Start(f"the needed workflows in {rule}", everywhere(problem, slots[:1], needed))
    most = max(1, _MOST_EVERYWHERE // len(problem.workflow))
    widest = parts.get("every slot") or next(iter(parts.values()), [])
    replicas = everywhere(problem, widest[:most], order, True)
    for rule in ("every slot without cost", "every slot", "the cloud"):
        for share in _READY if rule in parts else ():
            heft = _heft(problem, parts[rule], share)
            if heft is not None:
                yield Start(f"HEFT in {rule}, ready with {share:g}", heft)
                more = joined(heft, replicas)
                yield Start(f"HEFT in {rule}, with a replica in every slot", more)


def _parts(problem: NumberedSet) -> dict[str, list[int]]:
    """Return some of the slots, by what they have in common."""
    usable = [n for n in range(len(problem.slots)) if problem.work.holds[:, n].any()]
    free = [n for n in usable if not problem.paid[n]]
    paid = [n for n in usable if problem.paid[n]]
    parts = {"every slot without cost": free, "every slot": [*free, *paid], "the cloud": paid}
    if not (free and paid):
        del parts["every slot"]
    for site in sorted({problem.slots[n].site for n in free})[:_MOST_SITES]:
        parts[f"every slot of {site}"] = [n for n in free if problem.slots[n].site == site]
    surest = sorted(free, key=lambda n: -problem.slots[n].curve.best)[:_MOST_SINGLE]
    for n in (*surest, *sorted(paid, key=lambda n: problem.slots[n].price_usd_per_hour)[:1]):
        parts[problem.slots[n].id] = [n]
    return {rule: slots for rule, slots in parts.items() if slots}


def _whole_replicas(
    problem: NumberedSet, parts: Mapping[str, Sequence[int]], order: Sequence[int], plan: Plan
) -> Iterator[Start]:
    """Return plans with a whole replica of every workflow in every slot."""
    own = problem.orders_of(plan.placements, plan.uses, plan.spare_workflows)
    most = max(1, _MOST_EVERYWHERE // len(problem.workflow))
    draws = random.Random(problem.snapshot.seed)
    for rule, every in parts.items():
        slots = every[:most]
        yield Start(f"everything in {rule}", everywhere(problem, slots, order))
        if len(order) > 1 and len(slots) > 1:
            in_turn = everywhere(problem, slots, order, True)
            yield Start(f"everything in {rule}, in turn", in_turn)
            for _ in range(_SHUFFLED if rule in _WIDEST else 0):
                shuffled = everywhere(problem, slots, order, draws=draws)
                yield Start(f"everything in {rule}, in a random order", shuffled)
            if plan.placements and rule in _WIDEST:
                yield Start(f"{OWN}, with a replica in {rule}", joined(own, in_turn))
    if "every slot" in parts:
        free = everywhere(problem, parts["every slot without cost"][:most], order)
        needed = order[: problem.snapshot.workflow_set.needed]
        cloud = single_replicas(problem, parts["the cloud"], needed)
        yield Start("every slot without cost, then the cloud", joined(free, cloud))


def brief_starts(problem: NumberedSet, plans: Sequence[Plan]) -> Iterator[Start]:
    """Return these plans, and those with a whole replica of every workflow in every slot."""
    yield from earlier_plans(problem, plans)
    most, order = max(1, _MOST_EVERYWHERE // len(problem.workflow)), _order(problem)
    for rule, slots in list(_parts(problem).items())[:2]:
        yield Start(f"everything in {rule}", everywhere(problem, slots[:most], order, True))


def _order(problem: NumberedSet) -> list[int]:
    """Return the workflows, the shortest first."""
    names = {w.name: n for n, w in enumerate(problem.workflows)}
    return [names[name] for name in problem.snapshot.by_length]


def random_plans(problem: NumberedSet, draws: random.Random) -> Iterator[Start]:
    """Return plans with one or two replicas of each task in any slots, for sets that no rule
    places."""
    kinds = [np.flatnonzero(holds).tolist() for holds in problem.work.holds]
    slots = [kinds[kind] for kind in problem.work.kind.tolist()]
    if not all(slots) or len(slots) > _MOST_RANDOM:
        return
    flows = list(range(len(problem.workflows)))
    for _ in range(_RANDOM):
        draws.shuffle(flows)
        tasks = np.concatenate([problem.by_deadline[w] for w in flows])
        parts = [(t, n) for t in tasks.tolist() for n in _some(slots[t], draws)]
        chosen, where = (np.array(column) for column in zip(*parts, strict=True))
        yield Start("chance", _orders(problem, [chosen], [where]))


def _some(slots: Sequence[int], draws: random.Random) -> Sequence[int]:
    return draws.sample(slots, min(len(slots), 1 + (draws.random() < _TWICE)))


def earlier_plans(problem: NumberedSet, plans: Sequence[Plan]) -> Iterator[Start]:
    """Return these plans, the first of which is that of the phases."""
    for n, plan in enumerate(plans):
        if plan.placements:
            orders = problem.orders_of(plan.placements, plan.uses, plan.spare_workflows)
            yield Start(OWN if n == 0 else "another plan", orders)


def everywhere(
    problem: NumberedSet,
    slots: Sequence[int],
    order: Sequence[int],
    rotated: bool = False,
    draws: random.Random | None = None,
) -> Orders:
    """Return a whole replica of every workflow in every slot; ``rotated``: each slot begins with
    another workflow; ``draws``: in a random order in each slot."""
    tasks, where = [], []
    for turn, n in enumerate(slots):
        first = turn % len(order) if rotated else 0
        mine = [*order[first:], *order[:first]]
        for w in draws.sample(mine, len(mine)) if draws else mine:
            if problem.holds_workflow(w, n):
                tasks.append(problem.by_deadline[w])
                where.append(np.full(len(tasks[-1]), n))
    return _orders(problem, tasks, where)


def single_replicas(problem: NumberedSet, slots: Sequence[int], order: Sequence[int]) -> Orders:
    """Return one workflow in each slot, as far as slots hold them."""
    tasks, where, left = [], [], list(slots)
    for w in order:
        n = next((n for n in left if problem.holds_workflow(w, n)), None)
        if n is not None:
            left.remove(n)
            tasks.append(problem.by_deadline[w])
            where.append(np.full(len(tasks[-1]), n))
    return _orders(problem, tasks, where)


def joined(first: Orders, then: Orders) -> Orders:
    """Return the replicas of one plan and then those of another that are not in it."""
    present = set(zip(first.task.tolist(), first.slot.tolist(), strict=True))
    new = [
        (t, n) not in present for t, n in zip(then.task.tolist(), then.slot.tolist(), strict=True)
    ]
    return Orders(
        np.concatenate((first.task, then.task[new])),
        np.concatenate((first.slot, then.slot[new])),
        first.submits_s,
        first.spare_workflows,
    )


def _orders(problem: NumberedSet, tasks: Iterable[object], where: Iterable[object]) -> Orders:
    none = [np.zeros(0, np.int64)]
    return Orders(
        np.concatenate([*none, *tasks]),
        np.concatenate([*none, *where]),
        np.zeros(len(problem.slots)),
        EVERYTHING,
    )


def _heft(problem: NumberedSet, slots: Sequence[int], share: float) -> Orders | None:
    draft, offered = Draft(problem.snapshot), [problem.slots[n] for n in slots]
    for name in problem.snapshot.by_length:
        place_heft(draft, name, offered, share)
    if not draft.placements:
        return None
    return problem.orders_of(draft.placements, (), EVERYTHING)
