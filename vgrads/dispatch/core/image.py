"""A dispatcher's state as one value that can be kept, and back: where a journal that was cut
begins."""

from __future__ import annotations

import zlib
from array import array
from typing import Any

import msgpack

from vgrads.bags.record import HostRecord
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.slots import slot_from_json
from vgrads.dispatch.core.state import Owner, State
from vgrads.dispatch.core.tasks import Tasks
from vgrads.kernel.errors import InputError
from vgrads.workflows.generated.lazy import lazy_of

VERSION = 2
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
)
_HOST = (
    "number",
    "id",
    "slot",
    "node",
    "procs",
    "memory_mib",
    "name",
    "site",
    "machine",
    "life",
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


def image_of(state: State) -> dict[str, Any]:
    """Everything that a journal has come to, copied: the state may go on meanwhile."""
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
        "faults": {bag.number: bag.fault for bag in state.bags.values() if bag.fault},
        "bags": [
            [getattr(bag, name) for name in _BAG] + _columns(bag.tasks)
            for bag in state.bags.values()
        ],
        "hosts": [
            [getattr(host, name) for name in _HOST]
            + [[[*key, attempt] for key, attempt in host.held.items()], sorted(host.past_lives)]
            for host in state.hosts.values()
        ],
    }


def _columns(tasks: Tasks) -> list[Any]:
    return [
        bytes(tasks.status),
        tasks.attempts.tobytes(),
        array("I", tasks.where).tobytes(),
        array("I", tasks.where.values()).tobytes(),
        {t: list(h) for t, h in tasks.copies.items()},
        dict(tasks.failures),
        dict(tasks.losses),
        dict(tasks.blamed),
    ]


def state_of(image: dict[str, Any]) -> State:
    """The state of an image; InputError for one of another version."""
    if image.get("version") != VERSION:
        raise InputError(
            f"is of version {image.get('version')}, this vgrads reads {VERSION}", where="journal"
        )
    state = State(now_s=image["now_s"])
    state.slots = {name: slot_from_json(name, slot) for name, slot in image["slots"].items()}
    state.owners = {name: Owner(had) for name, had in image["owners"].items()}
    for machine, (*fields, blows, longest_s, pauses, until_s) in image["records"].items():
        seen = tuple((bag, task) for bag, task in blows)
        state.records[machine] = HostRecord._make([*fields, seen, longest_s, pauses, until_s])
    for kept in image["bags"]:
        fields = dict(zip(_BAG, kept, strict=False))
        fields["sites"], fields["failover"] = tuple(fields["sites"]), tuple(fields["failover"])
        order = image.get("orders", {}).get(fields["number"])  # an image of before has none
        tasks = Tasks(0, lazy_of(order) if order else None)
        status, attempts, given, at, copies, failures, losses, blamed = kept[len(_BAG) :]
        where = dict(zip(array("I", given), array("I", at), strict=True))
        tasks.restore(status, attempts, where, copies)
        tasks.failures, tasks.losses, tasks.blamed = failures, losses, blamed
        fault = image.get("faults", {}).get(fields["number"], "")
        state.bags[fields["number"]] = BagState(tasks=tasks, fault=fault, **fields)
    for kept in image["hosts"]:
        host = Host(**dict(zip(_HOST, kept, strict=False)))
        held, past_lives = kept[len(_HOST) :]
        host.held = {(bag, task): attempt for bag, task, attempt in held}
        host.past_lives = set(past_lives)
        state.hosts[host.number], state.by_id[host.id] = host, host.number
    return state


def pack_image(image: dict[str, Any]) -> bytes:
    """As bytes."""
    return zlib.compress(msgpack.packb(image), 1)


def unpack_image(body: bytes) -> dict[str, Any]:
    """From bytes; InputError for what is none."""
    try:
        found = msgpack.unpackb(zlib.decompress(body), strict_map_key=False)
    except (zlib.error, ValueError, msgpack.UnpackException) as error:
        raise InputError(f"is damaged: {error}", where="journal") from error
    return dict(found)
