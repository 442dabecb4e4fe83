"""What policies do to a dispatcher: over its real core, with simulated hosts in virtual time."""

import pickle
import random
from collections import Counter

import numpy as np
import pytest

from vgrads.bags.bag import Axis, Bag, Listed, Template
from vgrads.dispatch.core.events import AgentQuarantined
from vgrads.dispatch.core.fold import apply
from vgrads.dispatch.core.hosts import Hello
from vgrads.dispatch.core.records import Copied, End, Ended, Given, Late, pack, unpack
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.talk import Message, Rules
from vgrads.dispatch.core.tasks import DONE, FAILED, PENDING
from vgrads.dispatch.explaining import unserved, why_not
from vgrads.dispatch.fleet.virtual import VirtualHosts
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.policies.policy import read_policy


def bag(count, policy=None, **named):
    given = None if policy is None else read_policy(policy, "policy")
    return Bag(name="b", commands=Listed(["true"] * count), policy=given, **named)


class World:
    """A core, its hosts, and everything that was noted."""

    def __init__(self, runs, fair=False, beat_s=float("inf"), **named):
        self.notes = []
        rules = Rules(policy="fair-share" if fair else "next-available", lost_s=1e9, **named)
        self.core = Core(State(), rules, self.notes.append)
        self.hosts = VirtualHosts(self.core, runs, beat_s=beat_s)

    def add(self, number, given):
        self.core.add(number, given, self.hosts.now_s)
        self.hosts.push()

    def run(self, until_s=float("inf")):
        self.hosts.run(until_s, lambda: all(b.over for b in self.core.state.bags.values()))
        self.core.state.check()

    def given(self, kind=Given):
        """(host's name, bag, task) in order."""
        hosts = self.core.state.hosts
        return [
            (hosts[note.host].name, note.bag, task)
            for note in self.notes
            if isinstance(note, kind)
            for task in note.tasks
        ]


def steady(seconds):
    return lambda bag, task, host: (seconds, 0)


def test_jobs_go_only_where_requirements_are_true():
    world = World(steady(10.0))
    for name in ("good1", "good2", "bad"):
        world.hosts.join(name)
    world.add(0, bag(30, {"JobRequirements": 'regexp("^good", Host.Name)'}))
    world.run()
    assert Counter(host for host, _, _ in world.given()) == {"good1": 15, "good2": 15}


def test_undefined_is_not_true_and_it_is_said_that_no_host_is_wanted():
    world = World(steady(1.0))
    world.hosts.join("h")
    world.add(0, bag(3, {"JobRequirements": "Host.Gpus > 0"}))
    world.run(100.0)
    assert not world.given()
    said = "none of the hosts is wanted, JobRequirements = Host.Gpus > 0 [Host.Gpus = undefined]"
    assert unserved(world.core, [], 100.0) == {0: said}


def test_it_is_said_of_each_bag_which_slot_keeps_it_from_all_hosts_or_grids():
    world = World(steady(1e4))
    grids = [{"Name": "a", "Price": 2.0}, {"Name": "b", "Price": 3.0}]
    world.add(0, bag(3, {"GridPolicy": "Grid.Price == 0"}))
    world.add(1, bag(3, {"GridPolicy": "Grid.Price < 3"}))
    world.add(2, bag(3, {"Concurrency": "0"}))
    cheap = "none of the grids is wanted, GridPolicy = Grid.Price == 0 [Grid.Price = 2.0]"
    assert unserved(world.core, grids, 0.0) == {0: cheap}
    world.hosts.join("h", procs=1)
    world.run(10.0)
    said = unserved(world.core, grids, 10.0)
    assert said == {2: "none of the hosts is wanted, Concurrency = 0"}


def test_bags_are_served_by_rank_and_equal_ones_in_their_order():
    world = World(steady(1.0))
    for number, rank in enumerate([1, 3, 2, 3]):
        world.add(number, bag(20, {"Rank": str(rank)}))
    world.hosts.join("h")
    world.run()
    order = list(dict.fromkeys(number for _, number, _ in world.given()))
    assert order == [1, 3, 2, 0]


def test_rank_may_depend_on_the_host():
    world = World(steady(5.0))
    for site in ("a", "b"):
        world.hosts.join(site, site=site)
    world.add(0, bag(10, {"Rank": 'Host.Grid == "a" ? 2 : 0'}))
    world.add(1, bag(10, {"Rank": "1"}))
    world.run()
    assert {(host, number) for host, number, _ in world.given()[:20:1]} == {("a", 0), ("b", 1)}


