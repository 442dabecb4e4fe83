"""What people do today, played on the machines of an arena: strategies without a planner.

Each gets what it could have at best: run times are known, transfers take no time, the machine with
the shorter expected wait comes first. Node-hours count what is held, not what is used.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.research.promises.arena import BOOT_S, CORES, GRANTED, LIVES, USD_PER_HOUR, Arena, Case
from vgrads.simulator.backfill import Job
from vgrads.simulator.cluster import BatchCluster
from vgrads.workflows.dag import Workflow
from vgrads.workflows.task import Task

_PAD = 1.1  # requested over expected time
_AFTER_S = 86_400.0  # how long after the deadline jobs are still followed


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a strategy fared: workflows in time, processor hours held and used, dollars, when each
    was done."""

    in_time: int
    kept: bool
    held_hours: float
    used_hours: float
    usd: float
    done_s: tuple[float, ...]
    promised: float | None = None
    planning_s: float = 0.0
    binding_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A workflow as one job: processors, its makespan on these, the work in it."""

    procs: int
    makespan_s: float
    work_s: float


def as_piece(workflow: Workflow, procs: int | None = None) -> Piece:
    """List scheduling by order of tasks on as many processors as its widest task needs, or on
    these."""
    procs = procs or workflow.width
    ends: dict[str, float] = {}
    free = [(0.0, procs)]  # (instant, processors that come free), a heap
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
    return Piece(procs, max(ends.values()), work)


def _result(case: Case, done: list[float], held: float, usd: float, binding_s: float) -> Result:
    wanted = case.wanted
    in_time = sum(at_s <= wanted.deadline_s for at_s in done)
    used = sum(
        as_piece(w).work_s
        for w, at_s in zip(wanted.workflows, done, strict=True)
        if math.isfinite(at_s)
    )
    return Result(
        in_time=in_time,
        kept=in_time >= wanted.needed,
        held_hours=held / 3600.0,
        used_hours=used / 3600.0,
        usd=usd,
        done_s=tuple(done),
        binding_s=binding_s,
    )


def _better(arena: Arena, case: Case, procs: int, walltime_s: float) -> int:
    """The machine on which such a job more probably starts within half of what is left."""
    slack_s = max(0.0, case.wanted.deadline_s - walltime_s)
    chances = [
        float(arena.oracle(case, m).probability(procs, walltime_s, slack_s / 2)) for m in (0, 1)
    ]
    return int(np.argmax(chances))


def _starts(cluster: BatchCluster, ids: set[str], until_s: float) -> dict[str, float]:
    """Let the cluster run until these jobs have started, or time is up."""
    found: dict[str, float] = {}
    while len(found) < len(ids) and cluster.next_time() <= until_s:
        for happening in cluster.advance(cluster.next_time()):
            if happening.kind == "started" and happening.job in ids:
                found[happening.job] = happening.time_s
    return found


def _task(owner: dict[str, Workflow], key: str) -> Task:
    """The task behind ``workflow/task``."""
    return owner[key].tasks[key.partition("/")[2]]


def task_by_task(arena: Arena, case: Case) -> Result:
    """Each task becomes a job when its parents are done (SC'09 Figure 2b)."""
    wanted, until_s = case.wanted, case.wanted.deadline_s + _AFTER_S
    piece = as_piece(wanted.workflows[0])
    cluster = arena.cluster(case, _better(arena, case, piece.procs, piece.makespan_s), until_s)
    left = {f"{w.name}/{t}": set(w.tasks[t].parents) for w in wanted.workflows for t in w.tasks}
    owner = {f"{w.name}/{t}": w for w in wanted.workflows for t in w.tasks}
    ends: dict[str, float] = {}
    submitted: dict[str, float] = {}
    binding: list[float] = []

    def submit_ready(now_s: float) -> None:
        for key, parents in left.items():
            if key not in submitted and not parents:
                task = _task(owner, key)
                run_s = max(1.0, task.runtime_s)
                cluster.submit(Job(key, task.procs, _PAD * run_s, run_s), now_s)
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
        for w in wanted.workflows
    ]
    held = sum(t.procs * t.runtime_s for key in ends for t in (_task(owner, key),))
    return _result(case, done, held, 0.0, sum(binding) / len(wanted.workflows))


def slot_each(arena: Arena, case: Case) -> Result:
    """One job for each workflow, submitted at once to the better machine."""
    pieces = [as_piece(w) for w in case.wanted.workflows]
    until_s = case.wanted.deadline_s + _AFTER_S
    machine = _better(arena, case, pieces[0].procs, _PAD * pieces[0].makespan_s)
    cluster = arena.cluster(case, machine, until_s)
    for n, piece in enumerate(pieces):
        cluster.submit(Job(f"s{n}", piece.procs, _PAD * piece.makespan_s, piece.makespan_s), 0.0)
    started = _starts(cluster, {f"s{n}" for n in range(len(pieces))}, until_s)
    done = [started.get(f"s{n}", math.inf) + p.makespan_s for n, p in enumerate(pieces)]
    held = sum(p.procs * p.makespan_s for n, p in enumerate(pieces) if f"s{n}" in started)
    return _result(case, done, held, 0.0, max(started.values(), default=math.inf))


