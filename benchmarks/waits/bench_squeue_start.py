"""The service's forecasts and Slurm's own, at the same instants, at a real Slurm under load.

    python benchmarks/waits/bench_squeue_start.py [--minutes 30] [--warm-up 15] [--json ROWS.json]

A throw-away Slurm of 24 pretended nodes of 16 processors runs jobs that sleep: 1 to 64 processors,
limits of 1 to 8 minutes, run times of about a quarter of the limit (similar for jobs of a shape),
random arrivals with waves, bursts of equal jobs, arrays that run two tasks at once, jobs that
depend on others, jobs on hold, and a maintenance of all nodes of three minutes that is announced
ahead. After the warm-up ``vgrads serve`` runs, accounting is collected each minute, and each
``--every`` seconds the service is asked over REST for the wait of a job; then the job is submitted,
and ``squeue --start`` is read once Slurm has planned it. Each minute all interfaces answer the same
question. Printed are

- whether bounds at .95 held, on the submitted jobs themselves;
- the median error of our median, and of ``squeue --start`` of the same job, which is asked later
  than our forecast and sees the job in the queue;
- questions whose answers differed between interfaces;
- calls of Slurm's commands by vgrads, and the most that the limits permit.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.ports import free_ports
from tests.services.slurm import slurm_service
from tests.waiting import listens, until
from vgrads.portal.client import Client

NODES, CORES = 24, 16
WIDTHS = {1: 0.2, 2: 0.15, 4: 0.2, 8: 0.2, 16: 0.15, 32: 0.07, 64: 0.03}
LIMITS_MIN = {1: 0.45, 2: 0.3, 4: 0.17, 8: 0.08}
_WAVE_S, _WAVE = 600.0, 0.5
"""Period of the waves of arrivals, and how much they add to the mean rate and take from it."""
_BURST, _BURST_SIZE = 0.01, 20
"""Share of arrivals that are a burst, and its jobs."""
_TAIL_S = 300.0
"""Load goes on after the last question, so that nearly all jobs that were asked about start."""
_SECOND_S = 1.0
"""Accounting has whole seconds: a start at the end of the maintenance may be one later."""
_PLANNED_S = 3.0
"""After this time Slurm has planned a new job: its scheduler runs every second."""
_READY_S = 20.0
"""Time until the service answers."""
_FOLLOWS_S = 30.0
"""Time in which the service learns accounting that was collected beside it."""
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


def question(job: SleepJob, client: Client) -> Json:
    """Ask the service for the wait of a job, submit it, and read Slurm's plan for it."""
    shape = {"procs": job.procs, "walltime_s": 60.0 * job.limit_min}
    (answer,) = client.forecasts(
        [{"site": "slurm", "queue": "batch", **shape}], quantiles=[0.5, 0.95]
    )
    bounds = {entry["quantile"]: entry["bound_s"] for entry in answer["bounds"]}
    job_id = submit(job)
    time.sleep(_PLANNED_S)
    return {
        "job": job_id,
        "procs": job.procs,
        "limit_min": job.limit_min,
        "bound_s": bounds[0.5],
        "high_s": bounds[0.95],
        "method": answer["method"],
        "closure": answer["closure"],
        "age_s": answer["queue_view"]["age_s"],
        "start_s": squeue_start_s(job_id),
    }


def differences(client: Client, job: SleepJob) -> list[str]:
    """Return the interfaces whose median differs from that of REST, once the service has learned
    the accounting that the command has; for the same listing."""
    shape = {"procs": job.procs, "walltime_s": 60.0 * job.limit_min}
    words = ("--procs", str(job.procs), "--walltime", f"{job.limit_min}m")

    def ask() -> Json:
        return client.bound("slurm", "batch", probability=0.5, **shape)

    def ask_command() -> Json:
        return vgrads("bound", "slurm/batch", *words, "--probability", ".5")

    command, end_s = ask_command(), time.monotonic() + _FOLLOWS_S
    while (rest := ask())["reason"] or rest["history"] != command["history"]:
        if time.monotonic() > end_s:
            return [f"REST does not know the newest jobs after {_FOLLOWS_S:.0f} s"]
        time.sleep(0.5)
    bounds = {
        "command": ask_command()["bound_s"],
        "where": client.where(**shape)["queues"][0]["expected_start_s"],
        "list": client.forecasts([{"site": "slurm", "queue": "batch", **shape}])[0]["bounds"][0][
            "bound_s"
        ],
    }
    again = ask()
    if (rest["bound_s"], rest["queue_view"]["as_of"]) != (
        again["bound_s"],
        again["queue_view"]["as_of"],
    ):
        return []  # the queue was listed anew in between
    return [
        f"{name}: {bound_s} s, REST {rest['bound_s']} s"
        for name, bound_s in bounds.items()
        if abs(bound_s - rest["bound_s"]) > 1.0 + (5.0 if rest["closure"] else 0.0)
    ]


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
    high = [waits[r["job"]] <= r["high_s"] + _SECOND_S for r in rows if r["job"] in waits]
    return {
        "covered": sum(high) / len(high) if high else None,
        "bounds": len(high),
        "questions": len(rows),
        "waited": len(waited),
        "without_start": len(waited) - len(stated),
        "median_wait_s": median(waits[r["job"]] for r in chosen),
        "vgrads": median(ours) if ours else None,
        "squeue_start": median(slurms) if slurms else None,
    }


