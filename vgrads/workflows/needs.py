"""Requirements of a task on the slot where it runs."""

from __future__ import annotations

from typing import NamedTuple


class Needs(NamedTuple):
    """Processors, MiB of memory, a container engine (empty: none, ``any``: every one), units of
    resources by name."""

    procs: int
    memory_mib: float = 0.0
    engine: str = ""
    resources: tuple[tuple[str, int], ...] = ()
