"""Properties of what bags are made of: columns of tasks, records, images, bundles, commands."""

import itertools
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgrads.bags.bag import Axis, BagSpec, Listed, Template
from vgrads.bags.bundle import MOST, bundle_size, limit_draw
from vgrads.bags.choice import sort_by_locality
from vgrads.dispatch.core.events import AgentJoined, BagAdded, BagCancelled, SlotChanged, TasksAdded
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.records import (
    AttemptsEnded,
    TasksAssigned,
    TasksExpired,
    TasksReplicated,
    TasksRetained,
    TasksReturned,
    pack,
    pack_end,
    packed_ends,
    unpack,
)
from vgrads.dispatch.core.snapshot import (
    pack_snapshot,
    restore_state,
    take_snapshot,
    unpack_snapshot,
)
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import ASSIGNED, DONE, DROPPED, FAILED, PENDING, TaskColumns
from vgrads.exchange.values import AttemptEnd, Hello, Message
from vgrads.kernel.errors import InputError

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["next", "pick", "back", "done", "failed", "copy", "take", "grow", "drop", "keep"]
        ),
        st.integers(0, 30),
    ),
    max_size=40,
)


def consistent(tasks, status):
    assert list(tasks.status) == status
    assert tasks.counts == [status.count(kind) for kind in range(6)]
    assert set(tasks.where) == {task for task, kind in enumerate(status) if kind == ASSIGNED}
    pending = {task for task, kind in enumerate(status) if kind == PENDING}
    assert tasks.pending == len(pending)
    assert set(tasks.replicas) <= set(tasks.where)
    if pending:
        assert set(tasks.next(len(status))) == pending
    assert len(tasks.next(2)) <= 2


@given(st.integers(0, 12), STEPS)
def test_the_columns_say_what_a_list_says(count, steps):  # noqa: C901 a table of what can happen
    tasks, status = TaskColumns(count), [PENDING] * count
    for what, n in steps:
        assigned_now = sorted(tasks.where)
        if what == "next" and tasks.pending:
            due = tasks.next(n)
            assert len(due) == min(n, tasks.pending)
            tasks.give(due, n)
            for task in due:
                status[task] = ASSIGNED
        elif what == "pick" and tasks.pending:  # out of order
            waiting = [task for task, kind in enumerate(status) if kind == PENDING]
            tasks.give([waiting[n % len(waiting)]], n)
            status[waiting[n % len(waiting)]] = ASSIGNED
        elif what in ("back", "done", "failed") and assigned_now:
            task = assigned_now[n % len(assigned_now)]
            to = {"back": PENDING, "done": DONE, "failed": FAILED}[what]
            tasks.give_back(task) if to == PENDING else tasks.end(task, to)
            status[task] = to
        elif what == "copy" and assigned_now:
            task = assigned_now[n % len(assigned_now)]
            if n + 50 not in tasks.agents_of(task):
                before = tasks.agents_of(task)
                tasks.replica(task, n + 50)
                assert tasks.agents_of(task) == [*before, n + 50]
        elif what == "take" and assigned_now:
            task = assigned_now[n % len(assigned_now)]
            first, *others = tasks.agents_of(task)
            last = tasks.take(task, first)
            assert last == (not others)
            assert tasks.agents_of(task) == (others or [first])
        elif what == "grow":
            tasks.add_tasks(n % 5)
            status += [PENDING] * (n % 5)
        elif what == "drop" and n > 25:
            tasks.drop()
            status = [DROPPED if kind in {PENDING, ASSIGNED} else kind for kind in status]
        elif what == "keep":
            again = TaskColumns(0)
            again.restore(
                bytes(tasks.status),
                tasks.attempts.tobytes(),
                dict(tasks.where),
                dict(tasks.replicas),
            )
            assert again.attempts == tasks.attempts
            tasks = again
        consistent(tasks, status)


WHOLE = st.integers(0, 2**32 - 1)
HALF = st.floats(0.0, 65504.0, width=16)
ENDS = st.builds(
    AttemptEnd,
    task=WHOLE,
    agent=WHOLE,
    at_s=st.integers(0, 2**31).map(lambda n: n / 4),
    code=st.integers(-32768, 32767),
    attempt=st.integers(0, 65535),
    ran_s=st.floats(0.0, 2.0**100, width=32),
    waited_s=HALF,
    fetched_s=HALF,
    sent_s=HALF,
    cpu_s=HALF,
    peak_gib=HALF,
).filter(lambda end: end.at_s * 100 < 2**32 - 1)
NUMBERS = st.lists(WHOLE, max_size=6).map(tuple)
RECORDS = st.one_of(
    *(
        st.builds(kind, WHOLE, WHOLE, NUMBERS)
        for kind in (TasksAssigned, TasksReturned, TasksRetained, TasksReplicated, TasksExpired)
    ),
    st.builds(AttemptsEnded, WHOLE, st.lists(ENDS, max_size=4)),
    st.builds(TasksAdded, number=WHOLE, count=WHOLE),
    st.builds(BagCancelled, number=WHOLE, at_s=st.floats(0.0, 1e9), reason=st.text(max_size=9)),
    st.builds(SlotChanged, id=st.text(max_size=9), site=st.none() | st.text(max_size=9)),
    st.builds(
        AgentJoined,
        number=WHOLE,
        id=st.text(max_size=9),
        at_s=st.floats(0.0, 1e9),
        incarnation=st.text(max_size=9),
        attributes=st.dictionaries(st.text(max_size=9), st.text() | WHOLE | st.booleans()),
    ),
    st.builds(
        BagAdded,
        number=WHOLE,
        count=WHOLE,
        at_s=st.floats(0.0, 1e9),
        name=st.text(max_size=9),
        owner=st.text(max_size=9),
        weight=st.floats(0.1, 9.0),
        procs=WHOLE,
        retries=WHOLE,
        sites=st.lists(st.text(max_size=4), max_size=2).map(tuple),
    ),
)