def test_the_first_bags_concurrency_rules_and_later_ones_only_lower_it():
    world = World(steady(1000.0))
    world.add(0, bag(2, {"Rank": "2", "Concurrency": "Host.NumCpus"}))
    world.add(1, bag(100, {"Rank": "1", "Concurrency": "100"}))
    world.hosts.join("h", procs=3)
    world.run(900.0)
    assert Counter(number for _, number, _ in world.given()) == {0: 2, 1: 1}


def test_owners_share_by_weight_whatever_their_ranks():
    world = World(steady(1.0), fair=True)
    for i in range(8):
        world.hosts.join(f"h{i}")
    world.add(0, bag(4000, {"Rank": "1e9"}, owner="loud", weight=1.0))
    world.add(1, bag(4000, owner="quiet", weight=3.0))
    world.run(200.0)
    had = Counter(number for _, number, _ in world.given())
    assert had[1] / sum(had.values()) == pytest.approx(0.75, abs=0.02)


def test_an_owner_of_long_tasks_gets_no_more_than_his_share_before_the_first_has_ended():
    world = World(lambda number, task, host: (150.0 if number == 0 else 30.0, 0), fair=True)
    world.add(0, bag(5000, owner="a", weight=1.0))
    world.add(1, bag(5000, owner="b", weight=9.0))
    for i in range(100):
        world.hosts.join(f"h{i}")
    world.run(140.0)
    held = Counter(key[0] for host in world.core.state.hosts.values() for key in host.held)
    assert held[0] <= 25, held  # ten are his part; he has more only until it shows


def test_what_takes_longer_than_its_deadline_is_given_to_another_host():
    world = World(lambda bag, task, host: (1e6 if host == "slow" else 1.0, 0))
    world.hosts.join("slow")
    world.hosts.join("quick")
    world.add(0, bag(4, {"Deadline": "Concurrency * 50", "Concurrency": "1"}))
    world.run(1000.0)
    late = world.given(Late)
    assert late
    assert {host for host, _, _ in late} == {"slow"}
    assert world.core.state.bags[0].tasks.counts[DONE] == 4


def test_it_is_said_when_no_host_is_ever_in_time():
    world = World(steady(1e6))
    world.hosts.join("h")
    world.add(0, bag(1, {"Deadline": "50"}))
    world.run(40.0)
    assert unserved(world.core, [], 40.0) == {}
    world.core.state.bags[0].tasks.attempts[0] = 12  # as after eleven that were late
    assert "given out 12 times and has not ended" in unserved(world.core, [], 40.0)[0]


def test_a_host_that_beats_hears_that_its_time_is_over_and_goes_on_with_other_work():
    takes = iter([1e6])
    world = World(lambda *_: (next(takes, 10.0), 0), beat_s=10.0)
    world.hosts.join("only")
    world.add(0, bag(3, {"Deadline": "50", "Concurrency": "1"}))
    world.run(1000.0)
    assert world.core.state.bags[0].tasks.counts[DONE] == 3
    assert world.hosts.now_s < 120.0


def test_a_deadline_is_fixed_at_hand_out():
    world = World(lambda bag, task, host: (30.0, 0))
    world.hosts.join("h")
    world.add(0, bag(1, {"Deadline": "Host.JobsToday == 0 ? 60 : 1"}))
    world.run()
    assert not world.given(Late)


REPLICATE = {"ReplicationRequirements": "Job.NumberOfReplicas < 2", "Concurrency": "1"}


def lottery(share, quick, slow, seed=0):
    """Some hosts never end anything; which, is drawn for each attempt."""
    draw = random.Random(seed)
    return lambda bag, task, host: (slow if draw.random() < share else quick, 0)


@pytest.mark.parametrize("rules", [{"policy": REPLICATE}, {"learns": True}])
def test_tasks_that_hang_in_the_tail_are_copied_and_the_first_result_counts(rules):
    world = World(lottery(0.1, 60.0, 1e5))
    for i in range(10):
        world.hosts.join(f"h{i}", procs=1)
    world.add(0, bag(100, **rules))
    world.run(5e4)
    state = world.core.state.bags[0]
    assert state.tasks.counts[DONE] == 100
    assert state.copied > 0
    first = next(i for i, note in enumerate(world.notes) if isinstance(note, Copied))
    waiting = 100 - sum(len(note.tasks) for note in world.notes[:first] if isinstance(note, Given))
    assert waiting < 10  # none before the tail
    for host in world.core.state.hosts.values():
        assert not any(state.tasks.status[task] == DONE for _, task in host.held)
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
        world.hosts.join(name, procs=4)
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
    world = World(lambda bag, task, host: (3000.0 if task % 10 == 0 else 60.0, 0))
    for i in range(20):
        world.hosts.join(f"h{i}")
    world.add(0, bag(200, learns=True))
    world.run()
    assert world.core.state.bags[0].tasks.counts[DONE] == 200
    assert not world.given(Late)
    assert world.core.state.bags[0].copied <= 20


