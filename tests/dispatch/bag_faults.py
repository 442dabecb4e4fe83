"""A dispatcher that is killed at any instant, over its real core and journal; who judges what is
seen."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.dispatch.bag_hosts import LOST_S, WAIT_S
from vgrads.dispatch.core.events import AgentJoined, AgentLeft, BagCancelled
from vgrads.dispatch.core.fold import MOST_LOSSES, apply
from vgrads.dispatch.core.protocol import AgentReply, Rules
from vgrads.dispatch.core.records import TasksAssigned, TasksExpired, TasksReplicated
from vgrads.dispatch.core.snapshot import (
    pack_snapshot,
    restore_state,
    take_snapshot,
    unpack_snapshot,
)
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.tasks import DONE, DROPPED, ENDED, FAILED
from vgrads.dispatch.storage.journal import DispatchJournal, list_records, read_ends, read_state


class Killed(BaseException):
    """The dispatcher is gone: nothing may be tidied up."""


class FragilePath(type(Path())):
    """A folder in which the dispatcher dies before the n-th thing that it does to a file."""

    left = math.inf

    def _step(self):
        FragilePath.left -= 1
        if FragilePath.left < 0:
            FragilePath.left = math.inf
            raise Killed

    def open(self, *arguments, **named):
        self._step()
        return super().open(*arguments, **named)

    def replace(self, target):
        self._step()
        return super().replace(target)

    def unlink(self, *arguments, **named):
        self._step()
        return super().unlink(*arguments, **named)


def canonical(state):
    """A state as values that can be compared; what no journal tells is left out."""
    snapshot = take_snapshot(state)
    bags = []
    for retained in snapshot["bags"]:
        *fields, status, attempts, value, at, replicas, failures, losses, blamed = retained
        pairs = zip(np.frombuffer(value, "u4"), np.frombuffer(at, "u4"), strict=True)
        where = sorted((int(task), int(agent)) for task, agent in pairs)
        bags.append([*fields, status, attempts, where, replicas, failures, losses, blamed])
    agents = [
        [*stored[:15], *stored[16:]] for stored in snapshot["agents"]
    ]  # leaving is no word of a journal
    records = {
        m: [*stored[:3], *stored[4:8], *stored[9:]] for m, stored in snapshot["records"].items()
    }  # half precision
    return [
        snapshot["now_s"],
        snapshot["orders"],
        snapshot["goals"],
        snapshot["owners"],
        snapshot["slots"],
        records,
        bags,
        agents,
    ]


def same(item, other):
    """Equal, but for what a record keeps of a number."""
    if isinstance(item, float) and isinstance(other, float):
        return item == other or math.isclose(item, other, rel_tol=1e-4, abs_tol=0.011)
    if isinstance(item, dict):
        return item.keys() == other.keys() and all(same(v, other[k]) for k, v in item.items())
    if isinstance(item, list | tuple):
        return len(item) == len(other) and all(map(same, item, other))
    return item == other


class Judge:
    """What may never be seen."""

    def __init__(self, world):
        self.world = world
        self.runs = {}  # task → those that run it: (host, life, triple)
        self.trusted = set()  # of all that hosts have, what the dispatcher knows that they have
        self.owner = {}  # triple → host
        self.acks = []
        self.live, self.committed = Counter(), Counter()
        self.dismissed = set()

    def taken(self, agent, triple):
        assert self.owner.setdefault(triple, agent.id) == agent.id, (triple, "given to two hosts")

    def begun(self, agent, triple):
        bag, task, _ = triple
        mine, runs = (agent.id, agent.incarnation, triple), self.runs.setdefault((bag, task), set())
        assert all(mine[:2] != other[:2] for other in runs), (mine, runs, "runs twice there")
        if mine in self.trusted:
            others = runs & self.trusted
            assert len(others) < self._most(bag), (mine, others, "runs more often than it may")
        runs.add(mine)
        agent_state = self.world.agent(agent.id)
        expected_s = self.world.bags[bag].estimate_s
        if (
            expected_s
            and agent_state is not None
            and agent_state.incarnation == agent.incarnation
            and mine in self.trusted
        ):
            late_s = self.world.now + expected_s - agent_state.ends_s
            assert late_s < 1.0, (triple, agent.id, late_s, "begun although the host ends")

    def _most(self, number):
        """Hosts that may run a task of a bag at once."""
        bag = self.world.bags[number]
        copied = bag.learns or (
            bag.policy is not None and bag.policy.has("ReplicationRequirements")
        )
        return bag.most_replicas if copied else 1

    def stopped(self, agent, triple):
        mine = (agent.id, agent.incarnation, triple)
        self.runs.get(triple[:2], set()).discard(mine)
        self.trusted.discard(mine)

    def excuse(self, id=None):
        """Nobody reckons with what this host has, or with what any has."""
        self.trusted = {mine for mine in self.trusted if id not in (None, mine[0])}

    def account(self, agent, reserved):
        for bag, task, attempt in reserved:
            if agent.assigned.get((bag, task)) == attempt:
                self.trusted.add((agent.id, agent.incarnation, (bag, task, attempt)))

    def acknowledged(self, bag, end):
        self.acks.append((bag, end.task, end.attempt, end.code))

    def noted(self, record):
        state = self.world.dispatcher.core.state
        if isinstance(record, TasksExpired):
            agent, tasks = state.agents[record.agent], {(record.bag, task) for task in record.tasks}
            self.trusted = {m for m in self.trusted if m[0] != agent.id or m[2][:2] not in tasks}
        if isinstance(record, TasksAssigned | TasksReplicated):
            agent = state.agents[record.agent]
            assert not agent.leaving and agent.here, (agent.id, "was to leave")
            assert agent.id not in self.dismissed, (agent.id, "was dismissed")
            attempts = state.bags[record.bag].tasks.attempts
            for task in record.tasks:
                self._is_ready(state.bags[record.bag].tasks, task)
                self.trusted.add(
                    (agent.id, agent.incarnation, (record.bag, task, attempts[task] + 1))
                )
        if isinstance(record, BagCancelled):  # its hosts end what they have of it
            self.trusted = {m for m in self.trusted if m[2][0] != record.number}
        if isinstance(record, AgentLeft):
            self.excuse(state.agents[record.number].id)
        if isinstance(record, AgentJoined):
            self.dismissed.discard(record.id)

    def _is_ready(self, tasks, task):
        for needed in tasks.order.needs(task) if tasks.order is not None else ():
            assert tasks.status[needed] == DONE, (task, "was given before", needed, "was done")

    def on_end(self, bag, end, effect):
        if effect.counts:
            self.live[bag, end.task] += 1

    def written(self):
        self.committed += self.live
        self.live = Counter()

    def restarted(self, state):
        self.live = Counter()
        self.dismissed = set()
        self.excuse()
        for bag, task, _, code in self.acks:
            # a success that came after its bag was cancelled counts for nothing
            again = state.bags[bag].retried and self.world.users.was_cancelled(bag)
            if code == 0 and not again:
                assert state.bags[bag].tasks.status[task] in ENDED, (bag, task, "was acknowledged")

    def at_the_end(self, state, folder):
        for number, bag in state.bags.items():
            ends = list(read_ends(folder, number))
            ends = np.concatenate(ends) if ends else np.zeros(0, [("task", "u4"), ("code", "i2")])
            good = Counter(ends["task"][ends["code"] == 0].tolist())
            cut = self.world.users.was_cancelled(number)
            assert cut or len(bag.tasks) == self.world.users.expected[number], number
            assert bag.over, (number, "has not ended")
            for task, status in enumerate(bag.tasks.status):
                self._task(bag, task, status, good[task])
        assert not any(agent.assigned for agent in state.agents.values())
        assert not any(agent.busy_procs for agent in state.agents.values())

    def _task(self, bag, task, status, good):
        what = (bag.number, task, status, good)
        tries, losses = bag.tasks.failures.get(task, 0), bag.tasks.losses.get(task, 0)
        assert status in ENDED, what
        if status == DROPPED and not bag.cancelled:
            needs = bag.tasks.order.needs(task) if bag.tasks.order is not None else ()
            assert any(bag.tasks.status[n] in (FAILED, DROPPED) for n in needs), what
        assert good == (status == DONE), (*what, "successes in the ends")
        assert tries <= bag.retries + self._most(bag.number), what
        if status == DONE:  # once more for each time that it had failed before a retry
            committed = self.committed[bag.number, task]
            assert 1 <= committed <= 1 + bag.retried, (*what, committed)
        if status == FAILED:
            assert tries > bag.retries or losses >= MOST_LOSSES, (*what, tries, losses)
            assert self.committed[bag.number, task] <= 1 + bag.retried, what


class FaultyDispatcher:
    """A dispatcher as ``vgrads.dispatch.server.manager`` is one, without sockets: hear, decide,
    write, answer."""

    def __init__(self, world):
        self.world, self.folder = world, world.folder
        state = read_state(self.folder)
        self.journal = DispatchJournal(self.folder, world.segment_bytes)
        self.shadow = restore_state(unpack_snapshot(pack_snapshot(take_snapshot(state))))
        rules = Rules(policy=world.policy, lost_s=LOST_S, in_hand_s=world.in_hand_s)
        self.core = Core(state, rules, self._report, world.judge.on_end)
        for number in state.bags:
            self.core.attach(number, world.bags[number])
        self.core.awake_after_restart(world.now)
        self.inbox, self.lines, self.rolls = [], {}, []
        self.level_s = self.tick_s = world.now
        self.turning = False

    def _report(self, record):
        self.journal.add(record)
        self.world.judge.noted(record)

    def on_request(self, line, message):
        self.inbox.append((line, message))
        if not self.turning:
            self.turning = True
            self.world.after(self.world.draw.uniform(0.001, 0.02), lambda: self.world.turn(self))

    def hung_up(self, line):
        self.unpark(line)
        if line.host is not None and self.lines.get(line.host) is line:
            del self.lines[line.host]

    def unpark(self, line):
        seq, line.long_poll_pending = line.long_poll_pending, None
        if seq is not None:
            self.core.waiting.pop(line.host, None)
        return seq

    def turn(self):
        """One round; Killed in the midst of it where the world says so."""
        now, world = self.world.now, self.world
        inbox, self.inbox = self.inbox, []
        answers = [a for line, message in inbox if (a := self._on_message(line, message, now))]
        self._now_and_then(now)
        for agent, answer in self.core.due(now):
            line = self.lines[agent.number]
            assert line.long_poll_pending is not None, (agent.id, answer, "does not wait")
            answers.append((line, self.unpark(line), answer))
        group = self.journal.take()
        world.user()  # while the group is being written
        if group:
            self._write(group)
        self.core.state.check()
        for line, seq, answer in answers:
            world.network.down(line, seq, answer)

    def _on_message(self, line, message, now):
        core = self.core
        if line.long_poll_pending is not None:
            self.world.network.down(line, self.unpark(line), 204)
        existing = core.state.by_id.get(message.agent)
        number = len(core.state.agents) if existing is None else existing
        ends = [(bag, end._replace(agent=number)) for bag, end in message.ends]
        message = replace(message, ends=ends)
        agent = None if existing is None else core.state.agents[existing]
        if core.is_past(message):
            return line, message.seq, AgentReply(stop=True)
        old = (
            message.hello is None and agent is not None and agent.incarnation == message.incarnation
        )
        if (old and message.seq <= agent.seq) or not core.receive(message, now, line.agent.site):
            return line, message.seq, None
        agent = core.state.agents[core.state.by_id[message.agent]]
        before = self.lines.get(agent.number)
        if before is not None and before is not line:
            self.unpark(before)
        line.host = agent.number
        self.lines[agent.number] = line
        if message.hello is not None:
            self.world.judge.account(agent, message.hello.assigned)
        answer = core.answer(agent, now)
        if answer or message.ends or message.returned or line.broken:
            core.waiting.pop(agent.number, None)
            return line, message.seq, answer
        line.long_poll_pending, line.long_poll_until_s = message.seq, now + WAIT_S
        return None

    def _now_and_then(self, now):
        if now - self.level_s > 0.2:
            self.level_s = now
            self.core.level()
        if now - self.tick_s > 0.25:
            self.tick_s = now
            for line in list(self.lines.values()):
                if line.long_poll_pending is not None and now >= line.long_poll_until_s:
                    self.world.network.down(line, self.unpark(line), AgentReply())
            self.core.lose_silent(now)

    def _write(self, group):
        how = self.world.death()
        if how == "torn":
            self._tear(group)
        if how == "before":
            raise Killed
        self.journal.write(group)
        self._shadow(group)
        self.world.judge.written()
        if how == "after":
            raise Killed
        if self.journal.full:
            self.rolls.append(self.journal.roll(self.core.state))
            self.world.after(self.world.draw.uniform(0.0, 3.0), lambda: self.roll_now(self))
            if how == "rolled":
                raise Killed

    def _shadow(self, group):
        for record in list_records(group):
            apply(self.shadow, record)
        if self.world.draw.random() < self.world.compare and not self.journal._group:
            mine, theirs = canonical(self.core.state), canonical(self.shadow)
            assert same(mine, theirs), ("the journal tells otherwise", mine, theirs)

    def roll_now(self, dispatcher):
        """Carry out what is left of a roll; the dispatcher may die between any two steps."""
        if self.world.dispatcher is not self or not self.rolls:
            return
        roll = self.rolls.pop(self.world.draw.randrange(len(self.rolls)))
        if self.world.draw.random() < self.world.fragile:
            FragilePath.left = self.world.draw.randrange(12)
        try:
            roll.carry_out()
            FragilePath.left = math.inf
        except Killed:
            self.world.crash()

    def _tear(self, group):
        """Any part of a group reaches the disk, perhaps with what was never written in its
        place."""
        draw = self.world.draw
        cut = draw.randrange(len(group) + 1)
        path = sorted(self.folder.glob("seg-*.log"))[-1]
        tail = bytes(draw.choice((0, 0, len(group) - cut)))
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, group[:cut] + tail)
        os.close(descriptor)
        if cut == len(group) or (not group[cut:].strip(b"\0") and tail):
            self._shadow(group)
            self.world.judge.written()
        raise Killed


__all__ = ["FaultyDispatcher", "FragilePath", "Judge", "Killed", "canonical", "same"]
