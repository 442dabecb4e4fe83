"""A yardstick for plans: each is carried out by the real core, on a virtual clock, in futures that
no planner saw.

Nothing is shared with ``planner`` but the values that it takes and gives. What this file adds to
:func:`vgrads.execmgr.core.step.step` is the world: when slots are ready and when they break
(:func:`vgrads.vgrid.availability.sample_availability`, which draws slots of one queue together),
how long tasks run, which of them fail. The core decides all else, and it is held to what is
possible: a copy that it starts in a slot that is not ready, without room or without its data is an
error of the core.

Nobody plans anew: what is found is how this very plan is carried out.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.execution_plan import ExecutionPlan, make_execution
from vgrads.execmgr.core.states import (
    CancelReplica,
    CommitReplica,
    Event,
    ReleaseSlot,
    Replan,
    Replanned,
    ReplicaEnded,
    RequestSlot,
    SlotUpdate,
    StartReplica,
    Tick,
)
from vgrads.execmgr.core.step import begin, step
from vgrads.planner.plan import Placement, Plan
from vgrads.planner.snapshot import ReplicaKey, Snapshot, TaskKey
from vgrads.vgrid.availability import sample_availability

SEED = 715_827_883  # far from every seed that plans are made or promised with
_NEVER = float("inf")
_ROUNDING_S = 1e-6
_ATTEMPTS = 8  # of one copy, for which luck is drawn at most
_ANSWER, _END, _NEWS, _OVER = range(
    4
)  # what goes first at one instant: who ends with his slot has ended


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What so many executions of a plan came to; hours (of processors) and money are means a play.

    ``useful_hours``: runs that counted, of the first workflows as far as they were needed;
    ``further_hours``: of other workflows; ``lost_hours``: runs that did not count, twins and
    failures; the rest of ``hours``, which slots were held, nothing ran. ``usd``: slots are paid for
    from ready to given back; ``from_request_usd``: from request to given back, where they came at
    all. ``dearest_usd``: the play that cost most. ``end_s``: when it was done, at the median of the
    plays that were.
    """

    probability: float
    standard_error: float
    simulations: int
    hours: float = 0.0
    usd: float = 0.0
    from_request_usd: float = 0.0
    dearest_usd: float = 0.0
    useful_hours: float = 0.0
    further_hours: float = 0.0
    lost_hours: float = 0.0
    end_s: float = _NEVER
    by_workflow: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Played:
    """One execution: workflow → when it was done, if by the deadline; what was held and paid."""

    done_s: Mapping[str, float]
    hours: float
    usd: float
    from_request_usd: float
    useful_hours: float
    further_hours: float
    lost_hours: float


@dataclass(frozen=True, kw_only=True)
class Future:
    """What will happen, whatever is decided: slot → ready (after it is asked for; on the clock
    where it is fixed) and the same for when it breaks; copy → factor on its planned run time; copy
    → for each attempt the share of its run after which it fails, above 1 where it does not."""

    fates: Mapping[str, tuple[float, float]]
    stretch: Mapping[ReplicaKey, float]
    failing: Mapping[ReplicaKey, tuple[float, ...]]


