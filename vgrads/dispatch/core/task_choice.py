"""Choice of a bag's tasks for an agent in this round, and of running tasks to replicate there."""

from __future__ import annotations

from itertools import islice

from vgrads.bags.bundle import MOST, bundle_size, limit_draw
from vgrads.bags.choice import WINDOW, sort_by_locality
from vgrads.dispatch.core.agent_state import AgentState
from vgrads.dispatch.core.bag_selection import BagSelection, Offer
from vgrads.dispatch.core.bag_state import BagState
from vgrads.dispatch.core.dispatch_index import DispatchIndex
from vgrads.dispatch.core.tasks import PENDING

_NO_MOST = 1 << 30
_ELSEWHERE_S = 10.0
"""Seconds for which a task that failed on a node is reserved for others."""


class TaskChoice:
    """Chooses tasks of the next bag for an agent."""

    def __init__(self, dispatch_index: DispatchIndex, bag_selection: BagSelection) -> None:
        self._dispatch_index, self._bag_selection = dispatch_index, bag_selection

    def waiting(self, agent: AgentState, offer: Offer, at_s: float, most: int) -> list[int] | None:
        """Return the tasks of a bag that an agent gets in this round: at most as many as fit, and
        its share of the last ones.

        None: it has enough tasks for now.
        """
        bag = offer.bag
        places = agent.procs // bag.procs
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
        count = min(room, part if busy + part > places else max(part, places - busy))
        return self._next(agent, bag, max(1, count), at_s)

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
        for task in islice(list(candidates), WINDOW):
            if len(tasks) >= room:
                break
            if (bag.number, task) in agent.assigned or not bag.may_replicate(task):
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
        window = bag.tasks.next(max(WINDOW, count) + len(not_here))
        window = [task for task in window if task not in not_here]
        if needs is not None and agent.cached:
            window = sort_by_locality(window, [needs(task) for task in window], agent.cached)
        return window[:count]

    def _not_here(self, agent: AgentState, bag: BagState, now_s: float) -> set[int]:
        """Return tasks that another agent is to try first: they have just failed here, or are for
        failover sites."""
        dispatch_index = self._dispatch_index
        if not (bag.tasks.again or bag.tasks.resting) or dispatch_index.agents < 2:
            return set()
        record, tasks = dispatch_index.record(agent), set[int]()
        if record.quick_failures and now_s - record.at_s < _ELSEWHERE_S:
            tasks = {task for number, task in record.quick_failures if number == bag.number}
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
