"""What bags survive: faulty hosts, lost and late messages, a dispatcher killed at any byte of its
journal."""

import heapq
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.dispatch.bag_faults import canonical, same
from tests.dispatch.bag_world import simulate
from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.core.events import BagFailed
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.records import AttemptsEnded, TasksAssigned, pack, unpack
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.fleet.virtual import VirtualAgents
from vgrads.dispatch.storage.journal import DispatchJournal, read_ends, read_state
from vgrads.exchange.values import AttemptEnd, Hello, Message
from vgrads.kernel.errors import InputError

pytestmark = pytest.mark.more

SCHEDULES = int(os.environ.get("VGRADS_SCHEDULES", "200"))
MEMORY = Path("/dev/shm")


@pytest.fixture
def quick_folder():
    """A folder where a write to the disk costs nothing, if the machine has one."""
    folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
    yield folder / "journal"
    shutil.rmtree(folder)


def test_nothing_is_lost_or_doubled_under_random_faults(quick_folder):
    bad, restarts = {}, 0
    for seed in range(SCHEDULES):
        try:
            restarts += simulate(seed, quick_folder).restarts
        except (AssertionError, InputError) as wrong:
            bad[seed] = str(wrong)[:200]
    assert not bad, bad
    assert restarts > 1.5 * SCHEDULES  # they were killed often enough


def bag_of(count, **named):
    return BagSpec(name="b", commands=Listed(["true"] * count), **named)


def greet(core, id, at_s, procs=1, reserved=(), ends=(), incarnation="1", seq=1, left_s=None):
    hello = Hello(slot="s", procs=procs, assigned=reserved, left_s=left_s)
    message = Message(agent=id, incarnation=incarnation, seq=seq, hello=hello, ends=ends)
    assert core.receive(message, at_s)
    return core.state.agents[core.state.by_id[id]]


def a_journal(folder):
    """A bag of ten on two hosts, with a failure and a host that is lost; whole groups, one a
    turn."""
    journal = DispatchJournal(folder, 1 << 20)
    core = Core(State(), Rules(in_hand_s=1.0), journal.add)
    groups, acknowledged, done = [], [], set()

    def commit():
        if group := journal.take():
            groups.append(group)
            acknowledged.append(set(done))
            journal.write(group)

    core.add(0, bag_of(10), 0.0)
    agents = [greet(core, name, 0.1, procs=2) for name in "ab"]
    commit()
    for turn in range(1, 7):
        for agent in [agent for agent in agents if agent.here]:
            triples = core.answer(agent, float(turn)).give
            commit()
            code = 1 if turn == 2 else 0
            ends = [
                (b, AttemptEnd(t, agent.number, turn + 0.5, code, n, 0.5)) for b, t, n in triples
            ]
            assert core.receive(
                Message(agent=agent.id, incarnation="1", seq=turn + 1, ends=ends), turn + 0.5
            )
            done |= {t for _, t, _ in triples if code == 0}
            commit()
        if turn == 3:
            core.gone(agents[1], 3.6, lost=True)
    journal.close()
    return groups, acknowledged


def test_a_dispatcher_killed_at_every_byte_of_its_journal_goes_on(quick_folder):
    groups, acknowledged = a_journal(quick_folder)
    segment = quick_folder / "seg-000001.log"
    body = segment.read_bytes()
    assert body == b"".join(groups)
    borders = [0]
    for group in groups:
        borders.append(borders[-1] + len(group))
    for cut in range(len(body) + 1):
        segment.write_bytes(body[:cut])
        state = read_state(quick_folder)
        assert segment.stat().st_size == cut  # who reads changes nothing
        DispatchJournal(quick_folder).close()
        assert segment.stat().st_size == max(b for b in borders if b <= cut)
        state.check()
        written = sum(b <= cut for b in borders) - 1
        existing = acknowledged[written - 1] if written else set()
        assert existing == {
            t for b in state.bags.values() for t, s in enumerate(b.tasks.status) if s == 2
        }
        finish(state, cut, len(body))


