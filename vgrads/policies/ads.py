"""The only module that uses the library of the ClassAd language (``classad2``): expressions and
their values.

Expressions are evaluated flat: each dotted name is replaced by a name of its own (``v0``, ``v1``,
…), which is set to a plain value. So no ad is built for an agent, and a name that is missing in one
ad is never found in a surrounding ad, as it would be in nested ads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import isfinite, isnan
from types import ModuleType
from typing import Any, cast

from vgrads.kernel.extras import require
from vgrads.policies.text import Node, in_a_row
from vgrads.policies.values import ERROR, UNDEFINED, Nothing, Value

LONGEST = 256
"""Maximum length of a text in an ad, in characters; a longer one counts as an error."""
MOST = 32
"""Maximum number of members of a list in an ad; a longer one counts as an error."""

_QUOTED = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
    "\b": "\\b",
    "\f": "\\f",
}


@cache
def library() -> ModuleType:
    """Return the library. Raise MissingExtraError where it is not installed: only Linux builds
    exist."""
    require("policies", "a policy")
    import classad2  # noqa: PLC0415 of an extra

    return cast(ModuleType, classad2)


def convert(value: Any, within: bool = False) -> Any:
    """Convert a value of an ad for the library; a value that it cannot handle becomes an error.

    The library crashes on texts that are not Unicode and on integers beyond 64 bits.
    """
    kind = type(value)
    if value is None or value is UNDEFINED:
        return library().Value.Undefined
    if kind is bool:
        return value
    if isinstance(value, float):
        return float(value) + 0.0  # minus zero becomes zero: both share a cache key
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else library().Value.Error
    if isinstance(value, str):
        sound = len(value) <= LONGEST and "\0" not in value and _is_unicode(value)
        return str.__str__(value) if sound else library().Value.Error
    if kind in (list, tuple) and len(value) <= MOST and not within:
        return [convert(item, within=True) for item in value]
    return library().Value.Error


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def taken(value: Any) -> Value:
    """Convert the value of an expression to Python."""
    kind = type(value)
    if kind in (bool, int, float, str):
        return value  # type: ignore[no-any-return]
    if kind is library().Value:
        return UNDEFINED if value == library().Value.Undefined else ERROR
    return tuple(taken(item) for item in value) if kind is list else ERROR


class Expression:
    """An expression over flat names, ready for evaluation; ``names`` in the order of the values.

    One thread at a time: the values are stored in one ad that it reuses.
    """

    __slots__ = ("_ad", "_flat", "_tree", "names")

    def __init__(self, node: Node, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._flat = tuple(f"v{i}" for i in range(len(self.names)))
        self._tree = library().ExprTree(
            text_of(node, dict(zip(self.names, self._flat, strict=True)))
        )
        self._ad = library().ClassAd()

    def evaluate(self, values: Sequence[Any]) -> Value:
        """Return its value for these values of its names."""
        ad = self._ad
        for name, value in zip(self._flat, values, strict=True):
            ad[name] = value if type(value) is bool else convert(value)
        return taken(self._tree.eval(ad))


def constant(node: Node) -> Value:
    """Return the value of an expression that reads no names."""
    return taken(library().ExprTree(text_of(node, {})).eval())


def text_of(node: Node, names: Mapping[str, str]) -> str:
    """Return an expression in the library's syntax: every part in its own brackets, except
    sequences like a + b + c."""
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
    """Return a value as an expression."""
    if isinstance(value, bool | Nothing) or value is None:
        return {True: "true", False: "false", ERROR: "error"}.get(value, "undefined")
    if isinstance(value, str):
        return f'"{"".join(_QUOTED.get(c, c) for c in value)}"'
    if isinstance(value, tuple):
        return f"{{{', '.join(map(literal, value))}}}"
    if not isfinite(value):
        return f'real("{"NaN" if isnan(value) else "INF" if value > 0 else "-INF"}")'
    return repr(value) if value >= 0 else f"({value!r})"
