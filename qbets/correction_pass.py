"""One pass of the correction over a part of a history: bounds are issued at submission, judged, and
correct later ones."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from vgrads.kernel.arrays import Floats, Ints
from vgrads.qbets.conditional import LEVELS
from vgrads.qbets.conformal import BURSTS, Calibration, Issued, derive_class_marks
from vgrads.qbets.events import QueueEvents
from vgrads.qbets.knots import score_among, wait_at, wait_of
from vgrads.qbets.level_curve import LevelCurve
from vgrads.qbets.predictor import RECORDED, Settings
from vgrads.qbets.state.queue_features import FEATURES
from vgrads.qbets.state.queue_tables import LEAVE, SUBMIT
from vgrads.traces.records import JobLog

Numbers = TypeVar("Numbers", bound=NDArray[np.floating[Any]])
_JUDGED = 200  # judged bounds before the model is used
_OWN, _SAME = FEATURES.index("own jobs waiting"), FEATURES.index("same waiting")
_SHARE, _TIME = FEATURES.index("share of the machine"), FEATURES.index("requested time")
_QUEUE = FEATURES.index("queue")


@dataclass(frozen=True, slots=True)
class MethodChoice:
    """Method of the bounds, ``state``, ``qbets`` or the larger of ``both``, and the reason."""

    whose: str
    why: str


def derive_waiting_group(features: Floats, knows_user: bool) -> Floats:
    """Return the number that groups jobs for the correction: waiting jobs of the user, or if no
    user is known, identical waiting jobs, which in a burst are mostly one user's."""
    return features[..., _OWN if knows_user else _SAME]


def derive_marks(features: Floats) -> tuple[int, ...]:
    """Return the classes of a job with these features."""
    queue = features[_QUEUE]
    request_s = math.exp(features[_TIME]) * (1 - 1e-6)  # exact limits belong to the lower class
    return derive_class_marks(
        float(features[_SHARE]), request_s, -1 if math.isnan(queue) else int(queue)
    )


def choose_method(
    calibration: Calibration, judged: int, group: int, floor: bool, knows_user: bool
) -> MethodChoice:
    """Choose the method for jobs of a group, where there is a model; ``floor``: QBETS has enough
    history for a bound."""
    if not floor:
        return MethodChoice("state", "QBETS has too little history")
    if judged < _JUDGED:
        return MethodChoice("qbets", f"{_JUDGED} judged bounds are needed, {judged} are known")
    if group == len(BURSTS):
        whose = "of the user's own jobs" if knows_user else "jobs exactly alike"
        return MethodChoice("both", f"{BURSTS[-1]} or more {whose} wait")
    if calibration.alarmed(group):
        return MethodChoice("both", "too many bounds were missed")
    return MethodChoice(
        "state", "the state of the queue and past waits, with the outcome of earlier bounds"
    )


