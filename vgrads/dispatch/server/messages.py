"""The exchange between a host's agent and the dispatcher, as JSON: one message form for every way
there.

``docs/dispatch.md`` tells what each field is for. What does not fit is an InputError; the host is
not told more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vgrads.bags.bag import Bag
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.faults import serving
from vgrads.dispatch.core.hosts import Hello
from vgrads.dispatch.core.records import COULD_NOT, End
from vgrads.dispatch.core.talk import Answer, Message, Triple
from vgrads.kernel.errors import InputError

BEAT_S = 10.0
"""Hosts say something at least so often."""
_MOST_TEXT = 1 << 20
_MOST_ATTRIBUTES = 50
_MOST_NAME = 1000
_MOST_NUMBER = 2**31 - 1
_MOST_SEQ = 2**53
_MOST_PROCS = 1_000_000
_MOST_S, _MOST_MIB, _MOST_VALUE = 1e10, 1e12, 1e18


@dataclass(frozen=True, slots=True)
class Said:
    """What a task printed, as its host tells it: the ends of standard output and of standard
    error."""

    bag: int
    task: int
    attempt: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A message, what tasks printed, and how long the answer may be held back, in seconds."""

    message: Message
    said: Sequence[Said]
    wait_s: float


def read(body: bytes, host_number: Callable[[str], int], now_s: float) -> Heard:
    """A host's message, every field of which has its type and is in its range; InputError for
    anything else."""
    try:
        given = json.loads(body, parse_constant=_refuse_constant)
        host = _text(given["host"])
        number = host_number(host)
        ends, said = [], []
        for entry in given.get("ended", ()):
            bag, task, attempt, *how, out, err = entry
            key = _triple((bag, task, attempt))
            ends.append((key[0], _end(number, now_s, key, how)))
            if _printed(out) or _printed(err):
                said.append(Said(*key, out[-_MOST_TEXT:], err[-_MOST_TEXT:]))
        message = Message(
            host=host,
            life=_text(given["life"]),
            seq=_whole(given["seq"], _MOST_SEQ),
            hello=_hello(given.get("hello")),
            ends=ends,
            returned=_triples(given.get("returned", ())),
            leaving=_text(given.get("leaving", "")),
            cached=_digests(given.get("cached", ())),
            running=_ages(given.get("running", ())),
        )
        return Heard(message, said, min(60.0, _number(given.get("wait_s", 30.0), _MOST_S)))
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InputError(f"is no message of a host: {error!r}", where="exchange") from error


