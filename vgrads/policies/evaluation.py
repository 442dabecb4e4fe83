"""Values of expressions of the ClassAd language, by the tree that the parser has made.

Three-valued logic, numbers and functions are those of the reference implementation (HTCondor's
libclassad, as ``classad2`` has it), with its peculiarities: integers have 64 bits and wrap, texts
are compared without regard to case, functions of text work on bytes. Tests hold it against
``classad2`` on generated expressions; manual:
https://htcondor.readthedocs.io/en/latest/classads/classad-mechanism.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from vgrads.policies.functions import FUNCTIONS_OF
from vgrads.policies.operators import BINARY, UNARY, is_true, subscript
from vgrads.policies.text import Node
from vgrads.policies.values import ERROR, UNDEFINED, Operand, Value

LONGEST = 256
"""Maximum length of a text in an ad, in characters; a longer one counts as an error."""
MOST = 32
"""Maximum number of members of a list in an ad; a longer one counts as an error."""

Compiled = Callable[[Sequence[Operand]], Operand]


def convert(value: Operand, within: bool = False) -> Value:
    """Convert a value of an ad; one that the language does not have becomes an error."""
    kind = type(value)
    if kind is bool:
        return value  # type: ignore[no-any-return]
    if value is None or value is UNDEFINED:
        return UNDEFINED
    if isinstance(value, float):
        return float(value) + 0.0  # minus zero becomes zero: both share a cache key
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else ERROR
    if isinstance(value, str):
        sound = len(value) <= LONGEST and "\0" not in value and _is_unicode(value)
        return str.__str__(value) if sound else ERROR
    if kind in (list, tuple) and len(value) <= MOST and not within:
        return tuple(convert(item, within=True) for item in value)
    return ERROR


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


class Expression:
    """An expression over names, ready for evaluation; ``names`` in the order of the values."""

    __slots__ = ("_compiled", "names")

    def __init__(self, node: Node, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._compiled = _compile_node(node, {name: place for place, name in enumerate(self.names)})

    def evaluate(self, values: Sequence[Operand]) -> Value:
        """Return its value for these values of its names."""
        result: Value = self._compiled([convert(value) for value in values])
        return result


def constant(node: Node) -> Value:
    """Return the value of an expression that reads no names."""
    result: Value = _compile_node(node, {})(())
    return result


def _compile_node(node: Node, places: Mapping[str, int]) -> Compiled:
    if node.kind == "value":
        fixed = convert_literal(node.value)
        return lambda _: fixed
    if node.kind == "name":
        place = places.get(node.word)
        return (lambda _: UNDEFINED) if place is None else (lambda values: values[place])
    parts = [_compile_node(part, places) for part in node.parts]
    if node.kind == "list":
        return lambda values: tuple([part(values) for part in parts])
    if node.kind == "call":
        return _call(node.word.lower(), parts)
    return _compile_operation(node.word, parts)


def convert_literal(value: Value) -> Value:
    """Return the value of a literal, or of a part that was computed before."""
    return UNDEFINED if value is None else value


def _compile_operation(sign: str, parts: Sequence[Compiled]) -> Compiled:
    if sign in ("||", "&&"):
        return _compile_logical(*parts, decides=sign == "||")
    if sign == "?":
        return _compile_condition(*parts)
    if sign == "?:":
        first, other = parts

        def default(values: Sequence[Operand]) -> Operand:
            value = first(values)
            return other(values) if value is UNDEFINED else value

        return default
    if len(parts) == 1:
        (only,), single = parts, UNARY[sign]
        return lambda values: single(only(values))
    (left, right), both = parts, subscript if sign == "[]" else BINARY[sign]
    return lambda values: both(left(values), right(values))


def _compile_logical(left: Compiled, right: Compiled, *, decides: bool) -> Compiled:
    """Return ``||`` (decided by what is true) or ``&&`` (decided by what is false)."""

    def logical(values: Sequence[Operand]) -> Operand:
        first = is_true(left(values))
        if first is decides or first is ERROR:
            return first
        second = is_true(right(values))
        if second is decides or second is ERROR:
            return second
        return UNDEFINED if first is UNDEFINED or second is UNDEFINED else not decides

    return logical


def _compile_condition(test: Compiled, yes: Compiled, no: Compiled) -> Compiled:
    def condition(values: Sequence[Operand]) -> Operand:
        decided = is_true(test(values))
        if decided is True:
            return yes(values)
        return no(values) if decided is False else decided

    return condition


def _call(name: str, parts: Sequence[Compiled]) -> Compiled:
    if name == "ifthenelse":
        return _compile_condition(*parts) if len(parts) == 3 else (lambda _: ERROR)
    least, most, function = FUNCTIONS_OF[name]
    if not least <= len(parts) <= most:
        return lambda _: ERROR
    return lambda values: function(*[part(values) for part in parts])
