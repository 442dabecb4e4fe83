"""Histories that grow, for forecasts that are scored by what comes later."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

from vgrads.api.queues.issued import ForecastOutcome, IssuedForecast
from vgrads.portal.records.forecasts.rows import ForecastRecords
from vgrads.portal.records.store import Store

JOBS = 300
UNIX_START = 1_700_000_000
SHAPE = {"procs": 4, "walltime_s": 3600}


def swf(waits_s: Iterable[float], every_s: float = 600.0, procs: int = 4) -> str:
    """A log of equal jobs, one every ten minutes; each runs a minute."""
    lines = [f"; UnixStartTime: {UNIX_START}", "; MaxProcs: 64"]
    for n, wait_s in enumerate(waits_s, 1):
        lines.append(
            f"{n} {n * every_s:.0f} {wait_s:.0f} 60 {procs} -1 -1 {procs} 3600 -1 1 1 1 1 0 0 -1 -1"
        )
    return "\n".join(lines) + "\n"


def write_log(path: Path, waits_s: Iterable[float]) -> Path:
    """Write a log as a whole, as a batch system's rotation does."""
    path.write_bytes(gzip.compress(swf(waits_s).encode()))
    return path


def scored(
    store: Store,
    site: str,
    queue: str,
    covered: int,
    of: int,
    view: str = "full",
    wait_s: float = 20.0,
) -> None:
    """Records of a queue whose bound at .95 covered some waits, each of ``wait_s``, and not the
    others."""
    records = ForecastRecords(store.engine)
    issued = [
        IssuedForecast(
            site=site,
            queue=queue,
            procs=1,
            walltime_s=3600.0,
            instant_s=float(n),
            issued_s=float(n),
            kind="bound",
            method="state",
            view=view,
            bounds=((0.5, 10.0), (0.95, 100.0)),
            probabilities=((50.0, 0.8),),
        )
        for n in range(of)
    ]
    records.add(issued)
    rows = {row.id: row for row in records.matchable(site, queue, -1.0)}
    starts = {
        forecast.id: ForecastOutcome(
            submit_s=n + 1.0, wait_s=wait_s if n < covered else 500.0, observed_s=1000.0
        )
        for n, forecast in enumerate(issued)
    }
    assert records.put_waits(rows.values(), starts) == of


def recommended(
    store: Store,
    started: int,
    of: int,
    probability: float = 0.9,
    promised: float | None = None,
) -> None:
    """Records of submissions that were recommended, of which the first led to a start in time.
    ``probability``: stated with each; ``promised``: for which it was recommended."""
    records = ForecastRecords(store.engine)
    issued = [
        IssuedForecast(
            site="here",
            queue="all",
            procs=4,
            walltime_s=3600.0,
            instant_s=float(n),
            issued_s=float(n),
            kind="trajectory",
            method="qbets",
            view="full",
            probabilities=((600.0, probability),),
            promised=promised,
        )
        for n in range(of)
    ]
    records.add(issued)
    outcomes = {
        forecast.id: ForecastOutcome(
            submit_s=n + 1.0, wait_s=20.0 if n < started else 5000.0, observed_s=1e6
        )
        for n, forecast in enumerate(issued)
    }
    rows = [row for row in records.matchable("here", "all", -1.0) if row.id in outcomes]
    assert records.put_waits(rows, outcomes) == of
