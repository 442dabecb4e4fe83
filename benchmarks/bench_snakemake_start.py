"""Time until Snakemake's first job begins: ``--executor vgrads`` against ``--cores``, in one run.

    python benchmarks/bench_snakemake_start.py [--jobs 6] [--rounds 5]

The commands run interleaved, each in a new folder, with a site on this machine for vgrads.
*first*: seconds from the command's start to the begin of the first job, as the job writes it
down; *command*: seconds of the whole command; *CPU*: processor seconds of all its processes,
orphans included. ``new`` starts with an empty VGRADS_HOME and without compiled functions of
numba, as after the installation; ``again`` finds both, as every later run does (its first round is
a warm-up and is left out). All write and read bytecode.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import statistics
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.snakemake.snakemakes import HERE, SNAKEMAKE
from vgrads.kernel.text_table import build_table, table_lines

_RULES = """
rule all:
    input: expand("out/{{n}}", n=range({jobs}))
rule short:
    output: "out/{{n}}"
    shell: "date +%s.%N > {{output}}"
"""
_BECOME_SUBREAPER = 36  # of prctl(2)
_VGRADS = ("--executor", "vgrads", "-j", "100", "--vgrads-sites", "sites.toml")
_WAYS = {
    "snakemake --cores 4": ("--cores", "4"),
    "--executor vgrads, new": _VGRADS,
    "--executor vgrads, again": _VGRADS,
}


@dataclass(frozen=True)
class _Start:
    first_s: float
    command_s: float
    cpu_s: float


def main() -> None:
    """Print every round, then the medians and their difference from plain Snakemake."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (("jobs", 6), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    requested = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1, 0, 0, 0)
    starts: dict[str, list[_Start]] = {way: [] for way in _WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(requested.rounds + 1):
            for position, way in enumerate(_WAYS):
                home = Path(folder) / ("home" if way.endswith("again") else f"home-{number}")
                project = Path(folder) / f"{number}-{position}"
                start = _measure(project, home, _WAYS[way], requested.jobs)
                if number:
                    starts[way].append(start)
                print(
                    f"round {number}  {way}  first {start.first_s:.2f} s  "
                    f"command {start.command_s:.2f} s  CPU {start.cpu_s:.2f} s",
                    flush=True,
                )
    _report(starts)


def _measure(project: Path, home: Path, options: tuple[str, ...], jobs: int) -> _Start:
    project.mkdir()
    (project / "Snakefile").write_text(_RULES.format(jobs=jobs))
    (project / "sites.toml").write_text(HERE)
    began_at, before_s = time.time(), _children_s()
    done = subprocess.run(
        [SNAKEMAKE, *options],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "VGRADS_HOME": str(home), "NUMBA_CACHE_DIR": str(home / "numba")},
    )
    command_s = time.time() - began_at
    _await_orphans()
    if done.returncode:
        raise SystemExit(f"{options} failed: {done.stderr[-2000:]}")
    first = min(float((project / "out" / str(n)).read_text()) for n in range(jobs))
    return _Start(first - began_at, command_s, _children_s() - before_s)


def _await_orphans() -> None:
    """Wait for processes whose parents ended: their processor seconds belong to the command."""
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _children_s() -> float:
    """Return processor seconds of all processes that were waited for, with theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _report(starts: dict[str, list[_Start]]) -> None:
    medians = {
        way: (
            statistics.median(start.first_s for start in values),
            statistics.median(start.cpu_s for start in values),
        )
        for way, values in starts.items()
    }
    plain_s, plain_cpu_s = next(iter(medians.values()))
    rows = []
    for way, (first_s, cpu_s) in medians.items():
        figures = (
            *(first_s, first_s - plain_s, first_s / plain_s),
            *(cpu_s, cpu_s - plain_cpu_s),
        )
        rows.append((way, *(f"{figure:.2f}" for figure in figures)))
    head = ("median", "first s", "+ plain", "ratio", "CPU s", "+ plain")
    print("\n" + "\n".join(table_lines(build_table(head, rows), 100)))


if __name__ == "__main__":
    main()
