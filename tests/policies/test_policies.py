"""What policies do to a dispatcher: over its real core, with simulated hosts in virtual time."""

import pickle
import random
from collections import Counter

import numpy as np
import pytest

from vgrads.bags.bag import Axis, BagSpec, Listed, Template
from vgrads.dispatch.core.events import AgentQuarantined
from vgrads.dispatch.core.fold import apply
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.records import (
    AttemptsEnded,
    TasksAssigned,
    TasksExpired,
    TasksReplicated,
    pack,
    unpack,
)
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import DONE, FAILED, PENDING
from vgrads.dispatch.explanation import explain_refusal, find_unserved
from vgrads.dispatch.fleet.virtual import VirtualAgents
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.exchange.values import AttemptEnd, Hello, Message
from vgrads.policies.policy import read_policy


def bag(count, policy=None, **named):
    value = None if policy is None else read_policy(policy, "policy")
    return BagSpec(name="b", commands=Listed(["true"] * count), policy=value, **named)


class World:
    """A core, its hosts, and everything that was noted."""

    def __init__(self, runs, fair=False, heartbeat_s=float("inf"), **named):
        self.notes = []
        rules = Rules(policy="fair-share" if fair else "next-available", lost_s=1e9, **named)
        self.core = Core(State(), rules, self.notes.append)
        self.agents = VirtualAgents(self.core, runs, heartbeat_s=heartbeat_s)

    def add(self, number, value):
        self.core.add(number, value, self.agents.now_s)
        self.agents.push()

    def run(self, until_s=float("inf")):
        self.agents.run(until_s, lambda: all(b.over for b in self.core.state.bags.values()))
        self.core.state.check()

    def assignments(self, kind=TasksAssigned):
        """(host's name, bag, task) in order."""
        agents = self.core.state.agents
        return [
            (agents[note.agent].name, note.bag, task)
            for note in self.notes
            if isinstance(note, kind)
            for task in note.tasks
        ]


def steady(seconds):
    return lambda bag, task, agent: (seconds, 0)


def test_jobs_go_only_where_requirements_are_true():
    world = World(steady(10.0))
    for name in ("good1", "good2", "bad"):
        world.agents.join(name)
    world.add(0, bag(30, {"JobRequirements": 'regexp("^good", Host.Name)'}))
    world.run()
    assert Counter(agent for agent, _, _ in world.assignments()) == {"good1": 15, "good2": 15}


def test_undefined_is_not_true_and_a_message_says_that_no_host_is_needed():
    world = World(steady(1.0))
    world.agents.join("h")
    world.add(0, bag(3, {"JobRequirements": "Host.Gpus > 0"}))
    world.run(100.0)
    assert not world.assignments()
    text = (
        "the policy accepts none of the hosts, "
        "JobRequirements = Host.Gpus > 0 [Host.Gpus = undefined]"
    )
    assert find_unserved(world.core, [], 100.0) == {0: text}


def test_each_bag_reports_which_slot_keeps_it_from_all_hosts_or_grids():
    world = World(steady(1e4))
    grids = [{"Name": "a", "Price": 2.0}, {"Name": "b", "Price": 3.0}]
    world.add(0, bag(3, {"GridPolicy": "Grid.Price == 0"}))
    world.add(1, bag(3, {"GridPolicy": "Grid.Price < 3"}))
    world.add(2, bag(3, {"Concurrency": "0"}))
    cheap = "the policy accepts none of the grids, GridPolicy = Grid.Price == 0 [Grid.Price = 2.0]"
    assert find_unserved(world.core, grids, 0.0) == {0: cheap}
    world.agents.join("h", procs=1)
    world.run(10.0)
    text = find_unserved(world.core, grids, 10.0)
    assert text == {2: "the policy accepts none of the hosts, Concurrency = 0"}


def test_bags_are_served_by_rank_and_equal_ones_in_their_order():
    world = World(steady(1.0))
    for number, rank in enumerate([1, 3, 2, 3]):
        world.add(number, bag(20, {"Rank": str(rank)}))
    world.agents.join("h")
    world.run()
    order = list(dict.fromkeys(number for _, number, _ in world.assignments()))
    assert order == [1, 3, 2, 0]


