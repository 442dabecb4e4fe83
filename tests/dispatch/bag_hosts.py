"""Hosts that fail in every way there is, in virtual time: agents, and what they are seen to do."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.dispatch.bag_network import Line
from vgrads.exchange.values import COULD_NOT, AttemptEnd, Hello, Message

WAIT_S, HEARTBEAT_S, LOST_S = 2.0, 1.5, 6.0


class Outbox:
    """What a host has to tell: ends, and tasks that it gives back."""

    def __init__(self):
        self.new, self.sent = [], []

    def report(self, seq, most):
        """What goes into the message of this number."""
        telling, self.new = self.new[:most], self.new[most:]
        self.sent += [(seq, item) for item in telling]
        return telling

    def acknowledge(self, seq):
        """The dispatcher knows all up to this message: the ends among it, with their bags."""
        existing = [item for at, item in self.sent if at <= seq]
        self.sent = [(at, item) for at, item in self.sent if at > seq]
        return [item for item in existing if isinstance(item[1], AttemptEnd)]

    def resend(self):
        """What was not acknowledged is to be told again."""
        self.new, self.sent = [item for _, item in self.sent] + self.new, []


@dataclass(eq=False)
class Agent:
    """One life of a host: news are told until they are acknowledged, on one connection after the
    other."""

    world: object
    id: str
    incarnation: str
    procs: int
    site: str
    ends_s: float = math.inf
    lasting: bool = False
    alive: bool = True
    seq: int = 0
    queue: list = field(default_factory=list)
    running: dict = field(default_factory=dict)
    unacknowledged: set = field(default_factory=set)
    news: Outbox = field(default_factory=Outbox)
    leaving: str = ""
    left_in: int = 0
    line: Line | None = None
    greeted: bool = False
    under_way: int = 0
    most_ends: int = 100

    # connections

    def connect(self):
        """Connect to the dispatcher, or try again."""
        if not self.alive or self.line is not None:
            return
        if self.world.dispatcher is None:
            self.world.after(0.3, self.connect)
            return
        self.line = Line(self, self.world.dispatcher)
        self.greeted, self.under_way = False, 0
        self.send()
        self.heartbeat(self.line)

    def hang_up(self, late=False):
        """The connection breaks; what was under way is lost, or comes ``late``."""
        line, self.line = self.line, None
        if line is None:
            return
        line.broken, line.late = True, late
        self.news.resend()
        self.left_in = 0
        world = self.world
        world.after(world.draw.uniform(0.0, 2.0), lambda: world.network.cut(line))
        world.after(world.draw.uniform(0.05, 1.0), self.connect)

    def heartbeat(self, line):
        """Say something now and then."""
        if self.alive and self.line is line:
            if self.under_way < 4:
                self.send_exchange()
            self.world.after(HEARTBEAT_S, lambda: self.heartbeat(line))

    def send(self):
        """Say what there is to say; ask where nothing is under way."""
        leave = self.leaving and not self.left_in and not self.holds
        message = self.under_way < 4 and (not self.greeted or self.news.new or leave)
        if self.alive and self.line is not None and (message or not self.under_way):
            self.send_exchange()

    @property
    def holds(self):
        return bool(self.queue or self.running)

    def send_exchange(self):
        """Send a message."""
        self.seq += 1
        self.under_way += 1
        hello = None
        if not self.greeted:
            self.greeted = True
            left_s = None if self.ends_s == math.inf else max(0.0, self.ends_s - self.world.now)
            reserved = (*self.running, *self.queue)
            hello = Hello(
                slot=self.site, procs=self.procs, left_s=left_s, assigned=reserved, name=self.id
            )
        news = self.news.report(self.seq, self.most_ends)
        if self.leaving and not self.news.new and not self.left_in and not self.holds:
            self.left_in = self.seq
        message = Message(
            agent=self.id,
            incarnation=self.incarnation,
            seq=self.seq,
            hello=hello,
            leaving=self.leaving,
            ends=[new for new in news if isinstance(new[1], AttemptEnd)],
            returned=[new for new in news if not isinstance(new[1], AttemptEnd)],
        )
        self.world.network.up(self.line, message)

    def receive(self, line, seq, answer):
        """Take an answer."""
        if not self.alive or self.line is not line:
            return
        self.under_way -= 1
        if answer is None:
            self.hang_up()
            return
        if answer != 204 and answer.stop:  # no acknowledgement
            self.die()
            return
        for bag, end in self.news.acknowledge(seq):
            self.unacknowledged.discard((bag, end.task, end.attempt))
            self.world.judge.acknowledged(bag, end)
        if answer != 204:
            self.obey(answer)
        if self.left_in and seq >= self.left_in and not self.news.sent and not self.news.new:
            self.die()
            return
        if self.news.new or (self.leaving and not self.left_in):
            self.send()
        else:
            self.world.after(self.world.draw.uniform(0.01, 0.1), self.send)

    def obey(self, answer):
        """Do what the dispatcher says."""
        for triple in answer.give:
            if triple not in self.unacknowledged:
                self.unacknowledged.add(triple)
                self.world.judge.taken(self, triple)
                if self.leaving:
                    self.news.new.append(triple)
                else:
                    self.queue.append(triple)
        self.give_back([*answer.evict, *answer.cancel])
        for triple in answer.cancel:
            if triple in self.running:
                self.ended(triple, -9)
        if answer.drain:
            self.leave("drained")
        self.begin()

    def give_back(self, triples):
        """Those that have not begun."""
        back = [triple for triple in triples if triple in self.queue]
        self.queue = [triple for triple in self.queue if triple not in back]
        self.news.new += back
        if back:
            self.send()

    # tasks

    def begin(self):
        """Begin what fits."""
        while self.alive and self.queue:
            triple = self.queue[0]
            procs = self.world.bags[triple[0]].procs
            if procs <= self.procs and procs > self.procs - self.busy:
                return
            if any(other[:2] == triple[:2] for other in self.running):
                return  # its earlier attempt is being ended
            self.queue.pop(0)
            run_s, code, kills = self.world.users.outcome(*triple)
            self.running[triple] = self.world.now
            if procs > self.procs or code == COULD_NOT:
                self.ended(triple, COULD_NOT)
                continue
            self.world.judge.begun(self, triple)
            self.world.after(run_s, lambda t=triple, c=code: self.ended(t, c))
            if kills:
                self.world.after(run_s / 2, lambda: self.world.kill(self))

    @property
    def busy(self):
        return sum(self.world.bags[bag].procs for bag, _, _ in self.running)

    def ended(self, triple, code):
        """A task has ended; told at once."""
        if not self.alive or triple not in self.running:
            return
        ran_s = self.world.now - self.running.pop(triple)
        self.world.judge.stopped(self, triple)
        bag, task, attempt = triple
        self.news.new.append((bag, AttemptEnd(task, 0, self.world.now, code, attempt, ran_s)))
        self.begin()
        self.send()

    def leave(self, why, kill=False):
        """Go, in good order; ``kill``: what runs is ended."""
        if self.leaving:
            return
        self.leaving = why
        self.give_back(list(self.queue))
        for triple in list(self.running) if kill else ():
            self.ended(triple, COULD_NOT)
        self.send()

    def die(self):
        """Nothing is left of it."""
        self.alive = False
        for triple in list(self.running):
            self.world.judge.stopped(self, triple)
        self.running.clear()
        if self.line is not None:
            line, self.line = self.line, None
            line.broken = True
            line.late = self.world.draw.random() < 0.5
            if self.world.draw.random() < 0.5:  # else nobody hears that it is gone
                self.world.after(0.1, lambda: self.world.network.cut(line))
