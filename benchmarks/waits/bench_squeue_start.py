"""Our forecast of a start and Slurm's own, at the same instants, at a real Slurm under load.

    python benchmarks/waits/bench_squeue_start.py [--minutes 30] [--warm-up 15] [--json ROWS.json]

A throw-away Slurm of 24 pretended nodes of 16 processors runs jobs that sleep: 1 to 64 processors,
limits of 1 to 8 minutes, run times of about a quarter of the limit (similar for jobs of a shape),
random arrivals with waves and bursts of equal jobs. After the warm-up, each ``--every`` seconds the
median wait of a job is asked for as users do (``vgrads sites collect``, ``vgrads bound --live``,
which also records Slurm's estimate by ``sbatch --test-only``); then the job is submitted, and
``squeue --start`` is read once Slurm has planned it. Two comparisons, over all jobs:

- from the records (``vgrads score SITE QUEUE``): with ``sbatch --test-only``, on the next job of
  the same shape;
- on the submitted jobs themselves: with ``squeue --start`` of the same job, which is asked later
  than our forecast and sees the job in the queue.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.services.slurm import slurm_service

NODES, CORES = 24, 16
WIDTHS = {1: 0.2, 2: 0.15, 4: 0.2, 8: 0.2, 16: 0.15, 32: 0.07, 64: 0.03}
LIMITS_MIN = {1: 0.45, 2: 0.3, 4: 0.17, 8: 0.08}
_WAVE_S, _WAVE = 600.0, 0.5
"""Period of the waves of arrivals, and how much they add to the mean rate and take from it."""
_BURST, _BURST_SIZE = 0.01, 20
"""Share of arrivals that are a burst, and its jobs."""
_TAIL_S = 300.0
"""Load goes on after the last question, so that nearly all jobs that were asked about start."""
_PLANNED_S = 3.0
"""After this time Slurm has planned a new job: its scheduler runs every second."""
_SITES = f"""
[[site]]
name = "slurm"
kind = "batch"
procs = {NODES * CORES}
cores_per_node = {CORES}
driver = "slurm"
[[site.queue]]
name = "batch"
max_walltime = "1d"
"""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepJob:
    """A job of the load; ``at_s``: its submission, in seconds from the start."""

    at_s: float
    procs: int
    limit_min: int
    run_s: float


def draw_shape(draws: np.random.Generator, shares: Mapping[tuple[int, int], float]) -> SleepJob:
    """Draw a job that is submitted at 0. ``shares``: the usual share of the limit that jobs of a
    shape run."""
    procs = int(draws.choice(list(WIDTHS), p=list(WIDTHS.values())))
    limit_min = int(draws.choice(list(LIMITS_MIN), p=list(LIMITS_MIN.values())))
    share = min(0.95, shares[procs, limit_min] * draws.lognormal(0.0, 0.5))
    return SleepJob(at_s=0.0, procs=procs, limit_min=limit_min, run_s=60.0 * limit_min * share)


def usual_shares(draws: np.random.Generator) -> dict[tuple[int, int], float]:
    """Return the usual share of the limit that jobs of each shape run: .22 in the mean."""
    return {(p, m): float(draws.beta(2.0, 7.0)) for p in WIDTHS for m in LIMITS_MIN}


def draw_load(
    draws: np.random.Generator,
    shares: Mapping[tuple[int, int], float],
    seconds: float,
    load: float,
) -> list[SleepJob]:
    """Return jobs of this length in all, by submission, that use this share of the machine."""
    jobs: list[SleepJob] = []
    work_s, at_s = 0.0, 0.0
    rate = 1.0
    while work_s < load * NODES * CORES * seconds:
        job = draw_shape(draws, shares)
        count = _BURST_SIZE if draws.random() < _BURST and job.procs <= 16 else 1
        jobs += [
            SleepJob(at_s=at_s, procs=job.procs, limit_min=job.limit_min, run_s=job.run_s)
        ] * count
        work_s += count * job.procs * job.run_s
        at_s += count * draws.exponential(1.0 / rate)
    scale = seconds / at_s
    return [
        SleepJob(
            at_s=_wave(job.at_s * scale),
            procs=job.procs,
            limit_min=job.limit_min,
            run_s=job.run_s,
        )
        for job in jobs
    ]


def _wave(at_s: float) -> float:
    """Return the submission with waves: arrivals are moved, their number in a period is not."""
    turn = 2 * np.pi / _WAVE_S
    return float(at_s + _WAVE / turn * np.sin(turn * at_s))


def submit(job: SleepJob) -> str:
    """Submit a job; return its id."""
    words = ["sbatch", "--parsable", f"--ntasks={job.procs}", f"--time={job.limit_min}"]
    words += ["--partition=batch", "--output=/dev/null", f"--wrap=exec sleep {job.run_s:.1f}"]
    done = subprocess.run(words, check=True, capture_output=True, text=True, cwd="/")
    return done.stdout.strip()


@contextmanager
def submitted(jobs: list[SleepJob], begin_s: float) -> Iterator[None]:
    """Submit the jobs in a thread while the block runs."""
    stopped = threading.Event()

    def run() -> None:
        for job in jobs:
            if stopped.wait(max(0.0, begin_s + job.at_s - time.monotonic())):
                return
            submit(job)

    thread = threading.Thread(target=run, name="load")
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def vgrads(*words: str) -> Json:
    """Run a command of ours; return what it prints as JSON."""
    command = [sys.executable, "-m", "vgrads", *words, "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"vgrads {' '.join(words)}: {done.stderr.strip()}")
    return dict(json.loads(done.stdout))


def squeue_start_s(job: str) -> float | None:
    """Return when ``squeue --start`` expects a waiting job to start, in seconds since 1970; None
    where it states nothing."""
    words = ["squeue", "--noheader", "--start", f"--jobs={job}", "--format=%S"]
    done = subprocess.run(
        words,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "SLURM_TIME_FORMAT": "%s"},
    )
    text = done.stdout.strip()
    return float(text) if text.isdigit() else None


def question(job: SleepJob) -> Json:
    """Ask for the median wait of a job, submit it, and read Slurm's plan for it."""
    vgrads("sites", "collect", "slurm")
    shape = ("--procs", str(job.procs), "--walltime", f"{job.limit_min}m")
    answer = vgrads("bound", "slurm/batch", *shape, "--probability", ".5", "--live")
    job_id = submit(job)
    time.sleep(_PLANNED_S)
    return {
        "job": job_id,
        "procs": job.procs,
        "limit_min": job.limit_min,
        "bound_s": answer["bound_s"],
        "method": answer["method"],
        "start_s": squeue_start_s(job_id),
    }


