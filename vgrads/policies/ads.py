"""The one place that knows the library of the ClassAd language (``classad2``): expressions and what
they give.

Expressions are evaluated flat: each dotted name they read has become a name of its own (``v0``,
``v1``, …), to which a plain value is given. So no ad is built for a host, and a name that is
missing in one ad is never found in another that lies around it, as it would be in nested ads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, isnan
from typing import Any

try:
    import classad2
except ImportError:  # there are builds for Linux alone, and all but policies works without
    classad2 = None

from vgrads.policies.text import Node, in_a_row
from vgrads.policies.values import ERROR, UNDEFINED, Nothing, Value

LONGEST = 256
"""Characters that a text in an ad may have; a longer one counts as an error."""
MOST = 32
"""Members that a list in an ad may have; a longer one counts as an error."""

_QUOTED = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
    "\b": "\\b",
    "\f": "\\f",
}


def present() -> bool:
    """Whether the library is installed."""
    return classad2 is not None


def given(value: Any, within: bool = False) -> Any:
    """A value of an ad as the library takes it; what it would stumble over is an error.

    The library does not survive texts that are no Unicode and whole numbers beyond 64 bits.
    """
    kind = type(value)
    if value is None or value is UNDEFINED:
        return classad2.Value.Undefined
    if kind is bool:
        return value
    if isinstance(value, float):
        return (
            float(value) + 0.0
        )  # minus zero becomes zero, as they are equal where verdicts are remembered
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else classad2.Value.Error
    if isinstance(value, str):
        sound = len(value) <= LONGEST and "\0" not in value and _is_unicode(value)
        return str.__str__(value) if sound else classad2.Value.Error
    if kind in (list, tuple) and len(value) <= MOST and not within:
        return [given(one, within=True) for one in value]
    return classad2.Value.Error


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def taken(value: Any) -> Value:
    """What an expression gave, in values of ours."""
    kind = type(value)
    if kind is classad2.Value:
        return UNDEFINED if value == classad2.Value.Undefined else ERROR
    if kind in (bool, int, float, str):
        return value  # type: ignore[no-any-return]
    return tuple(taken(one) for one in value) if kind is list else ERROR


class Expression:
    """An expression over flat names, ready to be evaluated; ``names`` in the order in which values
    are given.

    One thread at a time: the values are put into one ad that it keeps.
    """

    __slots__ = ("_ad", "_flat", "_tree", "names")

    def __init__(self, node: Node, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._flat = tuple(f"v{i}" for i in range(len(self.names)))
        self._tree = classad2.ExprTree(
            text_of(node, dict(zip(self.names, self._flat, strict=True)))
        )
        self._ad = classad2.ClassAd()

    def evaluate(self, values: Sequence[Any]) -> Value:
        """What it gives for these values of its names."""
        ad = self._ad
        for name, value in zip(self._flat, values, strict=True):
            ad[name] = value if type(value) is bool else given(value)
        return taken(self._tree.eval(ad))


def constant(node: Node) -> Value:
    """What an expression gives that reads nothing."""
    return taken(classad2.ExprTree(text_of(node, {})).eval())


def text_of(node: Node, names: Mapping[str, str]) -> str:
    """An expression as the library reads it: every part in brackets of its own, but for rows like a
    + b + c."""
    if node.kind == "value":
        return literal(node.value)
    if node.kind == "name":
        return names.get(node.word, node.word)
    parts = [text_of(part, names) for part in node.parts]
    if node.kind in ("list", "call"):
        return (
            f"{{{', '.join(parts)}}}" if node.kind == "list" else f"{node.word}({', '.join(parts)})"
        )
    if node.word == "[]":
        return f"{parts[0]}[{parts[1]}]"
    if node.word == "?":
        return f"({parts[0]} ? {parts[1]} : {parts[2]})"
    if len(parts) == 2 and in_a_row(node):
        parts[0] = parts[0][1:-1]
    return f"({node.word}{parts[0]})" if len(parts) == 1 else f"({parts[0]} {node.word} {parts[1]})"


def literal(value: Value) -> str:
    """A value as an expression."""
    if isinstance(value, bool | Nothing) or value is None:
        return {True: "true", False: "false", ERROR: "error"}.get(value, "undefined")
    if isinstance(value, str):
        return f'"{"".join(_QUOTED.get(c, c) for c in value)}"'
    if isinstance(value, tuple):
        return f"{{{', '.join(map(literal, value))}}}"
    if not isfinite(value):
        return f'real("{"NaN" if isnan(value) else "INF" if value > 0 else "-INF"}")'
    return repr(value) if value >= 0 else f"({value!r})"
