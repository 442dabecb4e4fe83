"""Predicted time of work on a number of processors, and its best division: the models of Yu's
abstractions.

The thesis (*Right-sizing resource allocations for scientific applications in clusters, grids, and
clouds*, Notre Dame 2013, section 3.4) prints no equation; these are those of its tools, and of
Moretti et al., IPDPS 2008 (doi:10.1109/IPDPS.2008.4536311), with the remainders that its tools cut
off. Seconds, Mbit, Mbit/s.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from vgrads.kernel.units import format_count

LONGEST_JOB_S = 3600.0
"""Maximum length of a job of All-Pairs: beyond it too much is lost with a node."""
LOCAL_FACTOR = 1.0
"""A Wavefront stays on this machine unless a cluster is faster by this factor. The thesis's tool
has 2; in random situations that is wrong in 8 % (`benchmarks/dispatch/bench_models.py`)."""


def wavefront_s(side: int, procs: int, cell_s: float, other: int | None = None) -> float:
    """Return the time of ``side`` × ``other`` cells on ``procs`` processors: anti-diagonals, each
    in whole rounds."""
    short, long = sorted((side, side if other is None else other))
    # growing and shrinking diagonals, and between them those of full length
    rounds = 2 * _count_rounds_below(short, procs) + (long - short + 1) * -(-short // procs)
    return rounds * cell_s


def _count_rounds_below(n: int, procs: int) -> int:
    """Return Σ ceil(k ÷ procs) for k from 1 to n - 1."""
    whole, rest = divmod(n - 1, procs)
    return procs * whole * (whole + 1) // 2 + rest * (whole + 1)


def wavefront_blocks_s(
    sides: int | tuple[int, int],
    block: int,
    nodes: int,
    cores: int,
    cell_s: float,
    dispatch_s: float,
) -> float:
    """Return the same in blocks, each on a node of ``cores`` processors, started ``dispatch_s``
    after its request. ``sides``: two where they differ."""
    each_s = wavefront_s(block, cores, cell_s) + dispatch_s
    side, other = (sides, sides) if isinstance(sides, int) else sides
    return wavefront_s(-(-side // block), nodes, each_s, -(-other // block))


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Available resources: local processors, and ``nodes`` of ``cores`` each elsewhere, where a job
    starts ``dispatch_s`` after its request; ``item_mbit``, ``mbit_s``: size of an item, and speed
    of the network (Mbit, Mbit/s)."""

    here: int = 1
    nodes: int = 0
    cores: int = 1
    dispatch_s: float = 30.0
    item_mbit: float = 0.0
    mbit_s: float = 1000.0


def allpairs_s(
    sides: tuple[int, int],
    cell_s: float,
    per_job: int,
    nodes: int,
    machines: Resources,
    slice_s: bool = False,
) -> float:
    """Return the time of ``sides``: n × m comparisons in jobs of ``per_job`` on ``nodes``: waves of
    jobs, nodes started one after the other, and all items distributed along a tree.

    ``slice_s``: the actual behaviour instead of the printed model: nodes that have started work
    while others are started, so that takes half as long; those that would join after the end do not
    count.
    """
    n, m = sides
    dispatch_s = machines.dispatch_s
    spread_s = (n + m) * machines.item_mbit / machines.mbit_s * math.log2(nodes)
    all_s = n * m / per_job * (dispatch_s + per_job * cell_s)
    if not slice_s:
        return all_s / nodes + dispatch_s * nodes + spread_s
    if dispatch_s > 0:
        # the least of the sum below: those that start later than that join after the end
        nodes = max(1, min(nodes, round(math.sqrt(2.0 * all_s / dispatch_s))))
    return all_s / nodes + dispatch_s * (nodes - 1) / 2.0 + spread_s


def allpairs_best_nodes(n: int, m: int, cell_s: float, per_job: int, dispatch_s: float) -> float:
    """Return the nodes at which :func:`allpairs_s` is least, without the distribution of items."""
    return math.sqrt(n * m * (cell_s + dispatch_s / per_job) / dispatch_s)


