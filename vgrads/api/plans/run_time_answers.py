"""Queries for learned run times: kinds, one kind, the tasks of a set, and the most useful pilot
runs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from vgrads.api.plans.runtimes import RunTimes, source_text, with_run_times
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_duration
from vgrads.vgrid.catalog import Catalog
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.spread import RuntimeSpread

Json = dict[str, Any]
_LEVELS = (0.05, 0.5, 0.95)
_CURVE = 40  # points of the predicted curve


def kinds_json(run_times: RunTimes) -> list[Json]:
    """Return ``vgrads runtimes list``: a row for each kind."""
    return [_kind_row(run_times, kind) for kind in run_times.history.kinds]


def _kind_row(run_times: RunTimes, kind: str) -> Json:
    prediction = run_times.model.predict(kind)
    records = run_times.history.of(kind)
    return {
        "kind": kind,
        "records": len(records),
        "machines": len({r.machine for r in records}),
        "median_s": round(prediction.median_s, 3),
        "low_s": round(prediction.quantile(_LEVELS[0]), 3),
        "high_s": round(prediction.quantile(_LEVELS[2]), 3),
        "memory_mib": None
        if prediction.memory_bytes is None
        else round(prediction.memory_bytes / 2**20, 1),
    }


def kind_json(run_times: RunTimes, kind: str) -> Json:
    """Return ``vgrads runtimes show``: records, machines, the predicted curve; InputError for an
    unknown kind."""
    kind = run_times.history.named(kind)
    records = run_times.history.of(kind)
    if not records:
        near = difflib.get_close_matches(kind, run_times.history.kinds, 3)
        ways = (
            f"perhaps {', '.join(near)}"
            if near
            else "list the known kinds with 'vgrads runtimes list'"
        )
        raise InputError("no run times are recorded for this kind of task", where=kind, fix=ways)
    row = _kind_row(run_times, kind)
    machines = sorted({r.machine for r in records})
    sizes = [r.input_bytes for r in records if r.input_bytes]
    low, high = format_duration(row["low_s"]), format_duration(row["high_s"])
    return row | {
        "sentence": f"{kind}: {format_duration(row['median_s'])} (90 % between {low} and "
        f"{high}), "
        f"from {len(records)} record{'' if len(records) == 1 else 's'}",
        "machines": [_machine_row(run_times, name) for name in machines],
        "records": [
            {
                "seconds": r.seconds,
                "finished": r.finished,
                "machine": r.machine,
                "input_bytes": r.input_bytes,
                "workflow": r.workflow,
            }
            for r in records
        ],
        "curve": _curve(run_times, kind, sizes),
    }


def _machine_row(run_times: RunTimes, name: str) -> Json:
    speed, sd = run_times.model.speed(name)
    return {"machine": name or "(unknown)", "speed": round(speed, 3), "spread": round(sd, 3)}


def _curve(run_times: RunTimes, kind: str, sizes: list[float]) -> list[Json]:
    """Return quantiles by input size, over the observed sizes."""
    if not sizes:
        return []
    points = np.geomspace(min(sizes), max(sizes), _CURVE) if max(sizes) > min(sizes) else sizes[:1]
    rows = ((float(size), run_times.model.predict(kind, "", float(size))) for size in points)
    return [
        {"input_bytes": size, "seconds": [p.quantile(level) for level in _LEVELS]}
        for size, p in rows
    ]


def predictions_json(
    workflow_set: WorkflowSet, run_times: RunTimes, catalog: Catalog
) -> list[Json]:
    """Return ``vgrads runtimes predict``: run times per kind of task of a set, and their basis."""
    _, basis = with_run_times(workflow_set, run_times, catalog)
    return [
        {
            "kind": entry["kind"],
            "tasks": entry["tasks"],
            "shortest_s": round(entry["shortest_s"], 3),
            "longest_s": round(entry["longest_s"], 3),
            "high_s": round(
                entry["longest_s"] * RuntimeSpread(own=entry["spread"]).factor(_LEVELS[2]), 3
            ),
            "from": source_text(entry),
        }
        for entry in basis.values()
    ]


def pilots(basis: Iterable[Mapping[str, Any]], most: int = 5) -> list[Json]:
    """Return the kinds of tasks to run once, on reduced inputs, to make the promise tighter: the
    most seconds of uncertainty per second of running first.

    The uncertainty of a kind is shared by all its tasks: for ``n`` tasks of median ``m`` with a
    standard deviation ``s`` of the logarithm it is about ``n m s``. A run on an input a tenth as
    large takes about a tenth of the shortest of them.
    """
    results = []
    for entry in basis:
        doubt_s = entry["tasks"] * entry["longest_s"] * entry["kind_spread"]
        if doubt_s > 0:
            cost_s = max(1.0, 0.1 * entry["shortest_s"])
            results.append(
                {
                    "kind": entry["kind"],
                    "tasks": entry["tasks"],
                    "doubt_s": round(doubt_s, 1),
                    "pilot_s": round(cost_s, 1),
                }
            )
    return sorted(results, key=lambda item: -item["doubt_s"] / item["pilot_s"])[:most]
