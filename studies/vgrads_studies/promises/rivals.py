"""Current practice, simulated on the machines of an arena: strategies without a planner.

Each gets its best case: run times are exact, transfers take no time, the machine with the shorter
expected wait comes first. Node-hours count held processors, not used ones.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.simulator.backfill import BatchJob
from vgrads.simulator.cluster import BatchCluster
from vgrads.workflows.dag import Workflow
from vgrads.workflows.task import Task
from vgrads_studies.promises.arena import (
    BOOT_S,
    CORES,
    GRANTED,
    LIFETIMES,
    USD_PER_HOUR,
    Arena,
    Case,
)

_PAD = 1.1  # requested over expected time
_AFTER_S = 86_400.0  # how long after the deadline jobs are followed


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Results of a strategy: workflows in time, processor hours held and used, dollars, when each
    was done."""

    in_time: int
    kept: bool
    slot_hours: float
    used_hours: float
    usd: float
    done_s: tuple[float, ...]
    promised: float | None = None
    planning_s: float = 0.0
    binding_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkflowJob:
    """A workflow as one job: processors, its makespan on these, its total work."""

    procs: int
    makespan_s: float
    work_s: float


def as_piece(workflow: Workflow, procs: int | None = None) -> WorkflowJob:
    """Return the list schedule in task order on as many processors as its widest task needs, or on
    the given number."""
    procs = procs or workflow.width
    ends: dict[str, float] = {}
    free = [(0.0, procs)]  # (instant, processors that become free), a heap
    for task_id in workflow.order:
        task = workflow.tasks[task_id]
        ready_s = max((ends[p] for p in task.parents), default=0.0)
        have, at_s = 0, ready_s
        while have < task.procs:
            freed_s, count = heapq.heappop(free)
            at_s, have = max(at_s, freed_s), have + count
        if have > task.procs:
            heapq.heappush(free, (at_s, have - task.procs))
        ends[task_id] = at_s + task.runtime_s
        heapq.heappush(free, (ends[task_id], task.procs))
    work = sum(t.procs * t.runtime_s for t in workflow.tasks.values())
    return WorkflowJob(procs, max(ends.values()), work)


def _result(case: Case, done: list[float], reserved: float, usd: float, binding_s: float) -> Result:
    workflow_set = case.workflow_set
    in_time = sum(at_s <= workflow_set.deadline_s for at_s in done)
    used = sum(
        as_piece(w).work_s
        for w, at_s in zip(workflow_set.workflows, done, strict=True)
        if math.isfinite(at_s)
    )
    return Result(
        in_time=in_time,
        kept=in_time >= workflow_set.needed,
        slot_hours=reserved / 3600.0,
        used_hours=used / 3600.0,
        usd=usd,
        done_s=tuple(done),
        binding_s=binding_s,
    )


def _better(arena: Arena, case: Case, procs: int, walltime_s: float) -> int:
    """Return the machine on which such a job is more probable to start within half of the remaining
    time."""
    slack_s = max(0.0, case.workflow_set.deadline_s - walltime_s)
    chances = [
        float(arena.oracle(case, m).probability(procs, walltime_s, slack_s / 2)) for m in (0, 1)
    ]
    return int(np.argmax(chances))


def _starts(cluster: BatchCluster, ids: set[str], until_s: float) -> dict[str, float]:
    """Run the cluster until these jobs have started, or time is up."""
    result: dict[str, float] = {}
    while len(result) < len(ids) and cluster.next_time() <= until_s:
        for happening in cluster.advance(cluster.next_time()):
            if happening.kind == "started" and happening.job in ids:
                result[happening.job] = happening.time_s
    return result


def _task(owner: dict[str, Workflow], key: str) -> Task:
    """Return the task of ``workflow/task``."""
    return owner[key].tasks[key.partition("/")[2]]


