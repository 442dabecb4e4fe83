"""A random world of bags, owners, hosts and faults, drawn from one seed, in virtual time."""

from __future__ import annotations

import heapq
import math
import random
import shutil
from dataclasses import replace

from tests.dispatch.bag_faults import Desk, FragilePath, Judge, Killed, canonical, same
from tests.dispatch.bag_hosts import Agent
from vgrads.bags.bag import Bag, Listed
from vgrads.dispatch.core.records import COULD_NOT
from vgrads.dispatch.storage.journal import read_state
from vgrads.policies.policy import read_policy
from vgrads.workflows.generated.wavefront import Wavefront

_POLICIES = [
    read_policy(given, "policy")
    for given in (
        {"ReplicationRequirements": "NumberOfReplicas < 3"},
        {"ReplicationRequirements": "NumberOfReplicas < 2", "Concurrency": "1", "Deadline": "6"},
        {
            "JobRequirements": "Host.ErrorRate < 0.9 || !Tail",
            "Rank": "Host.JobsToday",
            "Deadline": "Concurrency * 6",
        },
        {
            "JobRequirements": "!member(Host.Name, Job.Hosts)",
            "ReplicationRequirements": "true",
            "Rank": "-JobsLeft",
        },
    )
]
CALM_S, PATIENCE_S = 20.0, 900.0


