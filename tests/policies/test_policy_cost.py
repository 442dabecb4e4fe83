"""What a policy may cost: it is reckoned before anything is evaluated. How long what is taken
really takes is timed by ``python benchmarks/dispatch/bench_policies.py cost``; here what is taken
must come to an end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.kernel.errors import InputError
from vgrads.policies.evaluation import LONGEST, MOST, Expression
from vgrads.policies.names import in_order
from vgrads.policies.patterns import PatternError, pattern_cost_ns
from vgrads.policies.policy import ERROR, read_policy
from vgrads.policies.reading import read_attributes_of, written_of
from vgrads.policies.simplify import names_in


def refused(text, where="bag.yaml"):
    with pytest.raises(InputError) as caught:
        read_policy(text, where)
    return caught.value


@pytest.mark.parametrize(
    "pattern",
    [
        "a*[bc]",
        "^a*a*[bc]",
        ".*a.*[bc]",
        "a?a?a?a?a?a?a?[bc]",
        "(a|aa)(a|aa)(a|aa)(a|aa)[bc]",
        "a{1,20}a{1,20}[bc]",
        "(?:aa){2,}[bc]",
        "(a|b|ab)?(a|b|ab)?[xy]",
        "^[a-z]+a+[^a]",
        "a{2,9}?a{2,9}?a{2,9}?[bc]",
    ],
)
def test_patterns_that_are_taken_are_quick(pattern):
    text = "a" * LONGEST
    tree = read_policy({"Rank": f'regexp("{pattern}", Host.Name) ? 1 : 0'}, "b")
    assert tree.under({}).rank({"Name": text}) in (0, 1)
    assert tree.explain("Rank", {}, {"Name": text}).value is not ERROR
    assert ends_on_the_worst(f'regexp("{pattern}", Host.Name)')


@pytest.mark.parametrize(
    "pattern",
    [
        "(a*)*",
        "(a|b)+c",
        "(a?){30}",
        "((a)+)+",
        "(a+b){2}",
        r"(a)\1",
        "(?=a)b",
        "(?R)",
        "(?<x>a)",
        "a**",
        "*a",
        "a{,3}",
        "a{2",
        "(a",
        "a)",
        "[a",
        "a{1,1000}",
        "x" * 201,
        "a*b*c*d*",
        "a*a*[bc]",
        "(a*)(a*)[bc]",
        "a?" * 40,
        "|" * 150 + "a*a*[bc]",
        r"\Ka",
        r"\g1",
    ],
)
def test_patterns_that_are_refused(pattern):
    written = pattern.replace("\\", "\\\\")
    assert refused({"JobRequirements": f'regexp("{written}", Host.Name)'}).where.endswith(
        tuple("0123456789")
    )


@given(st.text("a*+?{}()|[]^.\\b1,", max_size=25))
def test_every_pattern_is_judged(pattern):
    try:
        cost = pattern_cost_ns(pattern, LONGEST)
    except PatternError:
        return
    assert cost > 0
    if cost <= 2e6:
        written = pattern.replace("\\", "\\\\")
        assert ends_on_the_worst(f'regexp("{written}", Host.Name)')


WORST = {
    "a list": ["a" * LONGEST] * MOST,
    "a text": "a" * LONGEST,
    "a number": 0.1,
    "numbers": [1.5] * MOST,
}


def ends_on_the_worst(expression):
    """True when an expression has been evaluated over ads of the worst kinds."""
    tree = written_of(read_attributes_of({"Rank": expression}, ""), "").trees["Rank"]
    ready = Expression(tree, in_order(set(names_in(tree))))
    values = [ready.evaluate([value] * len(ready.names)) for value in WORST.values()]
    return len(values) == len(WORST)


@pytest.mark.parametrize(
    "piece",
    [
        "Host.A{i} == Host.B{i}",
        'regexp("a[^b]*[bc]", Host.A{i})',
        "member(Host.A{i}, Host.B{i})",
        "sum(Host.A{i}) > 1",
        'anyCompare(">", Host.A{i}, Host.B{i})',
        'strcat(Host.A{i}, Host.A{i}) == "x"',
        'toUpper(Host.A{i}) == "x"',
        'regexpMember("^a+b", Host.A{i})',
        "versionGE(Host.A{i}, Host.B{i})",
        "Host.A == {i}",
        'string(Host.A{i}) == "x"',
        "quantize(Host.A{i}, 7) > {i}",
    ],
)
def test_an_expression_is_taken_up_to_a_length_and_refused_beyond(piece):
    """As many pieces as are taken at all, up to the refusal."""
    taken, refused_as = None, ""
    for count in (1, 2, 4, 8, 16, 32, 64, 128, 190):
        expression = " || ".join(piece.replace("{i}", str(i)) for i in range(count))
        try:
            read_policy({"Rank": expression}, "b")
        except InputError as error:
            refused_as = str(error)
            break
        taken = expression
    assert taken is not None
    cheap = not refused_as and piece == "Host.A == {i}"  # so many of these may stand together
    assert cheap or any(word in refused_as for word in ("too d", "long", "deep")), refused_as
    assert ends_on_the_worst(taken)
