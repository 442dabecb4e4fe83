"""The dispatcher's decisions: messages of agents in, journal records and answers out.

No clock, no files, no sockets: the caller writes the records before it sends the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TypeVar

from vgrads.bags.bag import BagGoal, BagSpec, Listed
from vgrads.dispatch.core.agents import Agents
from vgrads.dispatch.core.assignment import Assignment
from vgrads.dispatch.core.bag_selection import BagSelection
from vgrads.dispatch.core.dispatch_index import DispatchIndex
from vgrads.dispatch.core.events import (
    BagAdded,
    BagCancelled,
    BagClosed,
    GoalChanged,
    ResultsRestored,
    TasksAdded,
    TasksDropped,
    TasksRetried,
)
from vgrads.dispatch.core.faults import BagFault
from vgrads.dispatch.core.protocol import AgentReply, Rules
from vgrads.dispatch.core.records import Record
from vgrads.dispatch.core.replicas import Replication
from vgrads.dispatch.core.state import AgentState, BagState, Effect, State
from vgrads.dispatch.core.tasks import DROPPED, ENDED, FAILED, PENDING
from vgrads.exchange.values import AttemptEnd

T = TypeVar("T")


class Core:
    """A dispatcher's decisions over its state. ``report``: stores each record before it takes
    effect.

    ``on_end``: called with each end and its effect, for waiting callers.
    """

    def __init__(
        self,
        state: State,
        rules: Rules,
        report: Callable[[Record], None],
        on_end: Callable[[int, AttemptEnd, Effect], None] = lambda *_: None,
    ) -> None:
        self.state, self.rules = state, rules
        self.dispatch_index = DispatchIndex(state, rules, report)
        self.bag_selection = BagSelection(self.dispatch_index)
        self.assignment = Assignment(self.dispatch_index, self.bag_selection)
        self.blackholes = self.assignment.blackholes
        self.replicas = Replication(self.dispatch_index, self.bag_selection)
        self.agents = Agents(self.dispatch_index, self.replicas, on_end)
        self.note, self.waiting, self.bags = (
            self.dispatch_index.note,
            self.dispatch_index.waiting,
            self.dispatch_index.bags,
        )
        self.guarded, self.fail, self.fits = (
            self.dispatch_index.guarded,
            self.dispatch_index.fail,
            self.bag_selection.fits,
        )
        self.receive, self.gone, self.is_past = (
            self.agents.receive,
            self.agents.gone,
            self.agents.is_past,
        )
        self.is_new_message = self.agents.is_new_message
        self.last_heartbeat_s, self.lose_silent = (
            self.agents.last_heartbeat_s,
            self.agents.lose_silent,
        )
        self.awake_after_restart = self.agents.awake_after_restart

    @property
    def serving(self) -> list[BagState]:
        """Return the bags that are not terminal."""
        return self.dispatch_index.serving

    @property
    def places(self) -> int:
        """Return the number of processors of the agents that are connected and stay."""
        return self.dispatch_index.places

    # bags

    def add(self, number: int, bag: BagSpec, at_s: float, open_: bool = False) -> None:
        """Add a bag; ``open_``: tasks may be added."""
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
        self, number: int, bag: BagSpec, digests: Callable[[int], Sequence[str]] | None = None
    ) -> None:
        """Attach the commands of a bag's tasks; ``digests``: of each task's inputs, where they are
        used."""
        # after a restart the journal's goal is newer than that of the document
        changed = self.state.bags[number].changed_goal
        self.bags[number] = bag if changed is None else replace(bag, goal=changed)
        if digests:
            self.dispatch_index.digests[number] = digests
        self.dispatch_index.take_on(number)

    def add_tasks(self, number: int, count: int) -> None:
        """Add tasks to an open bag; no effect on one that was closed or cancelled."""
        if count and self.state.bags[number].open:
            self.note(TasksAdded(number=number, count=count))

    def have(self, number: int, tasks: Sequence[int], at_s: float) -> None:
        """Mark tasks of a bag as done whose results existed before, and notify agents that have
        them."""
        of = self.state.bags[number].tasks
        for task in tasks:
            for agent in of.agents_of(task):
                # before the record, after which no agent has the task any more
                self.dispatch_index.call_off(agent, number, task)
        if tasks:
            self.note(ResultsRestored(number=number, at_s=at_s, runs=group_numbers(tasks)))

    def close(self, number: int, at_s: float, reason: str = "") -> None:
        """Close a bag: no more tasks can be added; ``reason``: why, where its user did not."""
        if self.state.bags[number].open:
            self.note(BagClosed(number=number, at_s=at_s, reason=reason))
            self.dispatch_index.refresh()

    def shrink(self, number: int, count: int, at_s: float) -> int:
        """Drop this many waiting tasks of a bag, the last ones; return how many were dropped."""
        return len(self.drop(number, self.state.bags[number].tasks.last_waiting(count), at_s))

    def drop(self, number: int, tasks: Sequence[int], at_s: float) -> Sequence[int]:
        """Drop those of these tasks of a bag that wait; return them."""
        status = self.state.bags[number].tasks.status
        waiting = [task for task in tasks if status[task] == PENDING]
        if waiting:
            self.note(TasksDropped(number=number, at_s=at_s, tasks=waiting))
            self.dispatch_index.refresh()
        return waiting

    def cancel(self, number: int, at_s: float, reason: str) -> None:
        """Drop all tasks that are not terminal, and notify agents."""
        self.dispatch_index.drop(BagCancelled(number=number, at_s=at_s, reason=reason))

    def retry(
        self, number: int, tasks: Sequence[int] | None, at_s: float, request: int
    ) -> Sequence[Sequence[int]]:
        """Queue terminal tasks of a bag again, as if they had never failed: these (None: all that
        failed or were dropped); others are left. Return first and last task of each contiguous
        range."""
        status = self.state.bags[number].tasks.status
        runs = group_numbers(find_retriable(status, tasks))
        self.note(TasksRetried(number=number, at_s=at_s, runs=runs, request=request))
        # tasks wait again, so the bag is no longer in its tail
        self.dispatch_index.tails.discard(number)
        self.dispatch_index.take_on(number)
        return runs

    def change_goal(
        self, number: int, after: BagGoal | None, at_s: float, request: int, refused: str = ""
    ) -> None:
        """Change the goal of a bag that has one, or record why the request was refused."""
        bag = self.bags[number]
        before = {} if bag.goal is None else asdict(bag.goal)
        self.note(
            GoalChanged(
                number=number,
                at_s=at_s,
                request=request,
                before=before,
                after=None if after is None else asdict(after),
                refused=refused,
            )
        )
        # puts the goal that is in force now into the rules by which the bag is served
        self.attach(number, bag)

    def reject(self, fault: BagFault, name: str, at_s: float) -> None:
        """Fail a bag that cannot be added, or restored."""
        if fault.bag not in self.state.bags:
            # open, since an empty closed bag would be done at once, and could not fail
            self.add(fault.bag, BagSpec(name=name, commands=Listed(())), at_s, open_=True)
        self.fail(fault, at_s)

    def take_faults(self) -> list[BagFault]:
        """Return the exceptions raised by bags since the last call."""
        faults, self.dispatch_index.faults = self.dispatch_index.faults, []
        return faults

    # work

    def answer(self, agent: AgentState, at_s: float) -> AgentReply:
        """Return the answer to an agent; empty where there is no work for it, and then it waits."""
        return self.assignment.answer(agent, at_s)

    def due(self, at_s: float) -> list[tuple[AgentState, AgentReply]]:
        """Return answers for waiting agents for which there is work now."""
        self.guarded(lambda: self.replicas.look(at_s), at_s)
        return self.assignment.due(at_s)

    @property
    def next_s(self) -> float:
        """Return the time of the next check without a message; ``inf`` if never."""
        return min(self.dispatch_index.next_s, self.replicas.next_s)

    def level(self) -> None:
        """Request back tasks that agents cannot have started, where others wait for work."""
        self.guarded(self.assignment.level, self.state.now_s)

    def disconnect(self, agent: AgentState, why: str) -> None:
        """Let an agent leave when its running tasks have ended."""
        if not agent.leaving:
            agent.leaving = why
            # it may wait in a long poll, and must be answered to hear of it
            self.dispatch_index.urgent[agent.number] = None
            self.dispatch_index.count_in(agent)


def find_retriable(status: Sequence[int], tasks: Sequence[int] | None) -> list[int]:
    """Return the tasks to retry, ascending. ``status``: of each task; ``tasks``: chosen ones, None
    for all that failed or were dropped."""
    if tasks is None:
        return [task for task, state in enumerate(status) if state in (FAILED, DROPPED)]
    return [task for task in sorted(set(tasks)) if task < len(status) and status[task] in ENDED]


def group_numbers(tasks: Sequence[int]) -> list[list[int]]:
    """Return ascending numbers as [first, last] of each contiguous range."""
    runs: list[list[int]] = []
    for task in tasks:
        if runs and task == runs[-1][1] + 1:
            runs[-1][1] = task
        else:
            runs.append([task, task])
    return runs