def task_by_task(arena: Arena, case: Case) -> Result:
    """Submit each task as a job when its parents are done (SC'09 Figure 2b)."""
    workflow_set, until_s = case.workflow_set, case.workflow_set.deadline_s + _AFTER_S
    piece = as_piece(workflow_set.workflows[0])
    cluster = arena.cluster(case, _better(arena, case, piece.procs, piece.makespan_s), until_s)
    left = {
        f"{w.name}/{t}": set(w.tasks[t].parents) for w in workflow_set.workflows for t in w.tasks
    }
    owner = {f"{w.name}/{t}": w for w in workflow_set.workflows for t in w.tasks}
    ends: dict[str, float] = {}
    submitted: dict[str, float] = {}
    binding: list[float] = []

    def submit_ready(now_s: float) -> None:
        for key, parents in left.items():
            if key not in submitted and not parents:
                task = _task(owner, key)
                run_s = max(1.0, task.runtime_s)
                cluster.submit(BatchJob(key, task.procs, _PAD * run_s, run_s), now_s)
                submitted[key] = now_s

    submit_ready(0.0)
    while len(ends) < len(left) and cluster.next_time() <= until_s:
        for happening in cluster.advance(cluster.next_time()):
            if happening.kind == "started" and happening.job in submitted:
                binding.append(happening.time_s - submitted[happening.job])
            elif happening.kind == "ended" and happening.job in left:
                ends[happening.job] = happening.time_s
                workflow = owner[happening.job]
                for child in workflow.tasks:
                    left[f"{workflow.name}/{child}"].discard(happening.job.partition("/")[2])
                submit_ready(happening.time_s)
    done = [
        max((ends.get(f"{w.name}/{t}", math.inf) for t in w.tasks), default=0.0)
        for w in workflow_set.workflows
    ]
    reserved = sum(t.procs * t.runtime_s for key in ends for t in (_task(owner, key),))
    return _result(case, done, reserved, 0.0, sum(binding) / len(workflow_set.workflows))


def slot_each(arena: Arena, case: Case) -> Result:
    """Submit one job for each workflow, at once, to the better machine."""
    pieces = [as_piece(w) for w in case.workflow_set.workflows]
    until_s = case.workflow_set.deadline_s + _AFTER_S
    machine = _better(arena, case, pieces[0].procs, _PAD * pieces[0].makespan_s)
    cluster = arena.cluster(case, machine, until_s)
    for n, piece in enumerate(pieces):
        cluster.submit(
            BatchJob(f"s{n}", piece.procs, _PAD * piece.makespan_s, piece.makespan_s), 0.0
        )
    started = _starts(cluster, {f"s{n}" for n in range(len(pieces))}, until_s)
    done = [started.get(f"s{n}", math.inf) + p.makespan_s for n, p in enumerate(pieces)]
    reserved = sum(p.procs * p.makespan_s for n, p in enumerate(pieces) if f"s{n}" in started)
    return _result(case, done, reserved, 0.0, max(started.values(), default=math.inf))


