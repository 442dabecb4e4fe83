"""EASY replays against AccaSim, growth to 450,000 jobs, memory.

``python benchmarks/bench_simulator.py [LOG.swf.gz…] [--jobs N]``; without logs a generated one.
AccaSim takes part where it is installed (``pip install accasim``, or an interpreter that has it in
``ACCASIM_PYTHON``); the line says so where it is not.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.simulator.backfill import BatchJob
from vgrads.simulator.cluster import BatchCluster
from vgrads.simulator.replay import Workload, replay_starts
from vgrads.traces.history import history_name, read_history
from vgrads.traces.records import JobLog
from vgrads.traces.swf import write_swf

PEER = Path(__file__).with_name("accasim_peer.py")
SIZES = (56_250, 112_500, 225_000, 450_000)


def synthetic(count: int, procs: int = 256, load: float = 0.8) -> JobLog:
    """Jobs of all widths at a load that keeps a queue."""
    draws = stream(3, "bench simulator")
    width = np.minimum(2 ** draws.integers(0, 8, count), procs)
    run = np.exp(draws.normal(6.5, 1.5, count)).clip(1, 86400).round()
    gap = float((width * run).mean()) / (procs * load)
    return JobLog(
        name="generated",
        submit_s=np.cumsum(draws.exponential(gap, count)).round(),
        wait_s=np.zeros(count),
        run_s=run,
        procs=width,
        request_s=(run * draws.uniform(1, 5, count)).round() + 1,
        user=np.ones(count, dtype=np.int64),
        queue=np.ones(count, dtype=np.int64),
        started=np.ones(count, dtype=bool),
        max_procs=procs,
        queue_names={1: "q"},
    )


def workload(log: JobLog) -> Workload:
    """The log's jobs as the simulator takes them."""
    return Workload(
        submit_s=log.submit_s, procs=log.procs, request_s=log.request_s, run_s=log.run_s
    )


def step_by_step(log: JobLog, procs: int, policy: str) -> tuple[np.ndarray, float]:
    """Starts from the cluster that can be talked to, and seconds."""
    cluster = BatchCluster(procs, policy)
    begin = time.perf_counter()
    rows = zip(
        log.procs.tolist(),
        log.request_s.tolist(),
        log.run_s.tolist(),
        log.submit_s.tolist(),
        strict=True,
    )
    for number, (width, request_s, run_s, submit_s) in enumerate(rows):
        cluster.submit(BatchJob(str(number), width, request_s, run_s), submit_s)
    starts = np.full(len(log), np.inf)
    for happening in cluster.advance(np.inf):
        if happening.kind == "started":
            starts[int(happening.job)] = happening.time_s
    return starts, time.perf_counter() - begin


def accasim(log: JobLog, procs: int, policy: str) -> tuple[np.ndarray, float] | None:
    """AccaSim's starts and seconds; None where it is not installed."""
    python = os.environ.get("ACCASIM_PYTHON", sys.executable)
    with tempfile.NamedTemporaryFile("w", suffix=".swf") as file:
        file.write(write_swf(log, "for AccaSim"))
        file.flush()
        done = subprocess.run(
            [python, str(PEER), file.name, str(procs), policy],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        print(f"  AccaSim takes no part: {done.stderr.strip().splitlines()[-1]}")
        return None
    answer = json.loads(done.stdout)
    starts = [answer["starts"].get(str(n + 1), np.nan) for n in range(len(log))]  # it loses a few
    return np.array(starts), answer["seconds"]


def compare(log: JobLog, name: str) -> None:
    """One log: our two replays against each other, then AccaSim's against ours."""
    log = log.select(log.started & (log.run_s >= 1) & (log.procs <= log.max_procs))
    log = log.select(log.request_s >= log.run_s)
    procs = int(log.max_procs)
    print(f"{name}: {len(log)} jobs, {procs} processors")
    for policy, peers in (("fcfs", ("fifo",)), ("easy", ("textbook", "easy"))):
        replay_starts(workload(log), procs, policy)
        begin = time.perf_counter()
        ours = replay_starts(workload(log), procs, policy)
        seconds = time.perf_counter() - begin
        stepped, slow_s = step_by_step(log, procs, policy)
        mean_s = float((ours - log.submit_s).mean())
        print(
            f"  {policy}: compiled {len(log) / seconds:,.0f} jobs/s, step by step "
            f"{len(log) / slow_s:,.0f} jobs/s, "
            f"starts equal: {np.array_equal(ours, stepped)}, mean wait {mean_s:,.1f} s"
        )
        for peer in peers:
            result = accasim(log, procs, peer)
            if result is not None:
                _show_peer(peer, log, (ours, seconds, slow_s), result)


def _show_peer(
    peer: str, log: JobLog, ours: tuple[np.ndarray, float, float], result: tuple[np.ndarray, float]
) -> None:
    (starts, seconds, slow_s), (theirs, their_s) = ours, result
    message = ~np.isnan(theirs)
    mine_s, theirs_s = ((s[message] - log.submit_s[message]).mean() for s in (starts, theirs))
    print(
        f"    AccaSim {peer}: {len(log) / their_s:,.0f} jobs/s, ours is "
        f"{their_s / seconds:,.0f}× (step by step "
        f"{their_s / slow_s:.0f}×); mean wait {theirs_s:,.1f} s (ours "
        f"{mine_s / theirs_s - 1:+.3%}), "
        f"{np.mean(theirs[message] == starts[message]):.2%} of {message.sum()} starts equal"
    )


def growth() -> None:
    """Seconds against jobs, and what memory it took."""
    seconds = []
    replay_starts(workload(synthetic(10)), 256)  # compiled now, not while the clock runs
    for count in SIZES:
        log = synthetic(count)
        begin = time.perf_counter()
        replay_starts(workload(log), 256)
        compiled_s = time.perf_counter() - begin
        _, slow_s = step_by_step(log, 256, "easy")
        seconds.append((compiled_s, slow_s))
        print(
            f"  {count:,} jobs: compiled {compiled_s:.3f} s, step by step {slow_s:.1f} s, "
            "per job·log₂(job) "
            f"{compiled_s / count / np.log2(count) * 1e9:.1f} and "
            f"{slow_s / count / np.log2(count) * 1e9:.0f} ns"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    exponents = np.polyfit(np.log(SIZES), np.log(seconds), 1)[0]
    print(
        f"  growth exponents {exponents[0]:.2f} and {exponents[1]:.2f}; peak memory {peak:.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="*", type=Path)
    parser.add_argument("--jobs", type=int, default=None, help="the first N jobs of each log")
    chosen = parser.parse_args()
    print("growth")
    growth()
    for path in chosen.logs:
        log = read_history(path)
        compare(log.select(np.arange(len(log)) < (chosen.jobs or len(log))), history_name(path))
    if not chosen.logs:
        compare(synthetic(chosen.jobs or 5_000), "generated")


if __name__ == "__main__":
    main()
