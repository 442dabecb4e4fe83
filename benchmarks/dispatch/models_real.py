"""All-Pairs, Wavefront and a small graph on this machine, against what their models say."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from commands import vgrads_s
from models_row import Row

from vgrads.dispatch.storage.journal import EndReader
from vgrads.pool.models import (
    Resources,
    allpairs_s,
    graph_s,
    wavefront_blocks_s,
)

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


def _block_s(folder: Path) -> float:
    """Mean seconds that a block of the last command ran, by its ends."""
    (journal,) = (folder / "home" / "dispatchers").glob("*/journal")
    ran = [float(item) for some in EndReader(journal, 0).more() for item in some["ran_s"]]
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
    machines = Resources(dispatch_s=each_s)
    return allpairs_s((side, side), cell_s, block**2, procs, machines) - each_s * procs


def matrices(folder: Path, kind: str, runs: int, procs: int) -> list[Row]:
    """All-Pairs or a Wavefront in blocks; the model's constants by cells that do nothing."""
    blocks = _SIDE // _BLOCK
    start_s = statistics.median(_matrix(folder, kind, "null.so", 2, 2) for _ in range(3))
    first_s = _block_s(folder)
    many_s = _matrix(folder, kind, "null.so", _SIDE, _BLOCK)
    rounds = _modelled(kind, blocks, 1, procs, 0.0, 1.0)
    alongside_s = max(0.0, (many_s - start_s + first_s) / rounds - _block_s(folder))
    results = []
    for _ in range(runs):
        elapsed_s = _matrix(folder, kind, "spin.so", _SIDE, _BLOCK)
        block_s = _block_s(folder)
        model_s = (
            start_s - first_s + _modelled(kind, _SIDE, _BLOCK, procs, 0.0, block_s + alongside_s)
        )
        results.append(
            Row(
                what=(
                    f"{kind} {_SIDE}×{_SIDE} in {_BLOCK}×{_BLOCK}, {block_s:.2f} s a block and "
                    f"{alongside_s * 1e3:.0f} ms beside"
                ),
                model_s=model_s,
                elapsed_s=elapsed_s,
            )
        )
    return results


def graph(folder: Path, runs: int, procs: int) -> list[Row]:
    """Four layers of processes, carried out by ``vgrads run`` as planned."""
    draw, layers = random.Random(3), 4
    (folder / "here.toml").write_text(
        f'[[site]]\nname = "here"\nkind = "local"\nprocs = {procs}\ndriver = "local"\n'
    )
    empty_s, (null_s,) = _dag(folder, [[0]], [()])
    results = []
    for _ in range(runs):
        sizes = [[draw.randint(60, 300) for _ in range(4)] for _ in range(layers)]
        parents = [tuple(draw.sample(range(4), 2)) for _ in range(4 * (layers - 1))]
        elapsed_s, each_s = _dag(folder, sizes, parents)
        needed: list[tuple[int, ...]] = [() for _ in range(4)]
        needed += [tuple(4 * (k // 4) + p for p in of) for k, of in enumerate(parents)]
        model_s = empty_s - null_s + graph_s(each_s, needed, procs)
        results.append(
            Row(what=f"graph of {4 * layers} processes", model_s=model_s, elapsed_s=elapsed_s)
        )
    return results


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
        elapsed_s = vgrads_s(folder, "run", "set.yaml", "--out", Path(out) / "out")
        ran = {path.name: float(path.read_text()) for path in Path(out).rglob("f?.?")}
    return elapsed_s, [ran[f"f{k}.{n}"] for k, of in enumerate(sizes) for n in range(len(of))]


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
