"""Choice of pilot runs: the kinds of tasks that make the run time of a set most uncertain for the
seconds that a run of one of their tasks takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, log, sqrt

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.streams import stream
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.task import Task

Floats = NDArray[np.float64]
SHARE = 0.05
"""Of the set's work, and of its budget, that pilots may take."""
SMALL = 0.1
"""Size of a reduced input, and about of its run time, of the smallest task of a kind."""
EXTRAPOLATED, REPEATED = 1.0, 0.5
"""Standard deviation of the logarithm of what a run on so small an input says of a full one, and of
what a run of a task says of others with such an input: as predicted from one record."""
_MOST = 16
"""Number of pilots: for each, the set is planned once more."""
_ENOUGH = 1 / 3
"""Remaining width of the set's interval at which no more pilots are chosen: half, with a margin,
for the times are as uncertain as the width."""
_DRAWS = 2000


def choose_pilot_size(sizes: Sequence[float]) -> float:
    """Return the input size of which a run says most about tasks with these sizes: that of a usual
    second of their work, if run times are proportional to sizes, but at most a share
    :data:`SHARE` of all, as such a run takes about this share of the work."""
    total = sum(sizes)
    if not total:
        return 0.0
    usual = exp(sum(size * log(size) for size in sizes if size) / total)
    return min(usual, SHARE * total)


def distance(size: float, aim: float) -> float:
    """Return how far a size is from that aimed at, on a scale of logarithms."""
    return abs(log(max(size, 1.0) / max(aim, 1.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertainKind:
    """A kind of tasks whose run time has an uncertainty that they share: number, total seconds
    (medians), standard deviations of the logarithm. ``pilot_s``: run time of a pilot,
    ``extrapolated``: deviation of what it says of the set's tasks, in addition to their own."""

    kind: str
    tasks: int = 0
    work_s: float = 0.0
    shortest_s: float = np.inf
    shared: float = 0.0
    own: float = 0.0
    pilot_s: float = 0.0
    extrapolated: float = REPEATED

    def counting(self, task: Task) -> UncertainKind:
        """Return the same with one more task."""
        spread = task.spread
        return replace(
            self,
            tasks=self.tasks + 1,
            work_s=self.work_s + task.runtime_s,
            shortest_s=min(self.shortest_s, task.runtime_s),
            shared=max(self.shared, spread.kind if spread else 0.0),
            own=max(self.own, spread.own if spread else 0.0),
        )

    def reduced(self) -> UncertainKind:
        """Return the same with a pilot on a reduced input."""
        pilot_s = max(1.0, SMALL * self.shortest_s)
        return replace(self, pilot_s=pilot_s, extrapolated=EXTRAPOLATED)

    @property
    def doubt_s(self) -> float:
        """Seconds of uncertainty that its tasks share."""
        return self.work_s * self.shared

    @property
    def shared_after(self) -> float:
        """Standard deviation that its tasks share after a pilot run."""
        # normal errors: precisions (1 ÷ variance) add
        shown = hypot(self.own, self.extrapolated)
        return self.shared * shown / hypot(self.shared, shown) if self.shared else 0.0


def count_kinds(timed: WorkflowSet, kind_of: Callable[[Task], str]) -> dict[str, UncertainKind]:
    """Return all kinds of a set whose run times are predicted."""
    kinds: dict[str, UncertainKind] = {}
    for workflow in timed.workflows:
        for task in workflow.tasks.values():
            kind = kind_of(task)
            kinds[kind] = kinds.get(kind, UncertainKind(kind=kind)).counting(task)
    return kinds


def choose_pilots(
    candidates: Iterable[UncertainKind], every: Mapping[str, UncertainKind]
) -> list[UncertainKind]:
    """Return the kinds to run, those with most seconds of uncertainty per second of running first,
    until the interval of the set's run time is narrow enough; together they take at most
    :data:`SHARE` of the work of ``every``.

    The gains in width are no order: of many wide kinds each hardly matters while the others are
    wide.
    """
    left_s = SHARE * sum(kind.work_s for kind in every.values())
    interval, chosen = _Interval(every), list[UncertainKind]()
    enough = _ENOUGH * interval.width()
    for kind in sorted(candidates, key=lambda kind: -kind.doubt_s / kind.pilot_s):
        if len(chosen) == _MOST or interval.width() <= enough:
            break
        if kind.pilot_s <= left_s:
            left_s -= kind.pilot_s
            chosen.append(kind)
            interval.learn(kind)
    return chosen


class _Interval:
    """The predicted interval of a set's total run time, by samples: kinds × draws. A kind's tasks
    share an error; what is their own averages out among them."""

    def __init__(self, every: Mapping[str, UncertainKind]) -> None:
        self._rows = {name: n for n, name in enumerate(every)}
        self._errors = stream(0, "pilots").standard_normal((len(every), _DRAWS))
        self._seconds = np.array(
            [self._drawn(kind, kind.shared) for kind in every.values()]
        ).reshape(len(every), _DRAWS)

    def _drawn(self, kind: UncertainKind, shared: float) -> Floats:
        deviation = hypot(shared, kind.own / sqrt(max(1, kind.tasks)))
        errors: Floats = self._errors[self._rows[kind.kind]]
        drawn: Floats = kind.work_s * np.exp(deviation * errors)
        return drawn

    def width(self) -> float:
        """Return the logarithm of the .9 over the .1 quantile."""
        total = self._seconds.sum(axis=0)
        low, high = np.quantile(total, [0.1, 0.9])
        return float(np.log(high / low)) if low > 0 else 0.0

    def learn(self, kind: UncertainKind) -> None:
        """Replace a kind's uncertainty by that after its pilot."""
        row = self._rows[kind.kind]
        self._seconds[row] = self._drawn(kind, kind.shared_after)
