"""Policies of bags: the language, what is refused and where, GridBot's examples, and agreement with
the library."""

import os
import pickle
import random
import string

import classad2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies import reference
from tests.policies.test_policy_examples import BAD, BULK, FIG3, GOOD, TAIL, replicas
from vgrads.kernel.errors import InputError
from vgrads.policies.cost import FUNCTIONS, SHOWN
from vgrads.policies.evaluation import LONGEST, MOST, constant
from vgrads.policies.policy import ERROR, RESIDUALS, SLOTS, UNDEFINED, Policy, read_policy
from vgrads.policies.slots import COUNTS, REMEMBERED
from vgrads.policies.text import ExpressionSource, read_expression

CASES = int(os.environ.get("VGRADS_POLICY_CASES", "2000"))


def refused(text, where="bag.yaml"):
    with pytest.raises(InputError) as caught:
        read_policy(text, where)
    return caught.value


# --- values ---


@pytest.mark.parametrize(
    "text", ["undefined", "error", "3", '"true"', "1.0", "{true}", "Host.Nowhere", "1 / 0"]
)
def test_only_true_is_a_yes(text):
    policy = read_policy(
        {slot: text for slot in ("JobRequirements", "ReplicationRequirements")}, "b"
    )
    left = policy.under({})
    assert left.requirements(GOOD) is False and left.replication(replicas()) is False


@pytest.mark.parametrize(
    "text", ["undefined", "error", "true", '"7"', '1.0 / real("0")', 'real("NaN")', "{1}"]
)
def test_what_is_no_finite_number(text):
    left = read_policy(dict.fromkeys(("Rank", "Concurrency", "Deadline"), text), "b").under({})
    assert (left.rank(GOOD), left.concurrency(GOOD), left.deadline(GOOD)) == (0, 1, None)


def test_numbers_are_brought_into_bounds():
    left = read_policy(
        {"Concurrency": "Host.NumCpus * 0.75", "Deadline": "Host.NumCpus - 4"}, "b"
    ).under({})
    assert left.concurrency({"NumCpus": 3}) == 2 and left.concurrency({"NumCpus": -1}) == 0
    assert left.deadline({"NumCpus": 4}) is None and left.deadline({"NumCpus": 5}) == 1


def test_undefined_and_error_are_not_truthy():
    assert not UNDEFINED and not ERROR


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        "a\0b",
        "\ud800",
        "x" * (LONGEST + 1),
        [0] * (MOST + 1),
        {"a": 1},
        object(),
        [[1]],
        b"x",
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_no_ad_may_hold_is_an_error_and_kills_nobody(value):
    policy = read_policy(
        {"JobRequirements": "isError(Host.Odd) || member(1, Host.Odd) || true"}, "b"
    )
    assert policy.under({}).requirements({"Odd": value}) in (True, False)
    verdict = policy.explain("JobRequirements", {}, {"Odd": value})
    assert verdict.value is (True if value != [[1]] else ERROR) or verdict.value is True
    assert read_policy({"Rank": "Host.Odd"}, "b").under({}).rank({"Odd": value}) == 0


def test_remembered_verdicts_tell_a_single_from_true_and_whole_from_real():
    left = read_policy({"Rank": "isBoolean(Host.X) ? 1 : isInteger(Host.X) ? 2 : 3"}, "b").under({})
    for _ in range(2):
        assert [left.rank({"X": x}) for x in (1, 1.0, True, 0, False, 0.0)] == [2, 3, 1, 2, 1, 3]
    done = read_policy({"Rank": "isBoolean(JobsDone) ? 1 : 2"}, "b")
    assert [done.under({"JobsDone": x}).rank({}) for x in (1, True, 1.0)] == [2, 1, 2]
    some = read_policy({"Rank": "isBoolean(Host.X[0]) ? 1 : 2"}, "b").under({})
    for _ in range(2):
        assert [some.rank({"X": x}) for x in ([1], (True,), [True], (1,))] == [2, 1, 1, 2]


def test_more_values_than_are_remembered_change_nothing():
    left = read_policy({"Rank": "Host.X * 2"}, "b").under({})
    assert all(left.rank({"X": i}) == 2 * i for i in (*range(REMEMBERED + 10), *range(10)))
    policy = read_policy({"Rank": "JobsLeft + Host.X", "Concurrency": "Host.X"}, "b")
    assert all(
        policy.under({"JobsLeft": i}).rank({"X": 1}) == i + 1
        for i in (*range(RESIDUALS + 10), *range(10))
    )


