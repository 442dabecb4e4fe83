"""All-Pairs and Wavefront: a million cells in virtual time, and real ones on this machine beside
Makeflow rules.

    python benchmarks/dispatch/bench_matrix.py [--only NAME ...]

Virtual: core, journal and matrix file as they are, hosts that are played (``matrix_virtual.py``).
Real: the commands, from beginning to end, measuring of F included. Makeflow rules are read and
carried out by ``vgrads run``, one rule a cell, of a small part of the same items: the whole set
would take hours. Programs and libraries are compiled with cc.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from commands import vgrads_s
from dispatch_load import alone
from dispatch_rows import by_command
from matrix_virtual import Played, simulated

from vgrads.workflows.generated.blocks import BlockGrid, block_of

_ITEMS, _BYTES, _PART = 1000, 20 * 2**10, 24
_PROGRAM = 'int puts(const char *); int main(void) { puts("1"); return 0; }\n'
_PAIR = """
#include <stdio.h>
long compare(const char *a, size_t na, const char *b, size_t nb, char *out, size_t room) {
    unsigned long s = 0;
    for (size_t i = 0; i < na && i < nb; i++) s += (unsigned char)(a[i] ^ b[i]);
    return snprintf(out, room, "%lu", s);
}
long cell(const char *x, size_t nx, const char *y, size_t ny, const char *d, size_t nd,
          char *out, size_t room) {
    out[0] = '1';
    return 1;
}
"""
_MAIN = """
#include <stdio.h>
#include <stdlib.h>
long compare(const char *, size_t, const char *, size_t, char *, size_t);
static char *all(const char *name, size_t *n) {
    FILE *f = fopen(name, "rb"); char *p = malloc(1 << 20); 
    *n = fread(p, 1, 1 << 20, f); fclose(f); return p;
}
int main(int c, char **v) {
    char out[99]; size_t n, m; char *a = all(v[1], &n), *b = all(v[2], &m);
    fwrite(out, 1, compare(a, n, b, m, out, 99), stdout); return c != 3;
}
"""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    must: str
    measured: str
    good: bool


def virtual() -> list[Row]:
    """64 hosts of 16 processors, cells of about a second."""
    wave: Played = alone(simulated, BlockGrid("wavefront", 1000, 1000, 1, 1), 1.0, 64, 16)
    side = block_of(BlockGrid("allpairs", 4000, 4000, 1, 1), 1.0, 64 * 16)
    pairs: Played = alone(simulated, BlockGrid("allpairs", 4000, 4000, side, side), 1.0, 64, 16)
    each = wave.journal_bytes / wave.done
    return [
        Row(
            "Wavefront 1000×1000, a task each cell, s",
            "90",
            f"{wave.seconds:.1f}",
            wave.seconds <= 90,
        ),
        Row("– peak of the process, MiB", "300", f"{wave.peak_mib:.0f}", wave.peak_mib <= 300),
        Row(
            "– journal, bytes a cell; matrix file, bytes a cell",
            "40; –",
            f"{each:.1f}; {wave.matrix_bytes / wave.done:.0f}",
            each <= 40,
        ),
        Row("– first task after, s", "0.5", f"{wave.first_s:.2f}", wave.first_s <= 0.5),
        Row(
            f"All-Pairs 4000×4000 in {pairs.done:,} blocks of {side}×{side}, s",
            "60",
            f"{pairs.seconds:.1f}",
            pairs.seconds <= 60,
        ),
        Row("– peak of the process, MiB", "300", f"{pairs.peak_mib:.0f}", pairs.peak_mib <= 300),
    ]


def _cc(folder: Path, *words: str) -> None:
    subprocess.run(["cc", "-O2", *words], cwd=folder, check=True)


def _edges(folder: Path, side: int) -> None:
    rows = [f"{n} -1 1\n" for n in range(-1, side)] + [f"-1 {n} 1\n" for n in range(side)]
    (folder / f"edges{side}").write_text("".join(rows))


def wavefronts(folder: Path) -> list[Row]:
    """A program that prints a digit, and a library function that writes one."""
    (folder / "null.c").write_text(_PROGRAM)
    _cc(folder, "-o", "null", "null.c")
    _edges(folder, 100)
    _edges(folder, 1000)
    program = 10_000 / vgrads_s(folder, "wavefront", "edges100", "./null", "--matrix", "w1")
    single = by_command("true", 2000)
    library = 1e6 / vgrads_s(
        folder,
        "wavefront",
        "edges1000",
        "--library",
        "pair.so",
        "--symbol",
        "cell",
        "--matrix",
        "w2",
    )
    return [
        Row(
            "Wavefront 100×100 of a null program, cells/s", "600", f"{program:,.0f}", program >= 600
        ),
        Row(
            "– beside `true` as tasks of a plain bag, no order, no values, /s",
            "–",
            f"{single:,.0f}",
            True,
        ),
        Row(
            "Wavefront 1000×1000 of a library function, cells/s",
            "100,000",
            f"{library:,.0f}",
            library >= 1e5,
        ),
    ]


def _makeflow(folder: Path) -> float:
    """Cells a second of All-Pairs as rules, one a cell, of the first items."""
    rules = [
        (
            f"out.{i}.{j}: pair items/i{i:04} items/i{j:04}\n\t./pair items/i{i:04} "
            f"items/i{j:04} > out.{i}.{j}\n"
        )
        for i in range(_PART)
        for j in range(_PART)
    ]
    (folder / "pairs.mf").write_text("\n".join(rules))
    procs = os.cpu_count() or 1
    (folder / "here.toml").write_text(
        f'[[site]]\nname = "here"\nkind = "local"\nprocs = {procs}\ndriver = "local"\n'
    )
    (folder / "pairs.yaml").write_text(
        "name: pairs\ndeadline: 1h\nfraction: 1\nsites: here.toml\nworkflows:\n  - file: "
        "pairs.mf\n    runtimes: {pair: 0.1}\n"
    )
    return _PART * _PART / vgrads_s(folder, "run", "pairs.yaml", "--out", folder / "out")


def pairs(folder: Path) -> list[Row]:
    """A million pairs of 20 KB, beside Makeflow rules of the same F as a program."""
    draw = random.Random(5)
    (folder / "items").mkdir()
    for n in range(_ITEMS):
        (folder / "items" / f"i{n:04}").write_bytes(draw.randbytes(_BYTES))
    (folder / "main.c").write_text(_MAIN)
    _cc(folder, "-o", "pair", "main.c", "pair.c")
    small = folder / "small.list"
    small.write_text("".join(f"items/i{n:04}\n" for n in range(60)))
    library = _ITEMS**2 / vgrads_s(
        folder, "allpairs", "items", "items", "--library", "pair.so", "--matrix", "p1"
    )
    program = 3600 / vgrads_s(
        folder, "allpairs", "small.list", "small.list", "./pair", "--matrix", "p2"
    )
    rules = _makeflow(folder)
    return [
        Row("All-Pairs 1000×1000 of 20 KB, library, pairs/s", "–", f"{library:,.0f}", True),
        Row("– the same F as a program, 60×60, pairs/s", "–", f"{program:,.0f}", True),
        Row(f"– as Makeflow rules, {_PART}×{_PART}, pairs/s", "–", f"{rules:,.1f}", True),
        Row(
            "– library ÷ Makeflow rules; program ÷ Makeflow rules",
            "100; –",
            f"{library / rules:,.0f}; {program / rules:,.0f}",
            library >= 100 * rules,
        ),
    ]


PARTS: dict[str, Callable[[Path], list[Row]]] = {
    "virtual": lambda _: virtual(),
    "wavefront": wavefronts,
    "allpairs": pairs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    chosen = parser.parse_args()
    print("| what | must | measured | |\n|---|--:|--:|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pair.c").write_text(_PAIR)
        _cc(folder, "-shared", "-fPIC", "-o", "pair.so", "pair.c")
        for part in chosen.only:
            load = os.getloadavg()[0]
            for row in PARTS[part](folder):
                word = ("" if row.good else "missed") + (
                    f" (load {load:.1f})" if load > 1.2 else ""
                )
                print(
                    re.sub(" +", " ", f"| {row.what} | {row.must} | {row.measured} | {word} |"),
                    flush=True,
                )


if __name__ == "__main__":
    main()
