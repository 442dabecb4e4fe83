"""Workflows whose tasks are not written down: every cell once, none before what it needs, whatever
happens."""

import random
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dispatch.bag_faults import canonical
from tests.dispatch.bag_world import simulate
from tests.examples import examples
from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.snapshot import (
    pack_snapshot,
    restore_state,
    take_snapshot,
    unpack_snapshot,
)
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import (
    ASSIGNED,
    BLOCKED,
    DONE,
    DROPPED,
    FAILED,
    PENDING,
    TaskColumns,
)
from vgrads.dispatch.fleet.virtual import VirtualAgents
from vgrads.dispatch.status import bag_json
from vgrads.dispatch.storage.journal import DispatchJournal, read_state
from vgrads.kernel.errors import InputError
from vgrads.workflows.generated.allpairs import AllPairs
from vgrads.workflows.generated.lazy import lazy_of
from vgrads.workflows.generated.wavefront import Wavefront

MEMORY = Path("/dev/shm")
DRAWS = st.integers(0, 10**6).map(random.Random)
GRIDS = st.builds(Wavefront, st.integers(1, 6), st.integers(1, 6))


def reachable(order, failed):
    """What can be done where these fail for good, by the definition alone."""
    done = set()
    for i, j in product(range(order.rows), range(order.cols)):
        needs = {(i - 1, j), (i, j - 1), (i - 1, j - 1)}
        needs = {(k, m) for k, m in needs if k >= 0 and m >= 0}
        if i * order.cols + j not in failed and needs <= done:
            done.add((i, j))
    return {i * order.cols + j for i, j in done}


@given(GRIDS, DRAWS, st.sets(st.integers(0, 35), max_size=3))
def test_any_order_of_ends_runs_every_cell_once_and_none_too_early(order, draw, failed):
    tasks, running, ran = TaskColumns(order.size, order), set(), []
    while not tasks.over:
        if tasks.pending and (not running or draw.random() < 0.6):
            task = draw.choice(tasks.next(100))
            assert all(tasks.status[need] == DONE for need in order.needs(task))
            tasks.give([task], 0)
            running.add(task)
            ran.append(task)
            continue
        task = draw.choice(sorted(running))
        running.discard(task)
        if draw.random() < 0.2:
            tasks.give_back(task)
            ran.remove(task)
        else:
            tasks.end(task, FAILED if task in failed else DONE)
        assert tasks.counts == [tasks.status.count(kind) for kind in range(6)]
    can = reachable(order, failed)
    assert {task for task in range(order.size) if tasks.status[task] == DONE} == can
    assert len(ran) == len(set(ran)) == len(can) + tasks.counts[FAILED]
    assert tasks.counts[DROPPED] == order.size - len(ran)
    assert not tasks.counts[BLOCKED]


@given(GRIDS, DRAWS)
def test_what_was_there_before_is_not_run_and_columns_that_were_stored_go_on(order, draw):
    had = sorted(draw.sample(sorted(reachable(order, set())), draw.randint(0, order.size)))
    tasks = TaskColumns(order.size, order)
    tasks.had(had)
    again, ran = TaskColumns(0, order), []
    again.restore(bytes(tasks.status), tasks.attempts.tobytes(), {}, {})
    assert (again.status, again.counts) == (tasks.status, tasks.counts)
    assert set(again.next(99)) == set(tasks.next(99))
    while again.pending:
        (task,) = again.next(1)
        again.give([task], 0)
        again.end(task, DONE)
        ran.append(task)
    assert sorted(ran + had) == list(range(order.size))


@given(st.integers(1, 12), st.integers(1, 12))
def test_blocks_of_all_pairs_have_numbers_without_gaps(rows, cols):
    whole, half = AllPairs(rows, cols), AllPairs(rows, rows, half=True)
    assert [whole.place(n) for n in range(whole.size)] == list(product(range(rows), range(cols)))
    upper = [(i, j) for i in range(rows) for j in range(i, rows)]
    assert [half.place(n) for n in range(half.size)] == upper
    assert list(half.first()) == list(range(len(upper)))