def single_slot(arena: Arena, case: Case) -> Result:
    """Submit one job for all workflows, in parallel as far as the machine is wide."""
    pieces = [as_piece(w) for w in case.workflow_set.workflows]
    overrides = max(1, min(len(pieces), arena.procs // pieces[0].procs))
    rounds = math.ceil(len(pieces) / overrides)
    procs, length_s = overrides * pieces[0].procs, rounds * pieces[0].makespan_s
    until_s = case.workflow_set.deadline_s + _AFTER_S
    cluster = arena.cluster(case, _better(arena, case, procs, _PAD * length_s), until_s)
    cluster.submit(BatchJob("s", procs, _PAD * length_s, length_s), 0.0)
    start_s = _starts(cluster, {"s"}, until_s).get("s", math.inf)
    done = [start_s + (1 + n // overrides) * p.makespan_s for n, p in enumerate(pieces)]
    reserved = procs * length_s if math.isfinite(start_s) else 0.0
    return _result(case, done, reserved, 0.0, start_s)


def reservation(arena: Arena, case: Case) -> Result:
    """Return the ideal for comparison: processors reserved days before."""
    pieces = [as_piece(w) for w in case.workflow_set.workflows]
    overrides = max(1, min(len(pieces), arena.procs // pieces[0].procs))
    done = [(1 + n // overrides) * p.makespan_s for n, p in enumerate(pieces)]
    return _result(case, done, sum(p.procs * p.makespan_s for p in pieces), 0.0, 0.0)


def _race(arena: Arena, case: Case, until_s: float) -> dict[int, float]:
    """Return the starts of the workflows' jobs, each waiting at both machines until it starts at
    one."""
    pieces = [as_piece(w) for w in case.workflow_set.workflows]
    clusters = [arena.cluster(case, machine, until_s) for machine in (0, 1)]
    for n, piece in enumerate(pieces):
        for cluster in clusters:
            cluster.submit(
                BatchJob(f"s{n}", piece.procs, _PAD * piece.makespan_s, piece.makespan_s), 0.0
            )
    names, started = {f"s{n}": n for n in range(len(pieces))}, dict[int, float]()
    while len(started) < len(pieces):
        first = min((0, 1), key=lambda m: clusters[m].next_time())
        now_s = clusters[first].next_time()
        if now_s > until_s:
            break
        for happening in clusters[first].advance(now_s):
            number = names.get(happening.job)
            if happening.kind == "started" and number is not None and number not in started:
                started[number] = now_s
                clusters[1 - first].advance(now_s)
                clusters[1 - first].cancel(happening.job)
    return started


def race(arena: Arena, case: Case) -> Result:
    """Queue the job of every workflow at both machines; where one starts, the other is
    cancelled."""
    pieces = [as_piece(w) for w in case.workflow_set.workflows]
    started = _race(arena, case, case.workflow_set.deadline_s + _AFTER_S)
    done = [started.get(n, math.inf) + p.makespan_s for n, p in enumerate(pieces)]
    reserved = sum(p.procs * p.makespan_s for n, p in enumerate(pieces) if n in started)
    return _result(case, done, reserved, 0.0, max(started.values(), default=math.inf))


def _patience(case: Case) -> float:
    """Return until when the cloud could still be in time, with a quarter of a boot as slack."""
    makespan_s = as_piece(case.workflow_set.workflows[0]).makespan_s
    return max(0.0, case.workflow_set.deadline_s - makespan_s - 1.25 * BOOT_S)


def _turn_to_cloud(arena: Arena, case: Case, started: dict[int, float]) -> Result:
    """Move jobs that have not started in time to the cloud, as far as needed and as capacity
    allows."""
    pieces = [as_piece(w) for w in case.workflow_set.workflows]
    piece, patience_s = pieces[0], _patience(case)
    done = {n: start_s + pieces[n].makespan_s for n, start_s in started.items()}
    waiting = [n for n in range(len(pieces)) if n not in done]
    buy = waiting[
        : max(0, min(case.workflow_set.needed - len(done), arena.cloud_procs // piece.procs))
    ]
    failures = stream(case.number, "cloud").random((len(buy), 2))
    lucky = [n for n, (granted, _) in zip(buy, failures, strict=True) if granted < GRANTED]
    nodes, hours = math.ceil(piece.procs / CORES), math.ceil((BOOT_S + piece.makespan_s) / 3600.0)
    for n, (_, lifetimes_s) in zip(buy, failures, strict=True):
        if n in lucky:
            done[n] = (
                patience_s + BOOT_S + pieces[n].makespan_s if lifetimes_s < LIFETIMES else math.inf
            )
    times = [done.get(n, math.inf) for n in range(len(pieces))]
    reserved = sum(pieces[n].procs * pieces[n].makespan_s for n in done)
    usd = len(lucky) * nodes * hours * USD_PER_HOUR
    return _result(case, times, reserved + len(lucky) * nodes * CORES * BOOT_S, usd, patience_s)


def then_cloud(arena: Arena, case: Case) -> Result:
    """Submit one job each; those not started when only the cloud could still be in time go
    there."""
    pieces, patience_s = [as_piece(w) for w in case.workflow_set.workflows], _patience(case)
    machine = _better(arena, case, pieces[0].procs, _PAD * pieces[0].makespan_s)
    cluster = arena.cluster(case, machine, patience_s)
    for n, piece in enumerate(pieces):
        cluster.submit(
            BatchJob(f"s{n}", piece.procs, _PAD * piece.makespan_s, piece.makespan_s), 0.0
        )
    names = {f"s{n}": n for n in range(len(pieces))}
    started = _starts(cluster, set(names), patience_s)
    return _turn_to_cloud(arena, case, {names[key]: at_s for key, at_s in started.items()})


def race_then_cloud(arena: Arena, case: Case) -> Result:
    """Combine both: the race, and the cloud for the rest. The best strategy without a planner."""
    return _turn_to_cloud(arena, case, _race(arena, case, _patience(case)))


RIVALS: dict[str, Callable[[Arena, Case], Result]] = {
    "task by task": task_by_task,
    "slot each": slot_each,
    "one slot": single_slot,
    "reservation (ideal)": reservation,
    "race": race,
    "wait, then cloud": then_cloud,
    "race, then cloud": race_then_cloud,
}
