"""What agents say is taken in: who came, which attempts ended, who is silent."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.board import Board
from vgrads.dispatch.core.copies import Copies
from vgrads.dispatch.core.events import AgentJoined, AgentLeft
from vgrads.dispatch.core.faults import serving
from vgrads.dispatch.core.hosts import Hello, Host, Key
from vgrads.dispatch.core.records import COULD_NOT, Back, End, Ended, Kept
from vgrads.dispatch.core.state import Effect
from vgrads.dispatch.core.talk import Message, Triple
from vgrads.dispatch.core.tasks import ENDED, PENDING


class Agents:
    """``on_end``: called with each end and its effect, for whoever waits for results."""

    def __init__(
        self, board: Board, copies: Copies, on_end: Callable[[int, End, Effect], None]
    ) -> None:
        self._board, self._copies, self._on_end = board, copies, on_end
        self._state = board.state
        self.heard_s: OrderedDict[int, float] = OrderedDict()

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
            self._copies.heard(host, message.running, at_s)
        ends, returned = _what_counts(message, host)
        if ends:
            self._ends(ends)
        host.gives_back = bool(message.returned)
        if returned:
            self._returned(host, returned)
        if message.leaving and not host.leaving:
            host.leaving = message.leaving
            self._board.count_in(host)
        if host.leaving and not host.held:
            self.gone(host, at_s, lost=False)
        return True

    def _known(self, id: str) -> Host | None:
        number = self._state.by_id.get(id)
        return None if number is None else self._state.hosts[number]

    def is_past(self, message: Message) -> bool:
        """True for an agent in whose place another one has come: it is to stop."""
        host = self._known(message.host)
        return host is not None and message.life in host.past_lives

    def is_news(self, message: Message) -> bool:
        """False for a message that was heard before: a second copy of it on some way."""
        host = self._known(message.host)
        if message.hello is not None or host is None:
            return True
        return host.life != message.life or message.seq > host.seq

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
            number = host.number if host else len(self._state.hosts)
            machine = f"{site}/{hello.machine or hello.name}"
            ends_s = at_s + hello.left_s if hello.left_s is not None else float("inf")
            self._board.note(
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
            host = self._state.hosts[number]
            self._board.count_in(host)
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
            self._board.note(Back(host.number, bag, tasks))
        for (bag, task), attempt in said.items():
            if host.held.get((bag, task)) == attempt:
                continue
            of = self._task(bag, task)
            if (
                of is not None
                and of.tasks.status[task] == PENDING
                and of.tasks.attempts[task] == attempt
            ):
                self._board.note(Kept(host.number, bag, [task]))
            else:
                host.to_cancel.append((bag, task, attempt))

    def _task(self, bag: int, task: int) -> BagState | None:
        of = self._state.bags.get(bag)
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
            self._board.guarded(partial(self._ends_of, bag, new), new[-1].at_s)

    def _ends_of(self, bag: int, ends: Sequence[End]) -> None:
        """Ends of one bag."""
        if self._state.bags[bag].over:
            return
        with serving(bag):
            learns = self._copies.learns(bag)
            for end, effect in zip(ends, self._board.note(Ended(bag, ends)), strict=True):
                self._on_end(bag, end, effect)
                if learns and end.code == 0 and effect.counts:
                    self._copies.told(bag, end.host, end.ran_s)
                for other in effect.elsewhere:
                    self._board.call_off(other, bag, end.task)
                    self._board.note(Back(other, bag, [end.task]))

    def _returned(self, host: Host, returned: Sequence[Triple]) -> None:
        by_bag: dict[int, list[int]] = {}
        for bag, task, attempt in returned:
            if host.held.get((bag, task)) == attempt:
                by_bag.setdefault(bag, []).append(task)
        for bag, tasks in by_bag.items():
            self._board.note(Back(host.number, bag, tasks))

    def gone(self, host: Host, at_s: float, lost: bool) -> None:
        """A host is here no more."""
        self._board.note(AgentLeft(number=host.number, at_s=at_s, lost=lost))
        self.heard_s.pop(host.number, None)
        self._board.waiting.pop(host.number, None)
        self._board.count_in(host)

    def lose_silent(self, at_s: float) -> list[Host]:
        """Hosts that were not heard of for too long."""
        lost = []
        while self.heard_s:
            number, heard_s = next(iter(self.heard_s.items()))
            if at_s - heard_s < self._board.rules.lost_s:
                break
            host = self._state.hosts[number]
            self.gone(host, at_s, lost=True)
            lost.append(host)
        return lost

    def awake_after_restart(self, at_s: float) -> None:
        """Hosts of a journal that was read again have until now to show that they are there."""
        for host in self._state.hosts.values():
            if host.here:
                self.heard_s[host.number] = at_s
                self._board.count_in(host)
        self._board.refresh()


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
