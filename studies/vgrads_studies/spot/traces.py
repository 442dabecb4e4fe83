"""Recorded availability of spot nodes, in steps of ten minutes.

The format of the traces of "Can't Be Late" (Wu et al., NSDI 2024): JSON with ``gap_seconds`` and
the number of available nodes at each tick. A node counts as available in a step if at least one was
during the whole step.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.errors import InputError
from vgrads.pool.spot.history import SpotHistory
from vgrads.pool.spot.prior import tables_of_elsewhere
from vgrads.pool.spot.survival import STEP_S, LifeTable, make_life_table

_ZONE = re.compile(r"(?:us|eu|ap|sa|ca|me|af|asia|europe)-[a-z0-9-]*[0-9]-?[a-z]")
_DATE = re.compile(r"\d\d-\d\d-\d{4}")


@dataclass(frozen=True, eq=False)
class SpotTrace:
    """``available``: one value for each step."""

    name: str
    available: NDArray[np.bool_]

    @property
    def hours(self) -> float:
        """Return its length."""
        return len(self.available) * STEP_S / 3600.0

    @property
    def origin(self) -> tuple[str, str]:
        """Return the date and the zone in its name; empty where they are not there."""
        return _first(_DATE, self.name), _first(_ZONE, self.name)

    @property
    def table(self) -> LifeTable:
        """Return the life table of its spells."""
        changes = np.flatnonzero(np.diff(self.available)) + 1
        history = SpotHistory(
            0.0, bool(self.available[0]), tuple(float(at) * STEP_S for at in changes)
        )
        return make_life_table(history, len(self.available) * STEP_S, self.origin)


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[0] if match else ""


def read_trace(path: Path) -> SpotTrace:
    """Read a trace (``.json`` or ``.json.gz``). Raise InputError with the file."""
    try:
        raw = path.read_bytes()
        document = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        gap_s = float(document["metadata"]["gap_seconds"])
        ticks = np.asarray(document["data"], np.float64)
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"is not a trace of spot nodes: {error}",
            where=str(path),
            fix='it needs {"metadata": {"gap_seconds": …}, "data": […]}',
        ) from error
    steps = int(len(ticks) * gap_s // STEP_S) if gap_s > 0 and ticks.ndim == 1 else 0
    if not steps:
        raise InputError("is shorter than a step of ten minutes", where=str(path))
    available = np.ones(steps, np.bool_)
    step = (np.arange(len(ticks)) * gap_s // STEP_S).astype(int)
    inside = step < steps
    np.logical_and.at(available, step[inside], ticks[inside] >= 1.0)
    return SpotTrace(path.name.split(".json")[0], available)


def read_traces(folder: Path) -> list[SpotTrace]:
    """Read all traces of a folder. Raise InputError where there is none."""
    paths = sorted({*folder.glob("*.json"), *folder.glob("*.json.gz")})
    if not paths:
        raise InputError("has no traces (*.json, *.json.gz)", where=str(folder))
    return [read_trace(path) for path in paths]


def prior_for(trace: SpotTrace, others: list[SpotTrace]) -> tuple[LifeTable, ...]:
    """Return the life tables of traces of other dates and other zones; of all others where no
    trace names both."""
    date, zone = trace.origin
    return tables_of_elsewhere(
        (other.table for other in others if other is not trace), date, {zone}
    )