class Futures:
    """So many futures of a plan; each is drawn where it is looked at."""

    def __init__(self, snapshot: Snapshot, plan: Plan, count: int, seed: int = SEED) -> None:
        self._snapshot, self._plan, self._seed = snapshot, plan, seed
        self._fates = {use.slot.id: sample_availability(use.slot, count, seed) for use in plan.uses}

    def __getitem__(self, number: int) -> Future:
        fates = {s: (float(r[number]), float(b[number])) for s, (r, b) in self._fates.items()}
        draws = np.random.default_rng([self._seed, number])
        return Future(fates=fates, stretch=self._stretch(draws), failing=self._failing(draws))

    def _stretch(self, draws: np.random.Generator) -> dict[ReplicaKey, float]:
        """Median run times are what is written with a task; the plan gives it room for a quantile.
        Errors are its own, its kind's, its workflow's and its site's; copies share all but the
        last."""
        workflow_set = self._snapshot.workflow_set
        if not workflow_set.uncertain:
            return {}
        drawn: dict[tuple[str, ...], float] = defaultdict(draws.standard_normal)
        result = {}
        for p in self._plan.placements:
            task = self._snapshot.task(p.task_key)
            spread, site = workflow_set.spread(task), self._snapshot.slot_by_id[p.slot].site
            error = spread.own * drawn["own", *p.task_key] + spread.kind * drawn["kind", task.kind]
            error += (
                spread.workflow * drawn["workflow", p.workflow] + spread.site * drawn["site", site]
            )
            result[p.key] = float(np.exp(error)) / spread.factor(self._plan.quantile)
        return result

    def _failing(self, draws: np.random.Generator) -> dict[ReplicaKey, tuple[float, ...]]:
        result = {}
        for key, failure in self._fragile:
            fails, when = draws.random((2, _ATTEMPTS))
            result[key] = tuple(np.where(fails < failure, when, 2.0).tolist())
        return result

    @cached_property
    def _fragile(self) -> list[tuple[ReplicaKey, float]]:
        chances = {use.slot.id: use.slot.task_failure for use in self._plan.uses}
        return sorted(
            (p.key, chances[p.slot]) for p in self._plan.placements if chances[p.slot] > 0
        )


