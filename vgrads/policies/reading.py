"""Parse a user's attributes into checked expressions: helpers are substituted, names resolved,
everything else is rejected."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vgrads.kernel.errors import InputError
from vgrads.policies.cost import Scales, Weight
from vgrads.policies.names import ADS, AVAILABLE, SLOTS, STATE, NameProblem, canonical, doubt
from vgrads.policies.simplify import names_in, simplified
from vgrads.policies.text import (
    LONGEST_TEXT,
    WORDS,
    ExpressionSource,
    Node,
    read_attributes,
    read_expression,
)

RESERVED = {
    name.lower() for name in (*ADS, *STATE, *WORDS, "is", "isnt", "NumberOfReplicas", "BOTsInQueue")
}
IN_FORCE = ("Deadline", "ReplicationRequirements")
"""Slots in which Concurrency is the number in force at the node; elsewhere it is the expression."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A name and its expression, parsed and as written, and its source text."""

    name: str
    node: Node
    text: str
    source: ExpressionSource


@dataclass(frozen=True, slots=True)
class Written:
    """A parsed dispatch policy: all expressions as written, the slots with all substitutions, and
    warnings."""

    texts: Mapping[str, str]
    trees: Mapping[str, Node]
    doubts: tuple[str, ...]


def read_attributes_of(values: str | Mapping[str, Any], where: str) -> list[Attribute]:
    """Return the attributes of one text or of a mapping, in order; values that are not texts are
    literals."""
    long = (
        len(values) if isinstance(values, str) else sum(len(f"{k}{v}") for k, v in values.items())
    )
    if long > LONGEST_TEXT:
        raise InputError(
            f"a policy of {long} characters",
            where=where,
            fix=f"at most {LONGEST_TEXT} are accepted",
        )
    if isinstance(values, str):
        source = ExpressionSource(values, where)
        return [_read_attribute(n, node, text, source) for n, node, text in read_attributes(source)]
    results = []
    for name, value in values.items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise InputError(f"{name!r} is not a valid name of an attribute", where=where)
        if not isinstance(value, str | bool | int | float):
            raise InputError(
                "an expression must be a string", where=f"{where}: {name}" if where else name
            )
        source = ExpressionSource(
            str(value).lower() if isinstance(value, bool) else str(value), where
        )
        results.append(_read_attribute(name, read_expression(source, name), source.text, source))
    return results


def _read_attribute(name: str, node: Node, text: str, source: ExpressionSource) -> Attribute:
    slot = next((s for s in SLOTS if s.lower() == name.lower()), name)
    return Attribute(slot, node, text, source)


def written_of(attributes: list[Attribute], where: str) -> Written:
    """Return the checked dispatch policy. Raise InputError for errors."""
    table = _Table({})
    for attribute in attributes:
        low = attribute.name.lower()
        if low in RESERVED:
            raise InputError(
                (
                    f"{attribute.name} is set by the dispatcher or the language; a policy "
                    "cannot set it"
                ),
                where=where,
                fix="choose another name",
            )
        if low in table.attributes:
            raise InputError(
                f"{attribute.name} is written twice",
                where=where,
                fix="names are not case-sensitive",
            )
        table.attributes[low] = attribute
    for attribute in attributes:
        table.weight(attribute)
    trees = {
        a.name: simplified(table.resolved(a.node, a, a.name), {})
        for a in attributes
        if a.name in SLOTS
    }
    used = table.used | {slot.lower() for slot in trees}
    for attribute in attributes:
        if attribute.name.lower() not in used:
            # its names must exist, although nobody refers to it
            table.resolved(attribute.node, attribute, "")
            _describe_unused(attribute, where)
    doubts = [
        f"{a.name} is not a policy expression, and no policy expression refers to it"
        for a in attributes
        if a.name.lower() not in used
    ]
    for slot, tree in trees.items():
        doubts += filter(None, (doubt(name) for name in sorted(set(names_in(tree)))))
        if (
            tree.kind == "value"
            and slot.endswith(("Requirements", "Policy"))
            and not isinstance(tree.value, bool)
        ):
            doubts.append(f"{slot} is never true: it always evaluates to {tree.value!r}")
    return Written({a.name: a.text for a in attributes}, trees, tuple(dict.fromkeys(doubts)))


def _describe_unused(attribute: Attribute, where: str) -> None:
    near = difflib.get_close_matches(attribute.name.lower(), [s.lower() for s in SLOTS], 1, 0.85)
    if near:
        slot = next(s for s in SLOTS if s.lower() == near[0])
        raise InputError(
            f"{attribute.name} is not a policy expression, and no policy expression refers to it",
            where=where,
            fix=f"did you mean {slot}?",
        )


@dataclass
class _Table:
    """The attributes by their lower-case names, their weights, and which are referred to."""

    attributes: dict[str, Attribute]
    weights: dict[str, Weight] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    trail: list[str] = field(default_factory=list)

    def weight(self, attribute: Attribute) -> Weight:
        """Return the cost of an expression with all its references; reject expensive expressions
        and cycles."""
        low = attribute.name.lower()
        if low not in self.weights:
            # the names on the way here: one of them again is a cycle
            self.trail.append(attribute.name)
            scales = Scales(
                attribute.source, attribute.name, lambda node: self._referred(node, attribute)
            )
            self.weights[low] = scales.checked(attribute.node)
            self.trail.pop()
        return self.weights[low]

    def _referred(self, node: Node, by: Attribute) -> Weight | None:
        other = self.attributes.get(node.word.lower())
        if other is None or (other.name == "Concurrency" and by.name in IN_FORCE):
            return None
        if other.name in self.trail:
            circle = " → ".join([*self.trail[self.trail.index(other.name) :], other.name])
            raise by.source.wrong(
                f"an expression refers to itself: {circle}", node.at, name=by.name
            )
        return self.weight(other)

    def resolved(self, node: Node, within: Attribute, slot: str) -> Node:
        """Return an expression with helpers substituted and every other name in its defined
        spelling."""
        if node.kind != "name":
            return replace(node, parts=tuple([self.resolved(p, within, slot) for p in node.parts]))
        low = node.word.lower()
        if low == "concurrency" and slot in IN_FORCE:
            return replace(node, word="Concurrency")
        if low in self.attributes:
            # what only an unused expression refers to is unused, too
            if slot:
                self.used.add(low)
            other = self.attributes[low]
            return self.resolved(other.node, other, slot)
        if low == "concurrency":
            return Node("value", value=1)
        try:
            name = canonical(node.word, [a.name for a in self.attributes.values()])
        except NameProblem as problem:
            what, fix = problem.args
            raise within.source.wrong(what, node.at, name=within.name, fix=fix) from None
        first = name.split(".")[0]
        if slot and first in ADS and first not in AVAILABLE[slot]:
            raise within.source.wrong(
                f"{name} is not available when {slot} is evaluated",
                node.at,
                name=within.name,
                fix=f"there are {', '.join(f'{ad}.…' for ad in AVAILABLE[slot])}",
            )
        return replace(node, word=name)
