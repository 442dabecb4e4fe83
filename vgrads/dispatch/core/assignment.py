"""Assignment of tasks to agents: how many, of which bag, which tasks; and requests to return
tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vgrads.dispatch.core.agent_state import AgentState
from vgrads.dispatch.core.bag_selection import BagSelection, Offer
from vgrads.dispatch.core.blackholes import BlackHoles
from vgrads.dispatch.core.dispatch_index import DispatchIndex
from vgrads.dispatch.core.faults import BagFault, serving
from vgrads.dispatch.core.protocol import AgentReply
from vgrads.dispatch.core.records import TasksAssigned, TasksReplicated
from vgrads.dispatch.core.task_choice import TaskChoice

_UNFIT_S = 10.0
"""How long (seconds) an agent without matching work is offered only new work: its properties may
change with time."""


class Assignment:
    """Answers to agents."""

    def __init__(self, dispatch_index: DispatchIndex, bag_selection: BagSelection) -> None:
        self._dispatch_index = dispatch_index
        self.bag_selection = bag_selection
        self.blackholes = BlackHoles(dispatch_index)
        self._tasks = TaskChoice(dispatch_index, self.bag_selection)
        self._unfit: dict[int, float] = {}  # agents without a matching bag, and since when

    def answer(self, agent: AgentState, at_s: float) -> AgentReply:
        """Return the answer to an agent; empty where there is no work for it, and then it waits."""
        reply = AgentReply()
        if agent.to_cancel:
            reply.cancel, agent.to_cancel = agent.to_cancel, []
        if agent.to_evict:
            reply.evict, agent.to_evict = agent.to_evict, []
        reply.drain = bool(agent.leaving)
        while agent.here and not agent.leaving:
            try:
                self._fill(agent, reply, at_s)
                break
            except BagFault as fault:  # the other bags are served without it
                if not self._dispatch_index.fail(fault, at_s):
                    raise
                reply.give = [triple for triple in reply.give if triple[0] != fault.bag]
        if reply or not agent.here:
            self._dispatch_index.waiting.pop(agent.number, None)
        else:
            self._dispatch_index.waiting[agent.number] = None
        return reply

    def _fill(self, agent: AgentState, reply: AgentReply, at_s: float) -> None:
        most = self.blackholes.most(agent, at_s) - len(agent.assigned)
        self._unfit[agent.number] = at_s
        for offer in self.bag_selection.offers(agent, at_s):
            self._unfit.pop(agent.number, None)
            # the rules of the first; later ones may only lower it
            if offer.concurrency is not None:
                most = min(most, offer.concurrency - len(agent.assigned))
            if most <= 0:
                return
            with serving(offer.bag.number):
                count = self._fill_from(agent, offer, reply, at_s, most)
            if count is None:
                return  # the next free processor is reserved for this bag
            most -= count
            if most <= 0:
                return

    def _fill_from(
        self, agent: AgentState, offer: Offer, reply: AgentReply, at_s: float, most: int
    ) -> int | None:
        """Assign tasks of one bag; return how many, None where the agent's next processor is
        reserved for the bag."""
        tasks = self._tasks.waiting(agent, offer, at_s, most)
        if tasks is None:
            return None
        if tasks:
            self._dispatch_index.note(TasksAssigned(agent.number, offer.bag.number, tasks))
        elif tasks := self._tasks.replicas(agent, offer, at_s, most):
            self._dispatch_index.note(TasksReplicated(agent.number, offer.bag.number, tasks))
        if tasks:
            agent.assigned_s = at_s
            self._hand_out(agent, offer, tasks, reply, at_s)
        return len(tasks)

    def _hand_out(
        self, agent: AgentState, offer: Offer, tasks: Sequence[int], reply: AgentReply, at_s: float
    ) -> None:
        number = offer.bag.number
        values = [(number, task, agent.assigned[number, task]) for task in tasks]
        reply.give += values
        self.bag_selection.handed_out(agent, offer, values, at_s)
        if number not in agent.sent_bags:
            agent.sent_bags.add(number)
            reply.new_bags.append(number)

    # agents with a pending long poll

    def due(self, at_s: float) -> list[tuple[AgentState, AgentReply]]:
        """Return answers for waiting agents for which there is work now."""
        dispatch_index = self._dispatch_index
        numbers = {n: None for n in dispatch_index.urgent if n in dispatch_index.waiting}
        dispatch_index.urgent.clear()
        numbers.update({n: None for n in dispatch_index.awake(at_s) if n in dispatch_index.waiting})
        requested, arrived = set(numbers), set[int]()
        if dispatch_index.fresh:
            dispatch_index.fresh = False
            arrived, dispatch_index.arrived = dispatch_index.arrived, arrived
            # the latest first: agents that are idle for long may leave
            numbers.update(dict.fromkeys(reversed(dispatch_index.waiting)))
        replies = []
        for number in numbers:
            agent = dispatch_index.state.agents[number]
            urgent = bool(agent.to_cancel or agent.to_evict or agent.leaving)
            if not urgent and not dispatch_index.work:
                if number not in requested:
                    break  # the agents that follow wait for work only
                continue
            if not urgent and number not in requested and self._is_unfit(number, arrived, at_s):
                continue
            answer = self.answer(agent, at_s)
            if answer:
                replies.append((agent, answer))
        return replies

    def _is_unfit(self, number: int, arrived: Collection[int], at_s: float) -> bool:
        """Return True where there was recently no work for an agent, and no new work is left."""
        if at_s - self._unfit.get(number, float("-inf")) >= _UNFIT_S:
            return False
        return not any(
            self._dispatch_index.work_for(self._dispatch_index.state.bags[bag]) for bag in arrived
        )

    def level(self) -> None:
        """Balance: where agents wait and no waiting task fits them, request back tasks that other
        agents hold and cannot have started, if they fit the waiting agents."""
        dispatch_index, agents = self._dispatch_index, self._dispatch_index.state.agents
        free = [agents[n] for n in dispatch_index.waiting if not agents[n].busy_procs]
        idle = sum(agent.procs for agent in free)
        if not idle or (
            dispatch_index.ready and any(agent.number not in self._unfit for agent in free)
        ):
            return
        has_work: dict[int, bool] = {}
        for _, number in sorted(self._overfull(), reverse=True):
            agent = agents[number]
            spare = []
            for key in [k for k in list(agent.assigned)[agent.procs :] if k not in agent.recalled]:
                if key[0] not in has_work:
                    has_work[key[0]] = any(self.bag_selection.serves(h, key[0]) for h in free)
                if has_work[key[0]]:
                    spare.append(key)
            spare = spare[-idle:]
            if spare:
                agent.recalled.update(spare)
                agent.to_evict += [(*key, agent.assigned[key]) for key in spare]
                dispatch_index.urgent[number] = None
                idle -= len(spare)
            if idle <= 0:
                return

    def _overfull(self) -> set[tuple[int, int]]:
        """Return (tasks held, agent) of agents that hold more tasks than they can run."""
        agents = self._dispatch_index.state.agents
        numbers = {
            number for bag in self._dispatch_index.serving for number in bag.tasks.where.values()
        }
        pairs = ((agents[number], number) for number in numbers)
        return {
            (len(agent.assigned), number)
            for agent, number in pairs
            if len(agent.assigned) > agent.procs
        }
