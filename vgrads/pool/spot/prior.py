"""What is known of spot nodes before anything was seen: life tables of recorded availability.

``prior.json`` has one table for each trace of "Can't Be Late" (Wu et al., NSDI 2024): nodes on two
clouds, 2022 and 2023. ``python -m vgrads_studies.spot.fit FOLDER`` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np

from vgrads.pool.spot.survival import LifeTable

PRIOR_FILE = Path(__file__).with_name("prior.json")


def _read() -> tuple[LifeTable, ...]:
    tables = json.loads(PRIOR_FILE.read_text(encoding="utf-8"))
    return tuple(
        LifeTable(
            np.array(table["ended"], float),
            np.array(table["at_risk"], float),
            (table["date"], table["zone"]),
        )
        for table in tables
    )


def tables_of_elsewhere(
    tables: Iterable[LifeTable], date: str, zones: Collection[str]
) -> tuple[LifeTable, ...]:
    """Return the life tables of other dates and other zones: a rule must not be tested on what it
    was learned from."""
    return tuple(t for t in tables if t.origin[0] != date and t.origin[1] not in zones)


PRIOR = _read()