def graph_s(
    runtimes_s: Sequence[float],
    parents: Sequence[Iterable[int]],
    procs: int,
    widths: Sequence[int] = (),
) -> float:
    """Return the time of tasks with dependencies on ``procs`` processors; ``widths``: processors of
    each, default one.

    List scheduling, the longest path to the end first (Graham 1969, doi:10.1137/0117039: with one
    processor per task at most 2 - 1/procs times the least). ValueError where dependencies form a
    cycle, or a task is wider than all processors.
    """
    wide = widths or [1] * len(runtimes_s)
    if max(wide, default=0) > procs:
        raise ValueError(f"a task needs {format_count(max(wide), 'processor')}, there are {procs}")
    children: list[list[int]] = [[] for _ in runtimes_s]
    missing = [0] * len(runtimes_s)
    for task, needed in enumerate(parents):
        for parent in needed:
            children[parent].append(task)
            missing[task] += 1
    # a copy, which is counted down to 0 there
    rank = _estimate_to_the_end(runtimes_s, children, list(missing))
    ready = [(-rank[task], task) for task, waits in enumerate(missing) if not waits]
    heapq.heapify(ready)
    running: list[tuple[float, int]] = []
    now_s, free = 0.0, procs
    while ready or running:
        reserved = []
        while ready and free > 0:
            job = heapq.heappop(ready)
            if wide[job[1]] > free:
                # too wide now: narrower tasks may start before it
                reserved.append(job)
                continue
            free -= wide[job[1]]
            heapq.heappush(running, (now_s + runtimes_s[job[1]], job[1]))
        for job in reserved:
            heapq.heappush(ready, job)
        now_s, ended = heapq.heappop(running)
        free += wide[ended]
        for child in children[ended]:
            missing[child] -= 1
            if not missing[child]:
                heapq.heappush(ready, (-rank[child], child))
    return now_s


def _estimate_to_the_end(
    runtimes_s: Sequence[float], children: Sequence[Sequence[int]], missing: list[int]
) -> list[float]:
    order = [task for task, waits in enumerate(missing) if not waits]
    for task in order:
        for child in children[task]:
            missing[child] -= 1
            if not missing[child]:
                order.append(child)
    if len(order) < len(runtimes_s):
        raise ValueError("the dependencies of the tasks contain a cycle")
    rank = [0.0] * len(runtimes_s)
    for task in reversed(order):
        rank[task] = runtimes_s[task] + max((rank[child] for child in children[task]), default=0.0)
    return rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """A way to do the work: ``serial``, ``multicore`` or ``distributed``; ``block``: cells of a
    side of a block, or of a job; ``nodes``: number of nodes; ``seconds``: expected time."""

    how: str
    seconds: float
    nodes: int = 1
    block: int = 1


