"""One slot of a dispatch policy in one state of its bag: its value for the names that it reads,
cached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor, isfinite
from typing import Any

from vgrads.policies.evaluation import Expression
from vgrads.policies.names import in_order, look_up, taker
from vgrads.policies.simplify import names_in
from vgrads.policies.text import Node
from vgrads.policies.values import Ad, Value

REMEMBERED = 65_536
"""Maximum number of cached results of a slot; beyond it the cache is cleared."""


def number(value: Value) -> float | None:
    """Return a finite number; truth values are not numbers."""
    return value if type(value) in (int, float) and isfinite(value) else None  # type: ignore


def _read_truth(value: Value) -> bool:
    return value is True


def _rank(value: Value) -> float:
    return number(value) or 0.0


def _read_concurrency(value: Value) -> int:
    seconds = number(value)
    return 1 if seconds is None else max(0, floor(seconds))


def _read_deadline(value: Value) -> float | None:
    seconds = number(value)
    return seconds if seconds is not None and seconds > 0 else None


COUNTS: Mapping[str, Callable[[Value], Any]] = {
    "JobRequirements": _read_truth,
    "Rank": _rank,
    "ReplicationRequirements": _read_truth,
    "Concurrency": _read_concurrency,
    "Deadline": _read_deadline,
    "GridPolicy": _read_truth,
}
"""The dispatcher's interpretation of a value."""
UNWRITTEN: Mapping[str, Any] = {
    "JobRequirements": True,
    "Rank": 0.0,
    "ReplicationRequirements": False,
    "Concurrency": 1,
    "Deadline": None,
    "GridPolicy": True,
}


class PolicySlot:
    """The residual of an expression; ``names`` are those it still reads.

    A result is cached by the values read and their types, since 1, 1.0 and true are equal as keys
    and not as values of the language.
    """

    __slots__ = ("_cache", "_constant", "_counts", "_expression", "_take", "_value", "names")

    def __init__(self, slot: str, tree: Node | None) -> None:
        self.names = in_order(set(names_in(tree))) if tree else ()
        self._counts, self._cache = COUNTS[slot], dict[Any, Any]()
        decided = tree is not None and isinstance(tree.value, bool)
        self._expression = Expression(tree, self.names) if tree and not decided else None
        self._take = taker(self.names)
        self._constant = not self.names
        self._value: Any = self._counts(tree.value) if tree and decided else UNWRITTEN[slot]
        if self._expression and self._constant:
            self._value = self._counts(self._expression.evaluate(()))

    def ask(self, host: Ad, job: Ad, queue: Ad, grid: Ad, concurrency: float) -> Any:
        """Return the result."""
        if self._constant:
            return self._value
        key = None
        try:
            values = self._take(host, job, queue, grid, concurrency)
            key = values, tuple(map(type, values))
            return self._cache[key]
        except KeyError:
            # of a list, the types of its members would have to be in the key too
            if key and tuple not in key[1]:
                return self._remembered(key, key[0])
        # a list cannot be a key
        except TypeError:
            pass
        return self._afresh(host, job, queue, grid, concurrency)

    def _remembered(self, key: object, values: Sequence[Any]) -> Any:
        """Evaluate, and cache the result."""
        if len(self._cache) >= REMEMBERED:
            self._cache.clear()
        text = self._cache[key] = self._counts(self._expression.evaluate(values))  # type: ignore[union-attr]
        return text

    def _afresh(self, *ads: Any) -> Any:
        """Evaluate for values not in the cache, for lists, and for ads that lack a name or spell it
        otherwise."""
        values = [look_up(name, ads) for name in self.names]
        key = (*map(_read_key, values),), (*map(_read_kind, values),)
        try:
            return self._cache[key] if key in self._cache else self._remembered(key, values)
        except TypeError:  # not a value: it counts as an error and is not cached
            return self._counts(self._expression.evaluate(values))  # type: ignore[union-attr]


def _read_key(value: Any) -> Any:
    if type(value) in (list, tuple):
        return (*map(_read_key, value),), (*map(type, value),)
    return value


def _read_kind(value: object) -> type:
    return tuple if type(value) is list else type(value)
