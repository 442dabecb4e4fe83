"""In which scenarios the copies of a whole workflow succeed, reckoned in one go.

The same as :meth:`planner.probability.WorkflowOutcome.success` copy by copy, which a test holds it to.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernel.compiled import compiled


class Spread(NamedTuple):
    """A workflow's copies task by task, those of task t from ``copies_at[t]`` on, and what may happen to their slots:
    ``ready_s`` and ``broken_s``, slots × scenarios; ``links``: latency and MiB a second, sites × sites; ``works``: in
    which scenarios a copy does not fail by itself, none where no copy can."""

    copies_at: Any
    slot: Any
    start_s: Any
    end_s: Any
    site: Any
    links: Any
    ready_s: Any
    broken_s: Any
    works: Any


@compiled
def succeed(s: Any, c: Any, done: Any) -> None:
    """Fills ``done``, copies × scenarios."""
    for t in range(len(c.copies_at) - 1):
        for k in range(c.copies_at[t], c.copies_at[t + 1]):
            slot, start_s = c.slot[k], c.start_s[k]
            row = (c.ready_s[slot] <= start_s) & (c.broken_s[slot] >= c.end_s[k])
            if c.works.shape[1] > 0:
                row = row & c.works[k]
            for n in range(s.parents_at[t], s.parents_at[t + 1]):
                parent = s.parents[n]
                here = np.zeros(len(row), np.bool_)
                for m in range(c.copies_at[parent], c.copies_at[parent + 1]):
                    source, site = c.site[c.slot[m]], c.site[slot]
                    moved_s = c.links[0, source, site] + s.mib[n] / c.links[1, source, site]
                    if c.end_s[m] + moved_s <= start_s + 1e-9:
                        here = here | done[m]
                row = row & here
            done[k] = row
