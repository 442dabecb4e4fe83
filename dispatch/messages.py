"""The exchange between a host's agent and the dispatcher, as JSON: one message form for every way there.

``docs/dispatch.md`` tells what each field is for. What does not fit is an InputError; the host is not told more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bags.bag import Bag
from dispatch.hosts import Hello
from dispatch.records import COULD_NOT, End
from dispatch.talk import Answer, Message
from kernel.errors import InputError

BEAT_S = 10.0
"""Hosts say something at least so often."""
_MOST_TEXT = 1 << 20
_MOST_ATTRIBUTES = 50


@dataclass(frozen=True, slots=True)
class Said:
    """What a task printed, as its host tells it: the ends of standard output and of standard error."""

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
    """A host's message; InputError for what is none."""
    try:
        given = json.loads(body)
        host = str(given["host"])
        number = host_number(host)
        ends, said = [], []
        for entry in given.get("ended", ()):
            bag, task, attempt, *how, out, err = entry
            ends.append((int(bag), _end(number, now_s, (task, attempt), how)))
            if out or err:
                said.append(
                    Said(int(bag), int(task), int(attempt), out[-_MOST_TEXT:], err[-_MOST_TEXT:])
                )
        message = Message(
            host=host, life=str(given["life"]), seq=int(given["seq"]), hello=_hello(given.get("hello")), ends=ends,
            returned=_triples(given.get("returned", ())), leaving=str(given.get("leaving", "")),
            cached=tuple(map(str, given.get("cached", ()))), running=_ages(given.get("running", ())),
        )  # fmt: skip
        return Heard(message, said, min(60.0, max(0.0, float(given.get("wait_s", 30.0)))))
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InputError(f"is no message of a host: {error!r}", where="exchange") from error


def _end(host: int, now_s: float, which: tuple[Any, Any], how: Sequence[Any]) -> End:
    code, times, cpu_s, peak_mib = how
    waited_s, fetched_s, ran_s, sent_s = (max(0.0, float(t)) for t in times)
    number = COULD_NOT if code is None else max(-32767, min(32767, int(code)))
    return End(
        int(which[0]), host, now_s, number, int(which[1]), min(ran_s, 3e38), waited_s, fetched_s, sent_s,
        max(0.0, float(cpu_s)), max(0.0, float(peak_mib) / 1024.0),
    )  # fmt: skip


def _hello(given: Any) -> Hello | None:
    if given is None:
        return None
    left_s = given.get("left_s")
    return Hello(
        slot=str(given["slot"]), node=int(given.get("node", 0)), procs=max(1, int(given.get("procs", 1))),
        memory_mib=float(given.get("memory_mib", 0.0)), name=str(given.get("name", ""))[:200],
        left_s=None if left_s is None else float(left_s), machine=str(given.get("machine", ""))[:200],
        attributes=_attributes(given.get("attributes", {})), held=_triples(given.get("held", ())),
        cached=tuple(map(str, given.get("cached", ()))),
    )  # fmt: skip


def _ages(given: Any) -> tuple[tuple[tuple[int, int, int], float], ...]:
    return tuple(((int(b), int(t), int(a)), max(0.0, float(age_s))) for b, t, a, age_s in given)


def _attributes(given: Any) -> dict[str, Any]:
    """What a host says of itself beyond what every host does: plain values, and not too many."""
    found = {str(name)[:100]: value for name, value in list(dict(given).items())[:_MOST_ATTRIBUTES]}
    return {n: v for n, v in found.items() if isinstance(v, str | int | float | bool)}


def _triples(given: Any) -> tuple[tuple[int, int, int], ...]:
    return tuple((int(bag), int(task), int(attempt)) for bag, task, attempt in given)


@dataclass(frozen=True)
class Files:
    """The files of a task: input name → digest, names of outputs."""

    inputs: Mapping[str, str]
    outputs: Sequence[str]


def write(
    seq: int, answer: Answer, bags: Mapping[int, Bag], files: Callable[[int, int], Files | None], idle_s: float | None,
    again_s: float = 0.0,
) -> bytes:  # fmt: skip
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
    order: list[Any] = [bag, task, attempt, bags[bag].commands.command(task)]
    declared = files(bag, task)
    return order if declared is None else [*order, dict(declared.inputs), list(declared.outputs)]


def _rules(bag: Bag) -> dict[str, Any]:
    return {
        "procs": bag.procs, "memory_mib": bag.memory_mib, "limit_s": bag.limit_s, "env": dict(bag.env),
        "output_bytes": bag.output_bytes,
    }  # fmt: skip
