"""When hosts that were lost are replaced."""

import pytest

from vgrads.api.wiring import Wiring, make_drivers
from vgrads.bags.bag import BagSpec, Listed
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.site_view import FleetSite
from vgrads.dispatch.fleet.virtual import VirtualAgents
from vgrads.dispatch.fleet.world import World
from vgrads.drivers.api import SlotState
from vgrads.exchange.values import AttemptEnd, Hello, Message
from vgrads.execmgr.core.states import SlotUpdate
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import SimClock
from vgrads.pool.acquire import acquire
from vgrads.pool.release import central_all
from vgrads.pool.view import PoolLimits, merge_decisions
from vgrads.vgrid.catalog import Catalog
from vgrads.vgrid.catalog import Site as CatalogSite


class Site:
    """Opens everything, tells nothing by itself."""

    def __init__(self):
        self.opened = []

    def find(self, execution, slot, state):
        return []

    def open(self, execution, slot):
        self.opened.append(slot)
        return []

    def close(self, execution, slot):
        return []

    def news(self, execution):
        return []


@pytest.mark.parametrize(
    ("queue", "worked", "replaced_s"),
    [("batch", True, 3.1), ("batch", False, 8.0), ("", True, 3.1), ("", False, 3.5)],
)
def test_a_host_that_is_lost_is_replaced_at_once_if_it_had_worked(queue, worked, replaced_s):
    """If it had only joined, after the pause of a failed request; after half a second where it is
    a process of this machine."""
    core = Core(State(), Rules(), lambda record: None)
    core.add(0, BagSpec(name="b", commands=Listed(["true"] * 9)), 0.0)
    site = Site()
    place = FleetSite(
        site="here",
        queue=queue,
        node_type="n",
        procs=1,
        limits=PoolLimits(least=0, most=1, longest_s=99.0),
        longest_s=99.0,
        decide=lambda view: acquire(view, "all-at-once"),
    )
    fleet = Fleet(
        core=core, sites=site, sources=[place], run="r", pilot_environment=lambda slot: {}
    )

    def look(at_s):
        fleet.decide(at_s)
        fleet.observe(fleet.carry_out(), at_s)

    look(0.0)
    core.receive(
        Message(agent="a", incarnation="1", seq=1, hello=Hello(slot="h0", procs=1)), 1.0, "here"
    )
    core.answer(core.state.agents[0], 1.0)
    look(1.5)
    if worked:
        core.receive(
            Message(agent="a", incarnation="1", seq=2, ends=[(0, AttemptEnd(0, 0, 2.0, 0, 1))]), 2.0
        )
    fleet.observe([SlotUpdate(at_s=3.0, slot="h0", state=SlotState.FAILED, reason="killed")], 3.0)
    assert not core.state.agents[0].here
    for at_s in (3.1, 3.4, 3.5, 7.9, 8.0):
        look(at_s)
        assert site.opened == (["h0", "h1"] if at_s >= replaced_s else ["h0"])
    look(9.0)
    assert site.opened == ["h0", "h1"]


def test_no_more_is_queried_of_a_queue_than_it_takes_of_a_single_user():
    core = Core(State(), Rules(), lambda record: None)
    core.add(0, BagSpec(name="b", commands=Listed(["true"] * 99)), 0.0)
    site = Site()
    place = FleetSite(
        site="here",
        queue="",
        node_type="n",
        procs=1,
        limits=PoolLimits(least=0, most=20, longest_s=99.0),
        longest_s=99.0,
        decide=lambda view: acquire(view, "one-at-a-time"),
        requests=3,
    )
    fleet = Fleet(
        core=core, sites=site, sources=[place], run="r", pilot_environment=lambda slot: {}
    )
    for at_s in (0.0, 1.0):
        fleet.decide(at_s)
        fleet.observe(fleet.carry_out(), at_s)
    assert site.opened == ["h0", "h1", "h2"]
    fleet.observe([SlotUpdate(at_s=2.0, slot="h1", state=SlotState.EXPIRED, reason="over")], 2.0)
    fleet.decide(3.0)
    fleet.carry_out()
    assert site.opened == ["h0", "h1", "h2", "h3"]


def two_sites(bags, waits=(180.0, 180.0), most=4, **more):
    """A fleet over the sites "a" and "b", where nothing comes by itself, and how to look at it."""
    core = Core(State(), Rules(), lambda record: None)
    for number, bag in enumerate(bags):
        core.add(number, bag, 0.0)
    sites = [
        FleetSite(
            site=name,
            queue="",
            node_type="n",
            procs=1,
            limits=PoolLimits(most=most),
            longest_s=9e9,
            decide=acquire,
            boot_s=wait_s,
        )
        for name, wait_s in zip("ab", waits, strict=True)
    ]
    fleet = Fleet(
        core=core, sites=Site(), sources=sites, run="r", pilot_environment=lambda slot: {}, **more
    )

    def look(at_s):
        fleet.decide(at_s)
        fleet.observe(fleet.carry_out(), at_s)
        requested = dict.fromkeys("ab", 0)
        for slot in core.state.slots.values():
            if not slot.closing:
                requested[slot.site] += slot.agents
        return requested

    look.fleet = fleet
    return core, look


def bag(tasks, **more):
    return BagSpec(name="b", commands=Listed(["true"] * tasks), **more)


def join(core, slot, agents, at_s):
    """Hosts of a slot come, and are given work."""
    for n in range(agents):
        hello = Hello(slot=slot, procs=1)
        core.receive(
            Message(agent=f"{slot}.{n}", incarnation="1", seq=1, hello=hello),
            at_s,
            core.state.slots[slot].site,
        )
        core.answer(core.state.agents[core.state.by_id[f"{slot}.{n}"]], at_s)


