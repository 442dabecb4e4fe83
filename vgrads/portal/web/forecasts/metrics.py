"""Metrics of issued forecasts: coverage, loss, warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily

_OF_QUEUE = ["site", "queue"]


def forecast_families(scores: Mapping[str, Any]) -> Iterator[GaugeMetricFamily]:
    """Return the metric families of the scores of all queues."""
    records = GaugeMetricFamily(
        "vgrads_forecast_records",
        "Records of issued forecasts, by queue and state",
        labels=[*_OF_QUEUE, "state"],
    )
    coverage = GaugeMetricFamily(
        "vgrads_forecast_coverage",
        "Share of the newest issued bounds that were not exceeded",
        labels=[*_OF_QUEUE, "quantile"],
    )
    loss = GaugeMetricFamily(
        "vgrads_forecast_pinball_seconds",
        "Mean pinball loss of the newest issued bounds",
        labels=[*_OF_QUEUE, "quantile"],
    )
    warning = GaugeMetricFamily(
        "vgrads_forecast_warning",
        "1 where the last 200 bounds at .95 covered less than .90 of the waits",
        labels=_OF_QUEUE,
    )
    for entry in scores["queues"]:
        of_queue = [entry["site"], entry["queue"]]
        for state, count in entry["records"].items():
            if state != "issued":
                records.add_metric([*of_queue, state], count)
        for row in entry["quantiles"]:
            _add(coverage, [*of_queue, str(row["quantile"])], row["coverage"])
            _add(loss, [*of_queue, str(row["quantile"])], row["pinball_s"])
        warning.add_metric(of_queue, float(entry["warning"] is not None))
    yield from (records, coverage, loss, warning)


def _add(family: GaugeMetricFamily, labels: list[str], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, value)