def test_copies_are_placed_where_none_runs_if_so_asked():
    world = World(lottery(0.1, 60.0, 1e5))
    for i in range(12):
        world.hosts.join(f"h{i}", site="abc"[i % 3])
    apart = {"JobRequirements": "!member(Host.Grid, Job.Grids)", **REPLICATE}
    world.add(0, bag(60, apart))
    world.run(2e4)
    where = {}
    for host, _, task in world.given() + world.given(Copied):
        where.setdefault(task, []).append(world.core.state.hosts[world.core.state.by_id[host]].site)
    copied = {task for _, _, task in world.given(Copied)}
    assert copied
    assert all(len(set(where[task])) == len(where[task]) for task in copied)


@pytest.mark.parametrize("latched", [True, False])
def test_a_tail_that_is_latched_goes_on_when_tasks_come_to_wait_again(latched):
    world = World(steady(10.0))
    world.hosts.join("first")
    tail = {"JobRequirements": 'Tail ? Host.Name == "first" : true'}
    world.add(0, bag(6, tail, tail_below=3, tail_latched=latched))
    world.run(35.0)
    world.hosts.join("second", procs=2)
    state = world.core.state.bags[0]
    for host in list(world.core.state.hosts.values()):  # what it has is given back
        if host.name == "first":
            world.hosts.leave("first", lost=True)
    world.run(200.0)
    assert state.tail == latched
    assert state.tasks.counts[DONE] == (
        6 if not latched and state.tasks.pending >= 3 else state.tasks.counts[DONE]
    )
    assert (state.tasks.counts[DONE] < 6) == (latched or state.tasks.pending > 0)


def black(holes, seconds):
    return lambda bag, task, host: (0.5, 1) if host in holes else (seconds, 0)


def test_black_holes_get_three_tasks_and_then_one_now_and_then():
    holes = {f"h{i}" for i in range(5)}
    world = World(black(holes, 60.0))
    for i in range(100):
        world.hosts.join(f"h{i}")
    world.add(0, bag(5000))
    world.run()
    state = world.core.state
    assert state.bags[0].tasks.counts[DONE] == 5000
    tries = Counter(host for host, _, _ in world.given() if host in holes)
    barred = [note for note in world.notes if isinstance(note, AgentQuarantined)]
    first = {}
    for i, note in enumerate(world.notes):
        if isinstance(note, AgentQuarantined):
            first.setdefault(state.hosts[note.number].name, i)
    assert set(first) == holes  # and no honest one
    for name, at in first.items():
        before = [n for n in world.notes[:at] if isinstance(n, Ended)]
        assert sum(state.hosts[e.host].name == name for n in before for e in n.ends) <= 3
    assert sum(tries.values()) <= 25 + len(barred)
    assert world.hosts.now_s <= 1.01 * 60.0 * 5000 / 95 + 120


def test_a_healed_host_is_back_within_ten_minutes():
    healed = []
    world = World(lambda bag, task, host: (0.5, 1) if host == "h0" and not healed else (30.0, 0))
    for i in range(20):
        world.hosts.join(f"h{i}")
    world.add(0, bag(10_000))
    world.run(1000.0)
    healed.append(world.hosts.now_s)
    before = len(world.notes)
    world.run(1600.0)
    done = [e for n in world.notes[before:] if isinstance(n, Ended) for e in n.ends if not e.code]
    assert sum(world.core.state.hosts[end.host].name == "h0" for end in done) > 5


def test_poisonous_tasks_condemn_no_host():
    world = World(lambda bag, task, host: (0.2, 1) if task % 25 == 0 else (20.0, 0))
    for i in range(20):
        world.hosts.join(f"h{i}")
    world.add(0, bag(1000, retries=2))
    world.run()
    state = world.core.state.bags[0]
    assert [n for n in world.notes if isinstance(n, AgentQuarantined)] == []
    assert state.tasks.counts == [0, 0, 960, 40, 0, 0]
    assert all(state.tasks.failures[task] == 3 for task in range(0, 1000, 25))


def test_a_bag_that_fails_everywhere_bars_nobody():
    world = World(lambda bag, task, host: (0.2, 1))
    for i in range(20):
        world.hosts.join(f"h{i}")
    world.add(0, bag(500))
    world.run(600.0)
    assert world.core.state.bags[0].over
    assert [n for n in world.notes if isinstance(n, AgentQuarantined)] == []


