"""One slot of a policy in one state of its bag: what it says for the values that it reads,
remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor, isfinite
from typing import Any

from vgrads.policies.ads import Expression
from vgrads.policies.names import in_order, look_up, taker
from vgrads.policies.simplify import names_in
from vgrads.policies.text import Node
from vgrads.policies.values import Ad, Value

REMEMBERED = 65_536
"""So many verdicts are remembered of a slot; then all are forgotten."""


def number(value: Value) -> float | None:
    """A finite number; truth is none."""
    return value if type(value) in (int, float) and isfinite(value) else None  # type: ignore


def _yes(value: Value) -> bool:
    return value is True


def _rank(value: Value) -> float:
    return number(value) or 0.0


def _concurrency(value: Value) -> int:
    found = number(value)
    return 1 if found is None else max(0, floor(found))


def _deadline(value: Value) -> float | None:
    found = number(value)
    return found if found is not None and found > 0 else None


COUNTS: Mapping[str, Callable[[Value], Any]] = {
    "JobRequirements": _yes,
    "Rank": _rank,
    "ReplicationRequirements": _yes,
    "Concurrency": _concurrency,
    "Deadline": _deadline,
    "GridPolicy": _yes,
}
"""What the dispatcher makes of a value."""
UNWRITTEN: Mapping[str, Any] = {
    "JobRequirements": True,
    "Rank": 0.0,
    "ReplicationRequirements": False,
    "Concurrency": 1,
    "Deadline": None,
    "GridPolicy": True,
}


class Slot:
    """What is left of an expression; ``names`` are those it still reads.

    A verdict is remembered by the values read and their types, since 1, 1.0 and true are equal as
    keys and not as values of the language.
    """

    __slots__ = ("_constant", "_counts", "_expression", "_known", "_said", "_take", "names")

    def __init__(self, slot: str, tree: Node | None) -> None:
        self.names = in_order(set(names_in(tree))) if tree else ()
        self._counts, self._known = COUNTS[slot], dict[Any, Any]()
        self._expression = Expression(tree, self.names) if tree else None
        self._take = taker(self.names)
        self._constant = not self.names
        self._said: Any = UNWRITTEN[slot]
        if self._expression and self._constant:
            self._said = self._counts(self._expression.evaluate(()))

    def ask(self, host: Ad, job: Ad, queue: Ad, grid: Ad, concurrency: float) -> Any:
        """The verdict."""
        if self._constant:
            return self._said
        key = None
        try:
            values = self._take(host, job, queue, grid, concurrency)
            key = values, tuple(map(type, values))
            return self._known[key]
        except KeyError:
            if key and tuple not in key[1]:
                return self._remembered(key, key[0])
        except TypeError:
            pass
        return self._afresh(host, job, queue, grid, concurrency)

    def _remembered(self, key: object, values: Sequence[Any]) -> Any:
        """Evaluated, and kept for the next time."""
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        said = self._known[key] = self._counts(self._expression.evaluate(values))  # type: ignore[union-attr]
        return said

    def _afresh(self, *ads: Any) -> Any:
        """The same for values not met before, for lists, and for ads that lack a name or spell it
        otherwise."""
        values = [look_up(name, ads) for name in self.names]
        key = (*map(_key, values),), (*map(_kind, values),)
        try:
            return self._known[key] if key in self._known else self._remembered(key, values)
        except TypeError:  # something that is no value: it counts as an error and is not remembered
            return self._counts(self._expression.evaluate(values))  # type: ignore[union-attr]


def _key(value: Any) -> Any:
    if type(value) in (list, tuple):
        return (*map(_key, value),), (*map(type, value),)
    return value


def _kind(value: object) -> type:
    return tuple if type(value) is list else type(value)