def test_case_is_the_same_in_policies_and_in_ads():
    left = read_policy("jobREQUIREMENTS = host.errorrate < LIMIT && !TAIL\nLimit = 0.1", "b").under(
        BULK
    )
    assert left.reads("JobRequirements") == ("Host.ErrorRate",)
    assert left.requirements({"errorRATE": 0.05}) and not left.requirements({"errorRATE": 0.5})


def test_a_host_without_an_attribute_finds_it_nowhere_else():
    policy = read_policy("NumCpus = 8\nRank = Host.NumCpus + 0 * NumCpus", "b")
    assert policy.under({}).rank({}) == 0 and policy.under({}).rank({"NumCpus": 2}) == 2


# --- how it is written ---


def test_the_three_ways_of_writing_are_one():
    lines = (
        'Rank = "a#b//c" == Host.Name ? 1 : 2 # so\n// nothing\n\nConcurrency = 2 *\n   '
        "Host.NumCpus; Deadline = 5"
    )
    ad = (
        '[ Rank = "a#b//c" == Host.Name ? 1 : 2; /* two\nlines */ Concurrency = 2 * '
        "Host.NumCpus; Deadline = 5 ]"
    )
    table = {
        "Rank": '"a#b//c" == Host.Name ? 1 : 2 # so',
        "Concurrency": "2 * Host.NumCpus",
        "Deadline": 5,
    }
    for policy in (read_policy(lines, "b"), read_policy(ad, "b"), read_policy(table, "b")):
        left = policy.under({})
        assert (left.rank({"Name": "A#B//C"}), left.concurrency(GOOD), left.deadline(GOOD)) == (
            1,
            8,
            5,
        )


def test_a_policy_can_be_stored_and_sent():
    policy = pickle.loads(pickle.dumps(read_policy(FIG3, "fig3")))
    assert isinstance(policy, Policy) and policy.under(TAIL).requirements(GOOD)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("Rank = (1 + 2", "Rank, line 1, column 14", "a ) is missing"),
        ("Rank = 1 +\nDeadline = 3", "Rank, line 1, column 11", "ends too early"),
        ("Deadline = 3\n\n  Rank = 2 * * 3", "Rank, line 3, column 14", "found '*'"),
        ("Rank = 1 2", "Rank, line 1, column 10", "end of the expression before '2'"),
        ("Rank = Tail ?: !Tail", "Rank, line 1, column 16", "found '!'"),
        ("Rank = Tail ? 1", "Rank, line 1, column 16", "a : of the condition"),
        ("Rank = {1, }", "Rank, line 1, column 12", "found '}'"),
        ("[ Rank = 1", "Rank, line 1, column 11", "expected ; at the end of the expression"),
        ("[ Rank = 1 ] x", "line 1, column 14", "unexpected text after the ad"),
        ("Rank = 'x' == Host.Name", "Rank, line 1, column 8", "double quotation marks"),
        ('Rank = 1\nDeadline = "abc', "Deadline, line 2, column 12", "does not end on its line"),
        ("Rank = 1 /* so", "Rank, line 1, column 10", "comment that does not end"),
        ("Rank = 0x1F", "Rank, line 1, column 8", "number that cannot be read"),
        ("Rank = 017", "Rank, line 1, column 8", "does not begin with 0"),
        ("Rank = 9223372036854775808", "Rank, line 1, column 8", "too large"),
        ("Rank = Host.Name = 3", "Rank, line 1, column 18", "end of the expression before '='"),
        (
            'Rank = regexp("a\\.b", Host.Name)',
            "Rank, line 1, column 17",
            "is not a valid escape in a string",
        ),
        ("Rank = [a = 1].a", "Rank, line 1, column 8", "ClassAd within an expression"),
        ("Rank = (Tail).Name", "Rank, line 1, column 9", "unknown name Tail.Name"),
        ("Rank = 1 + random(5)", "Rank, line 1, column 12", "random() is not supported"),
        ("Rank = TIME()", "Rank, line 1, column 8", "TIME() is not supported"),
        ("Rank = formatTime()", "Rank, line 1, column 8", "is not supported"),
        ('Rank = eval("1")', "Rank, line 1, column 8", "is not supported"),
        ('Rank = envV1ToV2("x")', "Rank, line 1, column 8", "cannot call a function envV1ToV2"),
        ("Rank = flor(1)", "Rank, line 1, column 8", "did you mean floor?"),
        ("Rank = member(1)", "Rank, line 1, column 8", "takes 2 arguments, not 1"),
        ("Rank = Hots.Name == 1", "Rank, line 1, column 8", "did you mean Host.Name?"),
        ("Rank = 1 - ErorRate", "Rank, line 1, column 12", "did you mean Host.ErrorRate?"),
        (
            "Rank = Job.Replica1.Hst.Name",
            "Rank, line 1, column 8",
            "did you mean Job.Replica1.Host.Name?",
        ),
        ("Rank = Job.Replica0.Name", "Rank, line 1, column 8", "unknown name Job.Replica0.Name"),
        ("Rank = Queue.Length", "Rank, line 1, column 8", "unknown name Queue.Length"),
        ("Rank = Host", "Rank, line 1, column 8", "Host is an ad"),
        ("Rank = size(Job.Replicas)", "Rank, line 1, column 13", "is an ad"),
        ("Rank = Grid.Free", "Rank, line 1, column 8", "not available when Rank is evaluated"),
        (
            "x = Host.NumCpus\nGridPolicy = x > 2",
            "x, line 1, column 5",
            "not available when GridPolicy is evaluated",
        ),
        (
            "a = 1 + b\nb = Rank\nRank = a",
            "Rank, line 3, column 8",
            "refers to itself: a → b → Rank → a",
        ),
        ("Rank = Rank", "Rank, line 1, column 8", "refers to itself"),
        ('Rank = regexp("(a+)+b", Host.Name)', "Rank, line 1, column 15", "nested quantifiers"),
        ('Rank = regexp("(a)\\\\1", Host.Name)', "Rank, line 1, column 15", "back references"),
        ('Rank = regexp("a*b*c*[de]", Host.Name)', "Rank, line 1, column 15", "too expensive"),
        ("Rank = regexp(Host.Name, Host.Grid)", "Rank, line 1, column 15", "as a string literal"),
        ("Tail = true", "", "cannot set it"),
        ("Rank = 1\nRANK = 2", "", "written twice"),
        ("JobRequirement = true", "", "did you mean JobRequirements?"),
    ],
)
def test_a_mistake_has_a_place(text, place, words):
    error = refused(text)
    assert error.where == f"bag.yaml: {place}" if place else error.where == "bag.yaml"
    assert words in str(error)
    if place:
        line, caret = error.parts
        number, column = (int(part.split()[1]) for part in place.split(", ")[-2:])
        assert line == text.split("\n")[number - 1] and caret == " " * (column - 1) + "^"


