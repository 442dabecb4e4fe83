"""Clusters in virtual time against what the models say, and the ways that the models choose."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass

from matrix_virtual import Numbered
from models_row import Row

from vgrads.bags.bag import BagSpec
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.fleet.virtual import VirtualAgents
from vgrads.pool.models import (
    Implementation,
    Resources,
    allpairs_best,
    allpairs_s,
    choose_allpairs,
    choose_wavefront,
    wavefront_best,
    wavefront_blocks_s,
)
from vgrads.workflows.generated.blocks import BlockGrid

_CLUSTERS, _CHOICES = 30, 200


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """``places``: so many blocks at once; ``later_s``: between the coming of two of them;
    ``spread``: of run times."""

    places: int
    dispatch_s: float
    later_s: float = 0.0
    spread: float = 0.0


def simulated(
    grid: BlockGrid, cell_s: Callable[[int], float], cluster: Cluster, seed: int
) -> float:
    """Virtual seconds until a grid is done; ``cell_s``: of a block, by its cells."""
    draw = random.Random(seed)
    core = Core(State(), Rules(in_hand_s=0.0), lambda _: None)
    core.add(
        0,
        BagSpec(
            name="m",
            commands=Numbered(grid.order.size),
            order=grid.order if grid.kind == "wavefront" else None,
        ),
        0.0,
    )

    def run_time(_: int, task: int, __: str) -> tuple[float, int]:
        failures = draw.lognormvariate(-(cluster.spread**2) / 2.0, cluster.spread)
        return cluster.dispatch_s + cell_s(grid.count(task)) * failures, 0

    agents = VirtualAgents(core, run_time, delay_s=1e-4)
    for n in range(cluster.places):
        agents.at(n * cluster.later_s, lambda n=n: agents.join(f"h{n}"))  # type: ignore[misc]
    agents.run(over=lambda: core.state.bags[0].over)
    return agents.now_s


def clusters(seed: int = 0) -> list[Row]:
    """Random ones: hosts, dispatch, sides, blocks, cells."""
    draw, result = random.Random(seed), []
    while len(result) < _CLUSTERS:
        kind = ("wavefront", "allpairs")[len(result) % 2]
        places, block = draw.randint(2, 64), draw.randint(1, 12)
        side = block * draw.randint(12, 45) - draw.randrange(block)
        cell_s, dispatch_s = 10 ** draw.uniform(-0.5, 1.0), 10 ** draw.uniform(-1.0, 1.2)
        cluster = Cluster(
            places=places,
            dispatch_s=dispatch_s,
            spread=draw.uniform(0.0, 0.3),
            later_s=dispatch_s if kind == "allpairs" else 0.0,
        )
        grid = BlockGrid(kind, side, side, block, block)
        if kind == "wavefront":
            model_s = wavefront_blocks_s(side, block, places, 1, cell_s, dispatch_s)
        else:
            if grid.order.size < 2 * places:
                continue
            machines = Resources(dispatch_s=dispatch_s)
            model_s = allpairs_s((side, side), cell_s, block**2, places, machines, slice_s=True)
        elapsed_s = simulated(grid, lambda count, t=cell_s: count * t, cluster, len(result))  # type: ignore[misc]
        what = (
            f"{kind} {side} in {block}, {places} hosts, cell {cell_s:.2g} s, dispatch "
            f"{dispatch_s:.2g} s"
        )
        result.append(Row(what=what, model_s=model_s, elapsed_s=elapsed_s))
    return result


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A drawn situation: what was chosen, and how long each way took."""

    what: str
    how: str
    took_s: dict[str, float]

    @property
    def regret(self) -> float:
        return self.took_s[self.how] / min(self.took_s.values()) - 1.0


def _far(kind: str, side: int, cell_s: float, machines: Resources) -> Implementation:
    """The best of the distributed ways, whatever this machine could do."""
    slow = Resources(**{**asdict(machines), "here": 1})
    if kind == "wavefront":
        return wavefront_best((side, side), cell_s, slow)
    return allpairs_best(side, side, cell_s, slow)


def _distributed_s(kind: str, side: int, cell_s: float, machines: Resources, seed: int) -> float:
    far = _far(kind, side, cell_s, machines)
    if kind == "wavefront":
        grid = BlockGrid(kind, side, side, far.block, far.block)
        cluster = Cluster(places=far.nodes, dispatch_s=machines.dispatch_s, spread=0.1)
        return simulated(grid, lambda count: count * cell_s, cluster, seed)
    rows = max(1, far.block // side)
    grid = BlockGrid(kind, side, side, rows, side)
    cluster = Cluster(
        places=far.nodes, dispatch_s=machines.dispatch_s, later_s=machines.dispatch_s, spread=0.1
    )
    return simulated(grid, lambda count: count * cell_s, cluster, seed)


def choices(seed: int = 1) -> list[Chosen]:
    """Drawn situations; single-processor hosts."""
    draw, result = random.Random(seed), []
    for n in range(_CHOICES):
        kind = ("wavefront", "allpairs")[n % 2]
        side, here = draw.randint(8, 70), draw.choice((1, 1, 2, 4, 8, 16))
        machines = Resources(
            here=here, nodes=draw.randint(1, 64), dispatch_s=10 ** draw.uniform(-1, 1.5)
        )
        cell_s = 10 ** draw.uniform(-2, 1.5)
        implementation = (choose_wavefront if kind == "wavefront" else _choose_pairs)(
            side, cell_s, machines
        )
        alone = BlockGrid(kind, side, side, 1, 1)
        took = {
            how: simulated(
                alone,
                lambda count, t=cell_s: count * t,
                Cluster(places=p, dispatch_s=0.0, spread=0.1),
                n,
            )  # type: ignore[misc]
            for how, p in (("serial", 1), ("multicore", here))
            if how == "serial" or here > 1
        }
        took["distributed"] = _distributed_s(kind, side, cell_s, machines, n)
        what = (
            f"{kind} {side}, cell {cell_s:.2g} s, {here} here, {machines.nodes} hosts, "
            f"dispatch {machines.dispatch_s:.2g} s"
        )
        result.append(Chosen(what=what, how=implementation.how, took_s=took))
    return result


def _choose_pairs(side: int, cell_s: float, machines: Resources) -> Implementation:
    return choose_allpairs(side, side, cell_s, machines)
