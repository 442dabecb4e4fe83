"""Rules of others about the nodes of a bag: rules of peers' tools, which know no deadline; those
with on-demand nodes once they are late; and auto-scaling with deadlines (Mao & Humphrey, SC 2011,
doi:10.1145/2063384.2063449)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from vgrads.pool.capacity import Interval
from vgrads.pool.size_view import Memory, SizeView
from vgrads.pool.sizing import SIZINGS, size
from vgrads_studies.deadlines.cases import StudyCase, StudySource
from vgrads_studies.deadlines.nodes import SteeringRules, StudyRequest, StudyState

PEERS = ("dask-adaptive", "hyperqueue", "parsl", "work-queue-factory", "d6")
_UNLIMITED = Interval(1e6, 1e6, 1e6)


class FixedSteering:
    """Hold all nodes of all sources until the end."""

    rules = SteeringRules(gives_back=False)
    promise = None

    def __init__(self, case: StudyCase) -> None:
        self._sources = sorted(case.sources, key=lambda source: (source.cloud, source.expected_s))

    def nodes(self, state: StudyState) -> Mapping[str, int]:  # noqa: ARG002 always the same
        """Return how many nodes of each source there should be."""
        return {source.name: source.most for source in self._sources}

    def joined(self, request: StudyRequest, now_s: float) -> None:
        """Record nothing."""

    def lost(self, name: str, now_s: float) -> None:
        """Record nothing."""


class PeerSteering(FixedSteering):
    """A sizing policy of :data:`vgrads.pool.sizing.SIZINGS`: its workers are nodes of queues first,
    in the order of their waits, then of the cloud. ``late_cloud``: on-demand nodes only as far as
    the others are too late by the estimates."""

    def __init__(self, case: StudyCase, name: str, late_cloud: bool = False) -> None:
        super().__init__(case)
        sizing = SIZINGS[name]
        self.rules = SteeringRules(idle_s=sizing.idle_s, gives_back=sizing.gives_back)
        self._name, self._memory, self._late_cloud = name, Memory(), late_cloud
        self._pooled = [s for s in self._sources if not (late_cloud and s.cloud)]
        self._previous, self._decided_s = 0, 0.0

    def nodes(self, state: StudyState) -> Mapping[str, int]:
        """Return how many nodes of each source there should be."""
        workers = self._workers(state) if self._pooled else 0
        targets = {}
        for source in self._pooled:
            targets[source.name] = min(source.most, math.ceil(workers / source.workers))
            workers = max(0, workers - targets[source.name] * source.workers)
        if self._late_cloud:
            for source in self._sources:
                if source.cloud:
                    targets[source.name] = nodes_when_late(source, self._pooled, targets, state)
        return targets

    def _workers(self, state: StudyState) -> int:
        nodes = [
            node
            for source in self._pooled
            for node in state.nodes.get(source.name, ())
            if not node.agent.leaving
        ]
        connected = sum(node.source.workers for node in nodes)
        view = SizeView(
            now_s=state.now_s,
            waiting=state.waiting,
            running=state.running,
            connected=connected,
            idle=sum(node.source.workers - len(node.tasks) for node in nodes),
            requests=tuple(
                (request.requested_s, request.nodes * source.workers)
                for source in self._pooled
                for request in state.requests.get(source.name, ())
            ),
            capacity=_UNLIMITED,
            execution_s=state.each_s,
            cycle_s=state.each_s,
            arrived=state.left + state.ended,
            previous=self._previous,
            elapsed_s=state.now_s - self._decided_s,
            max_workers=sum(source.most * source.workers for source in self._pooled),
            max_change=60.0 if SIZINGS[self._name].paced else None,
        )
        result = size(self._name, view, self._memory)
        self._memory, self._previous = result.memory, result.workers
        self._decided_s = state.now_s
        return result.workers


class DeadlineScaling(FixedSteering):
    """At each decision as many nodes as the work left needs until the deadline by the estimate, on
    the cheapest kind of on-demand nodes; surplus ones are released at the end of their paid
    periods. Without a cloud: at the queue with the shortest wait."""

    rules = SteeringRules()

    def nodes(self, state: StudyState) -> Mapping[str, int]:
        """Return how many nodes of each source there should be."""
        clouds = [source for source in self._sources if source.cloud]
        source = (clouds or self._sources)[0]
        return {source.name: nodes_in_time(source, state, state.left * state.each_s)}


def nodes_in_time(source: StudySource, state: StudyState, work_s: float) -> int:
    """Return how many nodes of a source do this work until the deadline, by the estimates; those
    that are there need not wait."""
    left_s = state.due_s - state.now_s - state.each_s / 2.0
    here = state.staying(source.name)
    if here and work_s <= here * source.workers * left_s:
        return math.ceil(work_s / (source.workers * left_s))
    work_s -= here * source.workers * max(0.0, left_s)
    usable_s = left_s - source.expected_s
    if usable_s <= 0.0:
        return source.most
    return min(source.most, here + math.ceil(max(0.0, work_s) / (source.workers * usable_s)))


def nodes_when_late(
    cloud: StudySource,
    others: list[StudySource],
    targets: Mapping[str, int],
    state: StudyState,
) -> int:
    """Return the on-demand nodes for the work that other nodes will not have done in time, by the
    estimates; ``targets``: how many of those there will be."""
    left_s = state.due_s - state.now_s
    able_s = 0.0
    for source in others:
        for node in state.nodes.get(source.name, ()):
            able_s += source.workers * min(left_s, node.agent.ends_s - state.now_s)
        for request in state.requests.get(source.name, ()):
            wait_s = max(0.0, source.expected_s - (state.now_s - request.requested_s))
            able_s += source.workers * request.nodes * max(0.0, left_s - wait_s)
        more = targets[source.name] - state.staying(source.name) - state.coming(source.name)
        able_s += source.workers * max(0, more) * max(0.0, left_s - source.expected_s)
    work_s = state.left * state.each_s - able_s
    return nodes_in_time(cloud, state, work_s) if work_s > 0.0 else 0
