"""A random world of bags, owners, hosts and faults, drawn from one seed, in virtual time."""

from __future__ import annotations

import heapq
import math
import random
import shutil

from tests.dispatch.bag_faults import FaultyDispatcher, FragilePath, Judge, Killed, canonical, same
from tests.dispatch.bag_hosts import Agent
from tests.dispatch.bag_network import Network, Silence
from tests.dispatch.bag_users import Users
from vgrads.dispatch.storage.journal import read_state

CALM_S, PATIENCE_S = 20.0, 900.0


class World:
    """Everything that happens under one seed."""

    def __init__(self, seed, folder, lazy=0.3):
        self.draw = random.Random(seed)
        self.folder = FragilePath(folder)
        draw = self.draw
        self.now, self._events, self._count = 0.0, [], 0
        self.policy = draw.choice(("fair-share", "next-available"))
        self.segment_bytes = draw.choice((300, 1500, 6000, 1 << 20))
        self.in_hand_s = draw.choice((0.1, 1.0, 5.0))
        self.compare, self.fragile = 0.2, draw.choice((0.0, 0.3))
        self.deadly = draw.choice((0.0, 0.03, 0.08))
        self.network = Network(self, draw.choice((0.0, 0.005, 0.02)), draw.choice((0.0, 0.05)))
        self.timed = draw.random() < 0.3
        self.users = Users(seed, draw, self.timed, lazy)
        self.bags = self.users.bags
        self.judge = Judge(self)
        self.dispatcher, self.agents, self.incarnations, self.calm = None, [], 0, False
        self.restarts = 0

    # time

    def after(self, wait_s, what):
        self._count += 1
        heapq.heappush(self._events, (self.now + wait_s, self._count, what))

    def run(self, until):
        while self._events and not until():
            self.now, _, what = heapq.heappop(self._events)
            what()

    # the dispatcher

    def turn(self, dispatcher):
        if dispatcher is not self.dispatcher or dispatcher is None:
            return
        dispatcher.turning = False
        try:
            dispatcher.turn()
        except Killed:
            self.crash()

    def tick(self):
        self.after(0.25, self.tick)
        self.turn(self.dispatcher)

    def death(self):
        if self.calm or self.draw.random() >= self.deadly:
            return ""
        return self.draw.choice(("torn", "torn", "before", "after", "rolled"))

    def crash(self):
        """The dispatcher dies; another one comes."""
        dispatcher, self.dispatcher = self.dispatcher, None
        dispatcher.journal.close()
        expected = canonical(dispatcher.shadow)
        for agent in self.agents:
            if agent.line is not None and agent.line.dispatcher is dispatcher:
                agent.hang_up()
        retained = canonical(read_state(self.folder))
        assert same(expected, retained), ("what was written was not read", expected, retained)
        self.after(self.draw.uniform(0.1, 4.0), self.start)

    def start(self):
        self.restarts += 1
        self.dispatcher = FaultyDispatcher(self)
        self.judge.restarted(self.dispatcher.core.state)
        self.user(always=True)

    def user(self, always=False):
        """Users say what they wish, mostly."""
        if self.dispatcher is not None and (always or self.draw.random() < 0.7):
            self.users.act(self.dispatcher.core, self.now)

    # hosts

    def agent(self, id):
        state = self.dispatcher.core.state if self.dispatcher else None
        return state.agents.get(state.by_id.get(id, -1)) if state else None

    def join(self, id, procs=0, lasting=False):
        draw = self.draw
        self.incarnations += 1
        ends_s = self.now + draw.uniform(2.0, 30.0) if self.timed and not lasting else math.inf
        agent = Agent(
            self,
            id,
            f"{id}.{self.incarnations}",
            procs or draw.choice((1, 1, 2, 4)),
            draw.choice(("s0", "s1")),
            ends_s,
            lasting,
            most_ends=draw.choice((1, 3, 100)),
        )
        if lasting:
            agent.site = "s0"
        self.agents.append(agent)
        agent.connect()
        if ends_s < math.inf:
            self.after(ends_s - self.now, lambda: self.kill(agent))
        return agent

    def kill(self, agent):
        """Without a word; another life of it comes."""
        if not agent.alive:
            return
        agent.die()
        self.agents.remove(agent)
        wait_s = self.draw.choice((0.2, 2.0) if agent.lasting else (0.2, 2.0, 10.0))
        if agent.lasting or self.draw.random() < 0.7:
            procs = agent.procs if agent.lasting else 0
            self.after(wait_s, lambda: self.join(agent.id, procs, agent.lasting))

    def fault(self):
        """Something goes wrong with some host."""
        if self.calm:
            return
        draw = self.draw
        self.after(draw.expovariate(self.faults), self.fault)
        self.agents = [agent for agent in self.agents if agent.alive]
        what = draw.choice(("join", "kill", "leave", "leave", "twin", "hang", "silent", "dismiss"))
        if what == "join" or not self.agents:
            self.join(f"h{draw.randrange(6)}")
            return
        agent = draw.choice(self.agents)
        if what == "kill":
            self.kill(agent)
        elif what == "leave":
            agent.leave("signal", kill=draw.random() < 0.5)
        elif what == "twin":
            self.join(agent.id)
        elif what == "hang":
            agent.hang_up(late=draw.random() < 0.7)
        elif what == "silent":
            self._fall_silent(agent)
        elif self.agent(agent.id) is not None and self.agent(agent.id).here:
            self.judge.dismissed.add(agent.id)
            self.dispatcher.core.disconnect(self.agent(agent.id), "released")

    def _fall_silent(self, agent):
        """For longer than a host may be, sometimes; then it is back."""
        line, agent.line = agent.line, Silence()
        if line is not None and not isinstance(line, Silence):
            line.broken = True
        self.after(self.draw.uniform(1.0, 12.0), lambda: self._send_again(agent))

    def _send_again(self, agent):
        if isinstance(agent.line, Silence):
            agent.hang_up()

    # all of it

    def over(self):
        state = self.dispatcher.core.state if self.dispatcher else None
        return (
            self.calm
            and not self.users.control_requests
            and state is not None
            and len(state.bags) == len(self.bags)
            and all(bag.over for bag in state.bags.values())
        )

    def settle(self):
        """No more faults; a host that does for every bag comes to stay."""
        self.calm, self.deadly, self.fragile = True, 0.0, 0.0
        self.join("anchor", 4, lasting=True)

    def simulate(self):
        """Until everything is over; AssertionError where something was seen that may never be."""
        self.users.make_wishes()
        self.faults = self.draw.choice((0.05, 0.4, 1.0))
        self.start()
        self.tick()
        for n in range(self.draw.randint(1, 4)):
            self.join(f"h{n}")
        self.fault()
        self.after(CALM_S, self.settle)
        self.run(lambda: self.over() or self.now > CALM_S + PATIENCE_S)
        assert self.over(), "the dispatcher stands still"
        until_s = self.now + 15.0
        self.run(lambda: self.now > until_s)
        state = self.dispatcher.core.state
        self.dispatcher.turn()
        self.dispatcher.journal.close()
        again = read_state(self.folder)
        assert same(canonical(state), canonical(again)), "fold"
        self.judge.at_the_end(state, self.folder)


def simulate(seed, folder, lazy=0.3):
    """One schedule."""
    FragilePath.left = math.inf
    shutil.rmtree(folder, ignore_errors=True)
    world = World(seed, folder, lazy)
    world.simulate()
    return world
