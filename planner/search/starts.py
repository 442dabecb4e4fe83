"""Starting plans of the search that need no phases: rules that anybody could follow, as contents of
slots (:mod:`vgrads.planner.search.whole`), and replicas added to an existing plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from vgrads.kernel.profile import Profile
from vgrads.planner.plan import Placement
from vgrads.planner.search.trials import Placements, slot_uses
from vgrads.planner.search.whole import Contents, WholeReplicas
from vgrads.vgrid.slot import Slot

_MOST_PLACEMENTS = 20_000
"""Tasks times slots up to which plans with a replica everywhere are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A starting plan and the rule that made it."""

    rule: str
    placements: Placements
    quantile: float


def starting_plans(whole: WholeReplicas) -> Iterator[Start]:
    """Return the plans of all rules within the budget; none for sets that are too large."""
    snapshot = whole.snapshot
    tasks = snapshot.workflow_set.task_count
    if tasks * len(snapshot.slots) > _MOST_PLACEMENTS:
        return
    free = [s for s in snapshot.slots if not s.paid]
    paid = [s for s in snapshot.slots if s.paid]
    parts: list[tuple[str, Sequence[Slot], Sequence[Slot]]] = [
        ("a replica in every slot without cost", free, ()),
        ("the cloud alone", (), paid),
    ]
    if free and paid:
        parts.append(("a replica in every slot", free, paid))
    sites = sorted({slot.site for slot in free})
    for site in sites if len(sites) > 1 else ():
        mine = [slot for slot in free if slot.site == site]
        parts.append((f"a replica in every slot of {site}", mine, ()))
    for rule, some, bought in parts:
        yield from _everywhere(whole, (rule, some, bought))
    if paid:
        yield from _then_cloud(whole, (free, paid))


def _everywhere(
    whole: WholeReplicas, part: tuple[str, Sequence[Slot], Sequence[Slot]]
) -> Iterator[Start]:
    """Every workflow in every slot, in the order that makes the promise most probable."""
    rule, free, paid = part
    names = whole.snapshot.by_length
    all_free = {s.id: names for s in free if s.curve.reaches_s(0.0) < float("inf")}
    contents = _affordable(whole, all_free, paid)
    if contents:
        best = whole.ordered(contents)
        for chosen in (contents, best) if best != contents else (contents,):
            placements = whole.placements(chosen)
            if placements:
                yield Start(rule=rule, placements=placements, quantile=whole.snapshot.quantile)


def _affordable(whole: WholeReplicas, contents: Contents, paid: Sequence[Slot]) -> Contents:
    """Add every workflow in paid slots, the most valuable per dollar first, within the budget."""
    names, by_id = whole.snapshot.by_length, whole.snapshot.slot_by_id
    budget = whole.snapshot.workflow_set.most_usd
    if budget == float("inf"):
        return {**contents, **{s.id: names for s in paid}}
    done = [whole.done(by_id[slot], some) for slot, some in contents.items()]
    result, spent_usd, left = dict(contents), 0.0, _by_kind(paid)
    counts = sorted({*(2**n for n in range(len(names).bit_length())), len(names)})
    while True:
        options = []
        for kind in left:
            for count in counts:
                usd = kind[0].cost_usd(whole.schedule(kind[0], names[:count]).length_s)
                if usd > 0 and spent_usd + usd <= budget + 1e-9:
                    value = whole.value([*done, whole.done(kind[0], names[:count])])
                    options.append(((value, -usd), kind, count))
        if not options:
            return result
        (_, minus_usd), kind, count = max(options, key=itemgetter(0))
        slot = kind.pop(0)
        left = [others for others in left if others]
        spent_usd -= minus_usd
        result[slot.id] = names[:count]
        done = [whole.any_of([*done, whole.done(slot, names[:count])])]


def _by_kind(slots: Sequence[Slot]) -> list[list[Slot]]:
    """Return equal slots together."""
    kinds: defaultdict[object, list[Slot]] = defaultdict(list)
    for slot in slots:
        kinds[slot.site, slot.node_type, slot.queue, slot.procs, slot.price_usd_per_hour].append(
            slot
        )
    return list(kinds.values())


def _then_cloud(
    whole: WholeReplicas, slots: tuple[Sequence[Slot], Sequence[Slot]]
) -> Iterator[Start]:
    """Every workflow in every slot without cost, and as many as are needed also in paid slots, one
    in each, as late as they would be in time."""
    free, paid = slots
    snapshot = whole.snapshot
    contents = {s.id: snapshot.by_length for s in free if s.curve.reaches_s(0.0) < float("inf")}
    spent_usd, late = 0.0, set[str]()
    unused = list(paid)
    for name in snapshot.by_length[: snapshot.workflow_set.needed]:
        for slot in unused:
            length_s = whole.schedule(slot, (name,)).length_s
            usd = slot.cost_usd(length_s)
            if length_s > 0 and spent_usd + usd <= snapshot.workflow_set.most_usd + 1e-9:
                contents[slot.id], spent_usd = (name,), spent_usd + usd
                late.add(slot.id)
                unused.remove(slot)
                break
    if late:
        placements = whole.placements(contents, frozenset(late))
        yield Start(
            rule="slots without cost, then the cloud",
            placements=placements,
            quantile=whole.snapshot.quantile,
        )


def completed(whole: WholeReplicas, placements: Placements) -> Iterator[Start]:
    """Add a complete replica of every workflow to every slot in which it still fits; incomplete
    further replicas make room for complete ones."""
    first = tuple(p for p in placements if p.replica == 0)
    for rule, base in (
        ("the phases, with complete replicas", first),
        ("the phases, with further replicas", placements),
    ):
        slots = [s for s in whole.snapshot.slots if not s.paid]
        slots += [s for s in whole.snapshot.slots if s.paid]
        result, budget = base, whole.snapshot.workflow_set.most_usd
        for slot in slots:
            for name in whole.snapshot.by_length:
                more = with_replica(whole, result, slot, name)
                if more and (
                    not slot.paid
                    or budget == float("inf")
                    or sum(use.cost_usd for use in slot_uses(whole.snapshot, more)) <= budget
                ):
                    result = more
        if result != base:
            yield Start(rule=rule, placements=result, quantile=whole.snapshot.quantile)
        if base == placements:
            break


def with_replica(
    whole: WholeReplicas, placements: Placements, slot: Slot, name: str
) -> Placements | None:
    """Return the placements with a complete replica of a workflow in a slot, after those that are
    there; None if the slot has a part of it already or it does not end in time."""
    if not whole.fits(slot, name) or slot.curve.best <= 0:
        return None
    here = [p for p in placements if p.slot == slot.id]
    if any(p.workflow == name for p in here):
        return None
    profile = Profile(slot.procs, slot.end_s)
    for p in here:
        profile.add(p.start_s, p.end_s, p.procs)
    workflow, limit_s = whole.snapshot.workflow_by_name[name], min(slot.end_s, whole.deadline_s)
    for share in (0.75, 0.25, 0.0):
        rows = whole.placed(profile, workflow, slot, (slot.curve.reaches_s(share), limit_s))
        if rows:
            break
    else:
        return None
    numbers: defaultdict[str, int] = defaultdict(int)
    for p in placements:
        if p.workflow == name:
            numbers[p.task] = max(numbers[p.task], p.replica + 1)
    return placements + tuple(
        Placement(
            workflow=name,
            task=task_id,
            replica=numbers[task_id],
            slot=slot.id,
            start_s=start_s,
            end_s=end_s,
            procs=procs,
        )
        for task_id, start_s, end_s, procs in rows
    )
