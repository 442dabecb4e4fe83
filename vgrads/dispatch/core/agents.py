"""Processing of agents' messages: arrivals, ended attempts, silent agents."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from vgrads.agent.lifetime import SIGNALLED
from vgrads.dispatch.core.dispatch_index import DispatchIndex
from vgrads.dispatch.core.events import AgentJoined, AgentLeft
from vgrads.dispatch.core.faults import serving
from vgrads.dispatch.core.records import AttemptsEnded, TasksRetained, TasksReturned
from vgrads.dispatch.core.replicas import Replication
from vgrads.dispatch.core.state import AgentState, BagState, Effect, Key
from vgrads.dispatch.core.tasks import ENDED, PENDING
from vgrads.exchange.values import COULD_NOT, AttemptEnd, Hello, Message, Triple

_JUST_BEGUN_S = 60.0


class Agents:
    """``on_end``: called with each end and its effect, for waiting callers."""

    def __init__(
        self,
        dispatch_index: DispatchIndex,
        replicas: Replication,
        on_end: Callable[[int, AttemptEnd, Effect], None],
    ) -> None:
        self._dispatch_index, self._replicas, self._on_end = dispatch_index, replicas, on_end
        self._state = dispatch_index.state
        self.last_heartbeat_s: OrderedDict[int, float] = OrderedDict()

    def receive(self, message: Message, at_s: float, site: str = "") -> bool:
        """Process a message of an agent; return False where it must send hello first (it is not
        registered)."""
        agent = self._find(message.agent)
        if (
            agent is not None
            and agent.incarnation == message.incarnation
            and message.seq <= agent.seq
        ):
            return False  # from a connection that is gone: its content is outdated
        if message.hello is not None:
            agent = self._hello(agent, message, message.hello, at_s, site)
        elif agent is None or not agent.here or agent.incarnation != message.incarnation:
            return False
        self.last_heartbeat_s[agent.number] = at_s
        # kept in the order of the last heartbeats, so that lose_silent
        # stops at the first recent one
        self.last_heartbeat_s.move_to_end(agent.number)
        agent.seq = max(agent.seq, message.seq)
        agent.cached.update(message.cached)
        if message.running:
            self._replicas.update(agent, message.running, at_s)
        ends, returned = _count_end(message, agent)
        if ends:
            self._ends(ends)
        agent.gives_back = bool(message.returned)
        if returned:
            self._returned(agent, returned)
        if message.leaving and not agent.leaving:
            agent.leaving = message.leaving
            self._dispatch_index.count_in(agent)
        # not before it announces that: until then it has not received that it is to leave
        if message.leaving and not agent.assigned:
            self.gone(agent, at_s, lost=False)
        return True

    def _find(self, id: str) -> AgentState | None:
        number = self._state.by_id.get(id)
        return None if number is None else self._state.agents[number]

    def is_past(self, message: Message) -> bool:
        """Return True for an agent that was replaced by another one: it must shut down."""
        agent = self._find(message.agent)
        return agent is not None and message.incarnation in agent.past_incarnations

    def is_new_message(self, message: Message) -> bool:
        """Return False for a message that was received before, by another connection."""
        agent = self._find(message.agent)
        if message.hello is not None or agent is None:
            return True
        return agent.incarnation != message.incarnation or message.seq > agent.seq

    def _hello(
        self, agent: AgentState | None, message: Message, hello: Hello, at_s: float, site: str
    ) -> AgentState:
        if agent is not None and agent.incarnation and agent.incarnation != message.incarnation:
            agent.past_incarnations.add(agent.incarnation)
        if agent is None or not agent.here or agent.incarnation != message.incarnation:
            if (
                agent is not None
                and agent.here
                and agent.assigned
                and agent.incarnation
                and agent.incarnation != message.incarnation
            ):
                self.gone(agent, at_s, lost=True)  # another process replaced it: the first is dead
            # agents stay in the state when they have left, so this number is a new one
            number = agent.number if agent else len(self._state.agents)
            # machines of two sites may have the same name
            machine = f"{site}/{hello.machine or hello.name}"
            ends_s = at_s + hello.left_s if hello.left_s is not None else float("inf")
            self._dispatch_index.note(
                AgentJoined(
                    number=number,
                    id=message.agent,
                    at_s=at_s,
                    slot=hello.slot,
                    node=hello.node,
                    procs=max(1, hello.procs),
                    memory_mib=hello.memory_mib,
                    name=hello.name,
                    site=site,
                    machine=machine,
                    ends_s=ends_s,
                    incarnation=message.incarnation,
                    attributes=dict(hello.attributes),
                )
            )
            agent = self._state.agents[number]
            self._dispatch_index.count_in(agent)
        agent.seq, agent.cached = message.seq, set(hello.cached)
        # the last answers of an earlier connection may not have arrived: rules of bags are sent
        # again, and what is to be cancelled follows from the comparison of both lists
        agent.sent_bags, agent.recalled = set(), set()
        agent.to_cancel, agent.to_evict = [], []
        # tasks whose ends are in this message are no longer in the
        # agent's list, but are not missing
        self._reconcile(agent, hello.assigned, {(b, e.task, e.attempt) for b, e in message.ends})
        return agent

    def _reconcile(self, agent: AgentState, assigned: Iterable[Triple], ended: set[Triple]) -> None:
        """Reconcile with the agent's list: it keeps tasks that are still needed; tasks that it
        never received wait again."""
        by_key = {(bag, task): attempt for bag, task, attempt in assigned}
        missing: dict[int, list[int]] = {}
        for (bag, task), attempt in agent.assigned.items():
            if by_key.get((bag, task)) != attempt and (bag, task, attempt) not in ended:
                missing.setdefault(bag, []).append(task)
        for bag, tasks in missing.items():
            self._dispatch_index.note(TasksReturned(agent.number, bag, tasks))
        for (bag, task), attempt in by_key.items():
            if agent.assigned.get((bag, task)) == attempt:
                continue
            # the agent was taken for lost while it worked on: unless the task has a newer attempt
            # or an end, it continues, and no work is repeated
            of = self._task(bag, task)
            if (
                of is not None
                and of.tasks.status[task] == PENDING
                and of.tasks.attempts[task] == attempt
            ):
                self._dispatch_index.note(TasksRetained(agent.number, bag, [task]))
            else:
                agent.to_cancel.append((bag, task, attempt))

    def _task(self, bag: int, task: int) -> BagState | None:
        of = self._state.bags.get(bag)
        return of if of is not None and 0 <= task < len(of.tasks) else None

    def _ends(self, ends: Sequence[tuple[int, AttemptEnd]]) -> None:
        by_bag: dict[int, list[AttemptEnd]] = {}
        # the state changes only when the record is applied: successes of
        # this message are counted here
        done: set[Key] = set()
        for bag, end in ends:
            of = self._task(bag, end.task)
            if of is None or not 0 < end.attempt <= of.tasks.attempts[end.task]:
                continue  # a result for a task that was never assigned
            if (bag, end.task) in done or of.tasks.status[end.task] in ENDED:
                continue  # told before
            if end.code == 0:
                done.add((bag, end.task))
            by_bag.setdefault(bag, []).append(end)
        for bag, new in by_bag.items():
            self._dispatch_index.guarded(partial(self._ends_of, bag, new), new[-1].at_s)

    def _ends_of(self, bag: int, ends: Sequence[AttemptEnd]) -> None:
        """Process ends of one bag."""
        # the bag failed in a first try, and guarded repeats the work without it
        if self._state.bags[bag].over:
            return
        with serving(bag):
            learns = self._replicas.learns(bag)
            for end, effect in zip(
                ends, self._dispatch_index.note(AttemptsEnded(bag, ends)), strict=True
            ):
                self._on_end(bag, end, effect)
                if learns and end.code == 0 and effect.counts:
                    self._replicas.record_run_time(bag, end.agent, end.ran_s)
                for other in effect.elsewhere:
                    # before the record, which removes the attempt's number that the agent needs
                    self._dispatch_index.call_off(other, bag, end.task)
                    self._dispatch_index.note(TasksReturned(other, bag, [end.task]))

    def _returned(self, agent: AgentState, returned: Sequence[Triple]) -> None:
        by_bag: dict[int, list[int]] = {}
        for bag, task, attempt in returned:
            if agent.assigned.get((bag, task)) == attempt:
                by_bag.setdefault(bag, []).append(task)
        for bag, tasks in by_bag.items():
            self._dispatch_index.note(TasksReturned(agent.number, bag, tasks))

    def gone(self, agent: AgentState, at_s: float, lost: bool) -> None:
        """Remove an agent that has left."""
        self._dispatch_index.note(AgentLeft(number=agent.number, at_s=at_s, lost=lost))
        self.last_heartbeat_s.pop(agent.number, None)
        self._dispatch_index.waiting.pop(agent.number, None)
        self._dispatch_index.count_in(agent)

    def lose_silent(self, at_s: float) -> list[AgentState]:
        """Remove agents without a heartbeat for too long."""
        lost = []
        while self.last_heartbeat_s:
            number, last_s = next(iter(self.last_heartbeat_s.items()))
            if at_s - last_s < self._dispatch_index.rules.lost_s:
                break
            agent = self._state.agents[number]
            self.gone(agent, at_s, lost=True)
            lost.append(agent)
        return lost

    def awake_after_restart(self, at_s: float) -> None:
        """Restart the silence timers of agents read from a journal."""
        for agent in self._state.agents.values():
            if agent.here:
                # from now on: while no dispatcher worked, no agent could report
                self.last_heartbeat_s[agent.number] = at_s
                self._dispatch_index.count_in(agent)
        self._dispatch_index.refresh()


def _count_end(
    message: Message, agent: AgentState
) -> tuple[Sequence[tuple[int, AttemptEnd]], Sequence[Triple]]:
    """Return ends and returned tasks: tasks that a leaving agent could no longer run count as
    returned, not as failed; but a task that had just begun when a signal ended the agent counts as
    one whose node was lost, since it may have sent the signal."""
    leaving = agent.leaving or message.leaving
    if not leaving:
        return message.ends, message.returned
    ends, returned = [], list(message.returned)
    for bag, end in message.ends:
        may_have_sent_it = leaving.startswith(SIGNALLED) and 0.0 < end.ran_s < _JUST_BEGUN_S
        if end.code != COULD_NOT or may_have_sent_it:
            ends.append((bag, end))
        else:
            returned.append((bag, end.task, end.attempt))
    return ends, returned