def test_rank_may_depend_on_the_host():
    world = World(steady(5.0))
    for site in ("a", "b"):
        world.agents.join(site, site=site)
    world.add(0, bag(10, {"Rank": 'Host.Grid == "a" ? 2 : 0'}))
    world.add(1, bag(10, {"Rank": "1"}))
    world.run()
    assert {(agent, number) for agent, number, _ in world.assignments()[:20:1]} == {
        ("a", 0),
        ("b", 1),
    }


def test_the_first_bags_concurrency_rules_and_later_ones_only_lower_it():
    world = World(steady(1000.0))
    world.add(0, bag(2, {"Rank": "2", "Concurrency": "Host.NumCpus"}))
    world.add(1, bag(100, {"Rank": "1", "Concurrency": "100"}))
    world.agents.join("h", procs=3)
    world.run(900.0)
    assert Counter(number for _, number, _ in world.assignments()) == {0: 2, 1: 1}


def test_owners_share_by_weight_whatever_their_ranks():
    world = World(steady(1.0), fair=True)
    for i in range(8):
        world.agents.join(f"h{i}")
    world.add(0, bag(4000, {"Rank": "1e9"}, owner="loud", weight=1.0))
    world.add(1, bag(4000, owner="quiet", weight=3.0))
    world.run(200.0)
    had = Counter(number for _, number, _ in world.assignments())
    assert had[1] / sum(had.values()) == pytest.approx(0.75, abs=0.02)


def test_an_owner_of_long_tasks_gets_no_more_than_his_share_before_the_first_has_ended():
    world = World(lambda number, task, agent: (150.0 if number == 0 else 30.0, 0), fair=True)
    world.add(0, bag(5000, owner="a", weight=1.0))
    world.add(1, bag(5000, owner="b", weight=9.0))
    for i in range(100):
        world.agents.join(f"h{i}")
    world.run(140.0)
    reserved = Counter(
        key[0] for agent in world.core.state.agents.values() for key in agent.assigned
    )
    assert reserved[0] <= 25, reserved  # ten are his part; he has more only until it shows


def test_what_takes_longer_than_its_deadline_is_assigned_to_another_host():
    world = World(lambda bag, task, agent: (1e6 if agent == "slow" else 1.0, 0))
    world.agents.join("slow")
    world.agents.join("quick")
    world.add(0, bag(4, {"Deadline": "Concurrency * 50", "Concurrency": "1"}))
    world.run(1000.0)
    late = world.assignments(TasksExpired)
    assert late
    assert {agent for agent, _, _ in late} == {"slow"}
    assert world.core.state.bags[0].tasks.counts[DONE] == 4


def test_a_message_says_when_no_host_is_ever_in_time():
    world = World(steady(1e6))
    world.agents.join("h")
    world.add(0, bag(1, {"Deadline": "50"}))
    world.run(40.0)
    assert find_unserved(world.core, [], 40.0) == {}
    world.core.state.bags[0].tasks.attempts[0] = 12  # as after eleven that were late
    assert "assigned 12 times and has not ended" in find_unserved(world.core, [], 40.0)[0]


def test_a_host_that_beats_hears_that_its_time_is_over_and_goes_on_with_other_work():
    takes = iter([1e6])
    world = World(lambda *_: (next(takes, 10.0), 0), heartbeat_s=10.0)
    world.agents.join("only")
    world.add(0, bag(3, {"Deadline": "50", "Concurrency": "1"}))
    world.run(1000.0)
    assert world.core.state.bags[0].tasks.counts[DONE] == 3
    assert world.agents.now_s < 120.0


def test_a_deadline_is_fixed_at_hand_out():
    world = World(lambda bag, task, agent: (30.0, 0))
    world.agents.join("h")
    world.add(0, bag(1, {"Deadline": "Host.JobsToday == 0 ? 60 : 1"}))
    world.run()
    assert not world.assignments(TasksExpired)


