"""Scenarios in which the replicas of a whole workflow succeed, computed in one pass.

Equal to :meth:`vgrads.planner.promise.probability.WorkflowOutcome.success` replica by replica, as a
test checks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vgrads.kernel.arrays import Bins, Floats, Ints
from vgrads.kernel.compiled import compiled
from vgrads.workflows.shape import ShapeArrays


class Spread(NamedTuple):
    """A workflow's replicas task by task, those of task t from ``replicas_at[t]`` on; ``alive``:
    scenarios in which each has its slot and does not fail by itself, one bit each; ``links``:
    latency and MiB per second, sites × sites."""

    replicas_at: Ints
    site: Ints
    start_s: Floats
    end_s: Floats
    links: Floats
    alive: Bins


@compiled
def succeed(s: ShapeArrays, c: Spread, done: Bins) -> None:
    """Fill ``done``: the scenarios in which each replica succeeds."""
    for t in range(len(c.replicas_at) - 1):
        for k in range(c.replicas_at[t], c.replicas_at[t + 1]):
            row, site = c.alive[k].copy(), c.site[k]
            for n in range(s.parents_at[t], s.parents_at[t + 1]):
                parent = s.parents[n]
                here = np.zeros(len(row), np.uint8)
                for m in range(c.replicas_at[parent], c.replicas_at[parent + 1]):
                    source = c.site[m]
                    moved_s = c.links[0, source, site] + s.mib[n] / c.links[1, source, site]
                    if c.end_s[m] + moved_s <= c.start_s[k] + 1e-9:
                        here |= done[m]
                row &= here
            done[k] = row