def test_a_long_line_is_shown_where_it_is_wrong():
    error = refused("Rank = " + " + ".join(["1"] * 100) + " + + * 2")
    line, caret = error.parts
    assert len(line) <= 120 and line[len(caret) - 1] == "*"


def test_bounds_of_size():
    assert "a policy of" in str(refused("Rank = 1 //" + "x" * 20_000))
    assert "brackets" in str(refused("Rank = " + "(" * 40 + "1" + ")" * 40))
    assert "too deep" in str(refused("Rank = " + " + ".join(["Host.A"] * 300)))
    doubling = (
        "\n".join(f"a{i} = a{i + 1} + a{i + 1}" for i in range(40))
        + "\na40 = Host.NumCpus\nRank = a0"
    )
    assert "too expensive" in str(refused(doubling))
    grown = (
        "\n".join(f"a{i} = strcat(a{i + 1}, a{i + 1})" for i in range(12))
        + "\na12 = Host.Name\nRank = size(a0)"
    )
    assert "too expensive" in str(refused(grown))
    assert read_policy({"Rank": " + ".join(["Host.A"] * 150)}, "b").under({}).rank({"A": 2}) == 300


@pytest.mark.parametrize("value", [None, ["a"], {"a": 1}])
def test_an_expression_is_a_text(value):
    assert "a string" in str(refused({"Rank": value}))
    assert "not a valid name" in str(refused({"a b": "1"}))


def test_doubts_are_reported():
    doubts = read_policy("Rank = Host.ErorRate\nspare = 1\nJobRequirements = 3", "b").doubts
    assert any("did you mean Host.ErrorRate?" in doubt for doubt in doubts)
    assert any(doubt.startswith("spare is not a policy expression") for doubt in doubts)
    assert any("never true" in doubt for doubt in doubts)


def test_all_functions_exist_in_the_library_and_shown():
    assert {name.lower() for name in SHOWN} == set(FUNCTIONS)
    values = ('"a"', "{1}", '{"a"}', "2", '">"')
    for name in SHOWN:
        tries = [
            classad2.ExprTree(f"{name}({', '.join(p)})")
            for n in (1, 2, 3)
            for p in reference.products(values, n)
        ]
        assert any(tree.eval() is not classad2.Value.Error for tree in tries), name


