"""Models of `vgrads/pool/models.py` against what happens: on this machine, on random clusters in
virtual time, and as a choice.

    python benchmarks/dispatch/bench_models.py [--only real clusters choice] [--runs 3] [--json]

Real: All-Pairs and Wavefront in blocks of cells that compute, and a small graph of processes, by
their commands. How long blocks and processes ran is what their ends say, for others use this
machine too; what a command takes to begin, and what a block costs beside, is measured by two runs
of cells that do nothing. Virtual: the dispatcher's core and lazy orders, a host for each job, run
times drawn (log-normal, up to 0.3), each job ``dispatch_s`` longer, hosts of All-Pairs begun one
after the other. Choice: serial, multicore or distributed, each played as its model would do it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from commands import vgrads_s
from matrix_virtual import Numbered

from vgrads.bags.bag import Bag
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.core.talk import Rules
from vgrads.dispatch.fleet.virtual import VirtualHosts
from vgrads.dispatch.storage.journal import EndReader
from vgrads.pool.models import (
    Choice,
    Machines,
    allpairs_best,
    allpairs_s,
    choose_allpairs,
    choose_wavefront,
    graph_s,
    wavefront_best,
    wavefront_blocks_s,
)
from vgrads.workflows.generated.blocks import Grid

_CLUSTERS, _CHOICES = 30, 200
_SIDE, _BLOCK, _SPIN = 60, 10, 4_000_000
_SPIN_C = """
#include <stdio.h>
#include <stdlib.h>
long spin(long n) { 
    volatile unsigned long s = 1; for (long i = 0; i < n; i++) s = s * 3 + 1; return (long)s; }
long rounds(void);
long cell(const char *x, size_t nx, const char *y, size_t ny, const char *d, size_t nd,
          char *out, size_t room) {
    spin(rounds()); out[0] = '1'; return 1;
}
long compare(const char *a, size_t na, const char *b, size_t nb, char *out, size_t room) {
    spin(rounds()); out[0] = '1'; return 1;
}
"""
_MAIN_C = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
long spin(long);
int main(int c, char **v) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a); spin(atol(v[1])); clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%f\\n", b.tv_sec - a.tv_sec + (b.tv_nsec - a.tv_nsec) * 1e-9);
    return 0;
}
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line: what, the model's seconds, those that passed, how far they are apart."""

    what: str
    model_s: float
    passed_s: float

    @property
    def off(self) -> float:
        return self.model_s / self.passed_s - 1.0


# this machine


def _block_s(folder: Path) -> float:
    """Mean seconds that a block of the last command ran, by its ends."""
    (journal,) = (folder / "home" / "dispatchers").glob("*/journal")
    ran = [float(one) for some in EndReader(journal, 0).more() for one in some["ran_s"]]
    shutil.rmtree(journal.parent)
    return statistics.mean(ran)


def _compiled(folder: Path) -> None:
    (folder / "spin.c").write_text(_SPIN_C)
    for name, rounds in (("spin", _SPIN), ("null", 0)):
        (folder / "rounds.c").write_text(f"long rounds(void) {{ return {rounds}; }}\n")
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", "-o", f"{name}.so", "spin.c", "rounds.c"],
            cwd=folder,
            check=True,
        )
    (folder / "main.c").write_text(_MAIN_C)
    subprocess.run(
        ["cc", "-O1", "-o", "spin", "main.c", "spin.c", "rounds.c"], cwd=folder, check=True
    )


def _matrix(folder: Path, kind: str, library: str, side: int, block: int) -> float:
    """A command from beginning to end."""
    words: list[object] = ["edges"] if kind == "wavefront" else ["list", "list"]
    rows = [f"{n} -1 1\n" for n in range(-1, side)] + [f"-1 {n} 1\n" for n in range(side)]
    (folder / "edges").write_text("".join(rows))
    (folder / "list").write_text("".join(f"item{n}\n" for n in range(side)))
    for n in range(side):
        (folder / f"item{n}").write_text(str(n))
    (folder / "matrix").unlink(missing_ok=True)
    shutil.rmtree(folder / "home", ignore_errors=True)
    symbol = "cell" if kind == "wavefront" else "compare"
    more = ("--library", library, "--symbol", symbol, "--block", block, "--matrix", "matrix")
    return vgrads_s(folder, kind, *words, *more)