class SubmittedRows:
    """Quantiles of model and past waits, QBETS's bound, and classes of each submission from
    ``first`` on; NaN where there is none."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.past, self.knots = (np.empty((0, len(LEVELS))) for _ in range(2))
        self.floor_s = np.empty(0)  # of all submissions
        self.floor_levels_s = np.empty((0, 0))  # its bounds at further levels
        self.floor_longest_s = np.empty(0)  # the longest of its waits
        self.replaced = np.empty(0)  # how far the newest models answer, from 0 to 1
        self.groups: Ints = np.empty(0, dtype=np.int64)
        self.marks: list[tuple[int, ...]] = []

    def read(self, log: JobLog, count: int, levels: int = 0) -> None:
        """Make room for this number of submissions of a log, with bounds at so many levels."""
        size = max(0, count - self.first)
        self.wait_s, self.started = log.wait_s.tolist(), log.started.tolist()
        self.past, self.knots = extend_table(self.past, size), extend_table(self.knots, size)
        self.replaced = extend_table(self.replaced, size)
        self.floor_s = extend_table(self.floor_s, len(log))
        if levels:
            self.floor_levels_s = extend_table(self.floor_levels_s.reshape(-1, levels), len(log))
            self.floor_longest_s = extend_table(self.floor_longest_s, len(log))
        more = np.zeros(max(0, size - len(self.groups)), dtype=np.int64)
        self.groups = np.concatenate([self.groups, more])
        self.marks += [()] * (size - len(self.marks))

    def __getstate__(self) -> dict[str, object]:
        """Leave out what comes from the log."""
        dropped = ("wait_s", "started")
        return {name: value for name, value in vars(self).items() if name not in dropped}

    def describe(
        self, rows: Ints, knots: Floats, replaced: Floats, features: Floats, knows_user: bool
    ) -> None:
        """Store quantiles and classes of submissions, and how far the newest models answer."""
        spots = rows - self.first
        self.knots[spots], self.replaced[spots] = knots, replaced
        self.groups[spots] = Calibration.groups_of(derive_waiting_group(features, knows_user))
        for spot, line in zip(spots.tolist(), features, strict=True):
            self.marks[spot] = derive_marks(line)


def extend_table(table: Numbers, rows: int) -> Numbers:
    """Return a table with at least this many rows; new ones are NaN."""
    result = np.full((max(rows, len(table)), *table.shape[1:]), np.nan, table.dtype)
    result[: len(table)] = table
    return cast(Numbers, result)


@dataclass(slots=True)
class _Waiting:
    """A waiting job with the bound to be judged."""

    row: int
    issued: Issued
    judged_s: float
    judged: bool = False


class CorrectionPass:
    """Issues, judges and corrects bounds of the submissions from ``first`` on."""

    def __init__(self, rows: SubmittedRows, first: int, place: int, settings: Settings) -> None:
        """``place``: of the first submission among the events."""
        self.calibration, self.judged = Calibration(settings.quantile), 0
        self.first, self._rows, self._place, self._settings = first, rows, place, settings
        self.earlier: CorrectionPass | None = None
        self.missed: deque[tuple[int, bool]] = deque(maxlen=RECORDED)
        # a fixed seed: a repeated replay must give the same answers
        self._draws = random.Random(0)
        self._waiting: dict[int, _Waiting] = {}
        self._expiries: list[tuple[float, int]] = []

    def replace(self, earlier: CorrectionPass) -> None:
        """Answer instead of another pass from now on: by degrees, as the rows of submissions
        say."""
        earlier.earlier = None
        self.earlier = earlier

    def to(
        self,
        events: QueueEvents,
        last: int,
        issued_s: Floats | None = None,
        levels: Sequence[float] = (),
    ) -> list[str]:
        """Apply events up to this place; write issued bounds, with those at ``levels`` in further
        columns, and return the methods that answered, in order."""
        part = events.part(self._place, last)
        self._place = max(self._place, last)
        answered, first = [], self.first
        for at_s, kind, row in zip(*(column.tolist() for column in part), strict=True):
            if kind not in (SUBMIT, LEAVE):
                continue
            self._apply(at_s, kind, row)
            if kind == SUBMIT and row >= first and issued_s is not None:
                issued_s[row], method = self._answer(row, levels)
                answered.append(method)
        return answered

    def _apply(self, at_s: float, kind: int, row: int) -> None:
        """Apply an event here, and to the pass that still answers in part."""
        if self.earlier is not None:
            self.earlier._apply(at_s, kind, row)
        # issued by an earlier pass, and judged there
        if row < self.first:
            return
        self._expire(at_s)
        if kind == SUBMIT:
            self._submit(row, at_s)
        elif row in self._waiting:
            self._leave(self._waiting.pop(row))

    def _submit(self, row: int, at_s: float) -> None:
        """Issue the level of a submission, and expect its outcome."""
        rows, spot = self._rows, row - self._rows.first
        floor_s, knots = float(rows.floor_s[row]), rows.knots[spot]
        if math.isnan(knots[0]):
            return
        # without weight in any further answer it need not follow the events
        if self.earlier is not None and rows.replaced[spot] >= 1.0:
            self.earlier = None
        group = int(rows.groups[spot])
        issued = self.calibration.issue(group, rows.marks[spot])
        judged_s = wait_of(knots, issued.score)
        if self.choose(group, not math.isnan(floor_s)).whose == "both":
            judged_s = max(judged_s, floor_s)
        self._waiting[row] = _Waiting(row, issued, judged_s)
        # in other views no job is known to wait: bounds are judged when jobs appear
        if self._settings.sees_waiting:
            heapq.heappush(self._expiries, (at_s + judged_s, row))

    def _answer(self, row: int, levels: Sequence[float]) -> tuple[Floats, str]:
        """Return the bounds of a submission, that of the settings first, and their method, as
        :meth:`vgrads.qbets.state_forecast.StateForecast.bounds` does; NaN for no bound."""
        rows, spot = self._rows, row - self._rows.first
        floor_s = rows.floor_s[row : row + 1]
        if levels:
            floor_s = np.append(floor_s, rows.floor_levels_s[row])
        knots = rows.knots[spot]
        if math.isnan(knots[0]):
            return floor_s, "qbets"
        whose = self.choose(int(rows.groups[spot]), not math.isnan(floor_s[0])).whose
        if whose == "qbets":
            return floor_s, whose
        curve = self._curve(row)
        result = wait_at(knots, [curve.score(p) for p in (self._settings.quantile, *levels)])
        if whose != "both":
            return result, whose
        if levels:
            # no bound of QBETS at this level: the longest wait is the least that is known
            floor_s = np.where(np.isnan(floor_s), rows.floor_longest_s[row], floor_s)
        return np.asarray(np.maximum(result, floor_s)), whose

    def _curve(self, row: int) -> LevelCurve:
        """Return the levels issued for a submission."""
        spot = row - self._rows.first
        result = self.calibration.curve(int(self._rows.groups[spot]), self._waiting[row].issued)
        if self.earlier is None:
            return result
        return result.replacing(self.earlier._curve(row), float(self._rows.replaced[spot]))

    def choose(self, group: int, floor: bool) -> MethodChoice:
        """Choose the method for jobs of a group, where there is a model."""
        knows_user = self._settings.knows_user
        return choose_method(self.calibration, self.judged, group, floor, knows_user)

    def _leave(self, waiting: _Waiting) -> None:
        """Learn the wait of a job that starts; nothing from a cancelled one."""
        if not self._rows.started[waiting.row]:
            return
        spot, wait_s = waiting.row - self._rows.first, self._rows.wait_s[waiting.row]
        if not waiting.judged:
            self._judge(waiting, wait_s > waiting.judged_s)
        score = score_among(self._rows.knots[spot], wait_s, self._draws.random())
        self.calibration.learn(int(self._rows.groups[spot]), waiting.issued, score)

    def advance(self, at_s: float) -> None:
        """Advance the time; jobs that have now waited longer than their bound are misses."""
        if self.earlier is not None:
            self.earlier.advance(at_s)
        self._expire(at_s)

    def _expire(self, at_s: float) -> None:
        # a start exactly at the bound keeps it; entries of jobs that have left are skipped
        while self._expiries and self._expiries[0][0] < at_s:
            _, row = heapq.heappop(self._expiries)
            waiting = self._waiting.get(row)
            if waiting is not None and not waiting.judged:
                self._judge(waiting, True)

    def _judge(self, waiting: _Waiting, missed: bool) -> None:
        waiting.judged = True
        self.judged += 1
        self.missed.append((waiting.row, missed))
        group = int(self._rows.groups[waiting.row - self._rows.first])
        self.calibration.judge(group, waiting.issued, missed)

    def check(self, waiting: set[int]) -> None:
        """Check the calibration, and that only waiting jobs wait here."""
        self.calibration.check()
        if not set(self._waiting) <= waiting:
            raise AssertionError("jobs are judged that do not wait any more")