REPLICATE = {"ReplicationRequirements": "Job.NumberOfReplicas < 2", "Concurrency": "1"}


def lottery(share, quick, slow, seed=0):
    """Some hosts never end anything; which, is drawn for each attempt."""
    draw = random.Random(seed)
    return lambda bag, task, agent: (slow if draw.random() < share else quick, 0)


@pytest.mark.parametrize("rules", [{"policy": REPLICATE}, {"learns": True}])
def test_tasks_that_hang_in_the_tail_are_copied_and_the_first_result_counts(rules):
    world = World(lottery(0.1, 60.0, 1e5))
    for i in range(10):
        world.agents.join(f"h{i}", procs=1)
    world.add(0, bag(100, **rules))
    world.run(5e4)
    state = world.core.state.bags[0]
    assert state.tasks.counts[DONE] == 100
    assert state.copied > 0
    first = next(i for i, note in enumerate(world.notes) if isinstance(note, TasksReplicated))
    waiting = 100 - sum(
        len(note.tasks) for note in world.notes[:first] if isinstance(note, TasksAssigned)
    )
    assert waiting < 10  # none before the tail
    for agent in world.core.state.agents.values():
        assert not any(state.tasks.status[task] == DONE for _, task in agent.assigned)
    again = State()
    for note in world.notes:
        for record in unpack(pack(note)):
            apply(again, record)
    again.check()
    assert again.bags[0].copied == state.copied


@pytest.mark.parametrize(("until_s", "copied"), [(390.0, 0), (500.0, 4)])
def test_replication_may_read_the_concurrency_in_force(until_s, copied):
    world = World(steady(1000.0))
    for name in ("a", "b"):
        world.agents.join(name, procs=4)
    policy = {
        "Concurrency": "Host.NumCpus",
        "ReplicationRequirements": "NumberOfReplicas < 2 && Job.Replica1.Age > Concurrency * 100",
    }
    world.add(0, bag(4, policy))
    world.run(until_s)
    assert world.core.state.bags[0].copied == copied


def test_nothing_is_copied_where_everything_takes_its_time():
    """Long honest tasks: fifty times as long as the others; none is stopped, and copies stay
    few."""
    world = World(lambda bag, task, agent: (3000.0 if task % 10 == 0 else 60.0, 0))
    for i in range(20):
        world.agents.join(f"h{i}")
    world.add(0, bag(200, learns=True))
    world.run()
    assert world.core.state.bags[0].tasks.counts[DONE] == 200
    assert not world.assignments(TasksExpired)
    assert world.core.state.bags[0].copied <= 20


def test_copies_are_placed_where_none_runs_if_requested():
    world = World(lottery(0.1, 60.0, 1e5))
    for i in range(12):
        world.agents.join(f"h{i}", site="abc"[i % 3])
    apart = {"JobRequirements": "!member(Host.Grid, Job.Grids)", **REPLICATE}
    world.add(0, bag(60, apart))
    world.run(2e4)
    where = {}
    for agent, _, task in world.assignments() + world.assignments(TasksReplicated):
        where.setdefault(task, []).append(
            world.core.state.agents[world.core.state.by_id[agent]].site
        )
    copied = {task for _, _, task in world.assignments(TasksReplicated)}
    assert copied
    assert all(len(set(where[task])) == len(where[task]) for task in copied)


@pytest.mark.parametrize("latched", [True, False])
def test_a_tail_that_is_latched_goes_on_when_tasks_come_to_wait_again(latched):
    world = World(steady(10.0))
    world.agents.join("first")
    tail = {"JobRequirements": 'Tail ? Host.Name == "first" : true'}
    world.add(0, bag(6, tail, tail_below=3, tail_latched=latched))
    world.run(35.0)
    world.agents.join("second", procs=2)
    state = world.core.state.bags[0]
    for agent in list(world.core.state.agents.values()):  # what it has is given back
        if agent.name == "first":
            world.agents.leave("first", lost=True)
    world.run(200.0)
    assert state.tail == latched
    assert state.tasks.counts[DONE] == (
        6 if not latched and state.tasks.pending >= 3 else state.tasks.counts[DONE]
    )
    assert (state.tasks.counts[DONE] < 6) == (latched or state.tasks.pending > 0)


