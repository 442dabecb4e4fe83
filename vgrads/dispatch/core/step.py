"""What a dispatcher decides: messages of hosts in, records for the journal and answers out.

No clock, no files, no sockets: who calls it writes the records before it sends the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from vgrads.bags.bag import Bag, Listed
from vgrads.dispatch.core.agents import Agents
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.board import Board
from vgrads.dispatch.core.choosing import Choosing
from vgrads.dispatch.core.copies import Copies
from vgrads.dispatch.core.events import (
    BagAdded,
    BagCancelled,
    BagClosed,
    BagGrown,
    ResultsRestored,
    TasksDropped,
)
from vgrads.dispatch.core.faults import BagFault
from vgrads.dispatch.core.giving import Giving
from vgrads.dispatch.core.hosts import Host
from vgrads.dispatch.core.records import End, Record
from vgrads.dispatch.core.state import Effect, State
from vgrads.dispatch.core.talk import Answer, Rules

T = TypeVar("T")


class Core:
    """A dispatcher's decisions over its state. ``tell``: takes each record before anything follows
    from it.

    ``on_end``: called with each end and its effect, for whoever waits for results.
    """

    def __init__(
        self,
        state: State,
        rules: Rules,
        tell: Callable[[Record], None],
        on_end: Callable[[int, End, Effect], None] = lambda *_: None,
    ) -> None:
        self.state, self.rules = state, rules
        self.board = Board(state, rules, tell)
        self.choosing = Choosing(self.board)
        self.giving = Giving(self.board, self.choosing)
        self.blackholes = self.giving.blackholes
        self.copies = Copies(self.board, self.choosing)
        self.agents = Agents(self.board, self.copies, on_end)
        self.note, self.waiting, self.bags = self.board.note, self.board.waiting, self.board.bags
        self.guarded, self.fail, self.fits = self.board.guarded, self.board.fail, self.choosing.fits
        self.hear, self.gone, self.is_past = self.agents.hear, self.agents.gone, self.agents.is_past
        self.is_news = self.agents.is_news
        self.heard_s, self.lose_silent = self.agents.heard_s, self.agents.lose_silent
        self.awake_after_restart = self.agents.awake_after_restart

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

    def reject(self, fault: BagFault, name: str, at_s: float) -> None:
        """Fail a bag that cannot be taken on, or on again."""
        if fault.bag not in self.state.bags:
            self.add(fault.bag, Bag(name=name, commands=Listed(())), at_s, open_=True)
        self.fail(fault, at_s)

    def take_faults(self) -> list[BagFault]:
        """What was raised while bags were served, since this was last asked."""
        faults, self.board.faults = self.board.faults, []
        return faults

    # hosts

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
