"""The answers of a manager, checked: an invalid one costs the connection, never the agent.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import json
from typing import Any, Callable, TypeVar

Value = TypeVar("Value")

_MOST_NUMBER, _MOST_S, _MOST_MIB = 2**53, 1e10, 1e12
_LEAST_BEAT_S, _MOST_BEAT_S = 0.01, 3600.0
_TASK, _MOST_VALUES = 4, 7  # values of an assigned task: at least, with files and settings


def parse_answer(body: bytes) -> dict[str, Any]:
    """Return an answer; each field is checked for type and range. Raise ValueError for one that is
    not the manager's."""
    try:
        answer = _of(dict, json.loads(body, parse_constant=_refuse))
    except RecursionError:
        raise ValueError("too deep") from None
    for name, check in _FIELDS.items():
        if name in answer:
            check(answer[name])
    return answer


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _of(kind: type[Value], value: object) -> Value:
    """Return a value of exactly this type. Raise ValueError for another one."""
    if type(value) is not kind:
        raise ValueError(f"{repr(value)[:40]} is not of type {kind.__name__}")
    return value


def _number(least: float, most: float) -> Callable[[object], None]:
    def check(value: object) -> None:
        number = value if type(value) is int else _of(float, value)
        if not least <= number <= most:
            raise ValueError(f"{repr(value)[:40]} is not between {least:g} and {most:g}")

    return check


def _whole(value: object) -> int:
    number = _of(int, value)
    if not 0 <= number <= _MOST_NUMBER:
        raise ValueError(f"{repr(value)[:40]} is not a number of things")
    return number


_amount, _duration = _number(0, _MOST_MIB), _number(0, _MOST_S)


def _text(value: object) -> None:
    """Accept a text that a system call accepts."""
    text = _of(str, value)
    text.encode("utf-8", "surrogateescape")
    if "\0" in text:
        raise ValueError("a null character in a text")


def _texts(value: object) -> None:
    for item in _of(list, value):
        _text(item)


def _pairs(value: object) -> None:
    for name, item in _of(dict, value).items():
        _text(name)
        _text(item)


def _environment(value: object) -> None:
    _pairs(value)
    for name in _of(dict, value):
        if not name or "=" in name:
            raise ValueError(f"{name[:40]!r} is not the name of a variable")


def _key(values: object) -> None:
    numbers = _of(list, values)
    if len(numbers) != 3:
        raise ValueError("a task has three numbers")
    for number in numbers:
        _whole(number)


def _keys(value: object) -> None:
    for item in _of(list, value):
        _key(item)


def _flag(value: object) -> None:
    _of(bool, value)


def _settings(value: object) -> None:
    settings = _of(dict, value)
    for name, check in _SETTINGS.items():
        if name in settings:
            check(settings[name])


def _bags(value: object) -> None:
    for name, settings in _of(dict, value).items():
        _whole(int(name))
        _settings(settings)


def _tasks(value: object) -> None:
    for task in _of(list, value):
        if not _TASK <= len(_of(list, task)) <= _MOST_VALUES:
            raise ValueError("not the values of a task")
        _key(task[:3])
        for item, check in zip(task[3:], (_word, _inputs, _outputs, _settings)):
            check(item)


def _word(value: object) -> None:
    """Accept any text: whether a task can be run with it concerns that task only."""
    _of(str, value)


def _inputs(value: object) -> None:
    for name, digest in _of(dict, value).items():
        _word(name)
        _word(digest)


def _outputs(value: object) -> None:
    for name in _of(list, value):
        _word(name)


def _python(value: object) -> None:
    words = _of(list, value)
    if len(words) != 3:
        raise ValueError("not the command, the program and the setup of an interpreter")
    _texts(words)


def _idle(value: object) -> None:
    if value is not None:
        _duration(value)


_FIELDS = {
    "seq": _whole,
    "hello": _flag,
    "drain": _flag,
    "stop": _flag,
    "beat_s": _number(_LEAST_BEAT_S, _MOST_BEAT_S),
    "again_s": _number(0, _MOST_BEAT_S),
    "idle_s": _idle,
    "bags": _bags,
    "give": _tasks,
    "recall": _keys,
    "cancel": _keys,
}
_SETTINGS = {
    "procs": _whole,
    "memory_mib": _amount,
    "limit_s": _duration,
    "output_bytes": _whole,
    "env": _environment,
    "pass_env": _texts,
    "container": _text,
    "executable": _texts,
    "live": _flag,
    "account": _whole,
    "python": _python,
}
