"""Why an agent does not get a task: the first obstacle, with its evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from vgrads.bags.node_history import QUARANTINE_AT
from vgrads.dispatch.core.advertising import make_bag_ad, make_queue_ad
from vgrads.dispatch.core.assignment import find_suspect, is_suspect
from vgrads.dispatch.core.faults import serving
from vgrads.dispatch.core.replicas import has_tail_begun
from vgrads.dispatch.core.state import AgentState, BagState
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import WORDS
from vgrads.kernel.units import format_count
from vgrads.policies.policy import Policy, PolicyVerdict

_SAMPLE = 50
_OFTEN = 10
_SLOTS = ("JobRequirements", "Concurrency")


@dataclass(frozen=True, slots=True)
class RejectionReason:
    """The obstacle as a message; ``slot``: of the dispatch policy, with its ``expression`` and the
    ``values`` it read."""

    words: str
    slot: str = ""
    expression: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


def look_at_tails(core: Core) -> None:
    """Determine which bags are in their tail, for a core that only explains."""
    dispatch_index = core.dispatch_index
    for bag in dispatch_index.serving:
        rules = dispatch_index.bags.get(bag.number)
        if rules is not None and has_tail_begun(dispatch_index, bag, rules):
            dispatch_index.tails.add(bag.number)


def format_losses(bag: BagState, task: int) -> str:
    """Return how many agents a task has lost, as a clause."""
    count = bag.tasks.losses.get(task, 0)
    return f"{format_count(count, 'agent', 'were')} lost while running it, or could not run it"


def explain_refusal(
    core: Core, agent: AgentState, bag: BagState, task: int, now_s: float
) -> list[RejectionReason]:
    """Return why an agent does not get a task; empty where it may get it in its turn."""
    return list(_list_reasons(core, agent, bag, task, now_s))


def find_unserved(
    core: Core, grids: Sequence[Mapping[str, object]], now_s: float
) -> dict[int, str]:
    """Return bags (number) whose dispatch policies exclude them from every agent, or from every
    grid (its ad), and the reason as a message."""
    agents = [agent for agent in core.state.agents.values() if agent.here and not agent.leaving][
        :_SAMPLE
    ]
    reasons = {}
    for bag in core.serving:
        rules = core.bags.get(bag.number)
        if rules is None or rules.policy is None:
            continue
        with serving(bag.number):
            why = _explain_unserved(core, rules.policy, bag, agents, grids, now_s)
        if why:
            reasons[bag.number] = why
    return reasons


def _explain_unserved(
    core: Core,
    policy: Policy,
    bag: BagState,
    agents: Sequence[AgentState],
    grids: Sequence[Mapping[str, object]],
    now_s: float,
) -> str:
    late = _find_late_task(bag) if policy.has("Deadline") else ""
    # where tasks run, the policy accepts at least one agent
    if not bag.tasks.pending or bag.tasks.where:
        return late
    fit = [agent for agent in agents if bag.fits(agent)]
    against = (
        _explain_no_agent(core, fit, bag, now_s) if fit else _explain_no_grid(core, grids, bag)
    )
    if against is None:
        return late
    return (
        f"the policy accepts none of the {'hosts' if fit else 'grids'}, {_format_verdict(against)}"
    )


def _find_late_task(bag: BagState) -> str:
    """Return a task that moves between agents since none completes it before its Deadline; empty
    where none is detected."""
    tasks = bag.tasks
    for task in islice(tasks.where, _SAMPLE):
        ended = tasks.failures.get(task, 0) + tasks.losses.get(task, 0)
        if tasks.attempts[task] - ended > _OFTEN:
            return (
                f"task {task} was assigned {format_count(tasks.attempts[task], 'time')} and has "
                "not ended; check "
                "whether its Deadline is too short"
            )
    return ""


def _explain_no_agent(
    core: Core, agents: Sequence[AgentState], bag: BagState, now_s: float
) -> PolicyVerdict | None:
    """Return why the first of these agents does not serve a bag; None where one may serve it."""
    bag_selection = core.bag_selection
    if any(bag_selection.serves(agent, bag.number) for agent in agents):
        return None
    verdicts = bag_selection.verdicts(agents[0], bag, bag.tasks.next(1)[0], now_s)
    return next((v for v in verdicts if v.slot in _SLOTS and not v.counts), None)


def _explain_no_grid(
    core: Core, grids: Sequence[Mapping[str, object]], bag: BagState
) -> PolicyVerdict | None:
    """Return why the first usable grid does not fit a bag; None where one fits, or there is
    none."""
    policy = core.bags[bag.number].policy
    fit = [grid for grid in grids if not bag.sites or grid["Name"] in bag.sites]
    if policy is None or not policy.has("GridPolicy"):
        return None
    if any(core.bag_selection.fits(bag.number, grid) for grid in fit):
        return None
    state, queue = (
        make_bag_ad(bag, bag.number in core.dispatch_index.tails),
        make_queue_ad(core.dispatch_index),
    )
    return next((policy.explain("GridPolicy", state, queue=queue, grid=grid) for grid in fit), None)


def _format_verdict(verdict: PolicyVerdict) -> str:
    values = ", ".join(f"{name} = {_format_word(value)}" for name, value in verdict.values)
    text = f"{verdict.slot} = {verdict.expression}"
    return f"{text} [{values}]" if values else text


def _list_reasons(
    core: Core, agent: AgentState, bag: BagState, task: int, now_s: float
) -> Iterator[RejectionReason]:
    # beyond PENDING and ASSIGNED: it has ended, or is not ready
    if bag.tasks.status[task] > 1:
        yield RejectionReason(f"the task is {WORDS[bag.tasks.status[task]]}")
        return
    if (bag.number, task) in agent.assigned:
        yield RejectionReason("it has the task")
        return
    yield from _explain_agent(core, agent, now_s)
    if bag.procs > agent.procs:
        yield RejectionReason(
            f"it has {format_count(agent.procs, 'processor')}, the task needs {bag.procs}"
        )
    if bag.sites and agent.site not in bag.sites:
        yield RejectionReason(f"it is at {agent.site}, the bag requests {', '.join(bag.sites)}")
    left_s, takes_s = agent.ends_s - now_s, bag.stated_s or bag.typical_s or 0.0
    if takes_s > left_s:
        yield RejectionReason(
            f"its time ends in {left_s:.0f} s, the task takes about {takes_s:.0f} s"
        )
    if bag.failover and agent.site not in bag.failover and bag.tasks.failures.get(task):
        yield RejectionReason(f"the task has failed and may run only at {', '.join(bag.failover)}")
    yield from _explain_policy(core, agent, bag, task, now_s)
    elsewhere = bag.tasks.where.get(task) is not None
    if is_suspect(bag, task) and (elsewhere or agent.assigned):
        yield RejectionReason(
            f"{format_losses(bag, task)}; so it runs alone and without replicas, and "
            + ("another agent has it" if elsewhere else "this agent has other tasks")
        )
    elif elsewhere and task not in core.dispatch_index.replicas.get(bag.number, ()):
        yield RejectionReason("another agent has the task, and no replica is requested")


def _explain_agent(core: Core, agent: AgentState, now_s: float) -> Iterator[RejectionReason]:
    if not agent.here:
        yield RejectionReason("it has left")
    if agent.leaving:
        yield RejectionReason(f"it is leaving: {agent.leaving}")
    if suspect := find_suspect(core.state, agent):
        bag, task = suspect
        yield RejectionReason(
            f"it runs task {task} of bag {bag.name} alone: {format_losses(bag, task)}"
        )
    record = core.dispatch_index.record(agent)
    odds = core.blackholes.odds(agent, record) if record.quick_failures else 0.0
    if record.pauses and now_s < record.quarantined_until_s and odds > QUARANTINE_AT:
        yield RejectionReason(
            f"it is quarantined for {record.quarantined_until_s - now_s:.0f} s more: its last "
            f"{format_count(len(record.quick_failures), 'task')} failed at once, "
            "but tasks of the same bag run on other agents"
        )


def _explain_policy(
    core: Core, agent: AgentState, bag: BagState, task: int, now_s: float
) -> Iterator[RejectionReason]:
    bag_selection = core.bag_selection
    for verdict in bag_selection.verdicts(agent, bag, task, now_s):
        if verdict.slot == "JobRequirements" and verdict.value is not True:
            yield _format_reason(
                f"the bag rejects it: JobRequirements is {_format_word(verdict.value)}", verdict
            )
        elif verdict.slot == "Concurrency" and len(agent.assigned) >= verdict.counts:
            yield _format_reason(
                f"it has {format_count(len(agent.assigned), 'task')}, and Concurrency is "
                f"{verdict.counts}",
                verdict,
            )
        elif verdict.slot == "Rank":
            first = next(bag_selection.offers(agent, now_s), None)
            if first is not None and first.bag is not bag and first.rank > verdict.counts:
                yield _format_reason(
                    (
                        f"bag {first.bag.name} comes first: it ranks this agent {first.rank:g}, "
                        f"this bag {verdict.counts:g}"
                    ),
                    verdict,
                )


def _format_word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else getattr(value, "value", str(value))


def _format_reason(words: str, verdict: PolicyVerdict) -> RejectionReason:
    values = {
        name: value if _is_plain(value) else _format_word(value) for name, value in verdict.values
    }
    return RejectionReason(words, verdict.slot, verdict.expression, values)


def _is_plain(value: object) -> bool:
    return isinstance(value, bool | int | float | str)
