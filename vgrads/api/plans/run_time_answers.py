"""Queries for learned run times: kinds, one kind, the tasks of a set."""

from __future__ import annotations

import difflib
from typing import Any

import numpy as np

from vgrads.api.plans.runtimes import RunTimes, add_run_times, describe_source
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
    return [_make_kind_row(run_times, kind) for kind in run_times.history.kinds]


def _make_kind_row(run_times: RunTimes, kind: str) -> Json:
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
    row = _make_kind_row(run_times, kind)
    machines = sorted({r.machine for r in records})
    sizes = [r.input_bytes for r in records if r.input_bytes]
    low, high = format_duration(row["low_s"]), format_duration(row["high_s"])
    return row | {
        "sentence": f"{kind}: {format_duration(row['median_s'])} (90 % between {low} and "
        f"{high}), "
        f"from {len(records)} record{'' if len(records) == 1 else 's'}",
        "machines": [_make_machine_row(run_times, name) for name in machines],
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
        "curve": _compute_curve(run_times, kind, sizes),
    }


def _make_machine_row(run_times: RunTimes, name: str) -> Json:
    speed, sd = run_times.model.speed(name)
    return {"machine": name or "(unknown)", "speed": round(speed, 3), "spread": round(sd, 3)}


def _compute_curve(run_times: RunTimes, kind: str, sizes: list[float]) -> list[Json]:
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
    _, basis = add_run_times(workflow_set, run_times, catalog)
    return [
        {
            "kind": entry["kind"],
            "tasks": entry["tasks"],
            "shortest_s": round(entry["shortest_s"], 3),
            "longest_s": round(entry["longest_s"], 3),
            "high_s": round(
                entry["longest_s"] * RuntimeSpread(own=entry["spread"]).factor(_LEVELS[2]), 3
            ),
            "from": describe_source(entry),
        }
        for entry in basis.values()
    ]
