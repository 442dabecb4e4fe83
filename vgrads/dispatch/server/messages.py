"""Answers of the dispatcher to its agents, as JSON (``docs/dispatch.md``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from vgrads.bags.bag import BagSpec
from vgrads.dispatch.core.faults import serving
from vgrads.dispatch.core.protocol import AgentReply, Files
from vgrads.dispatch.core.state import State
from vgrads.exchange.messages import HEARTBEAT_S
from vgrads.exchange.values import Message
from vgrads.kernel.errors import InputError


def check_tasks(message: Message, state: State) -> None:
    """Raise InputError where an agent names a task that does not exist and so cannot be assigned,
    or reports an attempt that another agent has."""
    bags = state.bags
    named = [(bag, end.task, end.attempt) for bag, end in message.ends]
    named += message.returned
    named += [key for key, _ in message.running]
    for bag, task, attempt in named:
        if bag not in bags or task >= len(bags[bag].tasks):
            raise InputError(f"names task {task} of bag {bag}, which does not exist")
        for number in bags[bag].tasks.agents_of(task):
            agent = state.agents[number]
            if agent.assigned.get((bag, task)) == attempt and agent.id != message.agent:
                raise InputError(f"reports task {task} of bag {bag}, which another agent has")


def write(
    seq: int,
    answer: AgentReply,
    bags: Mapping[int, BagSpec],
    files: Callable[[int, int], Files | None],
    idle_s: float | None,
    again_s: float = 0.0,
) -> bytes:
    """Encode an answer as JSON. ``files``: of a task, where it declares any."""
    payload: dict[str, Any] = {"seq": seq}
    if answer.give:
        payload["give"] = [_order(triple, bags, files) for triple in answer.give]
    if answer.new_bags:
        payload["bags"] = {str(number): _make_rules(bags[number]) for number in answer.new_bags}
        payload["idle_s"], payload["beat_s"] = idle_s, HEARTBEAT_S
    if answer.evict:
        payload["recall"] = answer.evict
    if answer.cancel:
        payload["cancel"] = answer.cancel
    if answer.drain:
        payload["drain"] = True
    if answer.stop:
        payload["stop"] = True
    if again_s:
        payload["again_s"] = again_s
    return json.dumps(payload).encode()


def _order(
    triple: tuple[int, int, int],
    bags: Mapping[int, BagSpec],
    files: Callable[[int, int], Files | None],
) -> list[Any]:
    bag, task, attempt = triple
    # an exception of its commands fails this bag alone
    with serving(bag):
        order: list[Any] = [bag, task, attempt, bags[bag].commands.command(task)]
        declared = files(bag, task)
    return order if declared is None else [*order, dict(declared.inputs), list(declared.outputs)]


def _make_rules(bag: BagSpec) -> dict[str, Any]:
    return {
        **({"python": bag.python} if bag.python else {}),
        "procs": bag.procs,
        "memory_mib": bag.memory_mib,
        "limit_s": bag.limit_s,
        "env": dict(bag.env),
        "output_bytes": bag.output_bytes,
        "pass_env": list(bag.pass_env),
        "account": bag.account,
    }