def check_tasks(message: Message, bags: Mapping[int, BagState]) -> None:
    """InputError where a host names a task that does not exist: nobody can have given it one."""
    named = [(bag, end.task) for bag, end in message.ends]
    named += [(bag, task) for bag, task, _ in message.returned]
    named += [(bag, task) for (bag, task, _), _ in message.running]
    for bag, task in named:
        if bag not in bags or task >= len(bags[bag].tasks):
            raise InputError(f"names task {task} of bag {bag}, which does not exist")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _whole(value: object, most: int, least: int = 0) -> int:
    """A whole number in a range; ValueError for anything else."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{_shown(value)} is no whole number from {least} to {most}")
    return value


def _number(value: Any, most: float, least: float = 0.0) -> float:
    """A number in a range, finite therefore; ValueError for anything else."""
    if type(value) not in (int, float) or not least <= value <= most:
        raise ValueError(f"{_shown(value)} is no number from {least:g} to {most:g}")
    return float(value)


def _text(value: object) -> str:
    """A short text that can be written down; ValueError for anything else."""
    if not isinstance(value, str) or len(value) > _MOST_NAME:
        raise ValueError(f"{_shown(value)} is no text of up to {_MOST_NAME} characters")
    value.encode()  # half of a surrogate pair is no text
    return value


def _printed(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is not what a task printed")
    return value


def _shown(value: object) -> str:
    return repr(value)[:40] if not isinstance(value, int) or abs(value) < 1 << 64 else "the number"


def _end(host: int, now_s: float, which: tuple[int, int, int], how: Sequence[Any]) -> End:
    code, times, cpu_s, peak_mib = how
    waited_s, fetched_s, ran_s, sent_s = (_number(t, _MOST_S) for t in times)
    number = COULD_NOT if code is None else max(-32767, min(32767, _whole(code, 2**31, -(2**31))))
    return End(
        which[1],
        host,
        now_s,
        number,
        which[2],
        ran_s,
        waited_s,
        fetched_s,
        sent_s,
        _number(cpu_s, _MOST_S),
        _number(peak_mib, _MOST_MIB) / 1024.0,
    )


def _hello(given: Any) -> Hello | None:
    if given is None:
        return None
    left_s = given.get("left_s")
    return Hello(
        slot=_text(given["slot"]),
        node=_whole(given.get("node", 0), _MOST_NUMBER),
        procs=max(1, _whole(given.get("procs", 1), _MOST_PROCS)),
        memory_mib=_number(given.get("memory_mib", 0.0), _MOST_MIB),
        name=_text(given.get("name", ""))[:200],
        left_s=None if left_s is None else _number(left_s, _MOST_S, -_MOST_S),
        machine=_text(given.get("machine", ""))[:200],
        attributes=_attributes(given.get("attributes", {})),
        held=_triples(given.get("held", ())),
        cached=_digests(given.get("cached", ())),
    )


def _ages(given: Any) -> tuple[tuple[Triple, float], ...]:
    return tuple((_triple(key), _number(age_s, _MOST_S)) for *key, age_s in given)


def _attributes(given: Any) -> dict[str, Any]:
    """What a host says of itself beyond what every host does: plain values, and not too many."""
    found: dict[str, Any] = {}
    for name, value in list(dict(given).items())[:_MOST_ATTRIBUTES]:
        if isinstance(value, str):
            found[_text(name)[:100]] = _text(value)
        elif isinstance(value, bool):
            found[_text(name)[:100]] = value
        elif isinstance(value, int | float):
            plain = _number(value, _MOST_VALUE, -_MOST_VALUE)
            found[_text(name)[:100]] = value if isinstance(value, int) else plain
    return found


def _digests(given: Any) -> tuple[str, ...]:
    return tuple(map(_text, given))


def _triple(given: Sequence[Any]) -> Triple:
    bag, task, attempt = given
    return (
        _whole(bag, _MOST_NUMBER),
        _whole(task, _MOST_NUMBER),
        _whole(attempt, 2**16 - 1),
    )


def _triples(given: Any) -> tuple[Triple, ...]:
    return tuple(map(_triple, given))


@dataclass(frozen=True)
class Files:
    """The files of a task: input name → digest, names of outputs."""

    inputs: Mapping[str, str]
    outputs: Sequence[str]


def write(
    seq: int,
    answer: Answer,
    bags: Mapping[int, Bag],
    files: Callable[[int, int], Files | None],
    idle_s: float | None,
    again_s: float = 0.0,
) -> bytes:
    """An answer as JSON. ``files``: of a task, where it declares any."""
    said: dict[str, Any] = {"seq": seq}
    if answer.give:
        said["give"] = [_order(triple, bags, files) for triple in answer.give]
    if answer.new_bags:
        said["bags"] = {str(number): _rules(bags[number]) for number in answer.new_bags}
        said["idle_s"], said["beat_s"] = idle_s, BEAT_S
    if answer.recall:
        said["recall"] = answer.recall
    if answer.cancel:
        said["cancel"] = answer.cancel
    if answer.drain:
        said["drain"] = True
    if answer.stop:
        said["stop"] = True
    if again_s:
        said["again_s"] = again_s
    return json.dumps(said).encode()


def _order(
    triple: tuple[int, int, int], bags: Mapping[int, Bag], files: Callable[[int, int], Files | None]
) -> list[Any]:
    bag, task, attempt = triple
    with serving(bag):
        order: list[Any] = [bag, task, attempt, bags[bag].commands.command(task)]
        declared = files(bag, task)
    return order if declared is None else [*order, dict(declared.inputs), list(declared.outputs)]


def _rules(bag: Bag) -> dict[str, Any]:
    return {
        "procs": bag.procs,
        "memory_mib": bag.memory_mib,
        "limit_s": bag.limit_s,
        "env": dict(bag.env),
        "output_bytes": bag.output_bytes,
        "pass_env": list(bag.pass_env),
    }
