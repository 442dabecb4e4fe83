"""Slurm's commands of vgrads, timed: 200 jobs of 2 s in pilots of a real, throw-away Slurm of two
nodes with four cores, beside the same jobs through its own sbatch; one sbatch call and 50 at once;
eight loops of submissions; an array of 10,000; squeue of 1,000 jobs among 100,000.

    python benchmarks/slurm/bench_doors.py

Needs what tests/services/install.sh installs, and root. The jobs sleep: their number at a time may
exceed the processors of this machine.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.services.fixtures import surrounded
from tests.services.slurm import slurm_service
from tests.slurm.installed import InstalledSlurm, installed
from vgrads.kernel.text_table import pad

NODES, CORES = 2, 4
JOBS, RUN_S = 200, 2.0
FLOOR_S = JOBS * RUN_S / (NODES * CORES)
_LOOP = "i=0; while [ $i -lt {count} ]; do {command} >>ids{loop}; i=$((i+1)); done"
SITES = f"""
[[site]]
name = "cluster"
kind = "batch"
procs = {NODES * CORES}
cores_per_node = {CORES}
driver = "slurm"
[site.access]
poll = "1s"
contact = "127.0.0.1"
python = "{sys.executable}"
[[site.queue]]
name = "batch"
max_walltime = "1h"
stated_probability = 0.95
stated_wait = "5s"
"""


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU seconds of what starts processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.perf_counter()
    work()
    wall_s = time.perf_counter() - began_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def span_s(folder: Path, sbatch: str, environment: Mapping[str, str]) -> tuple[float, float]:
    """Return seconds from the first submission to the last end that a node records, and those of
    the loop of submissions. ``sbatch``: the command, which a script's path follows."""
    folder.mkdir()
    script = folder / "job.sh"
    ends = folder / "ends"
    ends.mkdir()
    script.write_text(f"#!/bin/sh\nsleep {RUN_S:g}\ndate +%s.%N >{ends}/$SLURM_JOB_ID\n")
    loop = _LOOP.format(count=JOBS, command=f"{sbatch} -o /dev/null {script}", loop="")
    began_s = time.time()
    subprocess.run(["sh", "-c", loop], cwd=folder, env=environment, check=True)
    submitted_s = time.time() - began_s
    while len(files := list(ends.iterdir())) < JOBS or not all(f.stat().st_size for f in files):
        if time.time() > began_s + 20 * FLOOR_S:
            raise SystemExit(f"only {len(files)} of {JOBS} jobs ended")
        time.sleep(0.2)
    return max(float(file.read_text()) for file in files) - began_s, submitted_s


def bench_pilots(folder: Path) -> None:
    """Print how long the same jobs take through vgrads and through the real Slurm."""
    (folder / "slurm").mkdir()
    (folder / "sites.toml").write_text(SITES)
    real = shutil.which("sbatch")
    with (
        slurm_service(folder / "slurm", nodes=NODES, cores=CORES) as service,
        surrounded(service.environment),
    ):
        with installed(folder / "vgrads", sites=folder / "sites.toml") as slurm:
            rows = {"vgrads": span_s(folder / "ours", "sbatch", slurm.environment)}
        rows["sbatch of Slurm"] = span_s(folder / "real", f"{real} --mem=100", os.environ)
    print(f"{JOBS} jobs of {RUN_S:g} s on {NODES} nodes of {CORES} cores, floor {FLOOR_S:g} s")
    for name, (whole_s, submitted_s) in rows.items():
        ratio = whole_s / FLOOR_S
        print(
            f"  {pad(name, 16)} {whole_s:.1f} s  {ratio:.2f} x floor  "
            f"submitted in {submitted_s:.1f} s"
        )


def repeated(slurm: InstalledSlurm, words: Sequence[str], count: int = 20) -> str:
    """Return the medians of wall and CPU of one command, in ms."""
    pairs = [timed(lambda: slurm.run(*words)) for _ in range(count)]
    wall_s, cpu_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    return f"{1e3 * wall_s:.0f} ms wall, {1e3 * cpu_s:.0f} ms CPU"


def at_once(slurm: InstalledSlurm, commands: Sequence[Sequence[str]]) -> float:
    """Return the wall seconds of commands that are started together."""
    began_s = time.perf_counter()
    quiet = subprocess.DEVNULL
    started = [
        subprocess.Popen(words, cwd=slurm.work, env=slurm.environment, stdout=quiet)
        for words in commands
    ]
    if any([process.wait() for process in started]):
        raise SystemExit("a command failed")
    return time.perf_counter() - began_s


def service_cpu_s(slurm: InstalledSlurm) -> float:
    """Return the CPU seconds of the service so far."""
    fields = Path(f"/proc/{slurm.pid()}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bench_commands(folder: Path) -> None:
    """Print what the commands cost. The jobs are on hold: no node disturbs the clock."""
    with installed(folder / "commands") as slurm:
        submission = ["sbatch", "-H", "--wrap=true"]
        slurm.run(*submission)
        print(f"sbatch: {repeated(slurm, submission)}")
        print(f"sbatch, 50 at once: {at_once(slurm, [submission] * 50):.2f} s")
        command, count = "sbatch -H --wrap=true", 40
        loops = [["sh", "-c", _LOOP.format(count=count, command=command, loop=n)] for n in range(8)]
        before_s = service_cpu_s(slurm)
        wall_s = at_once(slurm, loops)
        cpu_ms = 1e3 * (service_cpu_s(slurm) - before_s) / (8 * count)
        print(f"8 loops: {8 * count / wall_s:.0f} submissions/s, service {cpu_ms:.1f} CPU ms each")
        array = ["sbatch", "-H", "--array=0-9999", "--wrap=true"]
        print(f"array of 10,000, on hold: {timed(lambda: slurm.run(*array))[0]:.2f} s")
        bench_squeue(slurm)
    with installed(folder / "released") as slurm:
        slurm.wait(slurm.submit("--wrap=true"))
        array = ["sbatch", "--parsable", "--array=0-9999", "--wrap=sleep 60"]
        print(f"array of 10,000, released: {timed(lambda: slurm.run(*array))[0]:.2f} s")
        print(f"squeue -r of its tasks: {timed(lambda: slurm.run('squeue', '-r'))[0]:.2f} s")
        print(f"scancel of all: {timed(lambda: slurm.run('scancel', '--me'))[0]:.2f} s")


def bench_squeue(slurm: InstalledSlurm) -> None:
    """Print what lists cost among 100,000 jobs, 1,000 of them of one name."""
    for _ in range(10):
        slurm.run("sbatch", "-H", "--array=0-9899", "--wrap=true")
    for _ in range(4):
        slurm.run("sbatch", "-H", "-J", "mine", "--array=0-249", "--wrap=true")
    for name, words in {
        "squeue -r of 1,000 jobs by name": ["squeue", "-h", "-r", "-n", "mine"],
        "squeue -u USER, arrays as lines": ["squeue", "-h", "--me"],
        "squeue -r of all": ["squeue", "-h", "-r"],
    }.items():
        lines = slurm.run(*words).count("\n")
        print(f"{name}: {lines:,} lines, {repeated(slurm, words, 5)}")


def main() -> None:
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=os.environ.get("TMPDIR")))
    folder.chmod(0o755)  # the database of Slurm's accounting runs as a user of its own
    try:
        bench_commands(folder)
        bench_pilots(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