def test_hosts_come_only_where_a_bag_may_use_them():
    _, look = two_sites([bag(9, sites=("b",))])
    assert look(0.0) == {"a": 0, "b": 4}


def test_who_may_use_a_single_site_only_has_it_before_others():
    _, look = two_sites([bag(3), bag(4, sites=("a",))])
    assert look(0.0) == {"a": 4, "b": 3}


def test_a_bags_policy_keeps_it_from_a_grid_as_long_as_it_says_so():
    ads = []

    def fits(number, grid):
        ads.append(grid)
        return grid["Name"] == "b" or grid["Queued"] + grid["Running"] < 2

    _, look = two_sites([bag(2)], fits=fits, waits=(10.0, 20.0))
    assert look(0.0) == {"a": 2, "b": 0}
    assert ads[0] == {
        "Name": "a",
        "Limit": 4,
        "Free": 4,
        "Queued": 0,
        "Running": 0,
        "MeanWait": 0.0,
        "ErrorRate": 0.0,
        "Price": 0.0,
    }
    assert look(1.0) == {"a": 0, "b": 2}  # unfit now: what was asked for is taken back at once


def test_the_soonest_site_is_queried_first_by_observations():
    core, look = two_sites([bag(8)])
    assert look(0.0) == {"a": 4, "b": 4}
    join(core, "h1", 4, 20.0)  # of b, after 20 s
    look(20.0)
    join(core, "h0", 4, 90.0)
    look(90.0)
    for agent in core.state.agents.values():
        core.gone(agent, 91.0, lost=False)
    core.cancel(0, 91.0, "")
    before = look(92.0)
    core.add(1, bag(3), 93.0)
    after = look(93.0)
    assert (after["a"] - before["a"], after["b"] - before["b"]) == (0, 3)


def test_a_site_whose_hosts_do_not_come_keeps_its_place_while_others_are_queried():
    core, look = two_sites([bag(3)], waits=(60.0, 100.0))
    requested = [look(float(at_s)) for at_s in range(3000)]
    assert requested[0] == requested[160] == {"a": 3, "b": 0}
    assert (
        requested[161] == requested[-1] == {"a": 3, "b": 3}
    )  # as late again as it is late is later than b
    join(core, "h1", 3, 3000.0)
    assert look(3000.5) == {"a": 0, "b": 3}
    core.cancel(0, 3001.0, "")
    for agent in core.state.agents.values():
        core.gone(agent, 3001.0, lost=False)
    look(3002.0)
    core.add(1, bag(2), 3003.0)
    assert look(3003.0)["a"] == 0  # waited for in vain: not the soonest any more


def test_hosts_that_work_count_where_they_are_and_no_others_come_for_their_tasks():
    core, look = two_sites([bag(4)], waits=(10.0, 10.0))
    look(0.0)
    join(core, "h0", 4, 1.0)
    assert core.state.bags[0].tasks.pending == 0
    assert look(2.0) == look(500.0) == {"a": 4, "b": 0}


def test_a_site_that_refuses_loses_the_work_to_the_other_concurrently():
    _, look = two_sites([bag(4)], waits=(10.0, 20.0))
    assert look(0.0) == {"a": 4, "b": 0}
    news = SlotUpdate(
        at_s=1.0, slot="h0", state=SlotState.FAILED, reason="no such account", permanent=True
    )
    look.fleet.observe([news], 1.0)
    assert look(2.0)["b"] == 4


@pytest.mark.parametrize("both", [True, False])
def test_supply_follows_a_tail_within_two_looks(both):
    """Tasks of a bag end one after the other, at two simulated sites, while another bag works
    elsewhere on and on."""
    clock = SimClock()
    core = Core(State(), Rules(), lambda record: None)
    agents = VirtualAgents(
        core, lambda number, task, _: (300.0 + 7.0 * (task % 20) if number == 0 else 5000.0, 0)
    )
    catalog = Catalog(
        sites=tuple(
            CatalogSite(name=name, kind="batch", procs=10, boot_s=1.0, boot_spread=0.0)
            for name in "abc"
        ),
        links={},
    )
    nothing = Wiring(logs={}, instants={}, until_s=0.0, seed=0)
    sites = Sites("r", make_drivers(catalog, list("abc"), clock, nothing), clock, {})
    places = [
        FleetSite(
            site=name,
            queue="",
            node_type="",
            procs=1,
            limits=PoolLimits(most=10),
            longest_s=9e9,
            decide=lambda view: merge_decisions((acquire(view), central_all(view))),
        )
        for name in "abc"
    ]
    fleet = Fleet(core=core, sites=sites, sources=places, run="r", pilot_environment=lambda _: {})
    core.add(0, bag(60, sites=("a", "b"), estimate_s=300.0), 0.0)
    core.add(1, bag(99, sites=("c",) if both else ("a", "c"), estimate_s=300.0), 0.0)
    observed = []

    def looked():
        here = [h for h in core.state.agents.values() if h.here and not h.leaving]
        mine = [h for h in here if h.site == "b" or (both and h.site == "a")]
        observed.append((clock.now(), core.state.bags[0].tasks.counts[:2], len(mine)))

    World(
        core, fleet, sites, agents, clock, lambda: core.state.bags[0].over, looked, steady_s=1.0
    ).run()
    assert core.state.bags[0].tasks.counts[2] == 60
    tail = [n for n, (_, (pending, _), _) in enumerate(observed) if not pending and n > 2]
    assert len({here for n, (_, _, here) in enumerate(observed) if n in tail}) > 8
    for n in tail:
        assert observed[n][2] <= max(sum(observed[m][1]) for m in (n - 2, n - 1, n))
