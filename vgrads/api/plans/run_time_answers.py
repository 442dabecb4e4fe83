"""What can be asked of learned run times: kinds, one kind, the tasks of a set, and which pilot runs
would help most."""

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


def kinds_json(known: RunTimes) -> list[Json]:
    """``vgrads runtimes list``: a row for each kind."""
    return [_kind_row(known, kind) for kind in known.known.kinds]


def _kind_row(known: RunTimes, kind: str) -> Json:
    found = known.model.predict(kind)
    records = known.known.of(kind)
    return {
        "kind": kind,
        "records": len(records),
        "machines": len({r.machine for r in records}),
        "median_s": round(found.median_s, 3),
        "low_s": round(found.quantile(_LEVELS[0]), 3),
        "high_s": round(found.quantile(_LEVELS[2]), 3),
        "memory_mib": None if found.memory_bytes is None else round(found.memory_bytes / 2**20, 1),
    }


def kind_json(known: RunTimes, kind: str) -> Json:
    """``vgrads runtimes show``: records, machines, the predicted curve; InputError where nothing is
    known."""
    records = known.known.of(kind)
    if not records:
        near = difflib.get_close_matches(kind, known.known.kinds, 3)
        ways = f"perhaps {', '.join(near)}" if near else "vgrads runtimes list tells what is known"
        raise InputError("nothing is known of this kind of task", where=kind, fix=ways)
    row = _kind_row(known, kind)
    machines = sorted({r.machine for r in records})
    sizes = [r.input_bytes for r in records if r.input_bytes]
    low, high = format_duration(row["low_s"]), format_duration(row["high_s"])
    return row | {
        "sentence": f"{kind}: {format_duration(row['median_s'])} (nine of ten between {low} and "
        f"{high}), "
        f"from {len(records)} record{'' if len(records) == 1 else 's'}",
        "machines": [_machine_row(known, name) for name in machines],
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
        "curve": _curve(known, kind, sizes),
    }


def _machine_row(known: RunTimes, name: str) -> Json:
    speed, sd = known.model.speed(name)
    return {"machine": name or "(not told)", "speed": round(speed, 3), "spread": round(sd, 3)}


def _curve(known: RunTimes, kind: str, sizes: list[float]) -> list[Json]:
    """Quantiles by input size, over the sizes that were seen."""
    if not sizes:
        return []
    points = np.geomspace(min(sizes), max(sizes), _CURVE) if max(sizes) > min(sizes) else sizes[:1]
    found = ((float(size), known.model.predict(kind, "", float(size))) for size in points)
    return [
        {"input_bytes": size, "seconds": [p.quantile(level) for level in _LEVELS]}
        for size, p in found
    ]


def predictions_json(wanted: WorkflowSet, known: RunTimes, catalog: Catalog) -> list[Json]:
    """``vgrads runtimes predict``: per kind of task of a set how long it takes and what that rests
    on."""
    _, basis = with_run_times(wanted, known, catalog)
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
    """Which kinds of tasks to run once, on shrunken inputs, so that the promise gets tighter: the
    most seconds of doubt for the fewest seconds of running, first.

    The doubt of a kind is shared by all its tasks: that of ``n`` tasks of median ``m`` with a
    standard deviation ``s`` of the logarithm is about ``n m s``. A run on an input a tenth as large
    takes about a tenth of the shortest of them.
    """
    found = []
    for entry in basis:
        doubt_s = entry["tasks"] * entry["longest_s"] * entry["kind_spread"]
        if doubt_s > 0:
            cost_s = max(1.0, 0.1 * entry["shortest_s"])
            found.append(
                {
                    "kind": entry["kind"],
                    "tasks": entry["tasks"],
                    "doubt_s": round(doubt_s, 1),
                    "pilot_s": round(cost_s, 1),
                }
            )
    return sorted(found, key=lambda one: -one["doubt_s"] / one["pilot_s"])[:most]