def test_tasks_that_failed_go_to_the_sites_for_such():
    world = World(lambda bag, task, host: (1.0, 0 if host == "sure" or task % 3 else 1))
    for i in range(4):
        world.hosts.join(f"h{i}", site="grid")
    world.hosts.join("sure", site="cluster")
    world.add(0, bag(60, failover=("cluster",)))
    world.run()
    assert world.core.state.bags[0].tasks.counts[DONE] == 60
    again = [host for host, _, task in world.given() if task % 3 == 0]
    assert sum(host != "sure" for host in again) <= 20


def test_why_a_host_does_not_get_a_task():
    world = World(steady(1.0))
    world.hosts.join("h", site="far")
    world.add(0, bag(5, {"JobRequirements": 'Host.Grid == "near" && Host.ErrorRate < 0.1'}))
    world.run(10.0)
    core = world.core
    host, state = next(iter(core.state.hosts.values())), core.state.bags[0]
    (verdict,) = why_not(core, host, state, 0, 10.0)
    assert verdict.slot == "JobRequirements"
    assert "JobRequirements is false" in verdict.words
    assert verdict.expression == 'Host.Grid == "near" && Host.ErrorRate < 0.1'
    assert verdict.values["Host.Grid"] == "far"
    assert verdict.values["Host.ErrorRate"] == 0.05


def test_ends_keep_their_meaning_in_any_order():
    """A late success of an attempt whose time was over still counts; its other attempt is called
    off."""
    world = World(lambda bag, task, host: (100.0 if host == "a" else 1e5, 0))
    world.hosts.join("a")
    world.add(0, bag(1, {"Deadline": "50"}))
    world.hosts.run(60.0)
    host = world.core.state.hosts[0]
    assert world.given(Late)
    effects = world.core.note(Ended(0, [End(0, host.number, 70.0, 0, 1, 70.0)]))
    assert effects[0].counts
    assert world.core.state.bags[0].over


# what would make a dispatcher slow, or stop it


def plain_order(core, host, now_s):
    """All bags held against a host as their policies are written: (rank, bag), the first first."""
    choosing, found = core.choosing, []
    for state in core.board.serving:
        said = {v.slot: v.counts for v in choosing.verdicts(host, state, 0, now_s)}
        fits = said.get("JobRequirements", True) and said.get("Concurrency", 1) > 0
        if fits and state.tasks.pending:
            found.append((-said.get("Rank", 0.0), state.number))
    return [(-rank, number) for rank, number in sorted(found)]


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
        core.hear(Message(host=f"h{i}", life="1", seq=0, hello=hello), 0.0, "ab"[i % 2])
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
        host = draw.choice(list(core.state.hosts.values()))
        ends = [
            (number, End(task, host.number, now_s, draw.random() < 0.3, attempt, 5.0))
            for (number, task), attempt in host.held.items()
            if draw.random() < 0.8
        ]
        seqs[host.id] += 1
        core.hear(Message(host=host.id, life="1", seq=seqs[host.id], ends=ends), now_s)
        core.answer(host, now_s)
        core.due(now_s)
        for host in core.state.hosts.values():
            offers = core.choosing.offers(host, now_s)
            got = [(offer.rank, offer.bag.number) for offer in offers if offer.bag.tasks.pending]
            wanted = [
                (rank, number)
                for rank, number in plain_order(core, host, now_s)
                if core.state.bags[number].procs <= host.procs
                and (not core.state.bags[number].sites or host.site == "a")
            ]
            assert got == wanted
    core.state.check()
    assert not core.board.changed


@pytest.mark.parametrize("concurrency", ["0", "-5", "1e308", '"undefined"', "undefined", "0.5"])
def test_no_concurrency_keeps_other_bags_from_hosts(concurrency):
    world = World(steady(1.0), fair=True)
    for i in range(3):
        world.hosts.join(f"h{i}")
    world.add(0, bag(20, {"Concurrency": concurrency, "Rank": "9"}, owner="first"))
    world.add(1, bag(20, owner="second"))
    world.run(300.0)
    assert world.core.state.bags[1].over
    assert world.core.state.bags[0].over == (concurrency not in ("0", "-5", "0.5"))


