"""Bounds from the state of the queue (``--method state``), with QBETS as one of two components, and
as fallback.

A job's features at submission are the input of a conditional model, its quantiles are blended with
those of past waits (:mod:`vgrads.qbets.blend`), and the level to use of the blend is corrected by
outcomes (:mod:`vgrads.qbets.conformal`). QBETS' own bound is issued instead while there is no
model, or too few bounds were judged; and the larger of both while misses accumulate, and for jobs
of long bursts, which are one observation regardless of their number.

The caller starts learning (:meth:`StatePredictor.train`) when ``due``: it takes a second and should
not delay answers.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vgrads.qbets.blend import PastKnots, blended
from vgrads.qbets.conditional import LEAST, LEVELS, ConditionalModel, fit
from vgrads.qbets.conformal import BURSTS, Calibration, Issued
from vgrads.qbets.downtime import DowntimeWatch
from vgrads.qbets.knots import score_among, wait_at
from vgrads.qbets.predictor import JobArrival, QueuePredictor, Settings
from vgrads.qbets.queue_state import FEATURES, QueueState

Floats = NDArray[np.float64]
WINDOW = 20_000
"""Newest submissions from which a model is learned."""
_FIRST = 500  # submissions before the first model
_JUDGED = 200  # judged bounds before the model is used
_SURE = LEVELS.index(0.95)  # a waiting job counts as long beyond this raw quantile
_OWN, _SAME = FEATURES.index("own jobs waiting"), FEATURES.index("same waiting")


def rolling(count: int) -> int:
    """Schedule training often at first, then less, at last every 2,000 submissions."""
    least = _FIRST if count == 0 else 250 if count <= 5000 else 1000
    return count + int(np.clip(0.1 * count, least, 2000))


class TrainingRows:
    """Features and outcomes of the newest submissions, in order."""

    def __init__(self, window: int = WINDOW) -> None:
        self.features = np.empty((2 * window, len(FEATURES)), dtype=np.float32)
        self.submit_s, self.wait_s, self.raw_bound_s = (
            np.full(2 * window, np.nan) for _ in range(3)
        )
        self.first, self.count = 0, 0  # number of the first stored row; total number

    def add(self, features: Floats, at_s: float, raw_bound_s: float) -> int:
        """Add a submission and return its number; ``raw_bound_s`` is the model's raw bound, NaN
        without a model."""
        if self.count - self.first == 2 * WINDOW:
            for column in (self.features, self.submit_s, self.wait_s, self.raw_bound_s):
                column[:WINDOW] = column[WINDOW:]
            self.first += WINDOW
        spot = self.count - self.first
        self.features[spot], self.submit_s[spot] = features, at_s
        self.wait_s[spot], self.raw_bound_s[spot] = np.nan, raw_bound_s
        self.count += 1
        return self.count - 1

    def settle(self, number: int, wait_s: float) -> None:
        """Record a start after this wait (−1: the job was cancelled)."""
        if number >= self.first:
            self.wait_s[number - self.first] = wait_s

    def resolved(self, now_s: float) -> tuple[Floats, Floats]:
        """Return features and waits of the newest rows to learn from.

        Jobs that still wait count, with their age, once they have exceeded the model's confident
        bound: without them the model would learn that no job waits long.
        """
        size = self.count - self.first
        part = slice(max(0, size - WINDOW), size)
        wait_s, age_s = self.wait_s[part], now_s - self.submit_s[part]
        late = np.isnan(wait_s) & (age_s > self.raw_bound_s[part])
        use = (wait_s >= 0) | late
        return self.features[part][use], np.where(late, age_s, wait_s)[use]


@dataclass(slots=True)
class _Waiting:
    """A waiting job: its row, the model's quantiles, the issued and judged bounds."""

    submit_s: float
    number: int
    group: int
    floor_s: float | None
    knots: Floats | None = None
    issued: Issued | None = None
    judged_s: float = 0.0
    judged: bool = False


