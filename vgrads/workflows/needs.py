"""What a task needs of the place where it runs, whatever it does there."""

from __future__ import annotations

from typing import NamedTuple


class Needs(NamedTuple):
    """Processors, MiB of memory, an engine for containers (empty: none, ``any``: whichever), units
    of resources by name."""

    procs: int
    memory_mib: float = 0.0
    engine: str = ""
    resources: tuple[tuple[str, int], ...] = ()