@pytest.mark.parametrize("order", [Wavefront(3, 4), AllPairs(2, 2, half=True), AllPairs(2, 5)])
def test_a_description_is_plain_and_comes_back(order):
    assert lazy_of(order.as_json()) == order


@pytest.mark.parametrize("wrong", [{}, {"kind": "tree"}, {"kind": "wavefront", "rows": 1}])
def test_what_describes_nothing_is_refused(wrong):
    with pytest.raises(InputError, match="lazy"):
        lazy_of(wrong)


def test_nothing_is_lost_or_doubled_under_random_faults(tmp_path):
    folder = MEMORY / f"vgrads-lazy-{tmp_path.name}" if MEMORY.is_dir() else tmp_path / "j"
    restarts = sum(simulate(seed, folder, lazy=1.0).restarts for seed in range(5000, 5060))
    assert restarts > 60


def simulated(order, folder, fails=lambda task: False, retries=0):
    """A bag of this order carried out by virtual hosts, with its journal."""
    journal = DispatchJournal(folder, segment_bytes=1000)
    core = Core(State(), Rules(), journal.add)
    bag = BagSpec(name="w", commands=Listed(["x"] * order.size), order=order, retries=retries)
    core.add(0, bag, 0.0)
    draw = random.Random(7)
    hosts = VirtualAgents(core, lambda _, task, __: (draw.uniform(0.1, 3.0), int(fails(task))))
    for n in range(3):
        hosts.join(f"h{n}", procs=2)
    images = []
    while not core.state.bags[0].over:
        hosts.run(until_s=hosts.next_s)
        core.state.check()
        if group := journal.take():
            journal.write(group)
        images.append(
            canonical(restore_state(unpack_snapshot(pack_snapshot(take_snapshot(core.state)))))
        )
        assert images[-1] == canonical(core.state)
        if journal.full:
            journal.roll(core.state).carry_out()
    journal.close()
    return core


def test_journal_and_images_give_the_same_state(tmp_path):
    core = simulated(Wavefront(7, 5), tmp_path)
    assert core.state.bags[0].tasks.counts == [0, 0, 35, 0, 0, 0]
    again = read_state(tmp_path)
    assert again.bags[0].tasks.status == core.state.bags[0].tasks.status
    assert again.bags[0].tasks.order == Wavefront(7, 5)
    assert list(tmp_path.glob("image-*"))  # it was cut on the way


def test_what_needs_a_failed_task_is_dropped_with_the_reason(tmp_path):
    bag = simulated(Wavefront(4, 4), tmp_path, fails=lambda task: task == 5, retries=1).state.bags[
        0
    ]
    can = reachable(Wavefront(4, 4), {5})
    assert {n for n in range(16) if bag.tasks.status[n] == DONE} == can
    assert bag.tasks.failures[5] == 2
    assert bag.ended_s is not None
    payload = bag_json(bag, 0.0)
    assert payload["state"] == "failed"
    assert len(can) == 7
    assert (
        payload["reason"]
        == "8 tasks can never be ready, because they need 1 that failed, the first task 5"
    )


@settings(max_examples=examples(20))
@given(GRIDS)
def test_cancelling_drops_also_what_is_not_ready(order):
    tasks = TaskColumns(order.size, order)
    tasks.give(tasks.next(1), 0)
    assert tasks.drop() == [0]
    assert tasks.counts[DROPPED] == order.size
    assert not any(tasks.counts[kind] for kind in (PENDING, ASSIGNED, BLOCKED))


def test_hosts_that_have_recorded_are_reported():
    core = Core(State(), Rules(), lambda _: None)
    order = Wavefront(2, 2)
    core.add(0, BagSpec(name="w", commands=Listed(["x"] * 4), order=order), 0.0)
    hosts = VirtualAgents(core, lambda *_: (1.0, 0))
    hosts.join("h")
    hosts.run(until_s=0.5)
    (host,) = core.state.agents.values()
    assert host.assigned == {(0, 0): 1}
    core.have(0, [0, 1, 3], 0.5)
    assert not host.assigned
    assert host.to_cancel == [(0, 0, 1)]
    core.state.check()
    assert core.state.bags[0].tasks.next(9) == [2]
