"""A pool that is killed anywhere: never more workers than it may have, none for managers that are
gone, none forgotten.

The pool's own decisions, files and journal are real; hosts, managers and the ledger are played.
"""

import os
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vgrads.api.pools.document import PoolDocument
from vgrads.api.pools.ledger import LedgerEntries
from vgrads.api.pools.ledger_connection import LedgerConnection
from vgrads.api.pools.shares import PoolShares
from vgrads.dispatch.core.fold import apply
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import ASSIGNED, PENDING
from vgrads.dispatch.storage.folder import is_closed, open_bag
from vgrads.exchange.values import AttemptEnd, Hello, Message

pytestmark = pytest.mark.more

MOST = 12
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("look"), st.just(0)),
        st.tuples(st.just("kill"), st.integers(0, 3)),
        st.tuples(st.just("need"), st.tuples(st.integers(0, 2), st.integers(0, 40))),
        st.tuples(st.just("away"), st.booleans()),
        st.tuples(st.just("work"), st.integers(1, 6)),
        st.tuples(st.just("end"), st.integers(0, 5)),
    ),
    max_size=40,
)


class Ledger:
    """Managers by need; silent while it is away."""

    def __init__(self):
        self.needs, self.away, self.leased = Counter(), False, {}

    def read(self):
        if self.away:
            raise OSError("away")
        payload = {
            "contact": "tls://h:1",
            "certificate": "C",
            "slot": "s",
            "key": "k",
            "age_s": 0.0,
            "capacity": None,
        }
        return LedgerEntries(
            managers=[
                payload
                | {
                    "name": f"m{n}.0",
                    "waiting": need,
                    "running": 0,
                    "procs": self.leased.get(f"m{n}.0", 0),
                    "by_pool": {"p": self.leased.get(f"m{n}.0", 0)},
                }
                for n, need in sorted(self.needs.items())
                if need
            ]
        )

    def publish_pool(self, name, entry):
        pass

    def withdraw(self, kind, name):
        pass


class World:
    """One pool over its folder, killed and begun again."""

    def __init__(self, folder):
        self.folder, self.ledger, self.now_s = folder, Ledger(), 0.0
        self.records, self.hosts = [], 0
        self.document = PoolDocument(name="p", max_workers=MOST, policy="d1", period=1.0)
        self.begin()

    def begin(self):
        """As after ``kill -9``: what is in the journal and in the folder is all that is known."""
        state = State()
        for record in self.records:
            apply(state, record)
        self.core = Core(state, Rules(), self.records.append)
        self.core.awake_after_restart(self.now_s)
        line = LedgerConnection(self.ledger, "pool", "p", now_s=lambda: self.now_s)
        self.shares = PoolShares(self.folder, self.document, line)
        self.shares.begin("run", 1, SimpleNamespace())
        clock = SimpleNamespace(now=lambda: self.now_s)
        self.manager = SimpleNamespace(core=self.core, state=state, clock=clock)
        self.saved = {}
        self.grow()

    def grow(self):
        """What the dispatcher does with the bags of its folder, as ``vgrads.api.bags.execution``
        does."""
        for number in self.shares.numbers:
            if number not in self.saved:
                bag = self.saved[number] = open_bag(self.folder, number)
                if number not in self.core.state.bags:
                    self.core.add(number, bag.bag, self.now_s, open_=True)
                self.core.attach(number, bag.bag)
                self.core.add_tasks(
                    number, len(bag.bag.commands) - len(self.core.state.bags[number].tasks)
                )
            closed = is_closed(self.folder, number)
            self.core.add_tasks(number, self.saved[number].added())
            if closed:
                self.core.close(number, self.now_s)

    def look(self, kill=0):
        """One period; killed after the decision was written to the folder, or before the dispatcher
        saw it."""
        self.now_s += 1.0
        self.ledger.leased = Counter({b.name: b.tasks.counts[ASSIGNED] for b in self.core.serving})
        fleet = SimpleNamespace(coming=0, expected_wait_s=0.0)
        self.shares.look(self.manager, fleet)
        future = self.shares.line._pending
        if future is not None:
            future.exception()
        if kill == 1:
            self.begin()
            return
        self.shares.look(self.manager, fleet)
        if kill == 2:
            self.begin()
        self.grow()
        self.check()

    def work(self, count):
        """Hosts come and take workers."""
        for _ in range(count):
            name = f"h{self.hosts}"
            self.hosts += 1
            hello = Hello(slot=name, procs=1, name=name)
            self.core.receive(Message(agent=name, incarnation="l", seq=1, hello=hello), self.now_s)
            self.core.answer(self.core.state.agents[self.core.state.by_id[name]], self.now_s)

    def end(self, which):
        """A worker ends in peace."""
        hosts = [host for host in self.core.state.agents.values() if host.here and host.assigned]
        if hosts:
            host = hosts[which % len(hosts)]
            (bag, task), attempt = next(iter(host.assigned.items()))
            end = AttemptEnd(task, host.number, self.now_s, 0, attempt, 1.0)
            self.core.receive(
                Message(
                    agent=host.id,
                    incarnation="l",
                    seq=host.seq + 1,
                    ends=[(bag, end)],
                    leaving="done",
                ),
                self.now_s,
            )

    def check(self):
        """Never more than there may be."""
        counts = Counter()
        for bag in self.core.state.bags.values():
            counts[bag.name] += bag.tasks.counts[PENDING] + bag.tasks.counts[ASSIGNED]
        assert counts.total() <= MOST, counts
        return counts


def settle(world):
    """Everybody lets go of what they have too many, and the pool looks until nothing changes."""
    world.ledger.away = False
    for _ in range(12):
        world.look()
        for bag in list(world.core.serving):
            beyond = bag.tasks.counts[ASSIGNED] - world.shares.decided.shares.get(bag.name, 0)
            for _ in range(max(0, beyond)):
                reserved = [
                    h.number
                    for h in world.core.state.agents.values()
                    if h.here and any(k[0] == bag.number for k in h.assigned)
                ]
                world.end(
                    [
                        h.number for h in world.core.state.agents.values() if h.here and h.assigned
                    ].index(reserved[0])
                )
        world.work(3)
    return world.check()


@pytest.mark.parametrize("kind", ["any"])
@given(steps=STEPS)
@settings(
    max_examples=int(os.environ.get("VGRADS_SCHEDULES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_pool_killed_anywhere_keeps_its_bounds_and_finds_its_way(tmp_path_factory, kind, steps):
    world = World(tmp_path_factory.mktemp(kind))
    for what, how in steps:
        if what == "look":
            world.look()
        elif what == "kill":
            world.begin() if how in (0, 3) else world.look(kill=how)
        elif what == "need":
            world.ledger.needs[how[0]] = how[1]
        elif what == "away":
            world.ledger.away = how
        elif what == "work":
            world.work(how)
        else:
            world.end(how)
        world.check()
    counts = settle(world)
    needs = {f"m{n}.0": need for n, need in world.ledger.needs.items() if need}
    assert {name for name, count in counts.items() if count} <= set(needs)
    assert counts.total() == min(MOST, sum(needs.values()))
