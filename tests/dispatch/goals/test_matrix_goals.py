"""Matrices with goals: from the command to the nodes, the promise and the page; runs that are
continued, and what cannot be."""

import signal
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dispatch.test_goals import QUEUE, World, cloud, source, view
from tests.dispatch.test_matrix import SLOW, begun, wavefront_of
from tests.examples import examples
from vgrads.api.bags.matrices import Digests, MatrixProblem, lay_out, program
from vgrads.api.bags.matrix_goals import MatrixGoal, make_matrix_goal
from vgrads.bags.bag import BagGoal, BagSpec, Listed
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.fleet.goal_view import count_goal_progress, make_view, measure_remaining_work
from vgrads.dispatch.fleet.goals import GoalControl
from vgrads.dispatch.fleet.site_view import SiteHealth, SiteInventory
from vgrads.dispatch.fleet.worker_time import WorkerTime
from vgrads.dispatch.storage.folder import open_bag
from vgrads.dispatch.storage.matrix_store import MatrixStore
from vgrads.kernel.errors import InputError
from vgrads.pool.deadline.width import Width
from vgrads.portal.web.bags.goal import goal_view
from vgrads.workflows.generated.wavefront import Wavefront

WIDE_QUEUE = QUEUE.replace("procs = 4", "procs = 64\ncores_per_node = 4")


def matrix_world(folder, sites, rows, cols, kind="wavefront", **more):
    """A matrix of blocks of 2 × 2 cells at simulated sites; each block runs for a minute."""
    items = [(str(n), folder / "f") for n in range(max(rows, cols))]
    (folder / "f").write_text("")
    problem = MatrixProblem(
        kind=kind,
        rows=rows,
        cols=cols,
        border=[b"1"] * (rows + cols + 1) if kind == "wavefront" else (),
        a=items[:rows] if kind == "allpairs" else (),
        b=items[:cols] if kind == "allpairs" else (),
        function=program(["true"]),
    )
    place = folder / "dispatcher" / "bags" / "0000"
    lay_out(place, problem, Digests.of(problem), problem.grid(2), folder / "m")
    document = {"name": "m", "command": "block", "runtime_s": 60, "probability": 0.9, **more}
    return World(folder, sites, document)


def nodes_over_time(world):
    return [(at_s, sum(nodes.values())) for at_s, nodes in world.goal()["nodes_over_time"]]