def black_hole(holes, seconds):
    return lambda bag, task, agent: (0.5, 1) if agent in holes else (seconds, 0)


def test_black_holes_get_three_tasks_and_then_a_single_now_and_then():
    holes = {f"h{i}" for i in range(5)}
    world = World(black_hole(holes, 60.0))
    for i in range(100):
        world.agents.join(f"h{i}")
    world.add(0, bag(5000))
    world.run()
    state = world.core.state
    assert state.bags[0].tasks.counts[DONE] == 5000
    tries = Counter(agent for agent, _, _ in world.assignments() if agent in holes)
    quarantined = [note for note in world.notes if isinstance(note, AgentQuarantined)]
    first = {}
    for i, note in enumerate(world.notes):
        if isinstance(note, AgentQuarantined):
            first.setdefault(state.agents[note.number].name, i)
    assert set(first) == holes  # and no honest one
    for name, at in first.items():
        before = [n for n in world.notes[:at] if isinstance(n, AttemptsEnded)]
        assert sum(state.agents[e.agent].name == name for n in before for e in n.ends) <= 3
    assert sum(tries.values()) <= 25 + len(quarantined)
    assert world.agents.now_s <= 1.01 * 60.0 * 5000 / 95 + 120


def test_a_healed_host_is_back_within_ten_minutes():
    healed = []
    world = World(lambda bag, task, agent: (0.5, 1) if agent == "h0" and not healed else (30.0, 0))
    for i in range(20):
        world.agents.join(f"h{i}")
    world.add(0, bag(10_000))
    world.run(1000.0)
    healed.append(world.agents.now_s)
    before = len(world.notes)
    world.run(1600.0)
    done = [
        e
        for n in world.notes[before:]
        if isinstance(n, AttemptsEnded)
        for e in n.ends
        if not e.code
    ]
    assert sum(world.core.state.agents[end.agent].name == "h0" for end in done) > 5


def test_poisonous_tasks_condemn_no_host():
    world = World(lambda bag, task, agent: (0.2, 1) if task % 25 == 0 else (20.0, 0))
    for i in range(20):
        world.agents.join(f"h{i}")
    world.add(0, bag(1000, retries=2))
    world.run()
    state = world.core.state.bags[0]
    assert [n for n in world.notes if isinstance(n, AgentQuarantined)] == []
    assert state.tasks.counts == [0, 0, 960, 40, 0, 0]
    assert all(state.tasks.failures[task] == 3 for task in range(0, 1000, 25))


def test_a_bag_that_fails_everywhere_bars_nobody():
    world = World(lambda bag, task, agent: (0.2, 1))
    for i in range(20):
        world.agents.join(f"h{i}")
    world.add(0, bag(500))
    world.run(600.0)
    assert world.core.state.bags[0].over
    assert [n for n in world.notes if isinstance(n, AgentQuarantined)] == []


def test_tasks_that_failed_go_to_the_sites_for_such():
    world = World(lambda bag, task, agent: (1.0, 0 if agent == "sure" or task % 3 else 1))
    for i in range(4):
        world.agents.join(f"h{i}", site="grid")
    world.agents.join("sure", site="cluster")
    world.add(0, bag(60, failover=("cluster",)))
    world.run()
    assert world.core.state.bags[0].tasks.counts[DONE] == 60
    again = [agent for agent, _, task in world.assignments() if task % 3 == 0]
    assert sum(agent != "sure" for agent in again) <= 20


def test_failover_sites_whose_agents_are_all_quarantined_are_not_awaited():
    """Tasks that failed are tried where they can succeed."""
    world = World(lambda bag, task, agent: (0.1, 1) if agent == "hole" or task == 3 else (5.0, 0))
    for i in range(3):
        world.agents.join(f"h{i}", site="grid")
    world.agents.join("hole", site="cluster")
    world.add(0, bag(60, failover=("cluster",), retries=8))
    world.run()
    assert [n for n in world.notes if isinstance(n, AgentQuarantined)]
    again = [agent for agent, _, task in world.assignments() if task == 3]
    assert again.count("hole") <= 4 < len(again)
    assert world.agents.now_s < 600.0


