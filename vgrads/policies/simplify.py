"""Partial evaluation of an expression when some of its names have values.

Only rules of the language are used: a part that reads no names is evaluated; a decided condition is
replaced by its branch; ``false && x`` is false and ``true || x`` is true for any x. Nothing else is
changed, since an operand may be undefined or an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from vgrads.policies.evaluation import constant
from vgrads.policies.text import Node
from vgrads.policies.values import ERROR, UNDEFINED, Value


def names_in(node: Node) -> Iterator[str]:
    """Return all names that an expression reads, some more than once."""
    if node.kind == "name":
        yield node.word
    for part in node.parts:
        yield from names_in(part)


def simplified(node: Node, values: Mapping[str, Any]) -> Node:
    """Return an expression with the given names substituted, and simplified."""
    if node.kind == "name":
        return _find_value(_convert_to_plain(values[node.word])) if node.word in values else node
    if node.kind == "value":
        return node
    if not node.parts:
        return _find_value(())
    first = simplified(node.parts[0], values)
    decided = first.value if first.kind == "value" and isinstance(first.value, bool) else None
    if decided is not None:
        if node.word == "?":
            return simplified(node.parts[1 if decided else 2], values)
        if node.word == ("||" if decided else "&&"):
            return first
    parts = (first, *(simplified(part, values) for part in node.parts[1:]))
    if all(part.kind == "value" for part in parts):
        return _find_value(constant(replace(node, parts=parts)))
    return node if parts == node.parts else replace(node, parts=parts)


def _find_value(value: Value) -> Node:
    return Node("value", value=value)


def _convert_to_plain(value: Any) -> Value:
    """Return a value of the bag's state; a value outside the language is an error."""
    if value is None or value is UNDEFINED:
        return UNDEFINED
    fits = isinstance(value, bool | float | str) or (isinstance(value, int) and abs(value) < 2**63)
    return value if fits else ERROR
