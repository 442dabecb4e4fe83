"""The workload model of Table 3, and workloads drawn from it to a target load of a given system.

Times and sizes are modelled by their logarithm to base 2 (§3.3–3.5); arrivals by the time between
bags at peak hours (8–17 h) and a daily cycle of 48 half hours, as Lublin and Feitelson do
(doi:10.1016/S0743-7315(03)00108-4): a clock advances through the day in proportion to that half
hour's share of arrivals, and bags arrive at intervals of that clock. Tasks of a bag are log-normal
with its average run time and variance: the paper states the two moments only. A change of the mean
run time moves all of them alike; only then is the longest cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from vgrads.kernel.errors import InputError
from vgrads.kernel.streams import stream
from vgrads.workloads.distributions import Distribution, parse
from vgrads.workloads.workload import BagColumns

Floats = NDArray[np.float64]
DAY_S = 86400.0
_HALF_HOUR_S = 1800.0
_PEAK = slice(16, 34)  # half hours from 8 to 17
_LARGEST = 10_000
LONGEST_S = 30 * DAY_S
"""Maximum run time of a task, for any mean."""
MOST_TASKS = 20_000_000
"""Maximum number of tasks: a larger workload would not fit into memory with its results."""
_LONGEST_DAYS = 3650
_LARGEST_EXPONENT = 60.0
_DRAWN, _MANY = 4096, 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadModel:
    """A row of Table 3. ``users``: exponent of Zipf's law and number of users."""

    users: tuple[float, int] | None
    inter_arrival: Distribution
    daily_cycle: Distribution
    size: Distribution
    runtime: Distribution
    variability: Distribution


def _make_row(users: tuple[float, int] | None, *entries: tuple[str, float, float]) -> WorkloadModel:
    iat, cycle, size, runtime, variability = (parse(*entry) for entry in entries)
    return WorkloadModel(
        users=users,
        inter_arrival=iat,
        daily_cycle=cycle,
        size=size,
        runtime=runtime,
        variability=variability,
    )