class _World:
    """Where commands become events: slots that come and go, copies that run."""

    def __init__(self, execution: ExecutionPlan, future: Future, message: bool) -> None:
        self.execution, self.future, self.reported, self.now_s = execution, future, message, 0.0
        self.due: list[tuple[float, int, int, Event]] = []
        self.ready_s: dict[str, float] = {}
        self.requested_s: dict[str, float] = {}
        self.gone: set[str] = set()
        self.running: dict[ReplicaKey, tuple[int, float]] = {}  # number of its end, start
        self.tries: Counter[ReplicaKey] = Counter()
        self.room = {slot: use.slot.procs for slot, use in execution.uses.items()}
        self.outputs: dict[TaskKey, list[tuple[str, float]]] = defaultdict(list)  # site, when
        self.counted_hours: dict[str, float] = defaultdict(float)  # by workflow
        self.busy_hours = self.hours = self.usd = self.from_request_usd = 0.0
        self._number = 0

    def expect(self, at_s: float, rank: int, event: Event) -> int:
        self._number += 1
        heapq.heappush(self.due, (at_s, rank, self._number, event))
        return self._number

    def happens(self, event: Event, number: int) -> bool:
        """What an event that is due does to the world; False where it was called off."""
        if isinstance(event, SlotUpdate):
            return self._slot_moves(event)
        if isinstance(event, ReplicaEnded) and self.running.get(event.key, (0,))[0] == number:
            self._stop(event.key, event.ok)
            return True
        return not isinstance(event, ReplicaEnded)

    def obey(self, command: object) -> None:
        """Do what the core wants done."""
        if isinstance(command, RequestSlot):
            self._open(command.slot)
        elif isinstance(command, ReleaseSlot):
            self._leave(command.slot)
            news = SlotUpdate(at_s=self.now_s, slot=command.slot, state=SlotState.RELEASED)
            self.expect(self.now_s, _ANSWER, news)
        elif isinstance(command, StartReplica):
            self._start(self.execution.placements[command.key])
        elif isinstance(command, CancelReplica):
            if command.key in self.running:
                self._stop(command.key, counts=False)
        elif not isinstance(command, CommitReplica | Replan):
            raise AssertionError(f"nobody here knows what {command} is")

    def _open(self, slot_id: str) -> None:
        use = self.execution.uses[slot_id]
        assert slot_id not in self.requested_s, f"{slot_id} is asked for twice"
        assert self.now_s >= use.submit_s - _ROUNDING_S, f"{slot_id} is asked for too early"
        self.requested_s[slot_id] = self.now_s
        ready_s, broken_s = self.future.fates[slot_id]
        later_s = 0.0 if use.slot.fixed else self.now_s  # than the curve takes for granted
        if ready_s == _NEVER:
            if self.reported and use.slot.kind != "batch":
                self._news(self.now_s, _NEWS, slot_id, SlotState.FAILED)
            return
        ready_s, broken_s = max(ready_s + later_s, self.now_s), broken_s + later_s
        over_s = ready_s + use.slot.end_s - use.submit_s
        self._news(ready_s, _NEWS, slot_id, SlotState.READY)
        if broken_s < over_s:
            self._news(broken_s, _OVER, slot_id, SlotState.FAILED)
        else:
            self._news(over_s + _ROUNDING_S, _OVER, slot_id, SlotState.EXPIRED)

    def _news(self, at_s: float, rank: int, slot_id: str, state: SlotState) -> None:
        self.expect(at_s, rank, SlotUpdate(at_s=at_s, slot=slot_id, state=state))

    def _slot_moves(self, news: SlotUpdate) -> bool:
        if news.state == SlotState.RELEASED:
            return True
        if news.slot in self.gone:
            return False
        if news.state == SlotState.READY:
            self.ready_s[news.slot] = news.at_s
        else:
            self._leave(news.slot)
        return True

    def _leave(self, slot_id: str) -> None:
        """From now on it is not held; one that was never ready costs nothing."""
        self.gone.add(slot_id)
        if slot_id not in self.ready_s:
            return
        slot, duration_s = self.execution.uses[slot_id].slot, self.now_s - self.ready_s[slot_id]
        self.hours += duration_s / 3600.0 * slot.procs
        self.usd += slot.cost_usd(duration_s - _ROUNDING_S)
        self.from_request_usd += slot.cost_usd(self.now_s - self.requested_s[slot_id] - _ROUNDING_S)

    def _start(self, p: Placement) -> None:
        slot = self.execution.uses[p.slot].slot
        assert p.slot in self.ready_s and p.slot not in self.gone, f"{p.key} has no slot"
        assert p.key not in self.running, f"{p.key} runs already"
        self._check_inputs(p, slot.site)
        self.room[p.slot] -= p.procs
        assert self.room[p.slot] >= 0, f"no room for {p.key} in {p.slot}"
        seconds = (p.end_s - p.start_s) * self.future.stretch.get(p.key, 1.0)
        share = self.future.failing.get(p.key, (2.0,) * _ATTEMPTS)[self.tries[p.key]]
        self.tries[p.key] += 1
        end_s = self.now_s + seconds * min(1.0, share)
        ended = ReplicaEnded(
            at_s=end_s, key=p.key, ok=share > 1.0, reason="" if share > 1.0 else "it failed"
        )
        self.running[p.key] = (self.expect(end_s, _END, ended), self.now_s)

    def _check_inputs(self, p: Placement, site: str) -> None:
        workflow = self.execution.snapshot.workflow_by_name[p.workflow]
        for parent in workflow.tasks[p.task].parents:
            arrivals = [
                at_s + self.execution.snapshot.transfer_s(workflow, parent, p.task, (source, site))
                for source, at_s in self.outputs[p.workflow, parent]
            ]
            assert min(arrivals, default=_NEVER) <= self.now_s + _ROUNDING_S, f"{p.key}: no data"

    def _stop(self, key: ReplicaKey, counts: bool) -> None:
        _, start_s = self.running.pop(key)
        p = self.execution.placements[key]
        self.room[p.slot] += p.procs
        hours = (self.now_s - start_s) / 3600.0 * p.procs
        self.busy_hours += hours
        if counts and not self.outputs[p.task_key]:
            self.counted_hours[p.workflow] += hours
        if counts:
            self.outputs[p.task_key].append((self.execution.uses[p.slot].slot.site, self.now_s))