def finish(state, cut, whole):
    """Hosts come back with what they had; everything is done, each task once."""
    message = []
    core = Core(
        state, Rules(), lambda _: None, lambda b, e, effect: message.append((e.task, effect))
    )
    if 0 not in state.bags:
        core.add(0, bag_of(10), 20.0)
    else:
        core.attach(0, bag_of(10))
    core.awake_after_restart(20.0)
    before = state.bags[0].tasks.counts[2]
    lost = {t: a for h in state.agents.values() for (_, t), a in list(h.assigned.items())[:1]}
    agents = []
    for name in "ab":
        existing = state.agents.get(state.by_id.get(name, -1))
        reserved = (
            [(0, t, a) for (_, t), a in existing.assigned.items() if t not in lost]
            if existing
            else []
        )
        agents.append((greet(core, name, 21.0, procs=2, reserved=reserved, seq=50), reserved))
    for turn in range(60):
        for agent, reserved in agents:
            seq = 51 + turn
            ends = [
                (b, AttemptEnd(t, agent.number, 22.0 + turn, 0, n, 0.5)) for b, t, n in reserved
            ]
            assert core.receive(
                Message(agent=agent.id, incarnation="1", seq=seq, ends=ends), 22.0 + turn
            )
            reserved[:] = core.answer(agent, 22.0 + turn).give
            state.check()
    assert state.bags[0].over, (cut, whole)
    assert state.bags[0].tasks.counts[2] == 10
    assert sum(effect.counts for _, effect in message) == 10 - before