def test_one_answer_does_not_hold_ten_million_tasks():
    world = World(steady(1e6))
    world.hosts.join("h")
    greedy = Bag(
        name="b",
        commands=Template(
            "x {x}", (Axis(("x",), [("1",)] * 10**4), Axis(("y",), [("1",)] * 10**3))
        ),
        policy=read_policy({"Concurrency": "1e308"}, ""),
    )
    world.add(0, greedy)
    world.run(1000.0)
    host = world.core.state.hosts[0]
    world.core.answer(host, 1000.0)
    assert len(host.held) == 1001


def test_a_task_that_is_taken_back_for_ever_fails_before_its_attempts_cannot_be_counted():
    world = World(steady(1e6))
    world.hosts.join("h")
    world.add(0, bag(1, {"Deadline": "1e-9"}))
    world.run(0.1)
    assert world.core.choosing.due[0][0] >= 1.0  # not over before it can have begun
    state, host = world.core.state, 0
    while state.bags[0].tasks.where:
        apply(state, Late(host, 0, [0]))
        if not state.bags[0].over:
            apply(state, Given(host, 0, [0]))
    state.check()
    assert state.bags[0].tasks.counts[FAILED] == 1
    assert 60_000 <= state.bags[0].tasks.attempts[0] < 2**16


def test_a_bag_that_is_for_nobody_keeps_no_work_from_idle_hosts():
    """Its tasks wait for ever: what others hold and cannot have begun is recalled for idle hosts
    all the same."""
    world = World(steady(100.0))
    world.hosts.join("early")
    world.add(0, bag(1000, {"JobRequirements": "Host.Nix > 1", "Rank": "9"}))
    world.add(1, bag(3, estimate_s=0.01))
    world.run(5.0)
    assert len(world.core.state.hosts[0].held) == 3
    world.hosts.join("late")
    world.run(250.0)
    assert world.core.state.bags[1].over
    assert not world.core.state.bags[0].tasks.where


def test_a_host_that_waits_is_asked_when_a_bag_becomes_one_for_it():
    world = World(steady(10.0))
    for name in ("a", "b"):
        world.hosts.join(name)
    world.add(
        0, bag(12, {"JobRequirements": 'Host.Name == "a" || JobsLeft < 7', "Concurrency": "1"})
    )
    world.run()
    assert Counter(host for host, _, _ in world.given())["b"] == 3


def test_what_is_remembered_of_changes_does_not_grow():
    world = World(steady(1e9), fair=True)
    for i in range(5):
        world.hosts.join(f"h{i}")
    for number in range(20):
        world.add(number, bag(50, {"Rank": "Tail ? Host.JobsToday : 1"}, owner=f"o{number}"))
    core = world.core
    world.run(10.0)
    for turn in range(5000):
        number = turn % 20
        (core.board.tails.discard if turn // 20 % 2 else core.board.tails.add)(number)
        core.board.change(number)
        next(core.choosing.offers(core.state.hosts[turn % 5], 10.0), None)
    kept = pickle.dumps([vars(core.choosing.index)[name] for name in ("_alike", "_groups", "_of")])
    assert len(kept) < 50_000
    assert not core.board.changed


def test_after_a_crash_only_the_outputs_of_the_attempt_that_counted_are_kept(tmp_path):
    given = Bag(name="b", commands=Listed(["true"] * 3), outputs=("o-{task}",))
    files = BagFiles(given, tmp_path, tmp_path)
    for task, attempt in ((0, 1), (0, 2), (1, 1), (2, 1)):
        place = files.place(task, attempt, f"o-{task}")
        place.parent.mkdir(parents=True)
        place.write_text(f"attempt {attempt}")
    ends = [(0, 9, 1), (0, 0, 2), (0, 0, 1), (2, 0, 2)]  # task, code, attempt
    status = bytes([DONE, PENDING, FAILED])
    files.finish_commits(
        status, [np.array(ends, [("task", "<u4"), ("code", "<i2"), ("attempt", "<u2")])]
    )
    kept = {path.name: path.read_text() for path in (tmp_path / "results").iterdir()}
    assert kept == {"o-0": "attempt 2"}
    assert [path.name for path in (tmp_path / "arriving").iterdir()] == ["1.1"]  # nobody knows yet


def test_an_owner_whose_last_bag_went_before_it_was_looked_at_is_forgotten():
    world = World(steady(1.0), fair=True)
    for number, owner in enumerate("aab"):
        world.add(number, bag(50, {"Concurrency": "1"}, owner=owner))
    world.hosts.join("first")
    world.hosts.run(0.5)
    assert {number for _, number, _ in world.given()} <= {0, 1}
    world.core.cancel(2, world.hosts.now_s, "not wanted")
    world.hosts.join("second")
    world.run()
    assert [b.tasks.counts[DONE] for b in world.core.state.bags.values()] == [50, 50, 0]