def submit_special(draws: np.random.Generator) -> None:
    """Submit an array that runs two tasks at once, a job that depends on it, and one on hold."""
    base = ["sbatch", "--parsable", "--partition=batch", "--output=/dev/null"]
    tasks = f"--array=1-{int(draws.integers(4, 12))}%2"
    array = _run([*base, tasks, "--ntasks=4", "--time=2", "--wrap=exec sleep 20"])
    _run([*base, f"--dependency=afterok:{array}", "--ntasks=16", "--time=2", "--wrap=sleep 15"])
    _run([*base, "--hold", "--ntasks=64", "--time=8", "--wrap=sleep 60"])


def _run(words: list[str]) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, cwd="/").stdout.strip()


def announce(in_s: float) -> None:
    """Announce a maintenance of all nodes."""
    begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + in_s))
    words = ["scontrol", "create", "reservation", f"starttime={begin}", "duration=00:03:00"]
    _run([*words, "users=root", "flags=maint,ignore_jobs", "nodes=ALL"])


@contextmanager
def counted(folder: Path) -> Iterator[Path]:
    """Put programs before Slurm's own that count the calls of vgrads; the file with a line of
    each."""
    calls, programs = folder / "calls", folder / "bin"
    programs.mkdir()
    for name in ("squeue", "sinfo", "scontrol"):
        real = shutil.which(name)
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {calls}\nexec {real} "$@"\n')
        (programs / name).chmod(0o755)
    calls.touch()
    yield calls


@contextmanager
def served(folder: Path) -> Iterator[Client]:
    """A service of the home, with the counted commands."""
    port = free_ports()
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "vgrads", "serve", "--port", str(port)]
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            client = Client(f"http://127.0.0.1:{port}")
            until(lambda: listens(port))
            until(lambda: _is_learned(client), 120)
            yield client
        finally:
            process.terminate()
            process.wait()


def _is_learned(client: Client) -> bool:
    answer = client.bound("slurm", "batch")
    return answer["method"] == "state" and answer["queue_view"]["source"] == "site"


def measure(options: argparse.Namespace, folder: Path) -> tuple[list[Json], Json]:
    """Return the questions, and what is printed of them."""
    draws = np.random.default_rng(options.seed)
    shares = usual_shares(draws)
    warm_s, seconds = 60.0 * options.warm_up, 60.0 * (options.warm_up + options.minutes)
    jobs = draw_load(draws, shares, seconds + _TAIL_S, options.load)
    sys.stderr.write(f"{len(jobs)} jobs in {(seconds + _TAIL_S) / 60:.0f} minutes\n")
    begin_s, rows, differing = time.monotonic(), [], list[str]()
    with submitted(jobs, begin_s), counted(folder) as calls:
        time.sleep(max(0.0, begin_s + warm_s - time.monotonic()))
        vgrads("sites", "collect", "slurm")
        announce(_READY_S + 0.4 * 60.0 * options.minutes)  # before anybody asks for closures
        with served(folder) as client:
            from_s = time.monotonic()
            due_s = minute_s = time.monotonic()
            while due_s < begin_s + seconds:
                time.sleep(max(0.0, due_s - time.monotonic()))
                if time.monotonic() >= minute_s:
                    vgrads("sites", "collect", "slurm")
                    submit_special(draws)
                    differing += differences(client, draw_shape(draws, shares))
                    minute_s += 60.0
                rows.append(question(draw_shape(draws, shares), client))
                due_s = max(time.monotonic(), due_s + options.every)
            minutes = (time.monotonic() - from_s) / 60.0
        time.sleep(max(0.0, begin_s + seconds + _TAIL_S - time.monotonic()))
        lines = calls.read_text().splitlines()
    times = times_of([row["job"] for row in rows])
    for row in rows:
        row["times"] = times.get(row["job"])
    whole = sum(line.startswith("squeue") and "--array" in line for line in lines)
    rare = sum(line.startswith("scontrol show reservation") for line in lines)
    budget = {
        "whole queue": whole,
        "permitted": int(minutes) + 2,
        "facts": rare,
        "facts permitted": int(minutes / 10) + 2,
        "minutes": round(minutes, 1),
    }
    return rows, {**compare(rows, times), "differences": differing, "calls": budget}


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
            rows, result = measure(options, folder)
            subprocess.run(["scancel", "--user=root"], check=False)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "result": result}))
    methods = Counter(row["method"] for row in rows)
    moved = sum(row["closure"] is not None for row in rows)
    print(f"{len(rows)} questions, methods: {dict(methods)}, {moved} before the maintenance")
    print("submitted jobs, against squeue --start:", json.dumps(result))
    print(f"bounds at .95 kept: {result['covered']:.3f} of {result['bounds']}")
    ours, theirs = result["vgrads"], result["squeue_start"]
    if ours is not None and theirs:
        print(
            f"median error {ours:.0f} s, squeue --start {theirs:.0f} s: ratio {ours / theirs:.2f}"
        )


if __name__ == "__main__":
    main()
