"""How long work will take on so many processors, and how it is best cut: the models of Yu's
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

LONGEST_JOB_S = 3600.0
"""Of a job of All-Pairs: beyond it too much is lost with a host."""
LOCAL_FACTOR = 1.0
"""A Wavefront stays on this machine while a cluster would not be so much quicker. The thesis's tool
has 2; of drawn situations that chooses wrongly in 8 % (`benchmarks/dispatch/bench_models.py`)."""


def wavefront_s(side: int, procs: int, cell_s: float, other: int | None = None) -> float:
    """``side`` × ``other`` cells on ``procs`` processors: anti-diagonals, each in whole rounds."""
    short, long = sorted((side, side if other is None else other))
    rounds = 2 * _rounds_below(short, procs) + (long - short + 1) * -(-short // procs)
    return rounds * cell_s


def _rounds_below(n: int, procs: int) -> int:
    """Σ ceil(k ÷ procs) for k from 1 to n - 1."""
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
    """The same in blocks, each on a node of ``cores`` processors, begun ``dispatch_s`` after it is
    asked for. ``sides``: two where they differ."""
    each_s = wavefront_s(block, cores, cell_s) + dispatch_s
    side, other = (sides, sides) if isinstance(sides, int) else sides
    return wavefront_s(-(-side // block), nodes, each_s, -(-other // block))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """What there is: processors here, and ``hosts`` of ``cores`` each elsewhere, where a job begins
    ``dispatch_s`` after it is asked for; ``item_mbit``, ``mbit_s``: how large an item is, and how
    quick the network (Mbit, Mbit/s)."""

    here: int = 1
    hosts: int = 0
    cores: int = 1
    dispatch_s: float = 30.0
    item_mbit: float = 0.0
    mbit_s: float = 1000.0


def allpairs_s(
    sides: tuple[int, int],
    cell_s: float,
    per_job: int,
    hosts: int,
    machines: Machines,
    meanwhile: bool = False,
) -> float:
    """``sides``: n × m comparisons in jobs of ``per_job`` on ``hosts``: waves of jobs, hosts begun
    one after the other, and all items handed on along a tree.

    ``meanwhile``: as it is and not as it was printed: hosts that are there work while others are
    begun, so that takes half as long; those that would come after the end do not count.
    """
    n, m = sides
    dispatch_s = machines.dispatch_s
    spread_s = (n + m) * machines.item_mbit / machines.mbit_s * math.log2(hosts)
    all_s = n * m / per_job * (dispatch_s + per_job * cell_s)
    if not meanwhile:
        return all_s / hosts + dispatch_s * hosts + spread_s
    if dispatch_s > 0:
        hosts = max(1, min(hosts, round(math.sqrt(2.0 * all_s / dispatch_s))))
    return all_s / hosts + dispatch_s * (hosts - 1) / 2.0 + spread_s


def allpairs_best_hosts(n: int, m: int, cell_s: float, per_job: int, dispatch_s: float) -> float:
    """Hosts at which :func:`allpairs_s` is least, without what it takes to hand items on."""
    return math.sqrt(n * m * (cell_s + dispatch_s / per_job) / dispatch_s)


def graph_s(
    runtimes_s: Sequence[float],
    parents: Sequence[Iterable[int]],
    procs: int,
    widths: Sequence[int] = (),
) -> float:
    """Tasks with what must have ended before them, on ``procs`` processors; ``widths``: processors
    of each, one without.

    List scheduling, the longest way to the end first (Graham 1969, doi:10.1137/0117039: with one
    processor a task at most 2 - 1/procs times the least). ValueError where tasks wait for each
    other in a ring, or one is wider than all.
    """
    wide = widths or [1] * len(runtimes_s)
    if max(wide, default=0) > procs:
        raise ValueError(f"a task needs {max(wide)} processors, there are {procs}")
    children: list[list[int]] = [[] for _ in runtimes_s]
    missing = [0] * len(runtimes_s)
    for task, needed in enumerate(parents):
        for parent in needed:
            children[parent].append(task)
            missing[task] += 1
    rank = _ways_to_the_end(runtimes_s, children, list(missing))
    ready = [(-rank[task], task) for task, waits in enumerate(missing) if not waits]
    heapq.heapify(ready)
    running: list[tuple[float, int]] = []
    now_s, free = 0.0, procs
    while ready or running:
        held = []
        while ready and free > 0:
            one = heapq.heappop(ready)
            if wide[one[1]] > free:
                held.append(one)
                continue
            free -= wide[one[1]]
            heapq.heappush(running, (now_s + runtimes_s[one[1]], one[1]))
        for one in held:
            heapq.heappush(ready, one)
        now_s, ended = heapq.heappop(running)
        free += wide[ended]
        for child in children[ended]:
            missing[child] -= 1
            if not missing[child]:
                heapq.heappush(ready, (-rank[child], child))
    return now_s


def _ways_to_the_end(
    runtimes_s: Sequence[float], children: Sequence[Sequence[int]], missing: list[int]
) -> list[float]:
    order = [task for task, waits in enumerate(missing) if not waits]
    for task in order:
        for child in children[task]:
            missing[child] -= 1
            if not missing[child]:
                order.append(child)
    if len(order) < len(runtimes_s):
        raise ValueError("tasks wait for each other in a ring")
    rank = [0.0] * len(runtimes_s)
    for task in reversed(order):
        rank[task] = runtimes_s[task] + max((rank[child] for child in children[task]), default=0.0)
    return rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How work is done: ``serial``, ``multicore`` or ``distributed``; ``block``: cells of a side of
    a block, or of a job; ``hosts``: of how many; ``seconds``: how long that is expected to take."""

    how: str
    seconds: float
    hosts: int = 1
    block: int = 1


