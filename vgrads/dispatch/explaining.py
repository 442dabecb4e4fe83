"""Why a host does not get a task: the first thing that stands against it, with what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from vgrads.bags.record import BARRED_AT
from vgrads.dispatch.core.advertising import bag_ad, queue_ad
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.copies import stands_in_tail
from vgrads.dispatch.core.faults import serving
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import WORDS
from vgrads.policies.policy import Policy, Verdict

_SAMPLE = 50
_OFTEN = 10
_SLOTS = ("JobRequirements", "Concurrency")


@dataclass(frozen=True, slots=True)
class Reason:
    """What stands against it, in words; ``slot``: of the policy, with its ``expression`` and the
    ``values`` it read."""

    words: str
    slot: str = ""
    expression: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


def look_at_tails(core: Core) -> None:
    """Which bags are in their tail, for a core that only explains."""
    board = core.board
    for bag in board.serving:
        rules = board.bags.get(bag.number)
        if rules is not None and stands_in_tail(board, bag, rules):
            board.tails.add(bag.number)


def why_not(core: Core, host: Host, bag: BagState, task: int, now_s: float) -> list[Reason]:
    """What keeps a task from a host; empty where it may have it when its turn comes."""
    return list(_reasons(core, host, bag, task, now_s))


def unserved(core: Core, grids: Sequence[Mapping[str, object]], now_s: float) -> dict[int, str]:
    """Bags (number) whose policies keep them from every host, or from every grid (its ad), and by
    what, in words."""
    hosts = [host for host in core.state.hosts.values() if host.here and not host.leaving][:_SAMPLE]
    found = {}
    for bag in core.serving:
        rules = core.bags.get(bag.number)
        if rules is None or rules.policy is None:
            continue
        with serving(bag.number):
            why = _why_unserved(core, rules.policy, bag, hosts, grids, now_s)
        if why:
            found[bag.number] = why
    return found


def _why_unserved(
    core: Core,
    policy: Policy,
    bag: BagState,
    hosts: Sequence[Host],
    grids: Sequence[Mapping[str, object]],
    now_s: float,
) -> str:
    late = _too_late(bag) if policy.has("Deadline") else ""
    if not bag.tasks.pending or bag.tasks.where:
        return late
    fit = [
        host
        for host in hosts
        if host.procs >= bag.procs and (not bag.sites or host.site in bag.sites)
    ]
    against = _by_no_host(core, fit, bag, now_s) if fit else _by_no_grid(core, grids, bag)
    if against is None:
        return late
    return f"none of the {'hosts' if fit else 'grids'} is wanted, {_shown(against)}"


def _too_late(bag: BagState) -> str:
    """A task that goes from host to host since none is done with it before its Deadline; empty
    where none is seen."""
    tasks = bag.tasks
    for task in islice(tasks.where, _SAMPLE):
        ended = tasks.failures.get(task, 0) + tasks.losses.get(task, 0)
        if tasks.attempts[task] - ended > _OFTEN:
            return (
                f"task {task} was given out {tasks.attempts[task]} times and has not ended: is "
                "its Deadline too short?"
            )
    return ""


def _by_no_host(core: Core, hosts: Sequence[Host], bag: BagState, now_s: float) -> Verdict | None:
    """What keeps a bag from the first of these hosts; None where one may serve it."""
    choosing = core.choosing
    if any(choosing.serves(host, bag.number) for host in hosts):
        return None
    verdicts = choosing.verdicts(hosts[0], bag, bag.tasks.next(1)[0], now_s)
    return next((v for v in verdicts if v.slot in _SLOTS and not v.counts), None)


def _by_no_grid(core: Core, grids: Sequence[Mapping[str, object]], bag: BagState) -> Verdict | None:
    """What keeps a bag from the first of the grids it may use; None where it is fit for one, or
    there is none."""
    policy = core.bags[bag.number].policy
    fit = [grid for grid in grids if not bag.sites or grid["Name"] in bag.sites]
    if policy is None or not policy.has("GridPolicy"):
        return None
    if any(core.choosing.fits(bag.number, grid) for grid in fit):
        return None
    state, queue = bag_ad(bag, bag.number in core.board.tails), queue_ad(core.board)
    return next((policy.explain("GridPolicy", state, queue=queue, grid=grid) for grid in fit), None)


def _shown(verdict: Verdict) -> str:
    values = ", ".join(f"{name} = {_word(value)}" for name, value in verdict.values)
    told = f"{verdict.slot} = {verdict.expression}"
    return f"{told} [{values}]" if values else told


def _reasons(core: Core, host: Host, bag: BagState, task: int, now_s: float) -> Iterator[Reason]:
    if bag.tasks.status[task] > 1:
        yield Reason(f"the task is {WORDS[bag.tasks.status[task]]}")
        return
    if (bag.number, task) in host.held:
        yield Reason("it has it")
        return
    yield from _of_host(core, host, now_s)
    if bag.procs > host.procs:
        yield Reason(f"it has {host.procs} processors, the task needs {bag.procs}")
    if bag.sites and host.site not in bag.sites:
        yield Reason(f"it is at {host.site}, the bag wants {', '.join(bag.sites)}")
    left_s, takes_s = host.ends_s - now_s, bag.stated_s or bag.typical_s or 0.0
    if takes_s > left_s:
        yield Reason(f"its time is over in {left_s:.0f} s, the task takes about {takes_s:.0f} s")
    if bag.failover and host.site not in bag.failover and bag.tasks.failures.get(task):
        yield Reason(f"the task has failed and goes to {', '.join(bag.failover)}")
    yield from _of_policy(core, host, bag, task, now_s)
    if bag.tasks.where.get(task) is not None and task not in core.board.copies.get(bag.number, ()):
        yield Reason("another host has it, and no copy is wanted")


def _of_host(core: Core, host: Host, now_s: float) -> Iterator[Reason]:
    if not host.here:
        yield Reason("it is gone")
    if host.leaving:
        yield Reason(f"it leaves: {host.leaving}")
    record = core.board.record(host)
    odds = core.blackholes.odds(host, record) if record.blows else 0.0
    if record.pauses and now_s < record.barred_until_s and odds > BARRED_AT:
        yield Reason(
            f"it is barred for {record.barred_until_s - now_s:.0f} s more: its last "
            f"{len(record.blows)} tasks failed at once, "
            "and others do them"
        )


def _of_policy(core: Core, host: Host, bag: BagState, task: int, now_s: float) -> Iterator[Reason]:
    choosing = core.choosing
    for verdict in choosing.verdicts(host, bag, task, now_s):
        if verdict.slot == "JobRequirements" and verdict.value is not True:
            yield _told(
                f"the bag does not want it: JobRequirements is {_word(verdict.value)}", verdict
            )
        elif verdict.slot == "Concurrency" and len(host.held) >= verdict.counts:
            yield _told(
                f"it has {len(host.held)} tasks, and Concurrency is {verdict.counts}", verdict
            )
        elif verdict.slot == "Rank":
            first = next(choosing.offers(host, now_s), None)
            if first is not None and first.bag is not bag and first.rank > verdict.counts:
                yield _told(
                    (
                        f"bag {first.bag.name} comes first: it ranks this host {first.rank:g}, "
                        f"this one {verdict.counts:g}"
                    ),
                    verdict,
                )


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else getattr(value, "value", str(value))


def _told(words: str, verdict: Verdict) -> Reason:
    values = {name: value if _is_plain(value) else _word(value) for name, value in verdict.values}
    return Reason(words, verdict.slot, verdict.expression, values)


def _is_plain(value: object) -> bool:
    return isinstance(value, bool | int | float | str)