def test_what_is_damaged_within_is_refused_and_what_is_torn_is_cut_off(quick_folder):
    groups, _ = a_journal(quick_folder)
    segment = quick_folder / "seg-000001.log"
    body = segment.read_bytes()
    last = len(body) - len(groups[-1])
    for retained in range(len(groups[-1])):
        segment.write_bytes(body[: last + retained] + bytes(len(groups[-1]) - retained))
        read_state(quick_folder)
        DispatchJournal(quick_folder).close()
        assert segment.stat().st_size in (last, last + 12, len(body))  # 12: a head without a body
    for at in range(len(groups[0]) + 4, last, 97):
        segment.write_bytes(body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
        with pytest.raises(InputError, match="damaged"):
            read_state(quick_folder)


def test_a_roll_waits_for_the_group_that_is_being_collected(quick_folder):
    journal = DispatchJournal(quick_folder, 10)
    core = Core(State(), Rules(), journal.add)
    core.add(0, bag_of(2), 0.0, open_=True)
    journal.write(journal.take())
    core.add_tasks(0, 3)
    assert not journal.full
    journal.write(journal.take())
    assert journal.full
    journal.roll(core.state).carry_out()
    core.close(0, 1.0)
    journal.write(journal.take())
    journal.close()
    again = read_state(quick_folder)
    assert len(again.bags[0].tasks) == 5
    assert same(canonical(again), canonical(core.state))


def test_ends_are_read_alike_from_segments_and_from_what_is_left_of_them(quick_folder):
    journal = DispatchJournal(quick_folder, 200)
    core = Core(State(), Rules(), journal.add)
    core.add(0, bag_of(30), 0.0)
    agent = greet(core, "a", 0.0, procs=4)
    message = []
    for turn in range(40):
        values = core.answer(agent, float(turn)).give
        ends = [(b, AttemptEnd(t, 0, float(turn), 0, n, 1.0)) for b, t, n in values]
        message += [end.task for _, end in ends]
        core.receive(Message(agent="a", incarnation="1", seq=turn + 2, ends=ends), float(turn))
        if group := journal.take():
            journal.write(group)
        if journal.full:
            roll = journal.roll(core.state)
            if turn % 2:
                roll.carry_out()
    journal.close()
    assert sorted(message) == list(range(30))
    read = [int(task) for part in read_ends(quick_folder, 0) for task in part["task"]]
    assert read == message


# single faults, as they were found


def core_with(count, *names, procs=1, **rules):
    records = []
    core = Core(State(), Rules(**rules), records.append)
    core.add(0, bag_of(count), 0.0)
    return core, [greet(core, name, 0.0, procs=procs) for name in names], records


def test_a_hello_that_comes_late_takes_nothing_from_its_host():
    core, (agent,), _ = core_with(3, "a")
    values = core.answer(agent, 0.1).give
    late = Message(agent="a", incarnation="1", seq=1, hello=Hello(slot="s"))
    assert not core.receive(late, 0.2)
    assert agent.assigned == {(b, t): n for b, t, n in values}


def test_the_end_of_an_earlier_attempt_does_not_hold_a_later():
    core, (agent, _), _ = core_with(1, "a", "b")
    ((_, task, first),) = core.answer(agent, 0.1).give
    core.gone(agent, 1.0, lost=True)
    greet(core, "a", 2.0, seq=2)
    ((_, _, second),) = core.answer(agent, 2.0).give
    assert second == first + 1  # and this answer is lost with its connection
    greet(core, "a", 3.0, seq=3, ends=[(0, AttemptEnd(task, agent.number, 3.0, 1, first))])
    assert not agent.assigned
    assert core.answer(agent, 3.0).give == [(0, task, second + 1)]


def test_a_late_success_ends_a_newer_attempt_on_the_same_host():
    core, (agent,), _ = core_with(1, "a")
    ((_, task, first),) = core.answer(agent, 0.1).give
    core.gone(agent, 1.0, lost=True)
    greet(core, "a", 2.0, seq=2)
    ((_, _, second),) = core.answer(agent, 2.0).give
    late = [(0, AttemptEnd(task, agent.number, 3.0, 0, first))]
    assert core.receive(Message(agent="a", incarnation="1", seq=3, ends=late), 3.0)
    assert core.answer(agent, 3.0).cancel == [(0, task, second)]
    assert not agent.busy_procs


def test_of_two_agents_of_a_single_host_the_first_is_past_also_after_a_restart(quick_folder):
    journal = DispatchJournal(quick_folder)
    core = Core(State(), Rules(), journal.add)
    greet(core, "a", 0.0, incarnation="1")
    greet(core, "a", 1.0, incarnation="2")
    journal.write(journal.take())
    journal.roll(core.state).carry_out()
    journal.close()
    again = Core(read_state(quick_folder), Rules(), lambda _: None)
    for item in (core, again):
        assert item.is_past(Message(agent="a", incarnation="1", seq=9))
        assert not item.is_past(Message(agent="a", incarnation="2", seq=9))


def test_a_host_that_waits_is_answered_once_in_a_round():
    core, (agent, _), _ = core_with(0, "a", "b")
    assert not core.answer(agent, 0.1)
    core.disconnect(agent, "released")
    core.add(1, bag_of(1), 0.2)
    assert [h.id for h, _ in core.due(0.2)] == ["a"]


def test_a_cancelled_bag_does_not_grow_and_comes_back_cancelled(quick_folder):
    journal = DispatchJournal(quick_folder)
    core = Core(State(), Rules(), journal.add)
    core.add(0, bag_of(5), 0.0, open_=True)
    core.answer(greet(core, "a", 0.0), 0.1)
    core.cancel(0, 1.0, "no more wanted")
    core.add_tasks(0, 3)
    assert core.state.bags[0].over
    journal.write(journal.take())
    journal.roll(core.state).carry_out()
    journal.close()
    again = read_state(quick_folder)
    again.check()
    assert again.bags[0].tasks.next(10) == []


def test_what_is_released_goes_to_the_host_that_waits():
    core, (busy,), _ = core_with(3, "a", in_hand_s=5.0)
    core.state.bags[0].typical_s = 1.0
    values = core.answer(busy, 0.1).give
    assert len(values) == 3
    idle = greet(core, "b", 1.0)
    assert not core.answer(idle, 1.0)
    core.level()
    ((_, answer),) = [(h, core.answer(h, 1.0)) for h in (busy,)]
    assert answer.evict == values[-1:]
    assert core.receive(Message(agent="a", incarnation="1", seq=2, returned=answer.evict), 1.1)
    assert not core.answer(busy, 1.1).give
    ((agent, answer),) = core.due(1.1)
    assert agent is idle
    assert [task for _, task, _ in answer.give] == [values[-1][1]]


def test_the_last_tasks_are_parted_among_the_hosts():
    core, agents, _ = core_with(8, "a", "b", in_hand_s=10.0)
    core.state.bags[0].typical_s = 1.0
    assert [len(core.answer(agent, 5.0).give) for agent in agents] == [4, 2]


def test_behind_another_bag_nothing_is_assigned_ahead_to_a_host_that_ends():
    core = Core(State(), Rules(in_hand_s=20.0), lambda _: None)
    core.add(0, bag_of(1, estimate_s=4.9), 0.0)
    core.add(1, bag_of(9, estimate_s=1.0), 0.0)
    agent = greet(core, "a", 0.0, left_s=5.0)
    assert [bag for bag, _, _ in core.answer(agent, 0.0).give] == [0]
    alone = greet(core, "b", 0.0, left_s=5.5)
    assert len(core.answer(alone, 0.0).give) <= 5


def test_an_end_reported_twice_in_a_single_message_is_written_once():
    core, (agent,), records = core_with(1, "a")
    core.answer(agent, 0.1)
    ends = [
        (0, AttemptEnd(0, 0, 1.0, 0, 1)),
        (0, AttemptEnd(0, 0, 1.0, 0, 1)),
        (0, AttemptEnd(7, 0, 1.0, 0, 1)),
    ]
    assert core.receive(Message(agent="a", incarnation="1", seq=2, ends=ends), 1.0)
    assert [len(r.ends) for r in records if isinstance(r, AttemptsEnded)] == [1]


# where hosts do as they are told


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_owners_get_processor_seconds_by_weight(weight):
    draw = random.Random(7)
    runs = [draw.choice((0.3, 1.0, 5.0, 20.0)) for _ in range(5000)]
    core = Core(State(), Rules(), lambda _: None)
    agents = VirtualAgents(core, lambda bag, task, _: (runs[(task * 7 + bag) % 5000], 0))
    for number, (owner, heavy) in enumerate((("a", 1.0), ("b", weight), ("a", 1.0))):
        core.add(number, bag_of(100_000, owner=owner, weight=heavy), 0.0)
    for n in range(20):
        agents.join(f"h{n}", procs=1 + n % 2)
    agents.run(until_s=60.0)
    spent = []
    for until_s in (60.0, 660.0):
        agents.run(until_s=until_s)
        bags = core.state.bags
        spent.append((bags[0].ran_s + bags[2].ran_s, bags[1].ran_s))
    a_s, b_s = (late - early for early, late in zip(*spent, strict=True))
    assert b_s / a_s == pytest.approx(weight, rel=0.05)


def test_next_available_serves_bags_in_the_order_in_which_they_came():
    order = []
    core = Core(
        State(),
        Rules(policy="next-available"),
        lambda r: order.extend([r.bag] * len(r.tasks)) if isinstance(r, TasksAssigned) else None,
    )
    for number, weight in enumerate((1.0, 9.0, 1.0)):
        core.add(number, bag_of(50, owner=f"o{number}", weight=weight), 0.0)
    agents = VirtualAgents(core, lambda *_: (1.0, 0))
    for n in range(4):
        agents.join(f"h{n}", procs=2)
    agents.run(over=lambda: all(bag.over for bag in core.state.bags.values()))
    assert order == sorted(order)
    assert len(order) == 150


@pytest.mark.parametrize("seed", range(4))
def test_bundles_never_hurt(seed):
    draw = random.Random(seed)
    runs = [0.01 * 60_000.0 ** draw.random() for _ in range(400)]
    procs = [draw.choice((1, 2, 4)) for _ in range(8)]

    core = Core(State(), Rules(), lambda _: None)
    core.add(0, bag_of(400), 0.0)
    agents = VirtualAgents(core, lambda _, task, __: (runs[task], 0))
    for n, places in enumerate(procs):
        agents.join(f"h{n}", procs=places)
    agents.run(over=lambda: core.state.bags[0].over)
    free = [0.0] * sum(procs)  # one by one: each task to the processor that is free first
    for run_s in runs:
        heapq.heapreplace(free, free[0] + run_s + 0.002)
    assert core.state.bags[0].ended_s <= 1.02 * max(free)


def test_records_survive_being_packed():
    record = BagFailed(number=0, at_s=1.5, reason="größer\n")
    assert list(unpack(pack(record) + pack(TasksAssigned(1, 2, [3, 4])))) == [
        record,
        TasksAssigned(1, 2, (3, 4)),
    ]
