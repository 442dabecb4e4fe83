"""When hosts that were lost are replaced."""

import pytest

from bags.bag import Bag, Listed
from dispatch.core import Core
from dispatch.fleet import Fleet, Place
from dispatch.hosts import Hello
from dispatch.records import End
from dispatch.state import State
from dispatch.talk import Message, Rules
from drivers.api import SlotState
from execmgr.states import SlotNews
from pool.acquire import acquire
from pool.view import PoolLimits


class Site:
    """Opens everything, tells nothing by itself."""

    def __init__(self):
        self.opened = []

    def find(self, book, slot, state):
        return []

    def open(self, book, slot):
        self.opened.append(slot)
        return []

    def news(self, book):
        return []


@pytest.mark.parametrize(("worked", "replaced"), [(True, True), (False, False)])
def test_a_host_that_is_lost_is_replaced_at_once_if_it_had_worked(worked, replaced):
    core = Core(State(), Rules(), lambda record: None)
    core.add(0, Bag(name="b", commands=Listed(["true"] * 9)), 0.0)
    site = Site()
    place = Place(
        site="here", queue="", node_type="n", procs=1, limits=PoolLimits(least=0, most=1, longest_s=99.0),
        longest_s=99.0, decide=lambda view: acquire(view, "all-at-once"),
    )  # fmt: skip
    fleet = Fleet(core=core, sites=site, places=[place], run="r", pilot_environment=lambda slot: {})

    def look(at_s):
        fleet.decide(at_s)
        fleet.heard(fleet.carry_out(), at_s)

    look(0.0)
    core.hear(Message(host="a", life="1", seq=1, hello=Hello(slot="h0", procs=1)), 1.0, "here")
    core.answer(core.state.hosts[0], 1.0)
    look(1.5)
    if worked:
        core.hear(Message(host="a", life="1", seq=2, ends=[(0, End(0, 0, 2.0, 0, 1))]), 2.0)
    fleet.heard([SlotNews(at_s=3.0, slot="h0", state=SlotState.FAILED, reason="killed")], 3.0)
    assert not core.state.hosts[0].here
    look(3.5)
    assert site.opened == (["h0", "h1"] if replaced else ["h0"])
    look(9.0)
    assert site.opened == ["h0", "h1"]


def test_no_more_is_asked_of_a_queue_than_it_takes_of_one_user():
    core = Core(State(), Rules(), lambda record: None)
    core.add(0, Bag(name="b", commands=Listed(["true"] * 99)), 0.0)
    site = Site()
    place = Place(
        site="here", queue="", node_type="n", procs=1, limits=PoolLimits(least=0, most=20, longest_s=99.0),
        longest_s=99.0, decide=lambda view: acquire(view, "one-at-a-time"), requests=3,
    )  # fmt: skip
    fleet = Fleet(core=core, sites=site, places=[place], run="r", pilot_environment=lambda slot: {})
    for at_s in (0.0, 1.0):
        fleet.decide(at_s)
        fleet.heard(fleet.carry_out(), at_s)
    assert site.opened == ["h0", "h1", "h2"]
    fleet.heard([SlotNews(at_s=2.0, slot="h1", state=SlotState.EXPIRED, reason="over")], 2.0)
    fleet.decide(3.0)
    fleet.carry_out()
    assert site.opened == ["h0", "h1", "h2", "h3"]