def _modelled(kind: str, side: int, block: int, procs: int, cell_s: float, each_s: float) -> float:
    if kind == "wavefront":
        return wavefront_blocks_s(side, block, procs, 1, cell_s, each_s)
    machines = Machines(dispatch_s=each_s)
    return allpairs_s((side, side), cell_s, block**2, procs, machines) - each_s * procs


def matrices(folder: Path, kind: str, runs: int, procs: int) -> list[Row]:
    """All-Pairs or a Wavefront in blocks; the model's constants by cells that do nothing."""
    blocks = _SIDE // _BLOCK
    start_s = statistics.median(_matrix(folder, kind, "null.so", 2, 2) for _ in range(3))
    first_s = _block_s(folder)
    many_s = _matrix(folder, kind, "null.so", _SIDE, _BLOCK)
    rounds = _modelled(kind, blocks, 1, procs, 0.0, 1.0)
    beside_s = max(0.0, (many_s - start_s + first_s) / rounds - _block_s(folder))
    found = []
    for _ in range(runs):
        passed_s = _matrix(folder, kind, "spin.so", _SIDE, _BLOCK)
        block_s = _block_s(folder)
        model_s = start_s - first_s + _modelled(kind, _SIDE, _BLOCK, procs, 0.0, block_s + beside_s)
        found.append(
            Row(
                what=(
                    f"{kind} {_SIDE}×{_SIDE} in {_BLOCK}×{_BLOCK}, {block_s:.2f} s a block and "
                    f"{beside_s * 1e3:.0f} ms beside"
                ),
                model_s=model_s,
                passed_s=passed_s,
            )
        )
    return found


