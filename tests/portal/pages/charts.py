"""Charts as the service returns them, of any size."""

from __future__ import annotations

import itertools
from typing import Any

PAINTED = "Boolean(window.vgrads?.chart?.hits) && !vgrads.chart.waiting"
"""In a page: its chart has been painted as it is; that takes a frame, which may come late."""


def large_chart(slots: int, tasks: int) -> dict[str, Any]:
    """A chart with as many bars as asked for."""
    rows = [
        {
            "id": f"s-{i}",
            "site": "s",
            "queue": "q",
            "kind": "batch",
            "procs": 8,
            "start_s": 60.0 * i,
            "end_s": 40_000.0,
            "submit_s": 0.0,
            "probability": 0.9,
            "cost_usd": 0.0,
            "state": "planned",
            "actual": None,
            "ready_p5_s": 1.0,
            "ready_p50_s": 60.0,
            "ready_p95_s": 900.0,
        }
        for i in range(slots)
    ]
    ends = itertools.cycle(range(slots))
    bars = [
        {
            "workflow": f"w-{i % 50}",
            "task": f"t{i}",
            "copy": 0,
            "slot": f"s-{next(ends)}",
            "start_s": 3600.0 + 60 * (i // slots),
            "end_s": 3650.0 + 60 * (i // slots),
            "procs": 1 + i % 4,
            "probability": 0.9,
            "state": "planned",
            "actual": None,
        }
        for i in range(tasks)
    ]
    return {
        "name": "big",
        "deadline_s": 40_000.0,
        "needed": 1,
        "now_s": None,
        "promise": {"probability": 0.9, "standard_error": 0.01},
        "cost_usd": 0.0,
        "decisions": [],
        "workflows": [f"w-{i}" for i in range(50)],
        "slots": rows,
        "placements": bars,
    }
