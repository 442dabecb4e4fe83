"""The messages of an agent, as JSON: ``docs/dispatch.md`` describes each field.

An invalid message is an InputError; the agent gets no details.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vgrads.exchange.values import COULD_NOT, AttemptEnd, Hello, Message, Triple
from vgrads.kernel.errors import InputError, brief

HEARTBEAT_S = 10.0
"""Interval of agents' heartbeats, in seconds."""
_MOST_TEXT = 1 << 20
_MOST_ATTRIBUTES = 50
_MOST_NAME = 1000
_MOST_NUMBER = 2**31 - 1
_MOST_SEQ = 2**53
_MOST_PROCS = 1_000_000
_MOST_S, _MOST_MIB, _MOST_VALUE = 1e10, 1e12, 1e18


@dataclass(frozen=True, slots=True)
class PrintedOutput:
    """Output of a task as its agent reports it: the ends of standard output and of standard error;
    ``value``: of a function, packed, in base64; empty where it is a file."""

    bag: int
    task: int
    attempt: int
    out: str
    err: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message, the output of tasks, and how long the answer may be held back, in seconds.

    ``printing``: lines of tasks that still run, since the last report of theirs.
    """

    message: Message
    printed: Sequence[PrintedOutput]
    wait_s: float
    printing: Sequence[PrintedOutput] = ()


def read(body: bytes, agent_number: Callable[[str], int], now_s: float) -> ReceivedMessage:
    """Parse an agent's message; each field is checked for type and range. Raise InputError for an
    invalid one."""
    try:
        # json accepts NaN and Infinity otherwise, which no range check would notice
        payload = json.loads(body, parse_constant=_refuse_constant)
        agent = _require_text(payload["host"])
        number = agent_number(agent)
        ends, printed = [], []
        for entry in payload.get("ended", ()):
            bag, task, attempt, code, times, cpu_s, peak_mib, out, err, *value = entry
            key = _check_triple((bag, task, attempt))
            ends.append((key[0], _end(number, now_s, key, (code, times, cpu_s, peak_mib))))
            out, err = _require_printed(out), _require_printed(err)
            if out or err or value:
                printed.append(PrintedOutput(*key, out, err, *map(_decode_value, value)))
        printing = [
            PrintedOutput(*_check_triple(entry[:3]), *map(_require_printed, entry[3:5]))
            for entry in payload.get("printing", ())
        ]
        message = Message(
            agent=agent,
            incarnation=_require_text(payload["life"]),
            seq=_require_whole(payload["seq"], _MOST_SEQ),
            hello=_check_hello(payload.get("hello")),
            ends=ends,
            returned=_check_triples(payload.get("returned", ())),
            leaving=_require_text(payload.get("leaving", "")),
            cached=_check_digests(payload.get("cached", ())),
            running=_check_ages(payload.get("running", ())),
        )
        wait_s = min(60.0, _require_number(payload.get("wait_s", 30.0), _MOST_S))
        return ReceivedMessage(message, printed, wait_s, printing)
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InputError(
            f"is not a valid message of an agent: {brief(error)}", where="exchange"
        ) from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _require_whole(value: object, most: int, least: int = 0) -> int:
    """Return an integer in a range. Raise ValueError for anything else."""
    # isinstance would accept True
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{_require_shown(value)} is not a whole number from {least} to {most}")
    return value


def _require_number(value: Any, most: float, least: float = 0.0) -> float:
    """Return a number in a range, therefore finite. Raise ValueError for anything else."""
    if type(value) not in (int, float) or not least <= value <= most:
        raise ValueError(f"{_require_shown(value)} is not a number from {least:g} to {most:g}")
    return float(value)


def _require_text(value: object) -> str:
    """Return a short text that can be stored. Raise ValueError for anything else."""
    if not isinstance(value, str) or len(value) > _MOST_NAME:
        raise ValueError(
            f"{_require_shown(value)} is not a string of up to {_MOST_NAME} characters"
        )
    value.encode()  # half of a surrogate pair is invalid
    return value


def _require_printed(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{_require_shown(value)} is not valid output of a task")
    text = value[-_MOST_TEXT:]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _decode_value(value: object) -> str:
    """Return a packed value in base64. Raise ValueError for anything else."""
    if not isinstance(value, str) or len(value) > _MOST_TEXT or not value.isascii():
        raise ValueError(f"{_require_shown(value)} is not a packed value")
    return value


def _require_shown(value: object) -> str:
    # repr of an integer with more than 4300 digits raises ValueError
    return repr(value)[:40] if not isinstance(value, int) or abs(value) < 1 << 64 else "the number"


def _end(agent: int, now_s: float, which: tuple[int, int, int], how: Sequence[Any]) -> AttemptEnd:
    code, times, cpu_s, peak_mib = how
    waited_s, fetched_s, ran_s, sent_s = (_require_number(t, _MOST_S) for t in times)
    number = (
        COULD_NOT
        # two bytes in records, of which the lowest value is COULD_NOT
        if code is None
        else max(-32767, min(32767, _require_whole(code, 2**31, -(2**31))))
    )
    return AttemptEnd(
        which[1],
        agent,
        now_s,
        number,
        which[2],
        ran_s,
        waited_s,
        fetched_s,
        sent_s,
        _require_number(cpu_s, _MOST_S),
        _require_number(peak_mib, _MOST_MIB) / 1024.0,
    )


def _check_hello(payload: Any) -> Hello | None:
    if payload is None:
        return None
    left_s = payload.get("left_s")
    return Hello(
        slot=_require_text(payload["slot"]),
        node=_require_whole(payload.get("node", 0), _MOST_NUMBER),
        nodes=_require_whole(payload.get("nodes", 1), _MOST_NUMBER),
        procs=max(1, _require_whole(payload.get("procs", 1), _MOST_PROCS)),
        memory_mib=_require_number(payload.get("memory_mib", 0.0), _MOST_MIB),
        name=_require_text(payload.get("name", ""))[:200],
        left_s=None if left_s is None else _require_number(left_s, _MOST_S, -_MOST_S),
        machine=_require_text(payload.get("machine", ""))[:200],
        attributes=_check_attributes(payload.get("attributes", {})),
        assigned=_check_triples(payload.get("held", ())),
        cached=_check_digests(payload.get("cached", ())),
    )


def _check_ages(rows: Any) -> tuple[tuple[Triple, float], ...]:
    return tuple((_check_triple(key), _require_number(age_s, _MOST_S)) for *key, age_s in rows)


def _check_attributes(payload: Any) -> dict[str, Any]:
    """Return the additional attributes of an agent: plain values, limited in number."""
    attributes: dict[str, Any] = {}
    for name, value in list(dict(payload).items())[:_MOST_ATTRIBUTES]:
        if isinstance(value, str):
            attributes[_require_text(name)[:100]] = _require_text(value)
        # before numbers: Python counts True as an integer
        elif isinstance(value, bool):
            attributes[_require_text(name)[:100]] = value
        elif isinstance(value, int | float):
            plain = _require_number(value, _MOST_VALUE, -_MOST_VALUE)
            attributes[_require_text(name)[:100]] = value if isinstance(value, int) else plain
    return attributes


def _check_digests(payload: Any) -> tuple[str, ...]:
    return tuple(map(_require_text, payload))


def _check_triple(values: Sequence[Any]) -> Triple:
    bag, task, attempt = values
    return (
        _require_whole(bag, _MOST_NUMBER),
        _require_whole(task, _MOST_NUMBER),
        # attempts have two bytes in the columns of tasks
        _require_whole(attempt, 2**16 - 1),
    )


def _check_triples(rows: Any) -> tuple[Triple, ...]:
    return tuple(map(_check_triple, rows))