def simulate(execution: ExecutionPlan, future: Future, message: bool = False) -> Played:
    """Carry a book out in one future, to the end.

    A slot that is never ready stays silent; ``message``: where it is no batch job, its site refuses
    it at once.
    """
    world = _World(execution, future, message)
    state = begin(execution)
    world.expect(0.0, _ANSWER, Tick(at_s=0.0))
    while world.due or state.wake_s < _NEVER:
        if world.due and world.due[0][0] <= state.wake_s:
            world.now_s, _, number, event = heapq.heappop(world.due)
            if not world.happens(event, number):
                continue
        else:
            world.now_s = state.wake_s
            event = Tick(at_s=world.now_s)
        waiting: list[Event] = [event]
        while waiting:
            state, commands = step(execution, state, waiting.pop(0))
            for command in commands:
                world.obey(command)
                if isinstance(command, CommitReplica):
                    waiting.append(ReplicaEnded(at_s=world.now_s, key=command.key, ok=True))
                if isinstance(command, Replan):
                    answer = Replanned(at_s=world.now_s, version=state.version, reason="as planned")
                    waiting.append(answer)
    assert not world.running, "copies run that nobody waits for"
    return _tally(execution, world)


def _tally(execution: ExecutionPlan, world: _World) -> Played:
    last_s = execution.plan.deadline_s + _ROUNDING_S
    done_s: dict[str, float] = {}
    for name in execution.scheduled:
        ends = [
            min((at_s for _, at_s in world.outputs.get((name, task), ())), default=_NEVER)
            for task in execution.snapshot.workflow_by_name[name].tasks
        ]
        if max(ends) <= last_s:
            done_s[name] = max(ends)
    first = sorted(done_s, key=lambda name: (done_s[name], name))[: execution.plan.needed]
    useful = sum(world.counted_hours[name] for name in first)
    counted = sum(world.counted_hours.values())
    return Played(
        done_s=done_s,
        hours=world.hours,
        usd=world.usd,
        from_request_usd=world.from_request_usd,
        useful_hours=useful,
        further_hours=counted - useful,
        lost_hours=world.busy_hours - counted,
    )


def judge(
    snapshot: Snapshot, plan: Plan, count: int = 2000, seed: int = SEED, message: bool = False
) -> Judged:
    """How surely a plan is kept as it is carried out, and what that takes."""
    if not plan.placements:
        return Judged(probability=0.0, standard_error=0.0, simulations=0)
    execution, futures = make_execution(plan, snapshot), Futures(snapshot, plan, count, seed)
    simulations = [simulate(execution, futures[number], message) for number in range(count)]
    ends = [_needed_done_s(simulated, plan.needed) for simulated in simulations]
    share = float(np.mean(np.isfinite(ends)))
    shrunk = (share * count + 1) / (count + 2)  # the rule of succession keeps the error above 0
    done = Counter(name for done_ in simulations for name in done_.done_s)
    return Judged(
        probability=share,
        standard_error=float(np.sqrt(shrunk * (1 - shrunk) / count)),
        simulations=count,
        hours=float(np.mean([p.hours for p in simulations])),
        usd=float(np.mean([p.usd for p in simulations])),
        from_request_usd=float(np.mean([p.from_request_usd for p in simulations])),
        dearest_usd=max(p.usd for p in simulations),
        useful_hours=float(np.mean([p.useful_hours for p in simulations])),
        further_hours=float(np.mean([p.further_hours for p in simulations])),
        lost_hours=float(np.mean([p.lost_hours for p in simulations])),
        end_s=float(np.median([e for e in ends if e < _NEVER])) if share > 0 else _NEVER,
        by_workflow={name: done[name] / count for name in sorted(execution.scheduled)},
    )


def _needed_done_s(simulated: Played, needed: int) -> float:
    """When the needed number was done; never where fewer were."""
    ends = sorted(simulated.done_s.values())
    return 0.0 if needed <= 0 else ends[needed - 1] if len(ends) >= needed else _NEVER
