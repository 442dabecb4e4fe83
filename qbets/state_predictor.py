"""Bounds that look at the queue (``--method state``), with QBETS as a voice among two, and as
fallback.

A job's features at submission go to a conditional model, its quantiles are blended with those of
past waits (:mod:`vgrads.qbets.blend`), and the level that is asked of the blend is corrected by
what came true (:mod:`vgrads.qbets.conformal`). QBETS' own bound is given instead while there is no
model, or fewer bounds were judged than say anything; and the larger of both while misses pile up,
and for jobs of long bursts, which are one observation however many they are.

Learning (:meth:`StatePredictor.train`) is the caller's to start when ``due``: it takes a second and
belongs off the path of answers.
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
from vgrads.qbets.predictor import Arrival, QueuePredictor, Settings
from vgrads.qbets.queue_state import FEATURES, QueueState

Floats = NDArray[np.float64]
WINDOW = 20_000
"""Newest submissions that a model is learned from."""
_FIRST = 500  # submissions before the first model
_JUDGED = 200  # judged bounds before the model is believed
_SURE = LEVELS.index(0.95)  # a waiting job counts as long once it outlives this raw quantile
_OWN, _SAME = FEATURES.index("own jobs waiting"), FEATURES.index("same waiting")


def rolling(count: int) -> int:
    """Often at first, then ever more rarely, at last every 2,000 submissions."""
    least = _FIRST if count == 0 else 250 if count <= 5000 else 1000
    return count + int(np.clip(0.1 * count, least, 2000))


class Rows:
    """Features of the newest submissions and what became of them, in the order of submission."""

    def __init__(self, window: int = WINDOW) -> None:
        self.features = np.empty((2 * window, len(FEATURES)), dtype=np.float32)
        self.submit_s, self.wait_s, self.raw_bound_s = (
            np.full(2 * window, np.nan) for _ in range(3)
        )
        self.first, self.count = 0, 0  # number of the first row kept; how many ever

    def add(self, features: Floats, at_s: float, raw_bound_s: float) -> int:
        """A submission; ``raw_bound_s`` is the model's raw bound, NaN without a model. Its
        number."""
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
        """The job has started after this wait (−1: it was withdrawn)."""
        if number >= self.first:
            self.wait_s[number - self.first] = wait_s

    def known(self, now_s: float) -> tuple[Floats, Floats]:
        """Features and waits of the newest rows to learn from.

        Jobs that wait still count, with their age, once they have outlived what the model was sure
        of: leaving them out would teach that nobody waits long.
        """
        size = self.count - self.first
        part = slice(max(0, size - WINDOW), size)
        wait_s, age_s = self.wait_s[part], now_s - self.submit_s[part]
        late = np.isnan(wait_s) & (age_s > self.raw_bound_s[part])
        use = (wait_s >= 0) | late
        return self.features[part][use], np.where(late, age_s, wait_s)[use]


@dataclass(slots=True)
class _Waiting:
    """A waiting job: its row, what the model said, what was issued and is judged."""

    submit_s: float
    number: int
    group: int
    floor_s: float | None
    knots: Floats | None = None
    issued: Issued | None = None
    judged_s: float = 0.0
    judged: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """Whose bounds are given, ``state``, ``qbets`` or the larger of ``both``, and why."""

    whose: str
    why: str


class StatePredictor:
    """Fed and asked as :class:`vgrads.qbets.predictor.QueuePredictor`, and told when jobs end."""

    follows_ends = True

    def __init__(
        self,
        settings: Settings,
        unix_start_s: float = 0.0,
        awake_s: float = -math.inf,
        schedule: Callable[[int], int] = rolling,
    ) -> None:
        """Before ``awake_s`` only QBETS learns and nobody is foretold; ``schedule`` says after how
        many submissions, given those so far, the next model is due.
        """
        self.settings, self.awake_s, self._schedule = settings, awake_s, schedule
        self.floor = QueuePredictor(replace(settings, method="qbets"))
        self.state = QueueState()
        self.rows = Rows()
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

    # what is asked

    def features(self, arrival: Arrival, at_s: float, ahead: int = 0) -> Floats:
        """The state of the queue as this job would find it; with so many more like it waiting
        already."""
        state = self.state.with_waiting(arrival, at_s, ahead) if ahead else self.state
        return state.features(arrival, at_s, self._unix_start_s)

    def waiting_alike(self, features: Floats) -> float:
        """By what jobs are told apart for the correction: how many the user has waiting, and where
        none is known how many jobs exactly alike wait, which in a burst are mostly one user's."""
        return float(features[_OWN if self.settings.knows_user else _SAME])

    def choose(self, group: int, floor: bool) -> Choice:
        """Whose bounds are given to jobs of a group; ``floor``: QBETS has enough history for
        one."""
        if self.model is None:
            return Choice("qbets", "nothing was learned yet from states of the queue")
        if not floor:
            return Choice("state", "QBETS has too little history")
        if self.judged < _JUDGED:
            return Choice("qbets", f"{_JUDGED} judged bounds are needed, {self.judged} are known")
        if group == len(BURSTS):
            whose = "of the user's own jobs" if self.settings.knows_user else "jobs exactly alike"
            return Choice("both", f"{BURSTS[-1]} or more {whose} wait")
        if self.calibration.alarmed(group):
            return Choice("both", "misses pile up")
        return Choice("state", "the state of the queue and past waits, as they came true")

    # what happens

    def submit(self, job: int, at_s: float, arrival: Arrival) -> float | None:
        """A job enters the queue: the bound on its wait, None while history is too short."""
        self.advance(at_s)
        if at_s < self.awake_s:
            self.state.submit(job, at_s, arrival)
            return self.floor.submit(job, at_s, arrival)
        asked = self.settings.as_asked(arrival)
        past = None if self.model is None else self.past.of(self.floor, self.floor.bin_for(asked))
        floor_s = self.floor.submit(job, at_s, arrival)
        features = self.features(asked, at_s)
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

    def _issue(self, job: int, waiting: _Waiting, knots: Floats, choice: Choice) -> float | None:
        """The bound, and what will be judged: the same, but the state's own where QBETS answers."""
        waiting.issued = self.calibration.issue(waiting.group)
        state_s = waiting.judged_s = float(wait_at(knots, waiting.issued.score))
        if choice.whose == "both" and waiting.floor_s is not None:
            waiting.judged_s = max(state_s, waiting.floor_s)
        heapq.heappush(self._expiries, (waiting.submit_s + waiting.judged_s, job))
        return waiting.floor_s if choice.whose == "qbets" else waiting.judged_s

    def start(self, job: int, at_s: float) -> None:
        """A job starts: its wait is known now."""
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
        """A job leaves the queue without ever starting."""
        self.advance(at_s)
        self.floor.withdraw(job, at_s)
        self.state.withdraw(job)
        if job in self._waiting:
            self.rows.settle(self._waiting.pop(job).number, -1.0)

    def end(self, job: int, at_s: float) -> None:
        """A running job ends."""
        self.advance(at_s)
        self.state.end(job, at_s)

    def advance(self, at_s: float) -> None:
        """Time passes; jobs that have now waited longer than their bound are misses."""
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
        """The same knowledge for answers only: without what it would learn from."""
        same = copy(self)
        same.state, same.calibration = deepcopy(self.state), deepcopy(self.calibration)
        same.rows, same._waiting, same._expiries = Rows(0), {}, []
        same.floor, same.past = QueuePredictor(self.floor.settings), PastKnots()
        return same

    # learning

    @property
    def due(self) -> bool:
        """Enough has happened since the last model that a new one is worth its second."""
        return self.rows.count >= self.next_training

    def train(self) -> None:
        """Learn a new model from what is known now."""
        self.next_training = self._schedule(self.rows.count)
        features, waits_s = self.rows.known(self.now_s)
        if len(waits_s) >= LEAST:
            self.model = fit(features, waits_s)

    # what a backtest tells

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
        """Both predictors know the same waiting jobs, and are each in order."""
        self.floor.check()
        self.calibration.check()
        if set(self.state.waiting.keys) != set(self.floor.waiting):
            raise AssertionError("state and floor know different jobs")
        if not set(self._waiting) <= set(self.floor.waiting):
            raise AssertionError("jobs are judged that do not wait any more")