# --- why ---


def test_explaining_shows_what_was_written_and_read():
    policy = read_policy(FIG3, "fig3")
    verdict = policy.explain("JobRequirements", TAIL, host=BAD)
    assert (
        verdict.expression.startswith("!Tail ? true : regexp(")
        and verdict.value is False
        and verdict.counts is False
    )
    assert dict(verdict.values) == {"Tail": True, "Host.Name": "pc9.home", "Host.ErrorRate": 0.4}
    assert policy.explain("Deadline", TAIL, concurrency=3).value == 6000
    lost = policy.explain("Concurrency", BULK)
    assert (
        lost.value is UNDEFINED
        and lost.counts == 1
        and lost.values == (("Host.NumCpus", UNDEFINED),)
    )
    assert policy.explain("GridPolicy", BULK).expression == ""


# --- agreement with the library ---


def taken(draw):
    """A random policy that is not too dear."""
    while True:
        texts = reference.policy(draw)
        try:
            return texts, read_policy("\n".join(f"{k} = {v}" for k, v in texts.items()), "random")
        except InputError as error:
            assert "too expensive" in str(error), error


def test_agreement_with_plain_classad2():
    """Random policies over random ads: what is left, remembered or not, is what the whole ad says
    to the library."""
    draw = random.Random(20091114)
    payload = {slot: set() for slot in SLOTS}
    for _ in range(max(1, CASES // 20)):
        texts, policy = taken(draw)
        for _ in range(20):
            world = reference.world(draw)
            left = policy.under(world.state)
            for slot in SLOTS:
                if slot not in texts:
                    continue
                plain = reference.plain(texts, slot, world)
                verdict = policy.explain(
                    slot, world.state, world.agent, world.job, world.queue, world.grid, 3
                )
                assert reference.same(verdict.value, plain), (slot, texts, world)
                text = [reference.evaluate(left, slot, world) for _ in range(2)]
                assert all(reference.same(item, COUNTS[slot](plain)) for item in text), (
                    slot,
                    texts,
                    world,
                )
                payload[slot].add(repr(text[0]))
    assert all(len(values) > 1 for values in payload.values())


@pytest.mark.parametrize("first", reference.SIGNS)
def test_operators_bind_as_in_the_library(first):
    """Each pair of operators without brackets, with and without a sign before."""
    for second in reference.SIGNS:
        for a, b, c in (
            ("7", "2", "3"),
            ("true", "false", "5.5"),
            ("undefined", "1", "true"),
            ("0", "4", "error"),
        ):
            for text in (f"{a} {first} {b} {second} {c}", f"-{a} {first} {b} {second} {c}"):
                plain = reference.ours(classad2.ExprTree(text).eval())
                assert reference.same(
                    constant(read_expression(ExpressionSource(text, ""), "")), plain
                ), text


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "1",
                "2.5",
                "true",
                '"a"',
                "Host.Name",
                "Tail",
                "undefined",
                "(",
                ")",
                "+",
                "-",
                "!",
                "&&",
                "||",
                "==",
                "=?=",
                "is",
                "?",
                ":",
                "?:",
                "{",
                "}",
                ",",
                "[0]",
                "size",
                "<",
                ".",
                "%",
                "isnt",
                "=!=",
                ">>>",
                "~",
                "0.1e-3",
                ".5",
            ]
        ),
        max_size=9,
    )
)
def test_the_same_texts_are_expressions(words):
    text = " ".join(words)
    try:
        classad2.ExprTree(text)
        plain = bool(text.strip())
    except classad2.ClassAdException:
        plain = False
    try:
        read_expression(ExpressionSource(text, ""), "Rank")
    except InputError as error:
        # left out: ads, attributes of texts that are not names, "? :" for "?:", texts side by side
        left_out = (
            "ClassAd within",
            "joins names",
            "found ':'",
            "found '-'",
            "found '.'",
            "end of the expression before '\"a",
        )
        assert not plain or any(reason in str(error) for reason in left_out), (text, error)
    else:
        assert plain, text


@given(st.text(string.printable, max_size=60))
def test_any_text_is_read_or_refused(text):
    for source_text in (text, f"Rank = {text}", {"Rank": text}):
        try:
            assert isinstance(read_policy(source_text, "b"), Policy)
        except InputError as error:
            assert error.where.startswith("b")