def wavefront_best(
    sides: tuple[int, int], cell_s: float, machines: Resources, hosts: int | None = None
) -> Implementation:
    """Return the fastest way on this many nodes (default: all): blocks with a node each, or a
    processor each, and their size."""
    count = machines.nodes if hosts is None else hosts
    short, far = sorted(sides)

    def seconds(block: int, nodes: int, cores: int) -> float:
        return wavefront_blocks_s((short, far), block, nodes, cores, cell_s, machines.dispatch_s)

    shapes = {(count, machines.cores), (count * machines.cores, 1)}
    # of equal times the largest block, by its negative
    results = [
        (seconds(block, nodes, cores), -block, nodes, cores)
        for nodes, cores in shapes
        for block in _list_block_sizes(short, lambda b, n=nodes, c=cores: seconds(b, n, c))  # type: ignore[misc]
    ]
    best_s, block, nodes, cores = min(results)
    # the longest diagonal has so many blocks: further nodes would never work
    busy = min(nodes, -(-short // -block)) * cores
    return Implementation(
        how="distributed", seconds=best_s, block=-block, nodes=-(-busy // machines.cores)
    )


def choose_wavefront(
    side: int, cell_s: float, machines: Resources, other: int | None = None
) -> Implementation:
    """Return the fastest way to compute a Wavefront: this machine unless a cluster is faster."""
    local = _estimate_here(wavefront_s(side, machines.here, cell_s, other), machines.here)
    if not machines.nodes:
        return local
    far = wavefront_best((side, side if other is None else other), cell_s, machines)
    return local if local.seconds < LOCAL_FACTOR * far.seconds else far


def _list_block_sizes(side: int, time_of: Callable[[int], float]) -> Iterable[int]:
    """Return block sizes 1, 2, 3, … up to a quarter of the side, while the time improves: the gain
    of larger ones is soon lost in remainders."""
    best, worse = math.inf, 0
    for block in range(1, max(1, side // 4) + 1):
        seconds = time_of(block)
        yield block
        worse = 0 if seconds < best else worse + 1
        best = min(best, seconds)
        # remainders let the time rise and fall: one worse size does not end the search
        if worse > 20:
            return


def choose_allpairs(n: int, m: int, cell_s: float, machines: Resources) -> Implementation:
    """Return the fastest way to compute all pairs."""
    local = _estimate_here(-(-n * m // machines.here) * cell_s, machines.here)
    if not machines.nodes:
        return local
    best = allpairs_best(n, m, cell_s, machines)
    return best if best.seconds < local.seconds else local


def allpairs_best(n: int, m: int, cell_s: float, machines: Resources) -> Implementation:
    """Return the fastest distributed way: comparisons per job, and number of nodes."""
    result = (
        _estimate_allpairs(n, m, cell_s, per_job, machines)
        for per_job in _list_job_sizes(n, m, cell_s, machines)
    )
    return min(result, key=lambda implementation: implementation.seconds)


def allpairs_best_s(n: int, m: int, cell_s: float, machines: Resources, nodes: int) -> float:
    """Return the least time on this many nodes for any job size; never less than the processors
    need for their cells."""
    least_s = -(-n * m // (nodes * machines.cores)) * cell_s
    share_s = cell_s / machines.cores
    jobs = _list_job_sizes(n, m, cell_s, replace(machines, nodes=nodes))
    modelled = (
        allpairs_s((n, m), share_s, per_job, max(1, min(nodes, n * m // per_job)), machines, True)
        for per_job in jobs
    )
    return max(least_s, min(modelled))


def _estimate_allpairs(
    n: int, m: int, cell_s: float, per_job: int, machines: Resources
) -> Implementation:
    def seconds(nodes: int) -> float:
        return allpairs_s((n, m), cell_s / machines.cores, per_job, nodes, machines, True)

    most = max(1, min(machines.nodes, n * m // per_job))
    ideal = allpairs_best_nodes(
        n, m, cell_s / machines.cores, per_job, max(machines.dispatch_s, 1e-9)
    )
    # the ideal leaves out that items must be distributed: the best may be on either side
    around = {
        max(1, min(most, round(ideal * share))) for share in (0.25, 0.5, 0.7, 0.85, 1.0, 1.2, 1.4)
    } | {most}
    nodes = min(around, key=seconds)
    return Implementation(how="distributed", seconds=seconds(nodes), nodes=nodes, block=per_job)


def _list_job_sizes(n: int, m: int, cell_s: float, machines: Resources) -> Iterable[int]:
    """Return job sizes in comparisons, doubling, none longer than an hour (or one row, where that
    is longer)."""
    for power in count():
        per_job = m << power
        if power and (per_job * cell_s / machines.cores > LONGEST_JOB_S or per_job > n * m):
            return
        yield min(per_job, n * m)


def _estimate_here(seconds: float, procs: int) -> Implementation:
    return Implementation(how="serial" if procs == 1 else "multicore", seconds=seconds, nodes=1)
