"""In which scenarios the copies of a whole workflow succeed, reckoned in one go.

The same as :meth:`vgrads.planner.promise.probability.WorkflowOutcome.success` copy by copy, which a
test holds it to.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vgrads.kernel.arrays import Bins, Floats, Ints
from vgrads.kernel.compiled import compiled
from vgrads.workflows.shape import Arrays


class Spread(NamedTuple):
    """A workflow's copies task by task, those of task t from ``copies_at[t]`` on; ``alive``: in
    which scenarios each has its slot and does not fail by itself, a bit each; ``links``: latency
    and MiB a second, sites × sites."""

    copies_at: Ints
    site: Ints
    start_s: Floats
    end_s: Floats
    links: Floats
    alive: Bins


@compiled
def succeed(s: Arrays, c: Spread, done: Bins) -> None:
    """Fills ``done``: in which scenarios each copy succeeds."""
    for t in range(len(c.copies_at) - 1):
        for k in range(c.copies_at[t], c.copies_at[t + 1]):
            row, site = c.alive[k].copy(), c.site[k]
            for n in range(s.parents_at[t], s.parents_at[t + 1]):
                parent = s.parents[n]
                here = np.zeros(len(row), np.uint8)
                for m in range(c.copies_at[parent], c.copies_at[parent + 1]):
                    source = c.site[m]
                    moved_s = c.links[0, source, site] + s.mib[n] / c.links[1, source, site]
                    if c.end_s[m] + moved_s <= c.start_s[k] + 1e-9:
                        here |= done[m]
                row &= here
            done[k] = row
