"""How many examples Hypothesis draws: others in each session, so that few in each are many in
all. ``VGRADS_EXAMPLES=1`` draws all that a property is worth at once (``make test-long``)."""

from __future__ import annotations

import math
import os

SHARE = float(os.environ.get("VGRADS_EXAMPLES", "0.1"))


def examples(count: int) -> int:
    """The share of so many examples that this session draws."""
    return max(1, math.ceil(SHARE * count))


EFFORT = 0.04
"""Effort of planning: most tests need a plan and not the best one. Those of what the search finds
state theirs."""