def one_slot(arena: Arena, case: Case) -> Result:
    """One job for all workflows, side by side as far as the machine is wide."""
    pieces = [as_piece(w) for w in case.wanted.workflows]
    beside = max(1, min(len(pieces), arena.procs // pieces[0].procs))
    rounds = math.ceil(len(pieces) / beside)
    procs, length_s = beside * pieces[0].procs, rounds * pieces[0].makespan_s
    until_s = case.wanted.deadline_s + _AFTER_S
    cluster = arena.cluster(case, _better(arena, case, procs, _PAD * length_s), until_s)
    cluster.submit(Job("s", procs, _PAD * length_s, length_s), 0.0)
    start_s = _starts(cluster, {"s"}, until_s).get("s", math.inf)
    done = [start_s + (1 + n // beside) * p.makespan_s for n, p in enumerate(pieces)]
    held = procs * length_s if math.isfinite(start_s) else 0.0
    return _result(case, done, held, 0.0, start_s)


def reservation(arena: Arena, case: Case) -> Result:
    """What would have been, had the processors been reserved days before: the ideal, for
    comparison."""
    pieces = [as_piece(w) for w in case.wanted.workflows]
    beside = max(1, min(len(pieces), arena.procs // pieces[0].procs))
    done = [(1 + n // beside) * p.makespan_s for n, p in enumerate(pieces)]
    return _result(case, done, sum(p.procs * p.makespan_s for p in pieces), 0.0, 0.0)


def _race(arena: Arena, case: Case, until_s: float) -> dict[int, float]:
    """Starts of the workflows' jobs, each waiting at both machines until it starts at one."""
    pieces = [as_piece(w) for w in case.wanted.workflows]
    clusters = [arena.cluster(case, machine, until_s) for machine in (0, 1)]
    for n, piece in enumerate(pieces):
        for cluster in clusters:
            cluster.submit(
                Job(f"s{n}", piece.procs, _PAD * piece.makespan_s, piece.makespan_s), 0.0
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
                clusters[1 - first].withdraw(happening.job)
    return started


def race(arena: Arena, case: Case) -> Result:
    """The job of every workflow waits at both machines; where one starts, the other is
    withdrawn."""
    pieces = [as_piece(w) for w in case.wanted.workflows]
    started = _race(arena, case, case.wanted.deadline_s + _AFTER_S)
    done = [started.get(n, math.inf) + p.makespan_s for n, p in enumerate(pieces)]
    held = sum(p.procs * p.makespan_s for n, p in enumerate(pieces) if n in started)
    return _result(case, done, held, 0.0, max(started.values(), default=math.inf))


def _patience(case: Case) -> float:
    """Until when the cloud could still be in time, with a quarter of a boot to spare."""
    makespan_s = as_piece(case.wanted.workflows[0]).makespan_s
    return max(0.0, case.wanted.deadline_s - makespan_s - 1.25 * BOOT_S)


def _turn_to_cloud(arena: Arena, case: Case, started: dict[int, float]) -> Result:
    """What has not started in time goes to the cloud, as far as it is needed and there is room."""
    pieces = [as_piece(w) for w in case.wanted.workflows]
    piece, patience_s = pieces[0], _patience(case)
    done = {n: start_s + pieces[n].makespan_s for n, start_s in started.items()}
    waiting = [n for n in range(len(pieces)) if n not in done]
    buy = waiting[: max(0, min(case.wanted.needed - len(done), arena.cloud_procs // piece.procs))]
    luck = stream(case.number, "cloud").random((len(buy), 2))
    lucky = [n for n, (granted, _) in zip(buy, luck, strict=True) if granted < GRANTED]
    nodes, hours = math.ceil(piece.procs / CORES), math.ceil((BOOT_S + piece.makespan_s) / 3600.0)
    for n, (_, lives) in zip(buy, luck, strict=True):
        if n in lucky:
            done[n] = patience_s + BOOT_S + pieces[n].makespan_s if lives < LIVES else math.inf
    times = [done.get(n, math.inf) for n in range(len(pieces))]
    held = sum(pieces[n].procs * pieces[n].makespan_s for n in done)
    usd = len(lucky) * nodes * hours * USD_PER_HOUR
    return _result(case, times, held + len(lucky) * nodes * CORES * BOOT_S, usd, patience_s)


def then_cloud(arena: Arena, case: Case) -> Result:
    """As one job each; what has not started when only the cloud could still be in time goes
    there."""
    pieces, patience_s = [as_piece(w) for w in case.wanted.workflows], _patience(case)
    machine = _better(arena, case, pieces[0].procs, _PAD * pieces[0].makespan_s)
    cluster = arena.cluster(case, machine, patience_s)
    for n, one in enumerate(pieces):
        cluster.submit(Job(f"s{n}", one.procs, _PAD * one.makespan_s, one.makespan_s), 0.0)
    names = {f"s{n}": n for n in range(len(pieces))}
    started = _starts(cluster, set(names), patience_s)
    return _turn_to_cloud(arena, case, {names[key]: at_s for key, at_s in started.items()})


def race_then_cloud(arena: Arena, case: Case) -> Result:
    """Both: the race, and the cloud for what it leaves. The most that can be done without a
    planner."""
    return _turn_to_cloud(arena, case, _race(arena, case, _patience(case)))


RIVALS: dict[str, Callable[[Arena, Case], Result]] = {
    "task by task": task_by_task,
    "slot each": slot_each,
    "one slot": one_slot,
    "reservation (ideal)": reservation,
    "race": race,
    "wait, then cloud": then_cloud,
    "race, then cloud": race_then_cloud,
}