def graph(folder: Path, runs: int, procs: int) -> list[Row]:
    """Four layers of processes, carried out by ``vgrads run`` as planned."""
    draw, layers = random.Random(3), 4
    (folder / "here.toml").write_text(
        f'[[site]]\nname = "here"\nkind = "local"\nprocs = {procs}\ndriver = "local"\n'
    )
    empty_s, (null_s,) = _dag(folder, [[0]], [()])
    found = []
    for _ in range(runs):
        sizes = [[draw.randint(60, 300) for _ in range(4)] for _ in range(layers)]
        parents = [tuple(draw.sample(range(4), 2)) for _ in range(4 * (layers - 1))]
        passed_s, each_s = _dag(folder, sizes, parents)
        needed: list[tuple[int, ...]] = [() for _ in range(4)]
        needed += [tuple(4 * (k // 4) + p for p in of) for k, of in enumerate(parents)]
        model_s = empty_s - null_s + graph_s(each_s, needed, procs)
        found.append(
            Row(what=f"graph of {4 * layers} processes", model_s=model_s, passed_s=passed_s)
        )
    return found


def _dag(
    folder: Path, sizes: list[list[int]], parents: Sequence[tuple[int, ...]]
) -> tuple[float, list[float]]:
    """A graph's command from beginning to end, and how long each process ran."""
    rules, named = [], {}
    for layer, of in enumerate(sizes):
        for n, size in enumerate(of):
            needs = [f"f{layer - 1}.{p}" for p in parents[4 * (layer - 1) + n]] if layer else []
            program = f"t{layer}x{n}"
            (folder / program).unlink(missing_ok=True)
            (folder / program).hardlink_to(folder / "spin")
            named[program] = max(0.01, size * _SPIN * 1e-9)
            rules.append(
                f"f{layer}.{n}: {program} {' '.join(needs)}\n\t./{program} {size * _SPIN} "
                f"> f{layer}.{n}\n"
            )
    (folder / "graph.mf").write_text("\n".join(rules))
    runtimes = ", ".join(f"{name}: {seconds:.3f}" for name, seconds in named.items())
    (folder / "set.yaml").write_text(
        "name: g\ndeadline: 1h\nfraction: 1\nsites: here.toml\nworkflows:\n  - file: "
        f"graph.mf\n    runtimes: {{{runtimes}}}\n"
    )
    with tempfile.TemporaryDirectory() as out:
        passed_s = vgrads_s(folder, "run", "set.yaml", "--out", Path(out) / "out")
        ran = {path.name: float(path.read_text()) for path in Path(out).rglob("f?.?")}
    return passed_s, [ran[f"f{k}.{n}"] for k, of in enumerate(sizes) for n in range(len(of))]


def real(runs: int) -> list[Row]:
    """Everything on this machine."""
    procs = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _compiled(folder)
        return [
            *matrices(folder, "wavefront", runs, procs),
            *matrices(folder, "allpairs", runs, procs),
            *graph(folder, runs, procs),
        ]


# clusters in virtual time


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """``places``: so many blocks at once; ``later_s``: between the coming of two of them;
    ``spread``: of run times."""

    places: int
    dispatch_s: float
    later_s: float = 0.0
    spread: float = 0.0


def played(grid: Grid, cell_s: Callable[[int], float], cluster: Cluster, seed: int) -> float:
    """Virtual seconds until a grid is done; ``cell_s``: of a block, by its cells."""
    draw = random.Random(seed)
    core = Core(State(), Rules(in_hand_s=0.0), lambda _: None)
    core.add(
        0,
        Bag(
            name="m",
            commands=Numbered(grid.order.size),
            order=grid.order if grid.kind == "wavefront" else None,
        ),
        0.0,
    )

    def run_time(_: int, task: int, __: str) -> tuple[float, int]:
        luck = draw.lognormvariate(-(cluster.spread**2) / 2.0, cluster.spread)
        return cluster.dispatch_s + cell_s(grid.count(task)) * luck, 0

    hosts = VirtualHosts(core, run_time, delay_s=1e-4)
    for n in range(cluster.places):
        hosts.at(n * cluster.later_s, lambda n=n: hosts.join(f"h{n}"))  # type: ignore[misc]
    hosts.run(over=lambda: core.state.bags[0].over)
    return hosts.now_s


def clusters(seed: int = 0) -> list[Row]:
    """Random ones: hosts, dispatch, sides, blocks, cells."""
    draw, found = random.Random(seed), []
    while len(found) < _CLUSTERS:
        kind = ("wavefront", "allpairs")[len(found) % 2]
        places, block = draw.randint(2, 64), draw.randint(1, 12)
        side = block * draw.randint(12, 45) - draw.randrange(block)
        cell_s, dispatch_s = 10 ** draw.uniform(-0.5, 1.0), 10 ** draw.uniform(-1.0, 1.2)
        cluster = Cluster(
            places=places,
            dispatch_s=dispatch_s,
            spread=draw.uniform(0.0, 0.3),
            later_s=dispatch_s if kind == "allpairs" else 0.0,
        )
        grid = Grid(kind, side, side, block, block)
        if kind == "wavefront":
            model_s = wavefront_blocks_s(side, block, places, 1, cell_s, dispatch_s)
        else:
            if grid.order.size < 2 * places:
                continue
            machines = Machines(dispatch_s=dispatch_s)
            model_s = allpairs_s((side, side), cell_s, block**2, places, machines, meanwhile=True)
        passed_s = played(grid, lambda count, t=cell_s: count * t, cluster, len(found))  # type: ignore[misc]
        what = (
            f"{kind} {side} in {block}, {places} hosts, cell {cell_s:.2g} s, dispatch "
            f"{dispatch_s:.2g} s"
        )
        found.append(Row(what=what, model_s=model_s, passed_s=passed_s))
    return found


# the choice


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A drawn situation: what was chosen, and how long each way took."""

    what: str
    how: str
    took_s: dict[str, float]

    @property
    def regret(self) -> float:
        return self.took_s[self.how] / min(self.took_s.values()) - 1.0


def _far(kind: str, side: int, cell_s: float, machines: Machines) -> Choice:
    """The best of the distributed ways, whatever this machine could do."""
    slow = Machines(**{**asdict(machines), "here": 1})
    if kind == "wavefront":
        return wavefront_best((side, side), cell_s, slow)
    return allpairs_best(side, side, cell_s, slow)


def _distributed_s(kind: str, side: int, cell_s: float, machines: Machines, seed: int) -> float:
    far = _far(kind, side, cell_s, machines)
    if kind == "wavefront":
        grid = Grid(kind, side, side, far.block, far.block)
        cluster = Cluster(places=far.hosts, dispatch_s=machines.dispatch_s, spread=0.1)
        return played(grid, lambda count: count * cell_s, cluster, seed)
    rows = max(1, far.block // side)
    grid = Grid(kind, side, side, rows, side)
    cluster = Cluster(
        places=far.hosts, dispatch_s=machines.dispatch_s, later_s=machines.dispatch_s, spread=0.1
    )
    return played(grid, lambda count: count * cell_s, cluster, seed)


def choices(seed: int = 1) -> list[Chosen]:
    """Drawn situations; single-processor hosts."""
    draw, found = random.Random(seed), []
    for n in range(_CHOICES):
        kind = ("wavefront", "allpairs")[n % 2]
        side, here = draw.randint(8, 70), draw.choice((1, 1, 2, 4, 8, 16))
        machines = Machines(
            here=here, hosts=draw.randint(1, 64), dispatch_s=10 ** draw.uniform(-1, 1.5)
        )
        cell_s = 10 ** draw.uniform(-2, 1.5)
        one = (choose_wavefront if kind == "wavefront" else _choose_pairs)(side, cell_s, machines)
        alone = Grid(kind, side, side, 1, 1)
        took = {
            how: played(
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
            f"{kind} {side}, cell {cell_s:.2g} s, {here} here, {machines.hosts} hosts, "
            f"dispatch {machines.dispatch_s:.2g} s"
        )
        found.append(Chosen(what=what, how=one.how, took_s=took))
    return found


def _choose_pairs(side: int, cell_s: float, machines: Machines) -> Choice:
    return choose_allpairs(side, side, cell_s, machines)


def _tell(rows: Sequence[Row], most: float) -> bool:
    print("| what | model, s | passed, s | off | |\n|---|--:|--:|--:|---|")
    for row in rows:
        print(
            f"| {row.what} | {row.model_s:.1f} | {row.passed_s:.1f} | {row.off:+.1%} | "
            f"{'' if abs(row.off) <= most else 'missed'} |"
        )
    worst = max(abs(row.off) for row in rows)
    middle = statistics.median(abs(row.off) for row in rows)
    print(f"\nmedian error {middle:.1%}, worst {worst:.1%} (at most {most:.0%})\n", flush=True)
    return worst <= most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only",
        nargs="+",
        choices=("real", "clusters", "choice"),
        default=["real", "clusters", "choice"],
    )
    parser.add_argument("--runs", type=int, default=3, help="of each real one")
    parser.add_argument(
        "--seed", type=int, default=0, help="of clusters and choices that are drawn"
    )
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    told: dict[str, Any] = {}
    good = True
    for part, most in (("real", 0.1), ("clusters", 0.2)):
        if part in chosen.only:
            rows = real(chosen.runs) if part == "real" else clusters(chosen.seed)
            told[part] = [asdict(row) | {"off": row.off} for row in rows]
            good &= max(abs(row.off) for row in rows) <= most if chosen.json else _tell(rows, most)
    if "choice" in chosen.only:
        found = choices(chosen.seed + 1)
        right = statistics.mean(one.regret <= 1e-9 for one in found)
        near = statistics.mean(one.regret <= 0.01 for one in found)
        regret = statistics.mean(one.regret for one in found)
        worst = sorted(found, key=lambda one: -one.regret)[:5]
        told["choice"] = {
            "right": right,
            "regret": regret,
            "within_1": near,
            "all": [asdict(one) for one in found],
        }
        good &= right >= 0.95 and regret <= 0.05
        if not chosen.json:
            print(
                f"right in {right:.1%} of {len(found)} (within 1 % of the best in "
                f"{near:.1%}), mean regret {regret:.2%}; worst:"
            )
            for one in worst:
                print(
                    f"- {one.what}: {one.how}, {one.regret:+.0%} "
                    f"({', '.join(f'{k} {v:.0f} s' for k, v in one.took_s.items())})"
                )
    if chosen.json:
        print(json.dumps(told, indent=1))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
