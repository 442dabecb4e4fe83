"""Now and then: tasks whose time is over are taken back, and running tasks of a bag's tail get
copies."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import chain, islice

from vgrads.bags.bag import Bag
from vgrads.bags.replicate import Attempt, Pace, stragglers
from vgrads.bags.tail import in_tail
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.board import Board, Held
from vgrads.dispatch.core.choosing import Choosing
from vgrads.dispatch.core.events import TailBegun
from vgrads.dispatch.core.faults import serving
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.records import Late
from vgrads.dispatch.core.talk import Triple
from vgrads.dispatch.core.tasks import ENDED, GIVEN

CYCLE_S = 1.0
"""Tails and copies are looked at so often at most,"""
_OF_A_TASK = 1 / 25
"""and else as often as it takes this part of a task: a look costs what runs, and what it decides
lasts a task."""
_ENDS = 10_000
_COMMON = Pace()
_SAMPLE = 256
"""So many running tasks of a bag are held against its written policy in a cycle,"""
_SAMPLES = 4096
"""and so many of all bags."""


class Copies:
    """The replication cycle (GridBot, Algorithm 2)."""

    def __init__(self, board: Board, choosing: Choosing) -> None:
        self._board, self._choosing = board, choosing
        self._next_look_s = float("-inf")
        self._seen: dict[int, deque[tuple[float, bool]]] = {}
        self._paces: dict[int, Pace] = {}
        self._known: set[int] = set()

    def told(self, number: int, host: int, ran_s: float) -> None:
        """An attempt at a task of a bag that learns has succeeded on a host."""
        pace = self._paces.get(host, _COMMON)
        self._see(number, ran_s / pace.value, ended=True)
        typical_s = self._board.state.bags[number].typical_s or ran_s
        if typical_s > 0:
            self._paces[host] = pace.after(ran_s / typical_s)

    def _see(self, number: int, seconds: float, ended: bool) -> None:
        self._seen.setdefault(number, deque(maxlen=_ENDS)).append((seconds, ended))

    def heard(self, host: Host, running: Iterable[tuple[Triple, float]], now_s: float) -> None:
        """A host says since when it runs what."""
        for (bag, task, attempt), age_s in running:
            if self.learns(bag) and host.held.get((bag, task)) == attempt:
                self._board.begun_s[host.number, bag, task] = now_s - age_s

    @property
    def next_s(self) -> float:
        """When something is due; ``inf`` if nothing ever is."""
        due = self._choosing.due
        first_s = due[0][0] if due else float("inf")
        if any(bag.tasks.where and self._watched(bag.number) for bag in self._board.serving):
            return min(first_s, self._next_look_s)
        return first_s

    def _cycle_s(self) -> float:
        watched = (bag for bag in self._board.serving if self._watched(bag.number))
        shortest_s = min((bag.typical_s or 0.0 for bag in watched), default=0.0)
        return max(CYCLE_S, shortest_s * _OF_A_TASK)

    def _watched(self, number: int) -> bool:
        rules = self._board.bags.get(number)
        return rules is not None and (rules.learns or rules.policy is not None)

    def look(self, now_s: float) -> None:
        """Do what is due."""
        self._take_back(now_s)
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + self._cycle_s()
        self._follow(now_s)
        board = self._board
        for bag in board.serving:
            rules = board.bags.get(bag.number)
            if rules is None or not (rules.policy or rules.learns):
                continue
            with serving(bag.number):
                self._look_at(bag, rules, now_s)

    def _look_at(self, bag: BagState, rules: Bag, now_s: float) -> None:
        if bag.number not in self._known:
            self._known.add(bag.number)
            self._take_up(bag, now_s)
        tail = stands_in_tail(self._board, bag, rules)
        self._tell_tail(bag, rules, tail)
        if tail and bag.tasks.where:
            self._want(bag, self._chosen(bag, rules, now_s))
        else:
            self._board.copies.pop(bag.number, None)

    def _take_up(self, bag: BagState, now_s: float) -> None:
        """After a restart nobody knows since when hosts have what they have: their time begins
        anew."""
        for task in bag.tasks.where:
            for host in (self._board.state.hosts[n] for n in bag.tasks.hosts_of(task)):
                if (host.number, bag.number, task) not in self._board.given_s:
                    attempt = host.held[bag.number, task]
                    self._choosing.taken_up(host, bag, task, attempt, now_s)

    def _tell_tail(self, bag: BagState, rules: Bag, tail: bool) -> None:
        if tail == (bag.number in self._board.tails):
            return
        (self._board.tails.add if tail else self._board.tails.discard)(bag.number)
        self._board.change(bag.number)
        if tail and rules.tail_latched and not bag.tail:
            self._board.note(TailBegun(number=bag.number))

    def _want(self, bag: BagState, tasks: Iterable[int]) -> None:
        before = self._board.copies.get(bag.number, ())
        fresh = OrderedDict.fromkeys(filter(bag.may_have_more, tasks))
        if any(task not in before for task in fresh):
            self._board.fresh = True
            self._board.arrived.add(bag.number)
        self._board.copies[bag.number] = fresh

    def _chosen(self, bag: BagState, rules: Bag, now_s: float) -> list[int]:
        """Running tasks that are to be copied."""
        if rules.learns:
            running = [self._attempt(bag, task, now_s) for task in bag.tasks.where]
            waiting = (self._board.state.hosts[n] for n in self._board.waiting)
            spare = sum((host.procs - host.busy_procs) // bag.procs for host in waiting)
            seen = self._seen.get(bag.number, ())
            ended = [seconds for seconds, over in seen if over]
            return stragglers(ended, [s for s, over in seen if not over], running, spare)
        return self._choosing.to_copy(
            bag, now_s, min(_SAMPLE, _SAMPLES // len(self._board.tails) + 1)
        )

    def _attempt(self, bag: BagState, task: int, now_s: float) -> Attempt:
        hosts = [self._board.state.hosts[n] for n in bag.tasks.hosts_of(task)]
        begun = [self._board.begun_s.get((host.number, bag.number, task), now_s) for host in hosts]
        error_rate = min(self._board.record(host).error_rate for host in hosts)
        newest = max(range(len(hosts)), key=begun.__getitem__)
        pace = self._paces.get(hosts[newest].number, _COMMON)
        return Attempt(task, now_s - begun[newest], error_rate, len(hosts), pace.value)

    def _follow(self, now_s: float) -> None:
        """Since when tasks run: a host begins them in the order in which it has them, as many as it
        has places."""
        board = self._board
        learning = {bag.number for bag in board.serving if self.learns(bag.number)}
        before, board.begun_s = board.begun_s, {}
        if learning:
            hosts = {number for n in learning for number in _hosts_of(board.state.bags[n])}
            for number in hosts:
                host = board.state.hosts[number]
                for bag, task in islice(host.held, host.procs):
                    if bag in learning:
                        key = (number, bag, task)
                        board.begun_s[key] = before.get(key, now_s)
        self._give_up(before, now_s)
        if board.given_s:
            state = board.state
            board.given_s = {
                k: at_s for k, at_s in board.given_s.items() if k[1:] in state.hosts[k[0]].held
            }

    def _give_up(self, before: dict[Held, float], now_s: float) -> None:
        """Attempts that are no more, though their tasks have not ended: they would have taken
        longer."""
        for key in before.keys() - self._board.begun_s.keys():
            host, number, task = key
            bag = self._board.state.bags[number]
            if not bag.over and bag.tasks.status[task] not in ENDED:
                pace = self._paces.get(host, _COMMON)
                self._see(number, (now_s - before[key]) / pace.value, ended=False)

    def learns(self, number: int) -> bool:
        """True where late tasks of a bag are copied by what is learned of them."""
        rules = self._board.bags.get(number)
        return rules is not None and rules.learns

    # tasks whose time is over

    def _take_back(self, now_s: float) -> None:
        due = self._choosing.due
        while due and due[0][0] <= now_s:
            _, number, bag, task, attempt = heapq.heappop(due)
            host = self._board.state.hosts[number]
            if host.held.get((bag, task)) == attempt:
                self._board.note(Late(number, bag, [task]))
                host.to_cancel.append((bag, task, attempt))
                self._board.urgent[number] = None


def stands_in_tail(board: Board, bag: BagState, rules: Bag) -> bool:
    """True where the last part of a bag has begun; one that is open has none yet."""
    before = bag.tail or bag.number in board.tails
    places = board.places // bag.procs
    pending = bag.tasks.left - bag.tasks.counts[GIVEN]
    return not bag.open and in_tail(pending, rules.tail_below, places, before, rules.tail_latched)


def _hosts_of(bag: BagState) -> set[int]:
    """The hosts that have any of its tasks."""
    return set(bag.tasks.where.values()).union(chain.from_iterable(bag.tasks.copies.values()))