def times_of(jobs: list[str]) -> dict[str, tuple[float, float]]:
    """Return submission and start of the jobs that have started, by the accounting."""
    words = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={','.join(jobs)}"]
    done = subprocess.run(
        [*words, "--format=JobIDRaw,Submit,Start"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "SLURM_TIME_FORMAT": "%s"},
    )
    fields = [line.split("|") for line in done.stdout.splitlines()]
    return {job: (float(sub), float(begin)) for job, sub, begin in fields if begin.isdigit()}


def compare(rows: list[Json], times: Mapping[str, tuple[float, float]]) -> Json:
    """Compare on the submitted jobs themselves, those that still waited when Slurm had planned."""
    waits = {job: begin_s - submit_s for job, (submit_s, begin_s) in times.items()}
    chosen = [r for r in rows if r["job"] in waits and r["bound_s"] is not None]
    waited = [r for r in chosen if waits[r["job"]] > _PLANNED_S]
    stated = [r for r in waited if r["start_s"] is not None]
    ours = [abs(waits[r["job"]] - r["bound_s"]) for r in stated]
    slurms = [abs(times[r["job"]][1] - r["start_s"]) for r in stated]
    return {
        "questions": len(rows),
        "waited": len(waited),
        "without_start": len(waited) - len(stated),
        "median_wait_s": median(waits[r["job"]] for r in chosen),
        "vgrads": median(ours) if ours else None,
        "squeue_start": median(slurms) if slurms else None,
    }


def measure(options: argparse.Namespace) -> tuple[list[Json], Json, Json]:
    """Return the questions, the comparison on the submitted jobs, and the score."""
    draws = np.random.default_rng(options.seed)
    shares = usual_shares(draws)
    seconds = 60.0 * (options.warm_up + options.minutes)
    jobs = draw_load(draws, shares, seconds + _TAIL_S, options.load)
    sys.stderr.write(f"{len(jobs)} jobs in {(seconds + _TAIL_S) / 60:.0f} minutes\n")
    begin_s, rows = time.monotonic(), []
    due_s = begin_s + 60.0 * options.warm_up
    with submitted(jobs, begin_s):
        while due_s < begin_s + seconds:
            time.sleep(max(0.0, due_s - time.monotonic()))
            rows.append(question(draw_shape(draws, shares)))
            due_s = max(time.monotonic(), due_s + options.every)
        time.sleep(max(0.0, begin_s + seconds + _TAIL_S - time.monotonic()))
        vgrads("sites", "collect", "slurm")
    # those that wait longer have no start yet, and are left out of both comparisons
    score = vgrads("score", "slurm", "batch")
    times = times_of([row["job"] for row in rows])
    for row in rows:
        row["times"] = times.get(row["job"])
    return rows, compare(rows, times), score


def main() -> None:
    """Print both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--warm-up", type=float, default=15.0)
    parser.add_argument("--every", type=float, default=10.0)
    parser.add_argument("--load", type=float, default=0.92)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="File for the questions.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vgrads-bench-") as name:
        folder = Path(name)
        (folder / "slurm").mkdir()
        (folder / "sites.toml").write_text(_SITES)
        os.environ["VGRADS_HOME"] = str(folder / "home")
        with slurm_service(folder / "slurm", min_job_age=2, nodes=NODES, cores=CORES) as service:
            os.environ.update(service.environment)
            subprocess.run(
                [sys.executable, "-m", "vgrads", "sites", "add", str(folder / "sites.toml")],
                check=True,
                capture_output=True,
            )
            rows, same_jobs, score = measure(options)
            subprocess.run(["scancel", "--user=root"], check=False)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "jobs": same_jobs, "score": score}))
    methods = sorted({row["method"] for row in rows})
    print(f"{len(rows)} questions, methods: {', '.join(methods)}")
    print("records, against sbatch --test-only:", json.dumps(score["slurm"]))
    print("submitted jobs, against squeue --start:", json.dumps(same_jobs))
    for label, ours, theirs in (
        ("sbatch --test-only", *score["slurm"]["median_error_s"].values()),
        ("squeue --start", same_jobs["vgrads"], same_jobs["squeue_start"]),
    ):
        if ours is not None and theirs:
            print(f"median error {ours:.0f} s, {label} {theirs:.0f} s: ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
