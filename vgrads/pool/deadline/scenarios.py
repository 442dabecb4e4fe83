"""Joint scenarios of a bag: what is not known in advance, drawn once and used for all plans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.streams import stream
from vgrads.pool.deadline.values import DeadlineCase, Floats, NodeSource
from vgrads.pool.spot.survival import AGES_S, STEP_S

Flags = NDArray[np.bool_]
Ages = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BagScenarios:
    """``steps`` equal steps of ``step_s`` from now on, some of them after the deadline.

    ``error``: true mean run time over the estimate, of each scenario. ``active``: for each queue,
    whether its nodes run: (scenarios, steps), first those that run already, then those that are
    requested now; ``left_s``: for how long they still do. ``spot``, ``ages``: the same for spot
    nodes, and the interval of the age of that.
    """

    step_s: float
    error: Floats
    active: tuple[tuple[Floats, Floats], ...]
    left_s: tuple[tuple[Floats, Floats], ...]
    spot: Flags
    ages: Ages

    @property
    def count(self) -> int:
        """Return the number of scenarios."""
        return len(self.error)

    @property
    def steps(self) -> int:
        """Return the number of steps."""
        return int(self.spot.shape[1])


def draw_scenarios(case: DeadlineCase, count: int, seed: int = 0) -> BagScenarios:
    """Draw scenarios. Nodes of one queue start together; when they have ended they are requested
    again, and wait anew."""
    draws = stream(seed, "bag scenarios")
    # one in each of equal parts instead of independent draws: probabilities have less noise
    quantiles = (draws.permutation(count) + 0.5) / count
    # less half the variance, so that the mean factor is 1
    error = np.exp(case.work.error * _draw_normal(quantiles) - case.work.error**2 / 2.0)
    blocks = [
        [
            _draw_queue(queue, case, count, draws, first_s)
            for first_s in (queue.running_left_s if queue.running else None, None)
        ]
        for queue in case.queues
    ]
    spot, ages = _draw_spot(case, count, draws)
    return BagScenarios(
        case.step_s,
        error,
        tuple((now[0], new[0]) for now, new in blocks),
        tuple((now[1], new[1]) for now, new in blocks),
        spot,
        ages,
    )


def _draw_normal(shares: Floats) -> Floats:
    from scipy.special import ndtri  # noqa: PLC0415 slow to import

    return np.asarray(ndtri(shares), np.float64)


def _draw_queue(
    queue: NodeSource,
    case: DeadlineCase,
    count: int,
    draws: np.random.Generator,
    running_s: float | None,
) -> tuple[Floats, Floats]:
    """Return the share of each step in which nodes run, and how long they still do at its begin.
    ``running_s``: how long they run from now on before they wait again; None: they wait now."""
    step_s, steps = case.step_s, case.steps
    waits_s = np.asarray(queue.waits_s)
    begins_s = np.arange(steps) * step_s
    running, left_s = np.zeros((count, steps)), np.zeros((count, steps))
    unused_s = case.work.residual_s  # a node starts no task that it would not end
    shares = (draws.permutation(count) + draws.random(count)) / count
    start_s, end_s = np.zeros(count), np.full(count, running_s or 0.0)
    if running_s is None:
        start_s, end_s = _draw_next_nodes(queue, waits_s, shares, end_s)
    while True:
        inside = np.clip(
            np.minimum(end_s[:, None] - unused_s, begins_s + step_s)
            - np.maximum(start_s[:, None], begins_s),
            0.0,
            step_s,
        )
        running += inside / step_s
        going_on = (start_s[:, None] <= begins_s) & (begins_s < end_s[:, None])
        left_s = np.where(going_on, np.maximum(0.0, end_s[:, None] - unused_s - begins_s), left_s)
        if np.all(end_s >= steps * step_s):
            return running, left_s
        start_s, end_s = _draw_next_nodes(queue, waits_s, draws.random(count), end_s)


def _draw_next_nodes(
    queue: NodeSource, waits_s: Floats, shares: Floats, since_s: Floats
) -> tuple[Floats, Floats]:
    """Return begin and end of the next nodes, requested at ``since_s``."""
    wait_s = waits_s[(shares * len(waits_s)).astype(int)]
    return since_s + wait_s + queue.boot_s, since_s + wait_s + queue.length_s


def _draw_spot(case: DeadlineCase, count: int, draws: np.random.Generator) -> tuple[Flags, Ages]:
    step_s, steps, cloud = case.step_s, case.steps, case.cloud
    spot, ages = np.zeros((count, steps), np.bool_), np.zeros((count, steps), np.int64)
    if cloud is None or cloud.history is None:
        return spot, ages
    # hazards are those of recorded steps of another length
    ends = 1.0 - (1.0 - case.hazards.steps) ** (step_s / STEP_S)
    state = np.full(count, cloud.history.is_available(cloud.now_s))
    if not cloud.observed:
        state = draws.permutation(count) < case.hazards.available_share * count
    age_s = np.full(count, cloud.history.age_s(cloud.now_s))
    chances = draws.random((count, steps))
    for step in range(steps):
        intervals = np.searchsorted(AGES_S, age_s + 1e-6, side="right") - 1
        spot[:, step], ages[:, step] = state, intervals
        over = chances[:, step] < ends[state.astype(np.int64), intervals]
        state = state ^ over
        age_s = np.where(over, 0.0, age_s + step_s)
    return spot, ages