@dataclass(frozen=True, slots=True)
class MethodChoice:
    """Method of the bounds, ``state``, ``qbets`` or the larger of ``both``, and the reason."""

    whose: str
    why: str


class StatePredictor:
    """Interface of :class:`vgrads.qbets.predictor.QueuePredictor`, also updated with ends of
    jobs."""

    follows_ends = True

    def __init__(
        self,
        settings: Settings,
        unix_start_s: float = 0.0,
        awake_s: float = -math.inf,
        schedule: Callable[[int], int] = rolling,
    ) -> None:
        """Before ``awake_s`` only QBETS learns and no forecast is made; ``schedule`` returns, for
        the number of submissions so far, the number at which the next model is due."""
        self.settings, self.awake_s, self._schedule = settings, awake_s, schedule
        self.floor = QueuePredictor(replace(settings, method="qbets"))
        self.state = QueueState()
        self.rows = TrainingRows()
        self.calibration = Calibration(settings.quantile)
        self.model: ConditionalModel | None = None
        self.judged = 0
        self.next_training = schedule(0)
        self.answered: Counter[str] = Counter()
        self._unix_start_s = unix_start_s
        self.past = PastKnots()
        self._draws = random.Random(0)
        self._waiting: dict[int, _Waiting] = {}
        self._expiries: list[tuple[float, int]] = []

    # questions

    def features(self, arrival: JobArrival, at_s: float, ahead: int = 0) -> Floats:
        """Return the state of the queue for this job, with ``ahead`` more like it already
        waiting."""
        state = self.state.with_waiting(arrival, at_s, ahead) if ahead else self.state
        return state.features(arrival, at_s, self._unix_start_s)

    def waiting_alike(self, features: Floats) -> float:
        """Return the number that groups jobs for the correction: waiting jobs of the user, or if no
        user is known, identical waiting jobs, which in a burst are mostly one user's."""
        return float(features[_OWN if self.settings.knows_user else _SAME])

    def choose(self, group: int, floor: bool) -> MethodChoice:
        """Choose the method for jobs of a group; ``floor``: QBETS has enough history for a
        bound."""
        if self.model is None:
            return MethodChoice("qbets", "no model of the queue state has been learned yet")
        if not floor:
            return MethodChoice("state", "QBETS has too little history")
        if self.judged < _JUDGED:
            return MethodChoice(
                "qbets", f"{_JUDGED} judged bounds are needed, {self.judged} are known"
            )
        if group == len(BURSTS):
            whose = "of the user's own jobs" if self.settings.knows_user else "jobs exactly alike"
            return MethodChoice("both", f"{BURSTS[-1]} or more {whose} wait")
        if self.calibration.alarmed(group):
            return MethodChoice("both", "too many bounds were missed")
        return MethodChoice(
            "state", "the state of the queue and past waits, with the outcome of earlier bounds"
        )

    # what happens

    def submit(self, job: int, at_s: float, arrival: JobArrival) -> float | None:
        """Record a submission and return the bound on its wait, None while history is too short."""
        self.advance(at_s)
        if at_s < self.awake_s:
            self.state.submit(job, at_s, arrival)
            return self.floor.submit(job, at_s, arrival)
        job_arrival = self.settings.as_question(arrival)
        past = (
            None
            if self.model is None
            else self.past.of(self.floor, self.floor.bin_for(job_arrival))
        )
        floor_s = self.floor.submit(job, at_s, arrival)
        features = self.features(job_arrival, at_s)
        self.state.submit(job, at_s, arrival)
        knots = None if self.model is None else blended(self.model.knots(features)[0], past)
        raw_bound_s = np.nan if knots is None else float(knots[_SURE]) ** 3
        number = self.rows.add(features, at_s, raw_bound_s)
        group = self.calibration.group_of(self.waiting_alike(features))
        waiting = _Waiting(at_s, number, group, floor_s, knots)
        self._waiting[job] = waiting
        choice = self.choose(group, floor_s is not None)
        self.answered[choice.whose] += 1
        return floor_s if knots is None else self._issue(job, waiting, knots, choice)

    def _issue(
        self, job: int, waiting: _Waiting, knots: Floats, choice: MethodChoice
    ) -> float | None:
        """Return the bound, and record the one to be judged: the same, but the state's own if QBETS
        is used."""
        waiting.issued = self.calibration.issue(waiting.group)
        state_s = waiting.judged_s = float(wait_at(knots, waiting.issued.score))
        if choice.whose == "both" and waiting.floor_s is not None:
            waiting.judged_s = max(state_s, waiting.floor_s)
        heapq.heappush(self._expiries, (waiting.submit_s + waiting.judged_s, job))
        return waiting.floor_s if choice.whose == "qbets" else waiting.judged_s

    def start(self, job: int, at_s: float) -> None:
        """Record the start of a job and learn its wait."""
        self.advance(at_s)
        self.floor.start(job, at_s)
        self.state.start(job, at_s)
        waiting = self._waiting.pop(job, None)
        if waiting is None:
            return
        wait_s = at_s - waiting.submit_s
        self.rows.settle(waiting.number, wait_s)
        if waiting.knots is None or waiting.issued is None:
            return
        if not waiting.judged:
            self._judge(waiting, waiting.issued, wait_s > waiting.judged_s)
        score = score_among(waiting.knots, wait_s, self._draws.random())
        self.calibration.learn(waiting.group, waiting.issued, score)

    def withdraw(self, job: int, at_s: float) -> None:
        """Record that a job leaves the queue without a start."""
        self.advance(at_s)
        self.floor.withdraw(job, at_s)
        self.state.withdraw(job)
        if job in self._waiting:
            self.rows.settle(self._waiting.pop(job).number, -1.0)

    def end(self, job: int, at_s: float) -> None:
        """Record the end of a running job."""
        self.advance(at_s)
        self.state.end(job, at_s)

    def advance(self, at_s: float) -> None:
        """Advance the time; jobs that have now waited longer than their bound are misses."""
        self.floor.advance(at_s)
        while self._expiries and self._expiries[0][0] < at_s:
            _, job = heapq.heappop(self._expiries)
            waiting = self._waiting.get(job)
            if waiting is not None and waiting.issued is not None and not waiting.judged:
                self._judge(waiting, waiting.issued, True)

    def _judge(self, waiting: _Waiting, issued: Issued, missed: bool) -> None:
        waiting.judged = True
        self.judged += 1
        self.calibration.judge(waiting.group, issued, missed)

    def frozen(self) -> StatePredictor:
        """Return the same knowledge for forecasts only, without training data."""
        same = copy(self)
        same.state, same.calibration = deepcopy(self.state), deepcopy(self.calibration)
        same.rows, same._waiting, same._expiries = TrainingRows(0), {}, []
        same.floor, same.past = QueuePredictor(self.floor.settings), PastKnots()
        return same

    # learning

    @property
    def due(self) -> bool:
        """True if enough has happened since the last model for a new one."""
        return self.rows.count >= self.next_training

    def train(self) -> None:
        """Learn a new model from the current data."""
        self.next_training = self._schedule(self.rows.count)
        features, waits_s = self.rows.resolved(self.now_s)
        if len(waits_s) >= LEAST:
            self.model = fit(features, waits_s)

    # results for a backtest

    @property
    def now_s(self) -> float:
        return self.floor.now_s

    @property
    def edges(self) -> list[float]:
        return self.floor.edges

    @property
    def change_points(self) -> list[float]:
        return self.floor.change_points

    @property
    def downtime(self) -> DowntimeWatch:
        return self.floor.downtime

    def check(self) -> None:
        """Check that both predictors have the same waiting jobs, and are consistent."""
        self.floor.check()
        self.calibration.check()
        if set(self.state.waiting.keys) != set(self.floor.waiting):
            raise AssertionError("state and floor know different jobs")
        if not set(self._waiting) <= set(self.floor.waiting):
            raise AssertionError("jobs are judged that do not wait any more")