def wavefront_best(
    sides: tuple[int, int], cell_s: float, machines: Machines, hosts: int | None = None
) -> Choice:
    """The quickest way on so many hosts (default: all there are): blocks that have a host each, or
    a processor each, and of which size."""
    count = machines.hosts if hosts is None else hosts
    short, far = sorted(sides)

    def seconds(block: int, nodes: int, cores: int) -> float:
        return wavefront_blocks_s((short, far), block, nodes, cores, cell_s, machines.dispatch_s)

    shapes = {(count, machines.cores), (count * machines.cores, 1)}
    found = [
        (seconds(block, nodes, cores), -block, nodes, cores)
        for nodes, cores in shapes
        for block in _blocks(short, lambda b, n=nodes, c=cores: seconds(b, n, c))  # type: ignore[misc]
    ]
    best_s, block, nodes, cores = min(found)
    busy = min(nodes, -(-short // -block)) * cores
    return Choice(how="distributed", seconds=best_s, block=-block, hosts=-(-busy // machines.cores))


def choose_wavefront(
    side: int, cell_s: float, machines: Machines, other: int | None = None
) -> Choice:
    """The quickest way to a Wavefront: this machine unless a cluster is quicker."""
    local = _here(wavefront_s(side, machines.here, cell_s, other), machines.here)
    if not machines.hosts:
        return local
    far = wavefront_best((side, side if other is None else other), cell_s, machines)
    return local if local.seconds < LOCAL_FACTOR * far.seconds else far


def _blocks(side: int, time_of: Callable[[int], float]) -> Iterable[int]:
    """1, 2, 3, … up to a quarter of the side, while it pays: what a larger one wins is lost in
    remainders soon."""
    best, worse = math.inf, 0
    for block in range(1, max(1, side // 4) + 1):
        seconds = time_of(block)
        yield block
        worse = 0 if seconds < best else worse + 1
        best = min(best, seconds)
        if worse > 20:
            return


def choose_allpairs(n: int, m: int, cell_s: float, machines: Machines) -> Choice:
    """The quickest way to all pairs."""
    local = _here(-(-n * m // machines.here) * cell_s, machines.here)
    if not machines.hosts:
        return local
    best = allpairs_best(n, m, cell_s, machines)
    return best if best.seconds < local.seconds else local


def allpairs_best(n: int, m: int, cell_s: float, machines: Machines) -> Choice:
    """The quickest way on hosts: how many comparisons a job has, and on how many of them."""
    found = (
        _allpairs_at(n, m, cell_s, per_job, machines) for per_job in _jobs(n, m, cell_s, machines)
    )
    return min(found, key=lambda one: one.seconds)


def allpairs_best_s(n: int, m: int, cell_s: float, machines: Machines, hosts: int) -> float:
    """The least time on so many hosts, whatever the jobs; none ends before its processors have done
    their cells."""
    least_s = -(-n * m // (hosts * machines.cores)) * cell_s
    share_s = cell_s / machines.cores
    jobs = _jobs(n, m, cell_s, replace(machines, hosts=hosts))
    modelled = (
        allpairs_s((n, m), share_s, per_job, max(1, min(hosts, n * m // per_job)), machines, True)
        for per_job in jobs
    )
    return max(least_s, min(modelled))


def _allpairs_at(n: int, m: int, cell_s: float, per_job: int, machines: Machines) -> Choice:
    def seconds(hosts: int) -> float:
        return allpairs_s((n, m), cell_s / machines.cores, per_job, hosts, machines, True)

    most = max(1, min(machines.hosts, n * m // per_job))
    ideal = allpairs_best_hosts(
        n, m, cell_s / machines.cores, per_job, max(machines.dispatch_s, 1e-9)
    )
    around = {
        max(1, min(most, round(ideal * share))) for share in (0.25, 0.5, 0.7, 0.85, 1.0, 1.2, 1.4)
    } | {most}
    hosts = min(around, key=seconds)
    return Choice(how="distributed", seconds=seconds(hosts), hosts=hosts, block=per_job)


def _jobs(n: int, m: int, cell_s: float, machines: Machines) -> Iterable[int]:
    """Sizes of jobs in comparisons, doubling, none longer than an hour (or one row, where that is
    longer)."""
    for power in count():
        per_job = m << power
        if power and (per_job * cell_s / machines.cores > LONGEST_JOB_S or per_job > n * m):
            return
        yield min(per_job, n * m)


def _here(seconds: float, procs: int) -> Choice:
    return Choice(how="serial" if procs == 1 else "multicore", seconds=seconds, hosts=1)
