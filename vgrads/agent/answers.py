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
        answer = _require_type(dict, json.loads(body, parse_constant=_refuse))
    except RecursionError:
        raise ValueError("too deep") from None
    for name, check in _FIELDS.items():
        if name in answer:
            check(answer[name])
    return answer


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _require_type(kind: type[Value], value: object) -> Value:
    """Return a value of exactly this type. Raise ValueError for another one."""
    # isinstance would accept True as a number
    if type(value) is not kind:
        raise ValueError(f"{repr(value)[:40]} is not of type {kind.__name__}")
    return value


def _accept_number(least: float, most: float) -> Callable[[object], None]:
    def check(value: object) -> None:
        number = value if type(value) is int else _require_type(float, value)
        if not least <= number <= most:
            raise ValueError(f"{repr(value)[:40]} is not between {least:g} and {most:g}")

    return check


def _accept_whole_number(value: object) -> int:
    number = _require_type(int, value)
    if not 0 <= number <= _MOST_NUMBER:
        raise ValueError(f"{repr(value)[:40]} is not a number of things")
    return number


_amount, _duration = _accept_number(0, _MOST_MIB), _accept_number(0, _MOST_S)


def _accept_text(value: object) -> None:
    """Accept a text that a system call accepts."""
    text = _require_type(str, value)
    text.encode("utf-8", "surrogateescape")
    if "\0" in text:
        raise ValueError("a null character in a text")


def _accept_texts(value: object) -> None:
    for item in _require_type(list, value):
        _accept_text(item)


def _accept_pairs(value: object) -> None:
    for name, item in _require_type(dict, value).items():
        _accept_text(name)
        _accept_text(item)


def _accept_environment(value: object) -> None:
    _accept_pairs(value)
    for name in _require_type(dict, value):
        if not name or "=" in name:
            raise ValueError(f"{name[:40]!r} is not the name of a variable")


def _accept_key(values: object) -> None:
    numbers = _require_type(list, values)
    if len(numbers) != 3:
        raise ValueError("a task has three numbers")
    for number in numbers:
        _accept_whole_number(number)


def _accept_keys(value: object) -> None:
    for item in _require_type(list, value):
        _accept_key(item)


def _accept_flag(value: object) -> None:
    _require_type(bool, value)


def _accept_settings(value: object) -> None:
    settings = _require_type(dict, value)
    for name, check in _SETTINGS.items():
        if name in settings:
            check(settings[name])


def _accept_bags(value: object) -> None:
    for name, settings in _require_type(dict, value).items():
        _accept_whole_number(int(name))
        _accept_settings(settings)


def _accept_tasks(value: object) -> None:
    for task in _require_type(list, value):
        if not _TASK <= len(_require_type(list, task)) <= _MOST_VALUES:
            raise ValueError("not the values of a task")
        _accept_key(task[:3])
        for item, check in zip(
            task[3:], (_accept_word, _accept_inputs, _accept_outputs, _accept_settings)
        ):
            check(item)


def _accept_word(value: object) -> None:
    """Accept any text: whether a task can be run with it concerns that task only."""
    _require_type(str, value)


def _accept_inputs(value: object) -> None:
    for name, digest in _require_type(dict, value).items():
        _accept_word(name)
        _accept_word(digest)


def _accept_outputs(value: object) -> None:
    for name in _require_type(list, value):
        _accept_word(name)


def _accept_python(value: object) -> None:
    words = _require_type(list, value)
    if len(words) != 3:
        raise ValueError("not the command, the program and the setup of an interpreter")
    _accept_texts(words)


def _accept_idle(value: object) -> None:
    if value is not None:
        _duration(value)


_FIELDS = {
    "seq": _accept_whole_number,
    "hello": _accept_flag,
    "drain": _accept_flag,
    "stop": _accept_flag,
    "beat_s": _accept_number(_LEAST_BEAT_S, _MOST_BEAT_S),
    "again_s": _accept_number(0, _MOST_BEAT_S),
    "idle_s": _accept_idle,
    "bags": _accept_bags,
    "give": _accept_tasks,
    "recall": _accept_keys,
    "cancel": _accept_keys,
}
_SETTINGS = {
    "procs": _accept_whole_number,
    "memory_mib": _amount,
    "limit_s": _duration,
    "output_bytes": _accept_whole_number,
    "env": _accept_environment,
    "pass_env": _accept_texts,
    "container": _accept_text,
    "executable": _accept_texts,
    "live": _accept_flag,
    "account": _accept_whole_number,
    "python": _accept_python,
}