def test_tasks_that_fail_do_not_wait_for_the_quarantine_of_the_only_node_that_can_run_them():
    world = World(lambda bag, task, agent: (0.5, int(task >= 30)))
    for n in range(4):
        world.agents.join(f"narrow{n}", procs=1)
    world.agents.join("wide", procs=4)
    world.add(0, bag(40, procs=2))
    world.run(600.0)
    (served,) = world.core.state.bags.values()
    assert served.over
    assert served.tasks.status.count(DONE) == 30
    assert world.agents.now_s < 60.0


def test_why_a_host_does_not_get_a_task():
    world = World(steady(1.0))
    world.agents.join("h", site="far")
    world.add(0, bag(5, {"JobRequirements": 'Host.Grid == "near" && Host.ErrorRate < 0.1'}))
    world.run(10.0)
    core = world.core
    agent, state = next(iter(core.state.agents.values())), core.state.bags[0]
    (verdict,) = explain_refusal(core, agent, state, 0, 10.0)
    assert verdict.slot == "JobRequirements"
    assert "JobRequirements is false" in verdict.words
    assert verdict.expression == 'Host.Grid == "near" && Host.ErrorRate < 0.1'
    assert verdict.values["Host.Grid"] == "far"
    assert verdict.values["Host.ErrorRate"] == 0.05


def test_ends_keep_their_meaning_in_any_order():
    """A late success of an attempt whose time was over still counts; its other attempt is called
    off."""
    world = World(lambda bag, task, agent: (100.0 if agent == "a" else 1e5, 0))
    world.agents.join("a")
    world.add(0, bag(1, {"Deadline": "50"}))
    world.agents.run(60.0)
    agent = world.core.state.agents[0]
    assert world.assignments(TasksExpired)
    effects = world.core.note(AttemptsEnded(0, [AttemptEnd(0, agent.number, 70.0, 0, 1, 70.0)]))
    assert effects[0].counts
    assert world.core.state.bags[0].over


# what would make a dispatcher slow, or stop it


def plain_order(core, agent, now_s):
    """All bags held against a host as their policies are written: (rank, bag), the first first."""
    bag_selection, result = core.bag_selection, []
    for state in core.dispatch_index.serving:
        text = {v.slot: v.counts for v in bag_selection.verdicts(agent, state, 0, now_s)}
        fits = text.get("JobRequirements", True) and text.get("Concurrency", 1) > 0
        if fits and state.tasks.pending:
            result.append((-text.get("Rank", 0.0), state.number))
    return [(-rank, number) for rank, number in sorted(result)]


