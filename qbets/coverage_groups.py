"""Groups of jobs whose coverage is reported apart: width, queue, requested time.

A mean over all jobs can hide a group that is not covered.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vgrads.kernel.arrays import Bools, Ints
from vgrads.kernel.units import format_duration
from vgrads.qbets.conformal import TIMES_S, WIDTHS
from vgrads.traces.records import JobLog

FEWEST = 300
"""Jobs of a group that is judged."""


def iterate_groups(
    log: JobLog, scored: Bools, fewest: int = FEWEST
) -> Iterator[tuple[str, str, Bools]]:
    """Yield each group with at least so many scored jobs: dimension, name, scored jobs."""
    for dimension, names, codes in _list_dimensions(log):
        for code in np.unique(codes[scored]).tolist():
            part = scored & (codes == code)
            if int(part.sum()) >= fewest:
                yield dimension, names[code], part


def _list_dimensions(log: JobLog) -> list[tuple[str, dict[int, str], Ints]]:
    """Return each dimension with the names of its groups, and the group of each job."""
    machine = max(log.max_procs or 0, int(log.procs.max(initial=1)))
    low, high = WIDTHS
    widths = {0: f"< {low:g} of the machine", 1: f"{low:g} to {high:g} of the machine"}
    widths[2] = f"≥ {high:g} of the machine"
    width = np.digitize(log.procs / machine, WIDTHS).astype(np.int64)
    limits = [format_duration(limit) for limit in TIMES_S]
    times = {n: f"≤ {limit}" for n, limit in enumerate(limits)} | {len(limits): f"> {limits[-1]}"}
    time = np.digitize(log.request_s, TIMES_S, right=True).astype(np.int64)
    queues = {int(c): log.queue_names.get(int(c), str(c)) for c in np.unique(log.queue)}
    result = [("width", widths, width)]
    if len(queues) > 1:
        result.append(("queue", queues, log.queue))
    if len(np.unique(log.request_s)) > 1:
        result.append(("requested time", times, time))
    return result
