"""Plans from which the search begins: the first plan, and rules that anybody could follow."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vgrads.kernel.units import format_count
from vgrads.planner.effort import Effort
from vgrads.planner.plan import EVERYTHING, Plan
from vgrads.planner.search.orders import NumberedSet, Orders, place_each_first

OWN = "the four phases"
_PER_SLOT = 5  # steps of the plain form of HEFT
_PRESUMED = (0.0, 0.5)  # shares of its probability with which a slot is ready
_READY = (0.0, 0.25, 0.5, 0.75)
_TWICE = 0.3  # share of tasks with two replicas in a random plan
_WIDEST, _SHUFFLED = ("every slot without cost", "every slot"), 8  # random orders in these
_RANDOM, _MOST_RANDOM = 3_000, 60  # random plans, and tasks up to which they are tried
_AGAIN = 50  # random plans in a row that were drawn before
_PER_DRAW, _PER_TASK = 500, 10  # effort of a random plan, and for each of its tasks
_MOST_SITES, _MOST_SINGLE = 4, 4
_COUNTS = (1, 2, 3)  # replicas of each workflow
_FEW = (2, 3, 5)  # surest slots, that may do alone
_MOST_EVERYWHERE = 20_000  # tasks times slots in which they are placed everywhere


class Start(NamedTuple):
    """A plan and the rule that made it."""

    rule: str
    orders: Orders


def starting_plans(problem: NumberedSet, plans: Sequence[Plan]) -> Iterator[Start]:
    """Return the plans from which the search begins, the given ones first."""
    yield from earlier_plans(problem, plans)
    parts, order = _list_parts(problem), _order(problem)
    yield from _make_whole_replicas(problem, parts, order)
    yield from _make_heft_plans(problem, parts)


def sure_plans(problem: NumberedSet, plan: Plan) -> Iterator[Start]:
    """Return plans with many replicas, for requests that no other start reaches."""
    parts, order = _list_parts(problem), _order(problem)
    yield from _make_in_other_orders(problem, parts, order, plan)
    widest = _select_widest(problem, next(iter(parts.values()), []))
    replicas = spread(problem, widest, order, len(widest))
    for rule, orders in _make_heft_plans(problem, parts):
        yield Start(f"{rule}, with a replica in every slot", joined(orders, replicas))


def _make_heft_plans(problem: NumberedSet, parts: Mapping[str, Sequence[int]]) -> Iterator[Start]:
    for rule in (*_WIDEST, "the cloud"):
        for share in _READY if rule in parts else ():
            orders = heft(problem, parts[rule], share)
            if orders is not None:
                yield Start(f"HEFT in {rule}, ready with {share:g}", orders)


def _list_parts(problem: NumberedSet) -> dict[str, list[int]]:
    """Return some of the slots, by what they have in common."""
    usable = [n for n in range(len(problem.slots)) if problem.work.holds[:, n].any()]
    free = [n for n in usable if not problem.paid[n]]
    paid = [n for n in usable if problem.paid[n]]
    parts = {"every slot without cost": free, "every slot": [*free, *paid], "the cloud": paid}
    # with one kind of slots it would be the same as another part
    if not (free and paid):
        del parts["every slot"]
    for site in sorted({problem.slots[n].site for n in free})[:_MOST_SITES]:
        parts[f"every slot of {site}"] = [n for n in free if problem.slots[n].site == site]
    half_s = problem.snapshot.workflow_set.deadline_s / 2
    surest = sorted(free, key=lambda n: -problem.slots[n].curve.by(half_s) * problem.slots[n].up)
    for count in _FEW:
        if count < len(free):
            parts[f"the surest {format_count(count, 'slot')}"] = surest[:count]
    for n in (
        *surest[:_MOST_SINGLE],
        *sorted(paid, key=lambda n: problem.slots[n].price_usd_per_hour)[:1],
    ):
        parts[problem.slots[n].id] = [n]
    return {rule: slots for rule, slots in parts.items() if slots}


def _select_widest(problem: NumberedSet, slots: Sequence[int]) -> Sequence[int]:
    """Return as many of these slots as a replica of everything in each of them allows."""
    return slots[: max(1, _MOST_EVERYWHERE // len(problem.workflow))]


def _make_whole_replicas(
    problem: NumberedSet, parts: Mapping[str, Sequence[int]], order: Sequence[int]
) -> Iterator[Start]:
    """Return plans with some whole replicas of every workflow, or of the needed ones."""
    needed = order[: problem.snapshot.workflow_set.needed]
    chosen = {"every workflow": order, "the needed workflows": needed}
    for rule, every in parts.items():
        slots = _select_widest(problem, every)
        for count in sorted({*(c for c in _COUNTS if c < len(slots)), len(slots)}, reverse=True):
            for which, workflows in chosen.items():
                if which == "every workflow" or workflows != order:
                    name = f"{format_count(count, 'replica')} of {which} in {rule}"
                    orders = spread(problem, slots, workflows, count)
                    yield Start(name, orders)
                    for share in _PRESUMED if count == len(slots) else ():
                        in_time = _trim_to_time(problem, orders, share)
                        yield Start(f"{name}, as far as in time from {share:g}", in_time)
    if "every slot" in parts:
        free = _select_widest(problem, parts["every slot without cost"])
        everything = spread(problem, free, order, len(free))
        cloud = spread(problem, parts["the cloud"], needed, 1)
        yield Start("every slot without cost, then the cloud", joined(everything, cloud))


def _make_in_other_orders(
    problem: NumberedSet, parts: Mapping[str, Sequence[int]], order: Sequence[int], plan: Plan
) -> Iterator[Start]:
    """Return plans with a replica of every workflow in every slot, in other orders than by
    turns."""
    own = problem.orders_of(plan.placements, plan.uses, plan.spare_workflows)
    draws = random.Random(problem.snapshot.seed)
    for rule, every in parts.items():
        slots = _select_widest(problem, every)
        yield Start(f"everything in {rule}", everywhere(problem, slots, order))
        if rule in _WIDEST and len(order) > 1 and len(slots) > 1:
            for _ in range(_SHUFFLED):
                shuffled = everywhere(problem, slots, order, draws)
                yield Start(f"everything in {rule}, in a random order", shuffled)
        if rule in _WIDEST and plan.placements:
            in_turn = spread(problem, slots, order, len(slots))
            yield Start(f"{OWN}, with a replica in {rule}", joined(own, in_turn))


def brief_starts(problem: NumberedSet, plans: Sequence[Plan]) -> Iterator[Start]:
    """Return these plans, and those with a whole replica of every workflow in every slot."""
    yield from earlier_plans(problem, plans)
    order = _order(problem)
    for rule, every in list(_list_parts(problem).items())[:2]:
        slots = _select_widest(problem, every)
        yield Start(f"everything in {rule}", spread(problem, slots, order, len(slots)))


def _order(problem: NumberedSet) -> list[int]:
    """Return the workflows, the shortest first."""
    names = {w.name: n for n, w in enumerate(problem.workflows)}
    return [names[name] for name in problem.snapshot.by_length]


def random_plans(problem: NumberedSet, draws: random.Random, effort: Effort) -> Iterator[Start]:
    """Return plans with one or two replicas of each task in any slots, for sets that no rule
    places: each once, until effort is used up or nearly all that there are were drawn."""
    kinds = [np.flatnonzero(holds).tolist() for holds in problem.work.holds]
    slots = [kinds[kind] for kind in problem.work.kind.tolist()]
    if not all(slots) or len(slots) > _MOST_RANDOM:
        return
    flows = list(range(len(problem.workflows)))
    drawn, again = set[tuple[tuple[int, int], ...]](), 0
    for _ in range(_RANDOM):
        draws.shuffle(flows)
        tasks = np.concatenate([problem.by_deadline[w] for w in flows])
        parts = tuple((t, n) for t in tasks.tolist() for n in _select_some(slots[t], draws))
        again = again + 1 if parts in drawn else 0
        if again > _AGAIN or not effort.spend(_PER_DRAW + _PER_TASK * len(tasks)):
            return
        if again:
            continue
        drawn.add(parts)
        chosen, where = (np.array(column) for column in zip(*parts, strict=True))
        orders = _list_orders(problem, [chosen], [where])
        if problem.place(orders) is not None:
            yield Start("chance", orders)


def _select_some(slots: Sequence[int], draws: random.Random) -> Sequence[int]:
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
    draws: random.Random | None = None,
) -> Orders:
    """Return a whole replica of every workflow in every slot, in this order or a random one."""
    mine = [draws.sample(order, len(order)) if draws else order for _ in slots]
    return _place_whole(problem, zip(slots, mine, strict=True))


def spread(
    problem: NumberedSet, slots: Sequence[int], order: Sequence[int], replicas: int
) -> Orders:
    """Return so many whole replicas of every workflow, in successive slots; each slot begins with
    another workflow."""
    turns = [(n, [*order[n % len(order) :], *order[: n % len(order)]]) for n in range(len(slots))]
    at = {w: n for n, w in enumerate(order)}
    return _place_whole(
        problem,
        ((slots[n], [w for w in mine if (n - at[w]) % len(slots) < replicas]) for n, mine in turns),
    )


def _trim_to_time(problem: NumberedSet, orders: Orders, share: float) -> Orders:
    """Return a plan without what a slot has of a workflow if that would be too late, were slots
    ready with this share of their probability."""
    begin_s = np.array([slot.curve.reaches_s(share) for slot in problem.slots])
    late = problem.starts_s(orders, begin_s) == np.inf
    pairs = problem.pairs(orders)
    return orders.only(~np.isin(pairs, pairs[late]))


def _place_whole(problem: NumberedSet, chosen: Iterable[tuple[int, Sequence[int]]]) -> Orders:
    """Return whole replicas of workflows in slots, as far as these hold them."""
    pairs = [(w, n) for n, mine in chosen for w in mine if problem.holds_workflow(w, n)]
    tasks = [problem.by_deadline[w] for w, _ in pairs]
    where = [np.full(len(here), n) for here, (_, n) in zip(tasks, pairs, strict=True)]
    return _list_orders(problem, tasks, where)


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


def _list_orders(problem: NumberedSet, tasks: Iterable[object], where: Iterable[object]) -> Orders:
    none = [np.zeros(0, np.int64)]
    return Orders(
        np.concatenate([*none, *tasks]),
        np.concatenate([*none, *where]),
        np.zeros(len(problem.slots)),
        EVERYTHING,
    )


def heft(problem: NumberedSet, every: Sequence[int], share: float) -> Orders | None:
    """Return one replica of each task, where it ends first, if slots are ready with this share of
    their probability; None if no workflow fits."""
    mine = [problem.by_deadline[w] for w in _order(problem)]
    task, first = np.concatenate(mine), np.cumsum([0, *map(len, mine)])
    slots, where = np.array(_select_widest(problem, every)), np.full(len(task), -1)
    begin_s = np.array([slot.curve.reaches_s(share) for slot in problem.slots])
    act = place_each_first.after(_PER_SLOT * len(task) * len(slots))
    act(problem.work, task, first, slots, begin_s, where)
    chosen = where >= 0
    return _list_orders(problem, [task[chosen]], [where[chosen]]) if chosen.any() else None