@given(st.lists(RECORDS, max_size=6), st.binary(max_size=3))
def test_records_survive_being_packed(records, rest):
    body = b"".join(map(pack, records))
    assert list(unpack(body)) == records
    message = [
        (r.bag, b"".join(pack_end(e) for e in r.ends))
        for r in records
        if isinstance(r, AttemptsEnded)
    ]
    assert list(packed_ends(body)) == message
    if rest:  # less than a head
        with pytest.raises(InputError):
            list(unpack(body + rest))


@given(st.floats(0.0, 1e9), st.floats(0.0, 1e9))
def test_what_does_not_fit_into_an_end_is_cut_to_the_most_that_does(waited_s, at_s):
    ((end,),) = [
        r.ends
        for r in unpack(pack(AttemptsEnded(0, [AttemptEnd(0, 0, at_s, 0, 1, waited_s=waited_s)])))
    ]
    assert end.waited_s == pytest.approx(min(waited_s, 65504.0), rel=1e-3, abs=1e-6)
    assert end.at_s == pytest.approx(min(at_s, 42949672.95), abs=0.011)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30))
def test_an_image_is_the_state(turns):
    core = Core(State(), Rules(in_hand_s=3.0), lambda _: None)
    for number in range(2):
        bag = BagSpec(name="ü", commands=Listed(["true"] * 9), owner=str(number), retries=1)
        core.add(number, bag, 0.0)
    for name in "abc":
        core.receive(
            Message(agent=name, incarnation="1", seq=1, hello=Hello(slot="s", procs=2)), 0.0
        )
    for turn, (number, good) in enumerate(turns):
        agent = core.state.agents[number]
        core.answer(agent, float(turn))
        ends = [
            (b, AttemptEnd(t, number, float(turn), 0 if good else 1, n, 0.5))
            for (b, t), n in list(agent.assigned.items())[:2]
        ]
        core.receive(Message(agent=agent.id, incarnation="1", seq=turn + 2, ends=ends), float(turn))
        snapshot = take_snapshot(core.state)
        again = restore_state(unpack_snapshot(pack_snapshot(snapshot)))
        again.check()
        assert take_snapshot(again) == snapshot


@given(st.integers(1, 512), st.none() | st.floats(0.0, 1e5), st.floats(0.0, 60.0))
def test_a_host_is_to_hold_what_it_runs_and_at_most_some_more(places, typical_s, in_hand_s):
    count = bundle_size(places, typical_s, in_hand_s)
    assert places <= count <= places + MOST
    if typical_s is not None and 0.001 < typical_s < 10.0:
        ahead_s = (count - places) * typical_s / places
        assert ahead_s <= in_hand_s + typical_s / places + 1e-6 or count == places + 1


@given(st.integers(0, 10**6), st.lists(st.integers(1, 64), min_size=1, max_size=20))
def test_parts_of_the_last_tasks_do_not_take_from_the_others(pending, agents):
    parts = [limit_draw(pending, places, sum(agents)) for places in agents]
    assert all(part >= 1 for part in parts)
    assert pending <= sum(parts) <= pending + len(agents)


@given(st.lists(st.sets(st.sampled_from("abcd")), max_size=9), st.sets(st.sampled_from("abcd")))
def test_tasks_whose_inputs_are_there_come_first(needs, cached):
    order = sort_by_locality(range(len(needs)), [sorted(n) for n in needs], cached)
    assert sorted(order) == list(range(len(needs)))
    have = [len(needs[task] & cached) for task in order]
    assert have == sorted(have, reverse=True)


def test_the_last_axis_changes_fastest():
    axes = (Axis(("a", "b"), [("1", "x"), ("2", "y")]), Axis(("c",), [("p",), ("q",), ("r",)]))
    bag = Template("{a}{b}{c} {task}", axes)
    rows = itertools.product(("1x", "2y"), "pqr")
    assert [bag.command(n) for n in range(len(bag))] == [
        f"{ab}{c} {n}" for n, (ab, c) in enumerate(rows)
    ]
    for wrong in (-1, 6):
        with pytest.raises(IndexError):
            bag.command(wrong)


NASTY = [
    "a b\"c'd$",
    "$(echo x)`id`",
    "größer 語",
    "two\nlines\n",
    "",
    "\\",
    "*",
    "-n",
    "{x}",
    "a{b",
]


@pytest.mark.parametrize("value", NASTY)
def test_the_shell_gets_the_very_value(value):
    bag = Template("printf '%s' {x}", (Axis(("x",), [(value,)]),))
    done = subprocess.run(["/bin/sh", "-c", bag.command(0)], capture_output=True, check=True)
    assert done.stdout.decode() == value


@settings(max_examples=examples(30))
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20))
def test_the_shell_gets_any_value(value):
    bag = Template("printf '%s' {x}", (Axis(("x",), [(value,)]),))
    done = subprocess.run(["/bin/sh", "-c", bag.command(0)], capture_output=True, check=True)
    assert done.stdout.decode() == value