class World:
    """Everything that happens under one seed."""

    def __init__(self, seed, folder, lazy=0.3):
        self.lazy = lazy  # the part of bags whose tasks become ready as others end
        self.seed, self.draw = seed, random.Random(seed)
        self.folder = FragilePath(folder)
        draw = self.draw
        self.now, self._events, self._count = 0.0, [], 0
        self.policy = draw.choice(("fair-share", "next-available"))
        self.segment_bytes = draw.choice((300, 1500, 6000, 1 << 20))
        self.in_hand_s = draw.choice((0.1, 1.0, 5.0))
        self.compare, self.fragile = 0.2, draw.choice((0.0, 0.3))
        self.deadly = draw.choice((0.0, 0.03, 0.08))
        self.breaks = draw.choice((0.0, 0.005, 0.02))
        self.doubles = draw.choice((0.0, 0.05))
        self.timed = draw.random() < 0.3
        self.bags, self.wanted, self.wishes, self.moved = {}, {}, [], False
        self.judge = Judge(self)
        self.desk, self.agents, self.lives, self.calm = None, [], 0, False
        self.restarts = 0

    # time

    def after(self, wait_s, what):
        self._count += 1
        heapq.heappush(self._events, (self.now + wait_s, self._count, what))

    def run(self, until):
        while self._events and not until():
            self.now, _, what = heapq.heappop(self._events)
            what()

    # the network

    def up(self, line, message):
        draw = self.draw
        line.up_s = max(line.up_s, self.now + draw.uniform(0.001, 0.05))
        wait_s = line.up_s - self.now
        self.after(wait_s, lambda: self._arrive(line, message, True))
        if draw.random() < self.doubles:
            self.after(wait_s + draw.uniform(0.0, 0.5), lambda: self._arrive(line, message, True))
        if not self.calm and not line.broken and draw.random() < self.breaks:
            self.after(draw.uniform(0.0, 0.1), lambda: self._break(line))

    def _break(self, line):
        if not line.broken and line.agent.line is line:
            line.agent.hang_up(late=self.draw.random() < 0.6)

    def _arrive(self, line, message, first):
        if line.broken and not line.late:
            return
        if line.broken and first:
            self.after(self.draw.uniform(0.0, 3.0), lambda: self._arrive(line, message, False))
            return
        if self.desk is line.desk and self.desk is not None:
            self.desk.asked(line, message)
            if not self.desk.turning:
                self.desk.turning = True
                self.after(self.draw.uniform(0.001, 0.02), lambda d=self.desk: self.turn(d))

    def down(self, line, seq, answer):
        line.down_s = max(line.down_s, self.now + self.draw.uniform(0.001, 0.05))
        self.after(line.down_s - self.now, lambda: line.agent.hear(line, seq, answer))

    def cut(self, line):
        desk = self.desk
        if desk is line.desk and desk is not None:
            desk.unpark(line)
            if line.host is not None and desk.lines.get(line.host) is line:
                del desk.lines[line.host]

    # the dispatcher

    def turn(self, desk):
        if desk is not self.desk or desk is None:
            return
        desk.turning = False
        try:
            desk.turn()
        except Killed:
            self.crash()

    def tick(self):
        self.after(0.25, self.tick)
        self.turn(self.desk)

    def death(self):
        if self.calm or self.draw.random() >= self.deadly:
            return ""
        return self.draw.choice(("torn", "torn", "before", "after", "rolled"))

    def crash(self):
        """The dispatcher dies; another one comes."""
        desk, self.desk = self.desk, None
        desk.journal.close()
        expected = canonical(desk.shadow)
        for agent in self.agents:
            if agent.line is not None and agent.line.desk is desk:
                agent.hang_up()
        kept = canonical(read_state(self.folder))
        assert same(expected, kept), ("what was written was not read", expected, kept)
        self.after(self.draw.uniform(0.1, 4.0), self.start)

    def start(self):
        self.restarts += 1
        self.desk = Desk(self)
        self.judge.restarted(self.desk.core.state)
        self.user(always=True)

    # users

    def user(self, always=False):
        """What users wish is done, or done again where it was lost."""
        if self.desk is None or not (always or self.draw.random() < 0.7):
            return
        core = self.desk.core
        while self.wishes and self.wishes[0][0] <= self.now:
            self._wish(*self.wishes.pop(0)[1:])
        for number, bag in self.bags.items():
            if number not in core.state.bags:
                core.add(number, bag, self.now, open_=self.wish[number]["open"] is not None)
            state = core.state.bags[number]
            if self.wish[number]["cancel"] and not state.cancelled:
                core.cancel(number, self.now, "no more wanted")
            core.grow(number, self.wanted[number] - len(state.tasks))
            if self.wish[number]["open"] is False:
                core.close(number, self.now)

    def _wish(self, what, number, value):
        if what == "bag":
            self.bags[number], self.wanted[number] = value[0], len(value[0].commands)
            self.wish[number] = {"open": value[1], "cancel": False}
        elif what == "grow" and not self.wish[number]["cancel"]:
            self.wanted[number] += value
            self.bags[number].commands.lines.extend(["true"] * value)
        elif what == "close":
            self.wish[number]["open"] = False
        elif what == "cancel":
            self.wish[number]["cancel"] = True

    def make_wishes(self):
        draw, self.wish = self.draw, {}
        for number in range(draw.randint(1, 3)):
            came_s = draw.uniform(0.0, 6.0)
            opened = draw.random() < 0.3
            estimate_s = draw.choice((0.3, 1.0, 3.0)) if self.timed else None
            bag = Bag(
                name=f"b{number}",
                commands=Listed(["true"] * draw.choice((1, 5, 20, 40))),
                owner=draw.choice("ab"),
                weight=draw.choice((1.0, 3.0)),
                procs=draw.choice((1, 1, 1, 2, 3)),
                retries=draw.choice((0, 2)),
                estimate_s=estimate_s,
                sites=() if draw.random() < 0.8 else ("s0",),
            )
            self.wishes.append((came_s, "bag", number, (bag, True if opened else None)))
            if opened:
                for _ in range(draw.randint(0, 3)):
                    at_s = came_s + draw.uniform(0.0, 8.0)
                    self.wishes.append((at_s, "grow", number, draw.randint(0, 15)))
                self.wishes.append((came_s + 8.0, "close", number, None))
            if draw.random() < 0.15:
                self.wishes.append((came_s + draw.uniform(0.0, 9.0), "cancel", number, None))
        self._give_policies(random.Random(self.seed + 0.5))
        self._give_orders(random.Random(self.seed + 0.25))
        self.wishes.sort(key=lambda wish: (wish[0], wish[2]))
        self.failing = draw.choice((0.0, 0.1, 0.3))
        self.hopeless, self.killing = draw.choice((0.0, 0.05)), draw.choice((0.0, 0.0, 0.03))

    def _give_policies(self, draw):
        """Some bags have a policy, or copies of what is late, or a site for what has failed."""
        for n, (at_s, what, number, more) in enumerate(self.wishes):
            if what == "bag":
                learns = draw.random() < 0.15
                policy = None if learns or draw.random() < 0.6 else draw.choice(_POLICIES)
                bag = replace(
                    more[0],
                    learns=learns,
                    policy=policy,
                    tail_below=draw.choice((None, 3, 100)),
                    tail_latched=draw.random() < 0.5,
                    failover=draw.choice(((), (), more[0].sites or ("s1",))),
                )
                self.wishes[n] = (at_s, what, number, (bag, more[1]))

    def _give_orders(self, draw):
        """Some bags become ready as they go."""
        for n, (at_s, what, number, more) in enumerate(self.wishes):
            if what == "bag" and more[1] is None and draw.random() < self.lazy:
                order = Wavefront(draw.randint(1, 6), draw.randint(1, 6))
                bag = replace(more[0], order=order, commands=Listed(["true"] * order.size))
                self.wishes[n] = (at_s, what, number, (bag, None))

    def fate(self, bag, task, attempt):
        """(run time in seconds, exit code, whether its host dies of it)."""
        of_task = random.Random((self.seed * 64 + bag) * 4096 + task)
        hopeless, kills = of_task.random() < self.hopeless, of_task.random() < self.killing
        draw = random.Random(((self.seed * 64 + bag) * 4096 + task) * 65536 + attempt)
        run_s = math.exp(draw.uniform(math.log(0.01), math.log(4.0)))
        code = 1 if hopeless or draw.random() < self.failing else 0
        if draw.random() < self.failing / 3:
            code = COULD_NOT
        return self.bags[bag].estimate_s or run_s, code, kills

    # hosts

    def host(self, id):
        state = self.desk.core.state if self.desk else None
        return state.hosts.get(state.by_id.get(id, -1)) if state else None

    def join(self, id, procs=0, lasting=False):
        draw = self.draw
        self.lives += 1
        ends_s = self.now + draw.uniform(2.0, 30.0) if self.timed and not lasting else math.inf
        agent = Agent(
            self,
            id,
            f"{id}.{self.lives}",
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
        elif self.host(agent.id) is not None and self.host(agent.id).here:
            self.judge.dismissed.add(agent.id)
            self.desk.core.dismiss(self.host(agent.id), "given back")

    def _fall_silent(self, agent):
        """For longer than a host may be, sometimes; then it is back."""
        line, agent.line = agent.line, Silence(self)
        if line is not None and not isinstance(line, Silence):
            line.broken = True
        self.after(self.draw.uniform(1.0, 12.0), lambda: self._speak_again(agent))

    def _speak_again(self, agent):
        if isinstance(agent.line, Silence):
            agent.hang_up()

    # all of it

    def over(self):
        state = self.desk.core.state if self.desk else None
        return (
            self.calm
            and not self.wishes
            and state is not None
            and len(state.bags) == len(self.bags)
            and all(bag.over for bag in state.bags.values())
        )

    def settle(self):
        """No more faults; a host that does for every bag comes to stay."""
        self.calm, self.deadly, self.fragile = True, 0.0, 0.0
        self.join("anchor", 4, lasting=True)

    def play(self):
        """Until everything is over; AssertionError where something was seen that may never be."""
        self.make_wishes()
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
        state = self.desk.core.state
        self.desk.turn()
        self.desk.journal.close()
        again = read_state(self.folder)
        assert same(canonical(state), canonical(again)), "fold"
        self.judge.at_the_end(state, self.folder)


class Silence:
    """A connection over which nothing goes."""

    def __init__(self, world):
        self.desk, self.broken, self.late = "nobody", True, False
        self.up_s = self.down_s = 0.0


def play(seed, folder, lazy=0.3):
    """One schedule."""
    FragilePath.left = math.inf
    shutil.rmtree(folder, ignore_errors=True)
    world = World(seed, folder, lazy)
    world.play()
    return world
