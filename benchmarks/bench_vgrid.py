"""Trajectories and queries to all sites, against asking one instant and one offer at a time.

``python benchmarks/bench_vgrid.py [LOG.swf.gz…]``; without logs the histories that ship.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vgrads.qbets.forecast import QueueForecast, forecast
from vgrads.qbets.predictor import Settings
from vgrads.traces.history import history_name, read_history
from vgrads.vgrid.catalog import Catalog, NodeType, Queue, Site
from vgrads.vgrid.offers import Knowledge, OfferRequest, offer_slots
from vgrads.vgrid.procure import procure
from vgrads.vgrid.request_text import parse_request
from vgrads.vgrid.varq import Reservation, evaluate_trajectory

DATA = Path(__file__).parent.parent / "data" / "histories"
QUEUES, CLOUDS = 50, 10
DAY_S = 86_400.0


def best_of(call: Callable[[], Any], times: int = 5) -> float:
    """Shortest of some runs, in seconds."""
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def in_sequence(forecast: QueueForecast, reservation: Reservation) -> np.ndarray:
    """The same trajectory, a GETPROB for every instant."""
    submits = np.arange(0.0, reservation.start_by_s + 15.0, 30.0)
    return np.array(
        [
            float(
                forecast.probability(
                    reservation.procs,
                    reservation.walltime_s + reservation.start_by_s - t,
                    reservation.start_by_s - t,
                )
            )
            for t in submits
        ]
    )


def bench_trajectory(forecast: QueueForecast, name: str) -> None:
    reservation = Reservation(procs=8, walltime_s=7200.0, start_by_s=DAY_S, probability=0.9)
    path = evaluate_trajectory(forecast, reservation)
    same = np.allclose(path.probabilities, in_sequence(forecast, reservation))
    ours, plain = (
        best_of(lambda: evaluate_trajectory(forecast, reservation)),
        best_of(lambda: in_sequence(forecast, reservation), 2),
    )
    print(
        f"{name}: trajectory over 24 h, {len(path.submit_s)} instants: {ours * 1e3:.1f} "
        f"ms, one by one {plain * 1e3:.0f} ms "
        f"({plain / ours:.0f}×), same: {same}"
    )


def bench_query(forecasts: list[QueueForecast]) -> None:
    """Offers of many queues and clouds, with their probabilities; then a whole procurement."""
    queue = Queue(
        name="q", history=None, log_queue=None, max_procs=64, max_walltime_s=DAY_S, max_jobs=8
    )
    batch = [Site(name=f"b{n}", kind="batch", procs=128, queues=(queue,)) for n in range(QUEUES)]
    node = NodeType(name="m", cores=8, price_usd_per_hour=0.68)
    clouds = [
        Site(name=f"c{n}", kind="cloud", procs=128, nodes=(node,), boot_s=240.0)
        for n in range(CLOUDS)
    ]
    catalog = Catalog(sites=(*batch, *clouds), links={})
    oracles = {(site.name, "q"): forecasts[n % len(forecasts)] for n, site in enumerate(batch)}
    knowledge, request = (
        Knowledge(oracles=oracles),
        OfferRequest(procs=16, count=8, until_s=6 * 3600.0),
    )
    offers = offer_slots(catalog, knowledge, request)
    seconds = best_of(lambda: offer_slots(catalog, knowledge, request))
    print(
        f"query of {QUEUES} queues and {CLOUDS} clouds: {len(offers)} offers in "
        f"{seconds * 1e3:.1f} ms"
    )
    required = parse_request(
        "grid b for 2h by 6h { x = tight 16..32 nodes y = loose 8 nodes [cores >= 8] }", "bench"
    )
    offer = procure(catalog, knowledge, required)
    seconds = best_of(lambda: procure(catalog, knowledge, required), 2)
    considered = sum(group.considered for group in offer.groups)
    print(
        f"procurement among {considered} slots: {seconds * 1e3:.0f} ms, probability "
        f"{offer.probability:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="*", type=Path)
    logs = parser.parse_args().logs or sorted(DATA.glob("*.swf.gz"))
    existing = []
    for path in logs:
        log = read_history(path)
        existing.append(forecast(log, log.end_s, Settings()))
        bench_trajectory(existing[-1], history_name(path))
    bench_query(existing)


if __name__ == "__main__":
    main()