ODD = (
    {"Rank": 'real("NaN")'},
    {"Rank": 'real("INF")'},
    {"Rank": "1e308 * 10"},
    {"Rank": "-1e308"},
    {"Rank": "0 / 0"},
    {"Rank": "Host.JobsToday"},
    {"Rank": "5 - 10 * Host.ErrorRate"},
    {"Rank": "Host.gpus"},
    {"Rank": "Host.Nix"},
    {"JobRequirements": "Host.Gpus == true"},
    {"JobRequirements": "isInteger(Host.GPUS)", "Rank": "2"},
    {"JobRequirements": 'member("a", Host.Soft)'},
    {"JobRequirements": "size(Host.Soft) == 2"},
    {"Rank": "JobsLeft"},
    {"JobRequirements": "JobsDone < 3"},
    {"Rank": "BOTsInQueue"},
    {"Rank": "Tail ? 7 : 1"},
    {"JobRequirements": 'Job.Executable == "true"'},
    {"Concurrency": "0"},
    {"Concurrency": "-1e308"},
    {"Concurrency": '"many"'},
    {"Concurrency": "Host.NumCpus > 2 ? 5 : 0", "Rank": "9"},
    {"JobRequirements": "false"},
    {},
)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(5))
def test_remembered_orders_are_those_of_policies_as_written(seed):
    draw = random.Random(seed)
    core = Core(State(), Rules(policy="next-available", lost_s=1e9), lambda record: None)
    soft = (["a"], ["a", "b"], [["a"], 1], {"a": 1}, 1, True, 1.0, float("nan"), None)
    for i, has in enumerate(soft):
        attributes = {draw.choice(("Gpus", "gpus", "Soft", "soft")): has for _ in range(2)}
        hello = Hello(
            slot="s", procs=1 + i % 4, name=f"n{i}", machine=f"m{i}", attributes=attributes
        )
        core.receive(Message(agent=f"h{i}", incarnation="1", seq=0, hello=hello), 0.0, "ab"[i % 2])
    seqs, now_s = Counter(), 5.0
    for turn in range(150):
        now_s += draw.choice((0.01, 1.1, 20000.0))
        if turn % 2 == 0:
            sites = draw.choice(((), (), ("a",)))
            tail = {"tail_below": draw.choice((None, 3, 8)), "tail_latched": draw.random() < 0.5}
            core.add(
                turn,
                bag(
                    10, draw.choice(ODD) or None, sites=sites, procs=draw.choice((1, 1, 3)), **tail
                ),
                now_s,
            )
        agent = draw.choice(list(core.state.agents.values()))
        ends = [
            (number, AttemptEnd(task, agent.number, now_s, draw.random() < 0.3, attempt, 5.0))
            for (number, task), attempt in agent.assigned.items()
            if draw.random() < 0.8
        ]
        seqs[agent.id] += 1
        core.receive(Message(agent=agent.id, incarnation="1", seq=seqs[agent.id], ends=ends), now_s)
        core.answer(agent, now_s)
        core.due(now_s)
        for agent in core.state.agents.values():
            offers = core.bag_selection.offers(agent, now_s)
            got = [(offer.rank, offer.bag.number) for offer in offers if offer.bag.tasks.pending]
            required = [
                (rank, number)
                for rank, number in plain_order(core, agent, now_s)
                if core.state.bags[number].procs <= agent.procs
                and (not core.state.bags[number].sites or agent.site == "a")
            ]
            assert got == required
    core.state.check()
    assert not core.dispatch_index.changed


@pytest.mark.parametrize("concurrency", ["0", "-5", "1e308", '"undefined"', "undefined", "0.5"])
def test_no_concurrency_keeps_other_bags_from_hosts(concurrency):
    world = World(steady(1.0), fair=True)
    for i in range(3):
        world.agents.join(f"h{i}")
    world.add(0, bag(20, {"Concurrency": concurrency, "Rank": "9"}, owner="first"))
    world.add(1, bag(20, owner="second"))
    world.run(300.0)
    assert world.core.state.bags[1].over
    assert world.core.state.bags[0].over == (concurrency not in ("0", "-5", "0.5"))


def test_a_single_answer_does_not_hold_ten_million_tasks():
    world = World(steady(1e6))
    world.agents.join("h")
    greedy = BagSpec(
        name="b",
        commands=Template(
            "x {x}", (Axis(("x",), [("1",)] * 10**4), Axis(("y",), [("1",)] * 10**3))
        ),
        policy=read_policy({"Concurrency": "1e308"}, ""),
    )
    world.add(0, greedy)
    world.run(1000.0)
    agent = world.core.state.agents[0]
    world.core.answer(agent, 1000.0)
    assert len(agent.assigned) == 1001


def test_a_task_that_is_taken_back_for_ever_fails_before_its_attempts_cannot_be_counted():
    world = World(steady(1e6))
    world.agents.join("h")
    world.add(0, bag(1, {"Deadline": "1e-9"}))
    world.run(0.1)
    assert world.core.bag_selection.due[0][0] >= 1.0  # not over before it can have begun
    state, agent = world.core.state, 0
    while state.bags[0].tasks.where:
        apply(state, TasksExpired(agent, 0, [0]))
        if not state.bags[0].over:
            apply(state, TasksAssigned(agent, 0, [0]))
    state.check()
    assert state.bags[0].tasks.counts[FAILED] == 1
    assert 60_000 <= state.bags[0].tasks.attempts[0] < 2**16


