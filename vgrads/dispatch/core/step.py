"""What a dispatcher decides: messages of hosts in, records for the journal and answers out.

No clock, no files, no sockets: who calls it writes the records before it sends the answers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from vgrads.bags.bag import Bag, Listed
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.board import Board
from vgrads.dispatch.core.copies import Copies
from vgrads.dispatch.core.events import (
    AgentJoined,
    AgentLeft,
    BagAdded,
    BagCancelled,
    BagClosed,
    BagGrown,
    ResultsRestored,
    TasksDropped,
)
from vgrads.dispatch.core.faults import BagFault, serving
from vgrads.dispatch.core.giving import Giving
from vgrads.dispatch.core.hosts import Hello, Host, Key
from vgrads.dispatch.core.records import COULD_NOT, Back, End, Ended, Kept, Record
from vgrads.dispatch.core.state import Effect, State
from vgrads.dispatch.core.talk import Answer, Message, Rules, Triple
from vgrads.dispatch.core.tasks import ENDED, PENDING

T = TypeVar("T")


class Core:
    """A dispatcher's decisions over its state. ``tell``: takes each record before anything follows
    from it.

    ``told``: hears of each end and what it came to, for whoever waits for results.
    """

    def __init__(
        self,
        state: State,
        rules: Rules,
        tell: Callable[[Record], None],
        told: Callable[[int, End, Effect], None] = lambda *_: None,
    ) -> None:
        self.state, self.rules, self._told = state, rules, told
        self.board = Board(state, rules, tell)
        self.giving = Giving(self.board)
        self.copies = Copies(self.board, self.giving.choosing)
        self.note, self.waiting, self.bags = self.board.note, self.board.waiting, self.board.bags
        self.heard_s: OrderedDict[int, float] = OrderedDict()

    @property
    def serving(self) -> list[BagState]:
        """The bags that are not over."""
        return self.board.serving

    @property
    def places(self) -> int:
        """Processors of the hosts that are here and stay."""
        return self.board.places

    # bags

    def add(self, number: int, bag: Bag, at_s: float, open_: bool = False) -> None:
        """Take a bag on; ``open_``: more of its tasks may come."""
        self.note(
            BagAdded(
                number=number,
                count=len(bag.commands),
                at_s=at_s,
                name=bag.name,
                owner=bag.owner,
                weight=bag.weight,
                procs=bag.procs,
                retries=bag.retries,
                sites=bag.sites,
                stated_s=bag.estimate_s,
                open=open_,
                failover=bag.failover,
                order=None if bag.order is None else dict(bag.order.as_json()),
            )
        )
        self.attach(number, bag)

    def attach(
        self, number: int, bag: Bag, digests: Callable[[int], Sequence[str]] | None = None
    ) -> None:
        """What the tasks of a bag run; ``digests``: of each one's inputs, where they are looked
        at."""
        self.bags[number] = bag
        if digests:
            self.board.digests[number] = digests
        self.board.take_on(number)

    def grow(self, number: int, count: int) -> None:
        """More tasks of an open bag; one that was closed or cancelled meanwhile stays as it is."""
        if count and self.state.bags[number].open:
            self.note(BagGrown(number=number, count=count))

    def have(self, number: int, tasks: Sequence[int], at_s: float) -> None:
        """Tasks of a bag are done: their results were there before. Hosts that have them are
        told."""
        of = self.state.bags[number].tasks
        for task in tasks:
            for host in of.hosts_of(task):
                self.board.call_off(host, number, task)
        if tasks:
            self.note(ResultsRestored(number=number, at_s=at_s, runs=runs_of(tasks)))

    def close(self, number: int, at_s: float) -> None:
        """No more tasks come."""
        if self.state.bags[number].open:
            self.note(BagClosed(number=number, at_s=at_s))
            self.board.refresh()

    def shrink(self, number: int, count: int, at_s: float) -> int:
        """Drop so many of the tasks of a bag that wait, the last ones; how many there were."""
        tasks = self.state.bags[number].tasks.last_waiting(count)
        if tasks:
            self.note(TasksDropped(number=number, at_s=at_s, tasks=tasks))
            self.board.refresh()
        return len(tasks)

    def cancel(self, number: int, at_s: float, reason: str) -> None:
        """Drop what has not ended; hosts are told."""
        self.board.drop(BagCancelled(number=number, at_s=at_s, reason=reason))

    def guarded(self, work: Callable[[], T], at_s: float) -> T:
        """What some work comes to; a bag in which something goes wrong is failed, and the work done
        without it."""
        while True:
            try:
                return work()
            except BagFault as fault:
                if not self.board.fail(fault, at_s):
                    raise

    def reject(self, fault: BagFault, name: str, at_s: float) -> None:
        """Fail a bag that cannot be taken on, or on again."""
        if fault.bag not in self.state.bags:
            self.add(fault.bag, Bag(name=name, commands=Listed(())), at_s, open_=True)
        self.board.fail(fault, at_s)

    # hosts

    def hear(self, message: Message, at_s: float, site: str = "") -> bool:
        """Take in what a host says; False where it must say hello first (it is not known here)."""
        host = self._known(message.host)
        if host is not None and host.life == message.life and message.seq <= host.seq:
            return False  # from a connection that is gone: what it says was true once
        if message.hello is not None:
            host = self._hello(host, message, message.hello, at_s, site)
        elif host is None or not host.here or host.life != message.life:
            return False
        self.heard_s[host.number] = at_s
        self.heard_s.move_to_end(host.number)
        host.seq = max(host.seq, message.seq)
        host.cached.update(message.cached)
        if message.running:
            self.copies.heard(host, message.running, at_s)
        ends, returned = _what_counts(message, host)
        if ends:
            self._ends(ends)
        host.gives_back = bool(message.returned)
        if returned:
            self._returned(host, returned)
        if message.leaving and not host.leaving:
            host.leaving = message.leaving
            self.board.count_in(host)
        if host.leaving and not host.held:
            self.gone(host, at_s, lost=False)
        return True

    def _known(self, id: str) -> Host | None:
        number = self.state.by_id.get(id)
        return None if number is None else self.state.hosts[number]

    def is_past(self, message: Message) -> bool:
        """True for an agent in whose place another one has come: it is to stop."""
        host = self._known(message.host)
        return host is not None and message.life in host.past_lives

    def _hello(
        self, host: Host | None, message: Message, hello: Hello, at_s: float, site: str
    ) -> Host:
        if host is not None and host.life and host.life != message.life:
            host.past_lives.add(host.life)
        if host is None or not host.here or host.life != message.life:
            if (
                host is not None
                and host.here
                and host.held
                and host.life
                and host.life != message.life
            ):
                self.gone(host, at_s, lost=True)  # another process in its place: the first is dead
            number = host.number if host else len(self.state.hosts)
            machine = f"{site}/{hello.machine or hello.name}"
            ends_s = at_s + hello.left_s if hello.left_s is not None else float("inf")
            self.note(
                AgentJoined(
                    number=number,
                    id=message.host,
                    at_s=at_s,
                    slot=hello.slot,
                    node=hello.node,
                    procs=max(1, hello.procs),
                    memory_mib=hello.memory_mib,
                    name=hello.name,
                    site=site,
                    machine=machine,
                    ends_s=ends_s,
                    life=message.life,
                    attributes=dict(hello.attributes),
                )
            )
            host = self.state.hosts[number]
            self.board.count_in(host)
        host.seq, host.cached = message.seq, set(hello.cached)
        host.known_bags, host.recalled = set(), set()
        host.to_cancel, host.to_recall = [], []
        self._reconcile(host, hello.held, {(b, e.task, e.attempt) for b, e in message.ends})
        return host

    def _reconcile(self, host: Host, held: Iterable[Triple], ended: set[Triple]) -> None:
        """The host is believed: what it has it keeps if it is still wanted, what it never got waits
        again."""
        said = {(bag, task): attempt for bag, task, attempt in held}
        missing: dict[int, list[int]] = {}
        for (bag, task), attempt in host.held.items():
            if said.get((bag, task)) != attempt and (bag, task, attempt) not in ended:
                missing.setdefault(bag, []).append(task)
        for bag, tasks in missing.items():
            self.note(Back(host.number, bag, tasks))
        for (bag, task), attempt in said.items():
            if host.held.get((bag, task)) == attempt:
                continue
            of = self._task(bag, task)
            if (
                of is not None
                and of.tasks.status[task] == PENDING
                and of.tasks.attempts[task] == attempt
            ):
                self.note(Kept(host.number, bag, [task]))
            else:
                host.to_cancel.append((bag, task, attempt))

    def _task(self, bag: int, task: int) -> BagState | None:
        of = self.state.bags.get(bag)
        return of if of is not None and 0 <= task < len(of.tasks) else None

    def _ends(self, ends: Sequence[tuple[int, End]]) -> None:
        by_bag: dict[int, list[End]] = {}
        done: set[Key] = set()
        for bag, end in ends:
            of = self._task(bag, end.task)
            if of is None or not 0 < end.attempt <= of.tasks.attempts[end.task]:
                continue  # a result for a task that nobody gave
            if (bag, end.task) in done or of.tasks.status[end.task] in ENDED:
                continue  # told before
            if end.code == 0:
                done.add((bag, end.task))
            by_bag.setdefault(bag, []).append(end)
        for bag, new in by_bag.items():
            self.guarded(partial(self._ends_of, bag, new), new[-1].at_s)

    def _ends_of(self, bag: int, ends: Sequence[End]) -> None:
        """Ends of one bag."""
        if self.state.bags[bag].over:
            return
        with serving(bag):
            learns = self.copies.learns(bag)
            for end, effect in zip(ends, self.note(Ended(bag, ends)), strict=True):
                self._told(bag, end, effect)
                if learns and end.code == 0 and effect.counts:
                    self.copies.told(bag, end.host, end.ran_s)
                for other in effect.elsewhere:
                    self.board.call_off(other, bag, end.task)
                    self.note(Back(other, bag, [end.task]))

    def _returned(self, host: Host, returned: Sequence[Triple]) -> None:
        by_bag: dict[int, list[int]] = {}
        for bag, task, attempt in returned:
            if host.held.get((bag, task)) == attempt:
                by_bag.setdefault(bag, []).append(task)
        for bag, tasks in by_bag.items():
            self.note(Back(host.number, bag, tasks))

    def gone(self, host: Host, at_s: float, lost: bool) -> None:
        """A host is here no more."""
        self.note(AgentLeft(number=host.number, at_s=at_s, lost=lost))
        self.heard_s.pop(host.number, None)
        self.waiting.pop(host.number, None)
        self.board.count_in(host)

    def lose_silent(self, at_s: float) -> list[Host]:
        """Hosts that were not heard of for too long."""
        lost = []
        while self.heard_s:
            number, heard_s = next(iter(self.heard_s.items()))
            if at_s - heard_s < self.rules.lost_s:
                break
            host = self.state.hosts[number]
            self.gone(host, at_s, lost=True)
            lost.append(host)
        return lost

    def awake_after_restart(self, at_s: float) -> None:
        """Hosts of a journal that was read again have until now to show that they are there."""
        for host in self.state.hosts.values():
            if host.here:
                self.heard_s[host.number] = at_s
                self.board.count_in(host)
        self.board.refresh()

    # work

    def answer(self, host: Host, at_s: float) -> Answer:
        """What a host is told now; nothing where there is nothing for it, and then it waits for
        work."""
        return self.giving.answer(host, at_s)

    def due(self, at_s: float) -> list[tuple[Host, Answer]]:
        """Answers for hosts that wait, as far as there is something for them now."""
        self.guarded(lambda: self.copies.look(at_s), at_s)
        return self.giving.due(at_s)

    @property
    def next_s(self) -> float:
        """When it is to look by itself, though no host says anything; ``inf`` if never."""
        return min(self.board.next_s, self.copies.next_s)

    def level(self) -> None:
        """Have hosts give back what they cannot have begun, where others wait for work."""
        self.guarded(self.giving.level, self.state.now_s)

    def dismiss(self, host: Host, why: str) -> None:
        """A host is to leave when what it runs has ended."""
        if not host.leaving:
            host.leaving = why
            self.board.urgent[host.number] = None
            self.board.count_in(host)


def runs_of(tasks: Sequence[int]) -> list[list[int]]:
    """Numbers that go up as [first, last] of each run without a gap."""
    runs: list[list[int]] = []
    for task in tasks:
        if runs and task == runs[-1][1] + 1:
            runs[-1][1] = task
        else:
            runs.append([task, task])
    return runs


def _what_counts(
    message: Message, host: Host
) -> tuple[Sequence[tuple[int, End]], Sequence[Triple]]:
    """Ends and tasks given back: what a host that goes could not run any more is given back, and no
    fault of it."""
    if not host.leaving and not message.leaving:
        return message.ends, message.returned
    ends = [(bag, end) for bag, end in message.ends if end.code != COULD_NOT]
    back = [(bag, end.task, end.attempt) for bag, end in message.ends if end.code == COULD_NOT]
    return ends, (*message.returned, *back)
