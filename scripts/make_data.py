"""Generate what ``data/`` ships: queue histories of three batch clusters, and the LEAD workflow.

Nothing in there was recorded anywhere: the jobs are drawn from a seed and their waits are what our
own EASY simulator makes of them. Run from the root of the project: ``python scripts/make_data.py``.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vgrads.kernel.streams import stream
from vgrads.simulator.backfill import BatchJob
from vgrads.simulator.cluster import BatchCluster
from vgrads.traces.records import JobLog
from vgrads.traces.swf import write_swf
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.formats.wfformat import write_wfformat
from vgrads.workflows.task import Task

SEED = 2009
DAYS = 60
UNIX_START = 1_225_497_600.0  # 2008-11-01, two weeks before the demonstrations at SC'08
DATA = Path(__file__).parent.parent / "data"


@dataclass(frozen=True)
class Cluster:
    """Size and offered load of a generated cluster."""

    name: str
    procs: int
    load: float
    widest: int


CLUSTERS = (
    Cluster("kittyhawk", 64, 0.55, 32),
    Cluster("mayhem", 64, 0.35, 32),
    Cluster("mercury", 128, 0.72, 64),
)


def draw_jobs(cluster: Cluster) -> JobLog:
    """Jobs with a daily cycle, sizes by powers of two, log-normal run times, padded requests."""
    draws = stream(SEED, "history", cluster.name)
    count = 20_000
    width = 2.0 ** draws.integers(0, int(np.log2(cluster.widest)) + 1, count)
    run = np.clip(np.exp(draws.normal(7.6, 1.3, count)), 30, 43_200).round()
    request = np.minimum(
        86_400, (run * np.exp(np.abs(draws.normal(0.5, 0.6, count))) / 900).round() * 900 + 900
    )
    gap = float((width * run).mean()) / (cluster.procs * cluster.load)
    submit = np.cumsum(draws.exponential(gap, count))
    hour = submit / 3600 % 24
    keep = draws.random(count) < 0.6 + 0.4 * np.sin((hour - 8) / 24 * 2 * np.pi)
    submit *= keep.mean()
    rows = keep & (submit < DAYS * 86_400)
    users = draws.zipf(1.6, count) % 60
    n = int(rows.sum())
    return JobLog(
        name=cluster.name,
        submit_s=submit[rows].round(),
        wait_s=np.zeros(n),
        run_s=run[rows],
        procs=width[rows].astype(np.int64),
        request_s=request[rows],
        user=users[rows],
        queue=np.ones(n, dtype=np.int64),
        started=np.ones(n, dtype=bool),
        unix_start_s=UNIX_START,
        max_procs=cluster.procs,
        queue_names={1: "default"},
    )


def simulate_waits(log: JobLog, procs: int) -> JobLog:
    """The log with the waits that EASY backfilling gives."""
    cluster = BatchCluster(procs)
    for row in range(len(log)):
        cluster.submit(
            BatchJob(
                str(row), int(log.procs[row]), float(log.request_s[row]), float(log.run_s[row])
            ),
            float(log.submit_s[row]),
        )
    for happening in cluster.advance(np.inf):
        if happening.kind == "started":
            log.wait_s[int(happening.job)] = happening.time_s - log.submit_s[int(happening.job)]
    cluster.check()
    return log


def lead_workflow() -> dict[str, object]:
    """A LEAD forecast with the shape and times of the SC'09 paper: 16 processors, critical path
    5,224 s."""
    files = {
        "terrain.dat": 2,
        "static.dat": 480,
        "boundary.dat": 150,
        "initial.dat": 250,
        "wrf_input.dat": 1400,
        "forecast.dat": 2400,
        "nam_input.dat": 250,
        "terrain_raw.dat": 10,
    }
    tasks = [
        Task(
            id="terrain_preprocessor",
            runtime_s=4,
            inputs=("terrain_raw.dat",),
            outputs=("terrain.dat",),
        ),
        Task(id="static_preprocessor", runtime_s=338, parents=(), outputs=("static.dat",)),
        Task(
            id="boundary_interpolator",
            runtime_s=146,
            parents=("terrain_preprocessor",),
            inputs=("terrain.dat", "nam_input.dat"),
            outputs=("boundary.dat",),
        ),
        Task(
            id="initial_interpolator",
            runtime_s=88,
            parents=("terrain_preprocessor",),
            inputs=("terrain.dat", "nam_input.dat"),
            outputs=("initial.dat",),
        ),
        Task(
            id="arps_to_wrf",
            runtime_s=78,
            parents=("static_preprocessor", "boundary_interpolator", "initial_interpolator"),
            inputs=("static.dat", "boundary.dat", "initial.dat"),
            outputs=("wrf_input.dat",),
        ),
        Task(
            id="wrf",
            runtime_s=4620,
            procs=16,
            parents=("arps_to_wrf",),
            inputs=("wrf_input.dat",),
            outputs=("forecast.dat",),
        ),
    ]
    document = write_wfformat(
        make_workflow("lead", tasks, {name: float(size) for name, size in files.items()})
    )
    document["description"] = (
        "LEAD storm forecast, generated by scripts/make_data.py after the figures of SC'09"
    )
    return document


def main() -> None:
    (DATA / "histories").mkdir(parents=True, exist_ok=True)
    for cluster in CLUSTERS:
        log = simulate_waits(draw_jobs(cluster), cluster.procs)
        note = (
            "Generated by scripts/make_data.py; waits simulated with EASY backfilling. Not a "
            "recorded log."
        )
        packed = gzip.compress(write_swf(log, note).encode(), mtime=0)
        (DATA / "histories" / f"{cluster.name}.swf.gz").write_bytes(packed)
        waits = ", ".join(
            f"{q:.0%} {np.quantile(log.wait_s, q):.0f} s" for q in (0.5, 0.75, 0.9, 0.95)
        )
        print(f"{cluster.name}: {len(log)} jobs, waits {waits}")
    (DATA / "lead.json").write_text(json.dumps(lead_workflow(), indent=1) + "\n")


if __name__ == "__main__":
    main()