def test_a_bag_that_is_for_nobody_keeps_no_work_from_idle_hosts():
    """Its tasks wait for ever: what others hold and cannot have begun is recalled for idle hosts
    all the same."""
    world = World(steady(100.0))
    world.agents.join("early")
    world.add(0, bag(1000, {"JobRequirements": "Host.Nix > 1", "Rank": "9"}))
    world.add(1, bag(3, estimate_s=0.01))
    world.run(5.0)
    assert len(world.core.state.agents[0].assigned) == 3
    world.agents.join("late")
    world.run(250.0)
    assert world.core.state.bags[1].over
    assert not world.core.state.bags[0].tasks.where


def test_a_host_that_waits_is_queried_when_a_bag_fits_it():
    world = World(steady(10.0))
    for name in ("a", "b"):
        world.agents.join(name)
    world.add(
        0, bag(12, {"JobRequirements": 'Host.Name == "a" || JobsLeft < 7', "Concurrency": "1"})
    )
    world.run()
    assert Counter(agent for agent, _, _ in world.assignments())["b"] == 3


def test_what_is_remembered_of_changes_does_not_grow():
    world = World(steady(1e9), fair=True)
    for i in range(5):
        world.agents.join(f"h{i}")
    for number in range(20):
        world.add(number, bag(50, {"Rank": "Tail ? Host.JobsToday : 1"}, owner=f"o{number}"))
    core = world.core
    world.run(10.0)
    for turn in range(5000):
        number = turn % 20
        (core.dispatch_index.tails.discard if turn // 20 % 2 else core.dispatch_index.tails.add)(
            number
        )
        core.dispatch_index.change(number)
        next(core.bag_selection.offers(core.state.agents[turn % 5], 10.0), None)
    retained = pickle.dumps(
        [vars(core.bag_selection.index)[name] for name in ("_alike", "_groups", "_of")]
    )
    assert len(retained) < 50_000
    assert not core.dispatch_index.changed


def test_after_a_crash_only_the_outputs_of_the_attempt_that_counted_are_stored(tmp_path):
    bag_settings = BagSpec(name="b", commands=Listed(["true"] * 3), outputs=("o-{task}",))
    place = tmp_path / "bags" / "0000"
    files = BagFiles(bag_settings, place, tmp_path)
    for task, attempt in ((0, 1), (0, 2), (1, 1), (2, 1)):
        folder = files.place(task, attempt, f"o-{task}")
        folder.parent.mkdir(parents=True)
        folder.write_text(f"attempt {attempt}")
    ends = [(0, 9, 1), (0, 0, 2), (0, 0, 1), (2, 0, 2)]  # task, code, attempt
    status = bytes([DONE, PENDING, FAILED])
    files.finish_commits(
        status, [np.array(ends, [("task", "<u4"), ("code", "<i2"), ("attempt", "<u2")])]
    )
    files.close()
    stored = {path.name: path.read_text() for path in (place / "results").iterdir()}
    assert stored == {"o-0": "attempt 2"}
    assert [path.name for path in (place / "arriving").iterdir()] == ["1.1"]  # nobody knows yet


def test_an_owner_whose_last_bag_went_before_it_was_looked_at_is_forgotten():
    world = World(steady(1.0), fair=True)
    for number, owner in enumerate("aab"):
        world.add(number, bag(50, {"Concurrency": "1"}, owner=owner))
    world.agents.join("first")
    world.agents.run(0.5)
    assert {number for _, number, _ in world.assignments()} <= {0, 1}
    world.core.cancel(2, world.agents.now_s, "not wanted")
    world.agents.join("second")
    world.run()
    assert [b.tasks.counts[DONE] for b in world.core.state.bags.values()] == [50, 50, 0]
