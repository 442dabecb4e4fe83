"""A dispatcher's state as one value for storage, and back: the start of a truncated journal."""

from __future__ import annotations

import zlib
from array import array
from typing import Any

import msgpack

from vgrads.bags.node_history import NodeHistory
from vgrads.dispatch.core.events import GoalChanged, as_json, from_json
from vgrads.dispatch.core.state import AgentState, BagState, Owner, State, decode_exits, decode_slot
from vgrads.dispatch.core.tasks import TaskColumns
from vgrads.kernel.earlier_versions import UNREADABLE
from vgrads.kernel.errors import InputError
from vgrads.workflows.generated.lazy import lazy_of

VERSION = 3
EARLIER_JOURNAL = f"was written by vgrads 0.3.0.dev0 or before, {UNREADABLE}"
_BAG = (
    "number",
    "name",
    "owner",
    "weight",
    "procs",
    "retries",
    "sites",
    "failover",
    "open",
    "cancelled",
    "typical_s",
    "stated_s",
    "had",
    "came_s",
    "first_s",
    "ended_s",
    "ran_s",
    "tried_again",
    "copied",
    "tail",
    "right",
    "wrong",
    "fault",
    "why_closed",
    "retried",
    "reused",
)
_AGENT = (
    "number",
    "id",
    "slot",
    "node",
    "procs",
    "memory_mib",
    "name",
    "site",
    "machine",
    "incarnation",
    "here",
    "busy_procs",
    "joined_s",
    "idle_since_s",
    "ends_s",
    "leaving",
    "done",
    "failed",
    "lost",
    "revoked",
    "attributes",
)


def take_snapshot(state: State) -> dict[str, Any]:
    """Return a copy of the whole state, so that the state may change afterwards."""
    return {
        "version": VERSION,
        "now_s": state.now_s,
        "owners": {name: owner.had for name, owner in state.owners.items()},
        "slots": {name: slot.as_json() for name, slot in state.slots.items()},
        "records": {machine: list(record) for machine, record in state.records.items()},
        "orders": {
            bag.number: dict(bag.tasks.order.as_json())
            for bag in state.bags.values()
            if bag.tasks.order is not None
        },
        "goals": {bag.number: _select_goal_part(bag) for bag in state.bags.values()},
        "bags": [
            [getattr(bag, name) for name in _BAG] + _pack_columns(bag.tasks)
            for bag in state.bags.values()
        ],
        "agents": [
            [getattr(agent, name) for name in _AGENT]
            + [
                [[*key, attempt] for key, attempt in agent.assigned.items()],
                sorted(agent.past_incarnations),
            ]
            for agent in state.agents.values()
        ],
    }


def _select_goal_part(bag: BagState) -> dict[str, Any]:
    """Return what decides about the goal of a bag; snapshots of earlier versions do not have it."""
    return {
        "shortest_s": bag.shortest_s,
        "exits": bag.exits.as_json(),
        "changes": [as_json(change)[1] for change in bag.goal_changes],
    }


def _restore_goal_part(bag: BagState, part: dict[str, Any]) -> None:
    bag.shortest_s = part.get("shortest_s")
    bag.exits = decode_exits(part.get("exits", ()))
    bag.goal_changes = [_build_goal_change(fields) for fields in part.get("changes", ())]


def _build_goal_change(fields: dict[str, Any]) -> GoalChanged:
    change = from_json("goal", fields)
    assert isinstance(change, GoalChanged)
    return change


def _pack_columns(tasks: TaskColumns) -> list[Any]:
    return [
        bytes(tasks.status),
        tasks.attempts.tobytes(),
        array("I", tasks.where).tobytes(),
        array("I", tasks.where.values()).tobytes(),
        {t: list(h) for t, h in tasks.replicas.items()},
        dict(tasks.failures),
        dict(tasks.losses),
        dict(tasks.blamed),
    ]


def restore_state(snapshot: dict[str, Any]) -> State:
    """Return the state of a snapshot. Raise InputError for another version."""
    if snapshot.get("version") in (1, 2):
        raise InputError(EARLIER_JOURNAL, where="journal")
    if snapshot.get("version") != VERSION:
        raise InputError(
            f"has version {snapshot.get('version')}; this vgrads reads version {VERSION}",
            where="journal",
        )
    state = State(now_s=snapshot["now_s"])
    state.slots = {name: decode_slot(name, slot) for name, slot in snapshot["slots"].items()}
    state.owners = {name: Owner(had) for name, had in snapshot["owners"].items()}
    for machine, (*fields, quick_failures, longest_s, pauses, until_s) in snapshot[
        "records"
    ].items():
        observed = tuple((bag, task) for bag, task in quick_failures)
        state.records[machine] = NodeHistory._make([*fields, observed, longest_s, pauses, until_s])
    for stored in snapshot["bags"]:
        # not strict: the columns of the tasks follow the fields of the bag
        fields = dict(zip(_BAG, stored, strict=False))
        # msgpack returns lists, but these values are part of cache keys
        fields["sites"], fields["failover"] = tuple(fields["sites"]), tuple(fields["failover"])
        order = snapshot["orders"].get(fields["number"])
        tasks = TaskColumns(0, lazy_of(order) if order else None)
        status, attempts, assigned, at, replicas, failures, losses, blamed = stored[len(_BAG) :]
        where = dict(zip(array("I", assigned), array("I", at), strict=True))
        tasks.restore(status, attempts, where, replicas)
        tasks.failures, tasks.losses, tasks.blamed = failures, losses, blamed
        bag = state.bags[fields["number"]] = BagState(tasks=tasks, **fields)
        _restore_goal_part(bag, snapshot.get("goals", {}).get(bag.number, {}))
    for stored in snapshot["agents"]:
        agent = AgentState(**dict(zip(_AGENT, stored, strict=False)))
        reserved, past_incarnations = stored[len(_AGENT) :]
        agent.assigned = {(bag, task): attempt for bag, task, attempt in reserved}
        agent.past_incarnations = set(past_incarnations)
        state.agents[agent.number], state.by_id[agent.id] = agent, agent.number
    return state


def pack_snapshot(snapshot: dict[str, Any]) -> bytes:
    """Encode a snapshot as bytes."""
    # the fastest level: it is packed in the event loop, while agents wait for answers
    return zlib.compress(msgpack.packb(snapshot), 1)


def unpack_snapshot(body: bytes) -> dict[str, Any]:
    """Decode a snapshot. Raise InputError for an invalid one."""
    try:
        # keys are task numbers, which msgpack refuses unless told otherwise
        snapshot = msgpack.unpackb(zlib.decompress(body), strict_map_key=False)
    except (zlib.error, ValueError, msgpack.UnpackException) as error:
        raise InputError(f"is damaged: {error}", where="journal") from error
    return dict(snapshot)
