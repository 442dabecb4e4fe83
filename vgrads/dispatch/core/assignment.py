"""Assignment of tasks to agents: how many, of which bag, which tasks; and requests to return
tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice

from vgrads.bags.bundle import MOST, bundle_size, limit_draw
from vgrads.bags.choice import WINDOW, sort_by_locality
from vgrads.bags.node_history import (
    QUARANTINE_AT,
    NodeHistory,
    estimate_black_hole_odds,
    estimate_probability_healthy,
)
from vgrads.dispatch.core.bag_selection import BagSelection, Offer
from vgrads.dispatch.core.dispatch_index import DispatchIndex
from vgrads.dispatch.core.events import AgentQuarantined
from vgrads.dispatch.core.faults import BagFault, serving
from vgrads.dispatch.core.fold import MOST_LOSSES
from vgrads.dispatch.core.protocol import AgentReply
from vgrads.dispatch.core.records import TasksAssigned, TasksReplicated
from vgrads.dispatch.core.state import AgentState, BagState, State
from vgrads.dispatch.core.tasks import PENDING

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
                # the bag was terminal before: nothing has changed, and a
                # repetition would raise again
                if not self._dispatch_index.fail(fault, at_s):
                    raise
                # its tasks were dropped with it: the agent must not get those that were chosen
                # before the error
                reply.give = [triple for triple in reply.give if triple[0] != fault.bag]
        if reply or not agent.here:
            self._dispatch_index.waiting.pop(agent.number, None)
        else:
            self._dispatch_index.waiting[agent.number] = None
        return reply

    def _fill(self, agent: AgentState, reply: AgentReply, at_s: float) -> None:
        most = self.blackholes.most(agent, at_s) - len(agent.assigned)
        # removed again at the first offer: the mark stays where there is none
        self._unfit[agent.number] = at_s
        for offer in self.bag_selection.offers(agent, at_s):
            self._unfit.pop(agent.number, None)
            if find_suspect(self._dispatch_index.state, agent):
                return  # also one of this round
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
        # an agent that does not wait gets its messages with the answer to its next one
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
        # waiting tasks may fit a free agent that was not yet found unfit: those are assigned first
        if not idle or (
            dispatch_index.ready and any(agent.number not in self._unfit for agent in free)
        ):
            return
        has_work: dict[int, bool] = {}
        for _, number in sorted(self._overfull(), reverse=True):
            agent = agents[number]
            spare = []
            # an agent starts its tasks in the order of assignment: those
            # behind its first procs still wait
            for key in [k for k in list(agent.assigned)[agent.procs :] if k not in agent.recalled]:
                if key[0] not in has_work:
                    has_work[key[0]] = any(self.bag_selection.serves(h, key[0]) for h in free)
                if has_work[key[0]]:
                    spare.append(key)
            # the last ones would start last
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


FIRST_TASKS = 3
"""Tasks for an agent without results: black holes are detected after this many."""
SHOWS_S = 2.0
"""Seconds without a failure after which an agent gets the rest."""


class BlackHoles:
    """Withholds work from nodes that fail all tasks."""

    def __init__(self, dispatch_index: DispatchIndex) -> None:
        self._dispatch_index = dispatch_index
        self._now_s = 0.0

    def most(self, agent: AgentState, now_s: float) -> int:
        """Return the maximum number of tasks for an agent now."""
        self._now_s = now_s
        record = self._dispatch_index.record(agent)
        if len(record.quick_failures) > 2 and self.odds(agent, record) > QUARANTINE_AT:
            return self._bar(agent, record, now_s)
        if record.done == 0.0 and not agent.done and now_s - agent.joined_s < SHOWS_S:
            # a waiting agent sends nothing by itself, so the check is scheduled
            self._dispatch_index.look_again(agent, agent.joined_s + SHOWS_S)
            return FIRST_TASKS
        return 1 << 30  # no limit

    def _bar(self, agent: AgentState, record: NodeHistory, now_s: float) -> int:
        if now_s < record.quarantined_until_s:
            # without this check a waiting agent would stay quarantined until other work arrives
            self._dispatch_index.look_again(agent, record.quarantined_until_s)
            return 0
        if record.pauses and record.at_s <= record.quarantined_until_s:
            return 1  # its quarantine is over: one probe task
        if not self._can_spare(agent, record):
            return 1 << 30
        self._dispatch_index.note(AgentQuarantined(number=agent.number, at_s=now_s))
        self._dispatch_index.look_again(
            agent, self._dispatch_index.record(agent).quarantined_until_s
        )
        return 0

    def _can_spare(self, agent: AgentState, record: NodeHistory) -> bool:
        """Return True where at least as many processors are left that could run the tasks which
        failed: not all nodes are black holes, and those tasks need not wait for this one."""
        state = self._dispatch_index.state
        machines = {m for m, r in state.records.items() if r.quarantined_until_s > state.now_s} | {
            agent.machine
        }
        bags = [state.bags[number] for number in {number for number, _ in record.quick_failures}]
        left = sum(
            other.procs * (-1 if other.machine in machines else 1)
            for other in state.agents.values()
            if other.here and not other.leaving and any(bag.fits(other) for bag in bags)
        )
        return left >= 0

    def odds(self, agent: AgentState, record: NodeHistory) -> float:
        """Return the log odds that a node is a black hole (:mod:`vgrads.bags.node_history`)."""
        longer_s = 2 * record.longest_s
        survivors = {
            n: self._survivors(agent, n, longer_s) for n in {n for n, _ in record.quick_failures}
        }
        return estimate_black_hole_odds(
            [self._chance(record, n, task, survivors[n]) for n, task in record.quick_failures]
        )

    def _chance(self, record: NodeHistory, number: int, task: int, survivors: int) -> float:
        bag = self._dispatch_index.state.bags[number]
        own = (
            sum(quick_failure[0] == number for quick_failure in record.quick_failures)
            if record.done
            else 0
        )
        # the first two quick failures of a node that has succeeded before count
        # against the bag and the task (NodeHistory.credible): they are subtracted,
        # since they are no evidence of other nodes
        elsewhere = bag.right + survivors
        others = bag.tasks.blamed.get(task, 0) - (1 if record.done else 0)
        return estimate_probability_healthy(
            elsewhere, max(0.0, bag.wrong - min(2, own)), max(0, others)
        )

    def _survivors(self, agent: AgentState, number: int, longer_s: float) -> int:
        """Return other agents that have had tasks of the same bag for longer than they took to fail
        here."""
        now_s, state = self._now_s, self._dispatch_index.state
        tasks = state.bags[number].tasks
        numbers = set(tasks.where.values()).union(*tasks.replicas.values())
        return sum(
            other.machine != agent.machine
            and now_s - other.assigned_s > longer_s
            and not self._dispatch_index.record(other).quick_failures
            for other in map(state.agents.__getitem__, numbers)
            if other.here
        )


_NO_MOST = 1 << 30
_ELSEWHERE_S = 10.0
"""Seconds for which a task that failed on a node is reserved for others."""
SUSPECT = MOST_LOSSES // 2
"""Agents that were lost with a task, after which it runs alone: it may have ended them, and other
tasks are not to be given up with it. Not sooner: nodes that are taken back lose good tasks too."""


def is_suspect(bag: BagState, task: int) -> bool:
    """Return True for a task that runs alone."""
    return bag.tasks.losses.get(task, 0) >= SUSPECT


def find_suspect(state: State, agent: AgentState) -> tuple[BagState, int] | None:
    """Return the task that an agent runs alone, with its bag."""
    if len(agent.assigned) != 1:
        return None
    ((number, task),) = agent.assigned
    bag = state.bags[number]
    return (bag, task) if is_suspect(bag, task) else None


class TaskChoice:
    """Chooses tasks of the next bag for an agent."""

    def __init__(self, dispatch_index: DispatchIndex, bag_selection: BagSelection) -> None:
        self._dispatch_index, self._bag_selection = dispatch_index, bag_selection
        self._emptied = -1  # the agent that gets nothing else until it can run a suspect alone

    def waiting(self, agent: AgentState, offer: Offer, at_s: float, most: int) -> list[int] | None:
        """Return the tasks of a bag that an agent gets in this round: at most as many as fit, and
        its share of the last ones.

        None: it has enough tasks for now.
        """
        bag = offer.bag
        places = agent.procs // bag.procs
        # rounded up: a place that is partly used by another bag starts no task
        busy = -(-agent.busy_procs // bag.procs)
        target = self._target(agent, offer, places)
        if target <= busy:
            return None
        if not bag.tasks.counts[PENDING]:
            return []
        room = min(target - busy, self._in_time(agent, bag, places, busy, at_s), most)
        if room <= 0:
            return []
        part = limit_draw(bag.tasks.pending, places, self._dispatch_index.places // bag.procs)
        # the share limits only tasks that would wait at the agent: free
        # processors are always filled
        count = min(room, part if busy + part > places else max(part, places - busy))
        return self._choose(agent, bag, max(1, count), at_s)

    def _choose(
        self, agent: AgentState, bag: BagState, count: int, at_s: float
    ) -> list[int] | None:
        """Return the next tasks, or a single suspect for an idle agent; None for an agent that is
        to become idle for one."""
        tasks = self._next(agent, bag, count, at_s)
        suspects = [task for task in tasks if is_suspect(bag, task)] if bag.tasks.losses else []
        if not suspects:
            return tasks
        if not agent.assigned:
            return suspects[:1]
        if self._begin_emptying(agent, bag):
            return None
        # those that were given back come first: behind them are others
        drawn = self._next(agent, bag, count + len(bag.tasks.again), at_s)
        return [task for task in drawn if not is_suspect(bag, task)][:count]

    def _begin_emptying(self, agent: AgentState, bag: BagState) -> bool:
        """Let one agent at a time become idle, or suspects might wait for ever; return True where
        it is this one."""
        emptied = self._dispatch_index.state.agents.get(self._emptied)
        # one that is idle was refused the suspect; one that has come back may be narrower
        if (
            emptied is None
            or not emptied.here
            or emptied.leaving
            or not emptied.assigned
            or not bag.fits(emptied)
        ):
            self._emptied = agent.number
        return self._emptied == agent.number

    def _target(self, agent: AgentState, offer: Offer, places: int) -> int:
        """Return how many tasks of a bag an agent should hold."""
        if agent.gives_back:  # others wait for the tasks that it was to return
            return places
        if offer.concurrency is not None:
            return min(offer.concurrency, places + MOST)
        return bundle_size(places, offer.bag.typical_s, self._dispatch_index.rules.in_hand_s)

    def replicas(self, agent: AgentState, offer: Offer, at_s: float, most: int) -> list[int]:
        """Return running tasks of a bag to replicate on this agent; only those that it can start at
        once."""
        bag = offer.bag
        candidates = self._dispatch_index.replicas.get(bag.number)
        if not candidates:
            return []
        places = (agent.procs - agent.busy_procs) // bag.procs
        room = min(most, places, self._in_time(agent, bag, agent.procs // bag.procs, 0, at_s))
        if room <= 0 or bag.number in {key[0] for key in agent.recalled}:
            return []
        tasks: list[int] = []
        # a copy, since chosen tasks are deleted from the candidates
        for task in islice(list(candidates), WINDOW):
            if len(tasks) >= room:
                break
            if (bag.number, task) in agent.assigned or not bag.may_replicate(task):
                continue
            if is_suspect(bag, task):
                continue
            if self._bag_selection.may_replica(agent, offer, task, at_s):
                del candidates[task]
                tasks.append(task)
        return tasks

    def _in_time(
        self, agent: AgentState, bag: BagState, places: int, busy: int, at_s: float
    ) -> int:
        """Return how many more tasks can end before the agent's slot does, by their estimated run
        time."""
        if agent.ends_s == float("inf"):
            return _NO_MOST
        expected_s = bag.stated_s or bag.typical_s or 0.0
        if expected_s <= 0:
            return _NO_MOST if agent.ends_s > at_s else 0
        rounds = int(min(_NO_MOST, (agent.ends_s - at_s) / expected_s))
        if any(number != bag.number for number, _ in agent.assigned):
            # behind tasks of another size or length: only those that start at once
            rounds = min(rounds, 1)
        return rounds * places - busy

    def _next(self, agent: AgentState, bag: BagState, count: int, at_s: float) -> list[int]:
        bag.tasks.wake(at_s - _ELSEWHERE_S)
        not_here = self._not_here(agent, bag, at_s)
        needs = self._dispatch_index.digests.get(bag.number)
        if not not_here and (needs is None or not agent.cached):
            return bag.tasks.next(count)
        # more than needed are drawn, since those that are not for this agent are removed below
        window = bag.tasks.next(max(WINDOW, count) + len(not_here))
        window = [task for task in window if task not in not_here]
        if needs is not None and agent.cached:
            window = sort_by_locality(window, [needs(task) for task in window], agent.cached)
        return window[:count]

    def _not_here(self, agent: AgentState, bag: BagState, now_s: float) -> set[int]:
        """Return tasks that another agent is to try first: they have just failed here, or are for
        failover sites."""
        dispatch_index = self._dispatch_index
        # a single agent has to try failed tasks again itself
        if not (bag.tasks.again or bag.tasks.resting) or dispatch_index.agents < 2:
            return set()
        record, tasks = dispatch_index.record(agent), set[int]()
        if record.quick_failures and now_s - record.at_s < _ELSEWHERE_S:
            tasks = {task for number, task in record.quick_failures if number == bag.number}
            # then it may have them, if no other agent took them
            dispatch_index.look_again(agent, record.at_s + _ELSEWHERE_S)
        if (
            bag.failover
            and agent.site not in bag.failover
            and dispatch_index.has_agent(bag.failover, bag.procs)
        ):
            failures = bag.tasks.failures
            tasks |= {task for task in islice(bag.tasks.again, WINDOW) if failures.get(task)}
            tasks |= bag.tasks.resting.keys()
        return tasks
