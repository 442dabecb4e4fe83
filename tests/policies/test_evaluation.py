"""Evaluation of generated expressions: as the library of HTCondor evaluates them."""

import random

import classad2
import pytest

from tests.policies import reference
from vgrads.policies.evaluation import constant
from vgrads.policies.text import ExpressionSource, read_expression
from vgrads.policies.values import ERROR, UNDEFINED

EXPRESSIONS = 10_000
VALUES = (
    *("undefined", "error", "true", "false", "0", "3", "-2", "7", "63", "9223372036854775807"),
    *("2.5", "-0.5", "1e3", '""', '"a"', '"B"', '"abc"', '"1.10"', '"1.09"', '"a1"', '"3x"'),
    *("{}", "{1,2}", '{"a",undefined}', "{true,2.5}", "{error,1}", '{"A","b"}', '{"a",{1}}'),
)
CALLS = {
    1: reference.CALLS[1],
    2: (
        *reference.CALLS[2],
        *("versioncmp", "versionGT", "versionLT", "versionLE", "versionEQ"),
        *("regexp", "regexpMember"),
    ),
    3: ("ifThenElse", "substr", "strcat", "regexp", "regexpMember"),
}
COMPARED = ("<", "<=", "==", "!=", ">", "is", "isnt", "x")
PATTERNS = ("b", "^a", "o.*n", "[0-9]+", "OSG|B", "[[:alpha:]]+$")


def generated(draw, depth):
    """An expression over values of every kind, each part in brackets."""
    if depth == 0 or draw.random() < 0.15:
        return draw.choice(VALUES)
    first, second, third = parts = [generated(draw, depth - 1) for _ in range(3)]
    kind = draw.randrange(9)
    if kind < 3:
        return f"(({first}) {draw.choice(reference.SIGNS)} ({second}))"
    if kind == 3:
        return f"({draw.choice('!-+~')}({first}))"
    if kind == 4:
        return f"(({first}) ? ({second}) : ({third}))"
    if kind == 5:
        name, sign = draw.choice(("anyCompare", "allCompare")), draw.choice(COMPARED)
        return f'{name}("{sign}", {first}, {second})'
    if kind == 6:
        return f"({first})[{second}]"
    if kind == 7:
        return f'regexp("{draw.choice(PATTERNS)}", {first})'
    count = draw.randrange(1, 4)
    return f"{draw.choice(CALLS[count])}({', '.join(parts[:count])})"


def value_of(text):
    return constant(read_expression(ExpressionSource(text, ""), ""))


def test_generated_expressions_have_the_values_of_the_library():
    draw = random.Random(54)
    kinds = set()
    for _ in range(EXPRESSIONS):
        text = generated(draw, draw.randrange(1, 4))
        plain = reference.ours(classad2.ExprTree(text).eval())
        assert reference.same(value_of(text), plain), text
        kinds.add(type(plain))
    assert len(kinds) == 6


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true || error", True),
        ("undefined || false", UNDEFINED),
        ("1 / 0", ERROR),
        ("9223372036854775807 + 1", -(2**63)),
        ("1e308 * 10", ERROR),
        ('"A" == "a"', True),
        ('"A" =?= "a"', False),
        ("5 % -3", 2),
        ("-1 >>> 1", 2**63 - 1),
        ('versioncmp("1.10", "1.9") > 0', True),
        ('regexp("^OSG", "osg-1", "i")', True),
        ("sum({1, undefined, 2.5})", 3.5),
        ("quantize(5, {2, 4, 8})", 8),
    ],
)
def test_peculiarities(text, value):
    """Without the library, on every system."""
    assert reference.same(value_of(text), value)