@pytest.mark.more
def test_a_wavefront_is_done_in_time_by_as_many_nodes_as_its_width_lets_run(tmp_path):
    world = matrix_world(tmp_path, cloud(billing="1s"), 40, 40, deadline="2h")
    bag = world.run().state.bags[0]
    goal = world.goal()
    assert (bag.tasks.counts[2], goal["left"], goal["promise"]) == (400, 0, 1.0)
    assert 39 * 60.0 < goal["reached_s"] <= goal["due_s"] == 7200.0
    counts = nodes_over_time(world)
    most = max(count for _, count in counts)
    assert 2 <= most <= 5  # 20 blocks at once, 4 on a node
    for at_s, count in counts:  # the boot takes two minutes, a decision a minute
        blocks = min(20, 1 + (at_s + 240.0) / 60.0)
        assert count <= -(-blocks // 4)
    assert goal["promises"][0][1] >= 0.9


@pytest.mark.more
def test_no_node_is_paid_that_has_no_block(tmp_path):
    world = matrix_world(tmp_path, cloud(billing="1s"), 50, 50, deadline="80m").run()
    work_usd = 625 * 60.0 / 4 / 3600.0
    assert world.goal()["reached_s"] <= 4800.0
    assert work_usd < world.spent_usd < 1.25 * work_usd


@pytest.mark.more
def test_without_a_width_the_same_bag_gets_more_nodes_at_once(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "a").mkdir()
    wave, pairs = (
        matrix_world(tmp_path / name, cloud(billing="1s"), 40, 40, kind, deadline="70m").run()
        for name, kind in (("w", "wavefront"), ("a", "allpairs"))
    )
    first = [next(count for _, count in nodes_over_time(w) if count) for w in (wave, pairs)]
    assert first[0] == 1 < first[1]
    assert pairs.goal()["promise"] == wave.goal()["promise"] == 1.0


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (2, 9), (5, 5)])
def test_small_matrices_are_done_in_time(tmp_path, rows, cols):
    world = matrix_world(tmp_path, cloud() + QUEUE, rows, cols, deadline="1h").run()
    blocks = -(-rows // 2) * -(-cols // 2)
    assert world.goal()["required"] == world.state.bags[0].tasks.counts[2] == blocks
    assert world.goal()["promise"] == 1.0
    assert "in time, after" in goal_view(world.statuses[-1]["bags"][0], None)["what"]


def test_a_deadline_that_is_shorter_than_the_chain_is_said_and_all_cells_are_done(tmp_path):
    world = matrix_world(tmp_path, WIDE_QUEUE, 40, 40, deadline="10m").run()
    goal = world.goal()
    first = next(r for r in world.statuses[-1]["reasons"] if r["site"] == "m")
    assert first["reason"].startswith("the deadline cannot be kept: 400 tasks of 60 s, 39 of them")
    assert first["at_s"] < 1.0
    assert {promise for _, promise in goal["promises"]} == {0.0}
    assert world.state.bags[0].tasks.counts[2] == 400
    assert goal["reached_s"] < 2.0 * 39 * 60.0  # as soon as possible, not with a single node
    assert goal["promise"] == 0.0


@settings(max_examples=examples(8))
@given(
    sides=st.tuples(st.integers(1, 16), st.integers(1, 16)),
    budget=st.integers(0, 300).map(lambda cents: cents / 100.0),
    deadline_s=st.sampled_from([60, 1800, 7200]),
    kind=st.sampled_from(["wavefront", "allpairs"]),
    queue=st.booleans(),
)
def test_the_budget_of_a_matrix_is_never_exceeded(
    tmp_path_factory, sides, budget, deadline_s, kind, queue
):
    folder = tmp_path_factory.mktemp("w")
    sites = cloud(billing="1s", spot_price_usd_per_hour=0.3) + WIDE_QUEUE * queue
    world = matrix_world(folder, sites, *sides, kind, deadline=deadline_s, budget_usd=budget).run()
    assert world.spent_usd <= budget + 1e-9
    assert queue <= world.state.bags[0].over


def test_a_wavefront_that_is_continued_has_its_width_and_its_deadline(tmp_path):
    world = matrix_world(tmp_path, WIDE_QUEUE, 60, 60, deadline="9h")
    bag = world.run(end_at=40).state.bags[0]
    due_s, done, goal = (
        world.goal()["due_s"],
        bag.tasks.counts[2],
        open_bag(world.folder, 0).bag.goal,
    )
    assert 40 <= done < 900
    assert (goal.deadline_s, goal.probability) == (9 * 3600.0, 0.9)
    assert count_goal_progress(bag, goal) == (900, done, 0)
    view = make_view(bag, goal, 0.0, bag.came_s)
    assert sum(view.width.levels) == view.left == 900 - done
    assert len(view.width.levels) < 59
    world.run()
    assert world.goal()["due_s"] == due_s
    assert world.state.bags[0].tasks.counts[2] == 900
    assert world.goal()["promise"] == 1.0


def test_blocks_that_were_in_the_matrix_file_are_no_sample_of_the_run_time():
    core = Core(State(), Rules(), lambda _: None)
    goal = BagGoal(deadline_s=3600.0)
    order = Wavefront(8, 8)
    blocks = BagSpec(name="m", commands=Listed(["x"] * 64), order=order, estimate_s=60.0, goal=goal)
    core.add(0, blocks, 0.0)
    before = make_view(core.state.bags[0], goal, 0.0, 0.0)
    assert (before.left, before.ready, before.sampled) == (64, 1, 0)
    assert before.width.levels == (1, 2, 3, 4, 5, 6, 7, 8, 7, 6, 5, 4, 3, 2, 1)
    core.have(0, range(32), 0.0)
    view = make_view(core.state.bags[0], goal, 0.0, 0.0)
    assert (view.left, view.ready, view.sampled, view.each_s) == (32, 1, 0, 60.0)
    assert view.width.levels == (1, 2, 3, 4, 4, 4, 4, 4, 3, 2, 1)
    assert measure_remaining_work(view, WorkerTime()).error == 0.3


def wide_view(due_s, now_s=0.0):
    width = Width(Wavefront(20, 20).levels(np.ones(400, np.bool_)))
    goal = BagGoal(deadline_s=due_s)
    more = {"left": 400, "tasks": 400, "each_s": 60.0, "ready": 1, "width": width, "goal": goal}
    return view(now_s=now_s, due_s=due_s, **more)


def decided(control, stated, sources, agents=()):
    health = {where.name: SiteHealth() for where in sources}
    present = {where.name: SiteInventory() for where in sources}
    present[sources[0].name].agents.extend(agents)
    return control.decide(stated, sources, present, health).nodes


def test_the_slack_of_a_wavefront_is_what_its_chain_leaves():
    """Its 400 minutes of work would leave 60 workers 45 minutes to wait for spot nodes."""
    sources = [source("c", 1.0), source("c", 0.3, market="spot")]
    for due_s, expected in ((3200.0, {"c": 1}), (8000.0, {"c spot": 1})):
        control = GoalControl()
        control.observe_spot("c spot", False, 0.0)
        assert decided(control, wide_view(due_s), sources) == expected
        assert max(planned.plan.cloud for planned in control.plan.front) >= 2


def test_a_second_queue_gets_the_nodes_that_the_first_leaves_work_for():
    sources = [replace(source(name), waits_s=(10.0,) * 50 + (3000.0,) * 50) for name in ("p", "q")]
    control = GoalControl()
    before = decided(control, wide_view(5500.0), sources)
    assert min(before.values()) >= 2
    agents = [SimpleNamespace(leaving="", ends_s=1e6) for _ in range(before["p"])]
    after = decided(control, wide_view(5500.0, 30.0), sources, agents)
    assert after == {"p": before["p"], "q": 5 - before["p"]}


def test_workers_that_wait_for_blocks_are_no_overhead():
    measured = WorkerTime()
    for n in range(30):  # four workers, two of them without work
        measured.look(10.0 * n, 4, 2 * n, waiting=False)
    assert measured.overhead_s(10.0) == 0.0
    measured.look(300.0, 4, 60, waiting=True)  # it has not been so since the last look
    assert measured.overhead_s(10.0) == 0.0
    for n in range(1, 31):  # a task takes 10 s, and another 2 s until the next one
        measured.look(300.0 + 12.0 * n, 4, 60 + 4 * n, waiting=True)
    assert measured.overhead_s(10.0) == pytest.approx(2.0, abs=0.4)


# the goal in the matrix file


def store_of(path, **goal):
    problem = {"kind": "wavefront", "rows": 2, "cols": 2, "high": 1, "wide": 1}
    store = MatrixStore(path, {"grid": problem}, write=True)
    if goal:
        store.note_goal(MatrixGoal(**goal).as_json())
    return store


def test_the_goal_in_a_matrix_file_is_the_last_one(tmp_path):
    store = store_of(tmp_path / "m", deadline_s=60.0, since_unix_s=1000.0, budget_usd=5.0)
    goal = MatrixGoal.read(store.goal)
    store.note_goal(goal.with_spent("bag-1", 2.0).with_spent("bag-1", 3.0).as_json())
    store.append([(0, b"\x01\x00\x00\x00v")])
    store.close()
    read = MatrixStore(tmp_path / "m")
    goal = MatrixGoal.read(read.goal)
    assert (read.count, goal.deadline_s, goal.left_usd) == (1, 60.0, 2.0)
    assert goal.fields(1050.0) == {"deadline": 10.0, "probability": 0.95, "budget_usd": 2.0}
    assert goal.describe(1050.0) == (
        "its deadline counts from the first run: 10s of 1m, and $2.00 of $5.00 are left; "
        "another --deadline or --budget replaces it"
    )
    assert "its deadline of 1m passed 40s ago" in goal.describe(1100.0)
    assert 0.0 < goal.fields(1100.0)["deadline"] <= 1.0
    read.close()


def test_a_goal_is_another_where_any_of_its_numbers_is():
    goal = make_matrix_goal("1h", 0.9, 5.0)
    assert goal.with_spent("bag-1", 1.0).is_same(make_matrix_goal("60m", 0.9, 5.0))
    for other in (("2h", 0.9, 5.0), ("1h", None, 5.0), ("1h", 0.9, None)):
        assert not goal.is_same(make_matrix_goal(*other))
    assert not goal.is_same(None)
    assert make_matrix_goal(None, None, None) is None
    assert MatrixGoal.read({}) is None
    with pytest.raises(InputError, match="--probability: needs a --deadline"):
        make_matrix_goal(None, 0.5, None)


CELL = """\
import os
def cell(x, y, d):
    value = (int(x) + int(y) + int(d)) % 1000003
    assert value != {value} or not os.path.exists("{flag}/flag"), "flagged"
    return value
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    edges, cells, _ = wavefront_of(40, 40)
    (tmp_path / "edges.txt").write_text(edges)
    (tmp_path / "f.py").write_text(CELL.format(value=cells[35 * 40 + 3].split()[2], flag=tmp_path))
    (tmp_path / "cells").write_text("\n".join(cells))
    (tmp_path / "items").mkdir()
    (tmp_path / "items" / "a").write_text("a")
    return tmp_path


WAVEFRONT = ("wavefront", "edges.txt", "--python", "f.py:cell", "--block", 10)
PRICED = """
[[site]]
name = "node"
kind = "cloud"
driver = "local"
procs = 2
price_usd_per_hour = 360
billing = "1s"
"""
GOAL = ("--deadline", "1h", "--probability", 0.9, "--budget", 20)


def shown_goal(vgrads):
    return vgrads("matrix", "wavefront.matrix", "--json").json["goal"]


def test_a_wavefront_with_a_deadline_runs_here_and_its_status_shows_the_promise(vgrads, place):
    ran = vgrads(*WAVEFRONT, *GOAL, "-o", "r.txt")
    assert ran.code == 0, ran
    assert "the goal was reached in time" in " ".join(ran.out.split())
    assert (place / "r.txt").read_text() == (place / "cells").read_text() + "\n"
    goal = vgrads("bags", "status", "--json").json["bags"][0]["goal"]
    assert (goal["required"], goal["left"], goal["requested"]) == (16, 0, 0.9)
    assert (goal["promise"], goal["budget_usd"]) == (1.0, 20.0)
    assert goal["promises"][0][1] > 0.9
    assert shown_goal(vgrads)["deadline_s"] == 3600.0


def test_a_failed_run_is_continued_with_the_same_goal_and_another_replaces_it(vgrads, place):
    (place / "flag").touch()
    (place / "sites.toml").write_text(PRICED)
    command = (*WAVEFRONT, "--retries", 0, "--sites", "sites.toml")
    first = vgrads(*command, *GOAL)
    assert first.code == 1, first
    began = shown_goal(vgrads)
    (spent_usd,) = began["spent_usd"].values()
    assert spent_usd > 0.0
    same = vgrads(*command)  # the goal of the file
    assert same.code == 1, same
    assert "its deadline counts from the first run:" in " ".join(same.out.split())
    goals = [bag["goal"] for bag in vgrads("bags", "status", "--json").json["bags"]]
    assert [goal["requested"] for goal in goals] == [0.9, 0.9]
    budgets = sorted(goal["budget_usd"] for goal in goals)
    assert budgets == [pytest.approx(20.0 - spent_usd), 20.0]
    dues = sorted(goal["due_s"] for goal in goals)
    assert 3000.0 < dues[0] < dues[1]
    assert dues[1] == pytest.approx(3600.0, abs=60.0)
    assert shown_goal(vgrads)["since_unix_s"] == began["since_unix_s"]
    (place / "flag").unlink()
    other = vgrads(*command, "--deadline", "2h")
    assert other.code == 0, other
    assert "counts from the first run" not in other.out
    last = shown_goal(vgrads)
    assert (last["deadline_s"], last["budget_usd"], len(last["spent_usd"])) == (7200.0, None, 1)
    assert last["since_unix_s"] > began["since_unix_s"]


@pytest.mark.more
def test_an_interrupted_run_has_its_goal_when_it_is_resumed_or_is_cancelled_for_another(
    vgrads, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    edges, cells, _ = wavefront_of(36, 36)
    (tmp_path / "edges.txt").write_text(edges)
    (tmp_path / "f.py").write_text(SLOW.format(log=str(tmp_path / "log")))

    def interrupt(blocks, *words):
        process = begun(tmp_path, tmp_path / "home", blocks, *words)
        process.send_signal(signal.SIGINT)
        process.wait(30)
        return {bag["id"]: bag for bag in vgrads("bags", "status", "--json").json["bags"]}

    (first,) = interrupt(6, "--deadline", "1h", "-p", "0.8")
    bags = interrupt(12, "--deadline", "60m", "-p", "0.8")  # the same goal: the same bag
    assert list(bags) == [first]
    assert bags[first]["goal"]["requested"] == 0.8
    assert shown_goal(vgrads)["deadline_s"] == 3600.0
    command = ("wavefront", "edges.txt", "--python", "f.py:cell", "-o", "r.txt")
    last = vgrads(*command, "--deadline", "2h")
    assert last.code == 0, last
    assert f"{first} was cancelled: another bag goes on with the new goal" in last.out
    bags = {bag["id"]: bag for bag in vgrads("bags", "status", "--json").json["bags"]}
    second = next(bag for name, bag in bags.items() if name != first)
    assert (bags[first]["state"], second["state"]) == ("cancelled", "done")
    assert shown_goal(vgrads)["deadline_s"] == 7200.0
    # since the start of its dispatcher, which receives the bag a moment later
    assert second["goal"]["due_s"] == pytest.approx(7200.0, abs=60.0)
    assert (tmp_path / "r.txt").read_text().splitlines() == cells


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--probability", 0.9), "--probability: needs a --deadline"),
        (("--budget", 3), "--budget: needs a --deadline"),
        (("--deadline", "soon"), "--deadline: 'soon' is not a duration"),
        (("--deadline", "0s"), "--deadline: must be above 0"),
        (("--deadline", "1h", "--probability", 1.5), "1.5"),
        (("--deadline", "1h", "--budget", -1), "-1"),
        (("--deadlin", "1h"), "no such option; did you mean '--deadline'?"),
    ],
)
@pytest.mark.parametrize("kind", ["wavefront", "allpairs"])
def test_a_goal_that_cannot_be_is_an_error_before_anything_runs(vgrads, place, kind, words, text):
    command = WAVEFRONT if kind == "wavefront" else ("allpairs", "items", "items", "true")
    done = vgrads(*command, *words)
    assert done.code == 2, done
    assert text in " ".join(done.err.split()), done
    assert not list(place.glob("*.matrix"))
