"""A bag, its nodes and what decides about them, in virtual time: recorded waits, run times and
availability of spot nodes are the truth, which decisions do not see."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from vgrads.agent.lifetime import TAKEN_BACK
from vgrads.dispatch.core.fold import weigh_last_run
from vgrads.dispatch.core.state import AgentState
from vgrads.dispatch.fleet.budget import RELEASE_S, must_end
from vgrads.dispatch.fleet.goal_view import estimate_s
from vgrads.pool.spot.survival import STEP_S
from vgrads_studies.deadlines.cases import StudyCase, StudySource
from vgrads_studies.deadlines.nodes import (
    SteeringRules,
    StudyNode,
    StudyOutcome,
    StudyRequest,
    StudyState,
    spent_usd,
)
from vgrads_studies.pools.timeline import Timeline


class Steering(Protocol):
    """What decides about the nodes of a bag."""

    @property
    def rules(self) -> SteeringRules:
        """Return how its decisions are carried out."""
        ...

    def nodes(self, state: StudyState) -> Mapping[str, int]:
        """Return how many nodes of each source there should be."""
        ...

    def joined(self, request: StudyRequest, now_s: float) -> None:
        """Record that requested nodes have joined."""
        ...

    def lost(self, name: str, now_s: float) -> None:
        """Record that spot nodes were refused or taken back."""
        ...


class BagStage:
    """One simulation. It ends with the bag or at its deadline."""

    def __init__(self, case: StudyCase, steering: Steering) -> None:
        self.case, self.steering = case, steering
        self.time, self.closed_s = Timeline(), case.deadline_s
        self.ended, self.typical_s, self.done_s = 0, case.stated_s, 0.0
        self.waiting = list(range(len(case.run_s)))[::-1]
        self.nodes: dict[str, list[StudyNode]] = defaultdict(list)
        self.requests: dict[str, list[StudyRequest]] = defaultdict(list)
        self.all: list[StudyNode] = []
        self.requested = 0
        self._sources = {source.name: source for source in case.sources}
        self._spot = {s.spot_name: s for s in case.sources if s.spot is not None}

    def simulate(self) -> StudyOutcome:
        """Simulate to the end."""
        self.time.at(0.0, self._tick)
        if self._spot:
            self.time.at(0.0, self._check_spot)
        if self.case.budget_usd is not None and self.steering.rules.budget:
            self.time.at(RELEASE_S / 2.0, self._check_budget, self.case.budget_usd)
        self.time.run(lambda: self.closed_s)
        for node in self.all:
            if node.here:
                node.ended_s = self.now_s
        return _outcome_of(self)

    @property
    def now_s(self) -> float:
        """Return the seconds since the submission."""
        return self.time.now_s

    # -- tasks --------------------------------------------------------------

    def _serve(self, node: StudyNode) -> None:
        """Start tasks on the free workers of a node."""
        while (
            self.waiting
            and len(node.tasks) < node.source.workers
            and not node.agent.leaving
            and node.agent.ends_s - self.now_s >= self.typical_s
        ):
            task = self.waiting.pop()
            node.tasks[task] = self.now_s
            node.agent.assigned[0, task] = 1
            node.ran += 1
            self.time.at(self.now_s + float(self.case.run_s[task]), self._end, node, task)
        if not node.tasks and node.agent.leaving:
            self._leave(node)

    def _end(self, node: StudyNode, task: int) -> None:
        if not node.here or task not in node.tasks:
            return
        del node.tasks[task], node.agent.assigned[0, task]
        node.idle_s = self.now_s
        self.ended += 1
        self.done_s += float(self.case.run_s[task])
        running = len(self.case.run_s) - self.ended - len(self.waiting)
        weight = weigh_last_run(self.ended, running)
        before = self.typical_s if self.ended > 1 else float(self.case.run_s[task])
        self.typical_s = before + weight * (float(self.case.run_s[task]) - before)
        if self.ended == len(self.case.run_s):
            self.closed_s = self.now_s
        self._serve(node)

    # -- nodes --------------------------------------------------------------

    def _request(self, source: StudySource, name: str, count: int) -> None:
        """Request nodes: of a queue together, of a cloud each for itself."""
        spot = name in self._spot
        request = StudyRequest(source, name, spot, count, self.now_s, self.time.number())
        self.requests[name].append(request)
        self.requested += count
        wait_s = source.boot_s
        if source.queue is not None:
            wait_s = source.queue.wait_s(self.case.began_s[source.name] + self.now_s)
        if spot and not source.is_available(self.now_s):
            self.time.at(self.now_s + 1.0, self._refuse, request)
        else:
            self.time.at(self.now_s + wait_s, self._join, request)

    def _refuse(self, request: StudyRequest) -> None:
        if not request.cancelled:
            self.requests[request.name].remove(request)
            self.requested -= request.nodes
            self.steering.lost(request.name, self.now_s)

    def _join(self, request: StudyRequest) -> None:
        if request.cancelled:
            return
        self.requests[request.name].remove(request)
        self.steering.joined(request, self.now_s)
        source = request.source
        for _ in range(request.nodes):
            agent = AgentState(self.time.number(), "", "", 0, source.workers, 0.0, source.name)
            node = StudyNode(
                source,
                request.name,
                request.spot,
                request.requested_s if source.cloud else self.now_s,
                agent,
            )
            if not source.cloud:
                agent.ends_s = self.now_s + source.length_s
                self.time.at(agent.ends_s, self._leave, node)
            node.idle_s = self.now_s
            self.nodes[request.name].append(node)
            self.all.append(node)
            self._serve(node)
        self._decide()

    def _leave(self, node: StudyNode) -> None:
        """Remove a node; its tasks start again elsewhere."""
        if not node.here:
            return
        node.ended_s = self.now_s
        self.nodes[node.name].remove(node)
        self.waiting += list(node.tasks)[::-1]
        node.tasks.clear()

    def _check_spot(self) -> None:
        """Take spot nodes back where they are no longer available."""
        for name, source in self._spot.items():
            if source.is_available(self.now_s):
                continue
            lost = list(self.nodes[name])
            for request in list(self.requests[name]):
                self._refuse(request)
                request.cancelled = True
            for node in lost:
                node.agent.leaving = TAKEN_BACK
                self._leave(node)
            if lost:
                self.steering.lost(name, self.now_s)
                for node in [node for nodes in self.nodes.values() for node in nodes]:
                    self._serve(node)
                self._decide()
        self.time.at(self.now_s + STEP_S, self._check_spot)

    def _check_budget(self, budget_usd: float) -> None:
        """Let nodes leave that the budget does not pay: no more tasks, so that what runs can end
        before, and at once where it ends now."""
        for node in must_end(self.all, budget_usd, self.now_s, RELEASE_S + self.typical_s):
            node.agent.leaving = node.agent.leaving or "the budget ends"
            if not node.tasks:
                self._leave(node)
        for node in must_end(self.all, budget_usd, self.now_s, RELEASE_S):
            self._leave(node)
        self.time.at(self.now_s + RELEASE_S / 2.0, self._check_budget, budget_usd)

    # -- decisions ----------------------------------------------------------

    def _tick(self) -> None:
        self._decide()
        self.time.at(self.now_s + min(60.0, max(1.0, self.case.deadline_s / 100.0)), self._tick)

    def _decide(self) -> None:
        """Decide, and carry it out."""
        state = _state_of(self)
        if not state.left:
            return
        targets = self.steering.nodes(state)
        clouds = [source.name for source in self.case.sources if source.cloud]
        complete = all(
            state.staying(name) >= targets.get(name, 0) for name in (*clouds, *self._spot)
        )
        for name in (*self._sources, *self._spot):
            source = self._spot.get(name) or self._sources[name]
            lacking = min(targets.get(name, 0), source.most)
            lacking -= state.staying(name) + state.coming(name)
            if lacking > 0:
                for count in [1] * lacking if source.cloud else [lacking]:
                    self._request(source, name, count)
            elif lacking < 0 and self.steering.rules.gives_back:
                self._give_back(name, -lacking, complete or bool(targets.get(name, 0)))
        for node in [node for nodes in self.nodes.values() for node in nodes]:
            idle = not node.tasks and self.now_s - node.idle_s >= self.steering.rules.idle_s
            if idle and node.is_at_boundary(self.now_s):
                self._leave(node)

    def _give_back(self, name: str, surplus: int, complete: bool) -> None:
        """Cancel requests, the newest first; release idle nodes, then busy ones with a price, at
        the end of their paid periods."""
        for request in self.requests[name][::-1]:
            if request.nodes <= surplus:
                surplus -= request.nodes
                request.cancelled = True
                self.requests[name].remove(request)
                self.requested -= request.nodes
        for node in _releasable(self.nodes[name], max(0, surplus), self.now_s):
            if not node.tasks:
                self._leave(node)
            elif complete:
                node.agent.leaving = "released"


def _releasable(nodes: Sequence[StudyNode], surplus: int, now_s: float) -> list[StudyNode]:
    """Return those of the surplus nodes that may leave now, idle ones first."""
    staying = sorted(
        (node for node in nodes if not node.agent.leaving), key=lambda node: len(node.tasks)
    )
    return [
        node
        for node in staying[:surplus]
        if node.is_at_boundary(now_s) and (node.price or not node.tasks)
    ]


def _state_of(stage: BagStage) -> StudyState:
    """Return what decisions see."""
    tasks = len(stage.case.run_s)
    running = tasks - stage.ended - len(stage.waiting)
    typical_s = stage.typical_s if stage.ended else None
    each_s = estimate_s(stage.case.stated_s, typical_s, stage.ended, running, tasks)
    spent = spent_usd(stage.all, stage.now_s)
    return StudyState(
        now_s=stage.now_s,
        due_s=stage.case.deadline_s,
        each_s=stage.case.stated_s if each_s is None else each_s,
        ended=stage.ended,
        waiting=len(stage.waiting),
        running=running,
        spent_usd=spent,
        owed_usd=spent_usd(stage.all, stage.now_s + RELEASE_S + stage.typical_s) - spent,
        paid_s={
            name: min(node.paid_left_s(stage.now_s) for node in nodes)
            for name, nodes in stage.nodes.items()
            if nodes and nodes[0].price
        },
        nodes=stage.nodes,
        requests=stage.requests,
    )


def _outcome_of(stage: BagStage) -> StudyOutcome:
    """Return what became of a bag whose simulation has ended."""
    cost_usd, limit_usd = spent_usd(stage.all, stage.now_s), stage.case.budget_usd
    is_payable = limit_usd is None or cost_usd <= limit_usd + 1e-6
    return StudyOutcome(
        in_time=stage.ended == len(stage.case.run_s) and is_payable,
        cost_usd=cost_usd,
        node_hours=sum(node.duration_s(stage.now_s) for node in stage.all) / 3600.0,
        least_hours=stage.done_s / stage.case.workers / 3600.0,
        requested=stage.requested,
        useless=sum(not node.ran for node in stage.all),
    )