MODELS: dict[str, WorkloadModel] = {
    "DAS-2": _make_row(
        (1.25, 333),
        ("W", 4.06, 7.91),
        ("G", 2.62, 0.13),
        ("W", 1.75, 2.91),
        ("N", 1.78, 3.87),
        ("W", 1.64, 10.21),
    ),
    "Grid'5000": _make_row(
        (1.39, 481),
        ("W", 4.27, 8.42),
        ("W", 1.57, 20.54),
        ("G", 2.47, 1.64),
        ("N", 2.31, 4.97),
        ("N", 5.54, 9.56),
    ),
    "NGS": _make_row(
        (1.30, 379),
        ("W", 4.94, 8.48),
        ("W", 1.64, 25.42),
        ("W", 2.02, 1.58),
        ("N", 3.50, 3.51),
        ("G", 1.79, 0.29),
    ),
    "AuverGrid": _make_row(
        None,
        ("W", 3.87, 7.33),
        ("W", 1.72, 25.49),
        ("W", 1.78, 1.51),
        ("G", 3.55, 0.47),
        ("N", 6.41, 11.73),
    ),
    "SHARCNET": _make_row(
        (1.25, 412),
        ("W", 4.17, 7.65),
        ("W", 2.44, 28.99),
        ("W", 1.37, 1.89),
        ("N", 3.06, 7.45),
        ("W", 1.93, 13.65),
    ),
    "LCG": _make_row(
        (1.32, 216),
        ("W", 4.05, 6.48),
        ("W", 1.71, 23.86),
        ("N", 1.33, 2.71),
        ("LN", 1.82, 0.34),
        ("W", 2.85, 14.21),
    ),
    "NorduGrid": _make_row(
        (1.36, 387),
        ("N", 1.97, 8.00),
        ("W", 1.62, 22.18),
        ("W", 1.80, 2.17),
        ("N", 2.76, 9.04),
        ("W", 2.86, 16.58),
    ),
    "average": _make_row(
        (1.31, 368),
        ("W", 4.25, 7.86),
        ("W", 1.79, 24.16),
        ("W", 1.76, 2.11),
        ("N", 2.73, 6.1),
        ("W", 2.05, 12.25),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Target of a workload: a share of the work that a system can do in ``days``.

    ``capacity``: reference processors; ``clusters``: number of independent streams. ``arrivals``:
    ``cycle`` (the model's), ``even`` or ``at once``. ``median_size`` and ``mean_runtime_s`` move
    those characteristics.
    """

    load: float
    capacity: float
    clusters: int = 1
    days: float = 1.0
    arrivals: str = "cycle"
    median_size: float | None = None
    mean_runtime_s: float | None = None

    def check(self) -> None:
        """Raise InputError for an impossible target."""
        if not 0 < self.load <= 1:
            raise InputError(f"{self.load} is not above 0 and at most 1", where="load")
        if not 0 < self.capacity < np.inf or self.clusters < 1:
            raise InputError("must be above 0, and finite", where="capacity, clusters")
        if not 0 < self.days <= _LONGEST_DAYS:
            raise InputError(
                f"{self.days} is not above 0 and at most {_LONGEST_DAYS}", where="days"
            )
        if self.arrivals not in ("cycle", "even", "at once"):
            raise InputError(
                f"unknown arrivals '{self.arrivals}'",
                where="arrivals",
                fix="choose cycle, even or at once",
            )
        if self.median_size is not None and not 1 <= self.median_size <= _LARGEST:
            raise InputError(
                f"invalid median size of bags: {self.median_size}",
                where="median_size",
                fix=f"choose a number from 1 to {_LARGEST}",
            )
        if self.mean_runtime_s is not None and not 0 < self.mean_runtime_s < np.inf:
            raise InputError("must be above 0, and finite", where="mean_runtime_s")


def model_named(name: str) -> WorkloadModel:
    """Return a row of the table. Raise InputError with the list of rows."""
    if name not in MODELS:
        choices = ", ".join(MODELS)
        raise InputError(
            f"unknown model '{name}'", where="model", fix=f"choose {choices}, or a fit as FILE.json"
        )
    return MODELS[name]


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # unbounded values are cut
def draw_bags(model: WorkloadModel, target: Target, seed: int) -> BagColumns:
    """Draw a workload whose work is the target's share, to within one bag, all of it submitted
    within its days."""
    target.check()
    target_s = target.load * target.capacity * target.days * DAY_S
    sizes, runtimes, done_s, tasks_so_far = [], [], 0.0, 0
    factor = (
        1.0
        if target.mean_runtime_s is None
        else _compute_runtime_factor(model, target.mean_runtime_s)
    )
    size_factor = (
        1.0 if target.median_size is None else target.median_size / 2.0 ** model.size.median()
    )
    draws = stream(seed, "bags")
    while done_s < target_s:
        count = _draw_sizes(model, draws, size_factor)
        tasks = _cap_runtime(_draw_runtimes(model, draws, count) * factor)
        work = np.cumsum(np.add.reduceat(tasks, np.concatenate([[0], np.cumsum(count)[:-1]])))
        enough = int(np.searchsorted(work, target_s - done_s)) + 1
        sizes.append(count[:enough])
        runtimes.append(tasks[: int(count[:enough].sum())])
        done_s += float(work[min(enough, len(work)) - 1])
        tasks_so_far += len(runtimes[-1])
        # extrapolated from the work so far, before memory is full
        if tasks_so_far * target_s > MOST_TASKS * done_s:
            raise InputError(
                (
                    f"would generate about {tasks_so_far * target_s / done_s:,.0f} tasks, more "
                    "than "
                    f"the limit of {MOST_TASKS:,}"
                ),
                where="load, processors, days",
            )
    return _place_bags(model, target, np.concatenate(sizes), np.concatenate(runtimes), seed)


def _draw_sizes(
    model: WorkloadModel, draws: np.random.Generator, factor: float
) -> NDArray[np.int64]:
    """Draw sizes of bags, at least two tasks (the smallest class of §3.4 begins there)."""
    raw = _compute_power(model.size.sample(draws, _DRAWN)) * factor
    return np.clip(np.rint(raw), 2, _LARGEST).astype(np.int64)


def _draw_runtimes(
    model: WorkloadModel, draws: np.random.Generator, count: NDArray[np.int64]
) -> Floats:
    """Draw run times of these bags' tasks: log-normal with each bag's own mean and variance, at
    least one second; not capped."""
    mean = np.maximum(_compute_power(model.runtime.sample(draws, len(count))), 1.0)
    variance = _compute_power(np.maximum(model.variability.sample(draws, len(count)), 0.0))
    spread = np.sqrt(np.log1p(variance / mean**2))
    # so that the mean of the log-normal distribution is that of the bag
    place = np.log(mean) - spread**2 / 2
    logs = np.repeat(place, count) + np.repeat(spread, count) * draws.standard_normal(
        int(count.sum())
    )
    return np.maximum(np.exp(logs), 1.0)


def _compute_power(exponents: Floats) -> Floats:
    """Return powers of 2, within bounds: a fit may have any tail."""
    within = np.clip(np.nan_to_num(exponents), -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    return np.asarray(2.0**within)


def _cap_runtime(runtime_s: Floats) -> Floats:
    return np.clip(runtime_s, 1.0, LONGEST_S)


@cache
def _compute_runtime_factor(model: WorkloadModel, mean_s: float) -> float:
    """Return the factor of run times for this mean, cap included; from half a million draws."""
    raw = _draw_runtimes(model, stream(0, "mean run time"), np.ones(_MANY, dtype=np.int64))

    def off(exponent: float) -> float:
        return float(_cap_runtime(raw * 2.0**exponent).mean()) - mean_s

    if not off(-60.0) < 0.0 < off(60.0):
        raise InputError(
            f"no tasks of 1 s to {LONGEST_S:,.0f} s have a mean of {mean_s:g} s",
            where="mean_runtime_s",
        )
    return float(2.0 ** brentq(off, -60.0, 60.0, xtol=1e-6))


def _place_bags(
    model: WorkloadModel, target: Target, size: NDArray[np.int64], runtime_s: Floats, seed: int
) -> BagColumns:
    """Assign streams, instants and users to bags; sort them by time."""
    # streams of their own, so that other arrivals or users leave the bags as they are
    draws = stream(seed, "arrivals")
    count = len(size)
    home = draws.integers(0, target.clusters, count)
    submit = np.empty(count)
    for cluster in range(target.clusters):
        mine = np.flatnonzero(home == cluster)
        submit[mine] = _draw_arrivals(model, target, len(mine), draws)
    order = np.argsort(submit, kind="stable")
    starts = np.concatenate([[0], np.cumsum(size)])
    tasks = np.concatenate([np.arange(starts[b], starts[b + 1]) for b in order.tolist()])
    bags = BagColumns(
        submit_s=submit[order],
        user=_draw_users(model, count, stream(seed, "users")),
        home=home[order],
        first=np.concatenate([[0], np.cumsum(size[order])]).astype(np.int64),
        runtime_s=runtime_s[tasks],
    )
    bags.check()
    return bags


def _draw_users(model: WorkloadModel, count: int, draws: np.random.Generator) -> NDArray[np.int64]:
    """Draw users in a random order, which is that of their priorities: the busiest may have any."""
    if model.users is None:
        return np.zeros(count, dtype=np.int64)
    exponent, most = model.users
    weights = np.arange(1, most + 1) ** -exponent
    return draws.permutation(most)[draws.choice(most, count, p=weights / weights.sum())]


def _draw_arrivals(
    model: WorkloadModel, target: Target, count: int, draws: np.random.Generator
) -> Floats:
    """Draw instants of one stream within the target's days."""
    until_s = target.days * DAY_S
    if target.arrivals == "at once":
        return np.zeros(count)
    if target.arrivals == "even":
        return (np.arange(count) + draws.random()) * until_s / max(count, 1)
    # one step more than bags, so that the last one is not always at the end of the days
    steps = np.cumsum(_compute_power(model.inter_arrival.sample(draws, count + 1)))
    edges, clock = _make_day_clock(model, target.days)
    return np.interp(steps[:-1] / steps[-1] * clock[-1], clock, edges) if count else np.empty(0)


def _make_day_clock(model: WorkloadModel, days: float) -> tuple[Floats, Floats]:
    """Return instants, and the value of the arrival clock then: 1 per second at peak hours."""
    weights = np.nan_to_num(model.daily_cycle.pdf(np.arange(48, dtype=np.float64) + 0.5))
    # above zero, because the clock is inverted and must never stand still
    weights = np.maximum(weights / max(float(weights[_PEAK].mean()), 1e-9), 1e-3)
    steps = np.tile(weights, int(np.ceil(days)))[: int(np.ceil(days * 48))]
    edges = np.minimum(np.arange(len(steps) + 1) * _HALF_HOUR_S, days * DAY_S)
    return edges, np.concatenate([[0.0], np.cumsum(steps * np.diff(edges))])
