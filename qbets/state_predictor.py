"""Bounds from the state of the queue (``--method state``), with QBETS as one of two components, and
as fallback.

A job's features at submission are the input of a conditional model, its quantiles are blended with
those of past waits (:mod:`vgrads.qbets.blend`), and the level to use of the blend is corrected by
outcomes (:mod:`vgrads.qbets.correction_pass`). QBETS' own bound is issued instead while there is no
model, or too few bounds were judged; and the larger of both while misses accumulate, and for jobs
of long bursts, which are one observation regardless of their number.

Everything learned depends on *anchors*, which are numbers of submissions: a model is learned at
each, the mean of the newest two answers, and the correction starts again two anchors back; so does
QBETS, at anchors of its own. So a single question, which learns nothing before that, gets the
answer of a replay of the whole history. What is learned at an anchor replaces what was learned
before by degrees, during the next submissions, so that learning alone does not move an answer.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vgrads.kernel.arrays import Floats
from vgrads.qbets.blend import PastKnots, blend_predictions
from vgrads.qbets.conditional import LEAST, MODELS, ConditionalModel, average_knots, fit
from vgrads.qbets.correction_pass import CorrectionPass, SubmittedRows, extend_table
from vgrads.qbets.downtime import DowntimeWatch
from vgrads.qbets.events import (
    QueueEvents,
    adapt_settings,
    list_users,
    make_events,
)
from vgrads.qbets.past_replay import BACK, NONE, FurtherBounds, PastReplay
from vgrads.qbets.predictor import IssuedRecord, QueuePredictor, Settings, count_outcomes
from vgrads.qbets.state.queue_features import FEATURES, LIKE_S
from vgrads.qbets.state.queue_state import QueueState
from vgrads.qbets.state.queue_tables import LEAVE, SUBMIT, JobColumns
from vgrads.qbets.viewed_log import ViewedLog, select_view
from vgrads.traces.records import JobLog

WINDOW = 10_000
"""Newest submissions from which a model is learned."""
_LATE = 0.95  # share of a window's waits beyond which a waiting job counts as late
_FIRST, _LEAST_STEP, _MOST_STEP, _STEP = 500, 250, 4000, 0.2
_REPLACING = 16  # part of a step during which new models and corrections replace the earlier ones


def list_anchors(count: int) -> list[int]:
    """Return the numbers of submissions, up to this one, at which models are learned: often at
    first, at last every 4,000."""
    result, anchor = [], _FIRST
    while anchor <= count:
        result.append(anchor)
        anchor += _step(anchor)
    return result


def _step(anchor: int) -> int:
    """Return the number of submissions to the next anchor."""
    return int(np.clip(_STEP * anchor, _LEAST_STEP, _MOST_STEP))


def compute_replacement(anchor: int, count: ArrayLike) -> Floats:
    """Return how far what was learned at an anchor has replaced what was learned before, after
    these numbers of submissions: from 0 at the anchor to 1."""
    share = (np.asarray(count) - anchor) / (_step(anchor) // _REPLACING)
    return np.asarray(np.clip(share, 0.0, 1.0))


def find_correction_start(anchors: list[int], number: int) -> int:
    """Return the submission at which the correction of the models of an anchor, by its number,
    starts: after what was learned :data:`BACK` anchors before has replaced the earlier."""
    anchor = anchors[max(0, number - BACK)]
    return anchor + _step(anchor) // _REPLACING if number > BACK else anchor


@dataclass(frozen=True, slots=True)
class Required:
    """First submissions that are needed for questions at an instant: to have a model, a correction,
    features."""

    model: int = 0
    corrected: int = 0
    features: int = 0

    def within(self, other: Required) -> bool:
        """True if nothing is needed that another instant does not need."""
        return (
            self.model >= other.model
            and self.corrected >= other.corrected
            and self.features >= other.features
        )


def required_for(count: int) -> Required:
    """Return what questions after ``count`` submissions need."""
    anchors = list_anchors(count)
    if not anchors:
        return Required()
    number = len(anchors) - 1
    if compute_replacement(anchors[-1], count) < 1.0:  # what was learned before answers in part
        number = max(0, number - 1)
    model = anchors[max(0, number - BACK - MODELS + 1)]
    corrected = find_correction_start(anchors, number)
    return Required(model=model, corrected=corrected, features=max(0, model - WINDOW))


class StatePredictor:
    """Replays a history, and answers as of any instant of it."""

    def __init__(
        self,
        log: JobLog,
        settings: Settings,
        only_at_s: float | None = None,
        further: FurtherBounds = NONE,
    ) -> None:
        """``only_at_s``: the only instant of questions; what these do not need is not learned, and
        no bounds are issued to jobs before it.
        ``further``: bounds that are issued beside that of the settings."""
        self.settings = adapt_settings(settings, log)
        self.unix_start_s = log.unix_start_s
        self.state = QueueState()
        self.models: list[ConditionalModel] = []
        self.answered: Counter[str] = Counter()
        self.count = 0  # submissions so far
        self._place = 0  # events so far
        self._trained = 0  # anchors passed
        viewed = _view_jobs(log, self.settings, only_at_s)
        last = viewed.count_at(only_at_s)
        self._is_whole = only_at_s is None
        self._needs = Required() if self._is_whole else required_for(last)
        self._features = np.empty((0, len(FEATURES)), np.float32)
        self._levels = further.levels
        self._rows = SubmittedRows(self._needs.corrected)
        self._past = PastReplay(self.settings, self._rows, further)
        self._issued = np.empty((0, 1 + len(further.levels)))
        self._digest = b""  # of the events so far
        self._read(viewed, _make_events(viewed, self.settings), last)
        self.correction = self._pass_from(self._needs.corrected)

    def _read(self, viewed: ViewedLog, events: QueueEvents, last: int) -> None:
        """Prepare a replay of these events, up to this number of jobs that have appeared."""
        self._viewed, self._log, self._events = viewed, viewed.log, events
        self._columns = _make_columns(self.state, viewed.log, self.settings)
        appears = SUBMIT if self.settings.sees_waiting else LEAVE
        self._shown = np.flatnonzero(events.kinds == appears)
        self._anchors = list_anchors(last)
        self._features = extend_table(self._features, last - self._needs.features)
        self._issued = extend_table(self._issued, len(viewed.log))
        self._rows.read(viewed.log, last, len(self._levels))
        self._past.read(viewed.log, self._issued)

    @property
    def issued(self) -> Floats:
        """The bound issued to each job of the log; NaN for none."""
        return self.issued_at(None)

    def issued_at(self, level: float | None) -> Floats:
        """Return the same for one of the further levels; None: that of the settings."""
        column = 0 if level is None else 1 + self._levels.index(level)
        return self._viewed.in_history(self._issued[:, column])

    def __getstate__(self) -> dict[str, object]:
        """Leave out what comes from the log: :meth:`resumed` reads it again."""
        self._digest = _digest_of(self._events, self._log, self._place)
        dropped = ("_viewed", "_log", "_columns", "_events", "_shown")
        content = {name: value for name, value in vars(self).items() if name not in dropped}
        return content | {"state": self.state.separate()}

    def resumed(self, log: JobLog, settings: Settings, at_s: float) -> bool:
        """Continue a stored replay with a log that has more events; return False where its earlier
        events are others, or questions at the instant need what it has not learned."""
        if at_s < self.now_s or adapt_settings(settings, log) != self.settings:
            return False
        viewed = _view_jobs(log, self.settings, at_s)
        if not required_for(viewed.count_at(at_s)).within(self._needs):
            return False
        events = _make_events(viewed, self.settings)
        # events added at the last instant should have been sorted among those replayed already
        same_instant = int(np.searchsorted(events.times, self.now_s, side="right"))
        if same_instant != self._place:
            return False
        if _digest_of(events, viewed.log, self._place) != self._digest:
            return False
        self._read(viewed, events, viewed.count_at(at_s))
        return True

    def _pass_from(self, row: int) -> CorrectionPass:
        place = int(self._shown[row]) if row < len(self._shown) else 0
        return CorrectionPass(self._rows, row, place, self.settings)

    def to(self, until_s: float = np.inf) -> None:
        """Replay everything up to and including an instant."""
        last = int(np.searchsorted(self._events.times, until_s, side="right"))
        if last > self._place:
            self._replay(last)
        if np.isfinite(until_s):
            self.floor.advance(max(until_s, self.floor.now_s))
            self.correction.advance(self.floor.now_s)

    def _replay(self, last: int) -> None:
        """Replay events up to this place: past waits, states, models, and their correction."""
        part = self._events.part(self._place, last)
        first, start, self._place = self.count, self._place, last
        self.count = int(np.searchsorted(self._shown, last))
        self._past.follow(self._events, self._shown, (start, last), (first, self.count))
        self._look(part, first)
        while self._trained < len(self._anchors) and self._anchors[self._trained] <= self.count:
            anchor = self._anchors[self._trained]
            place = int(self._shown[anchor - 1]) + 1
            self._answer(start, place)
            start = max(start, place)
            self._learn(anchor, place)
        self._answer(start, last)

    def _look(self, part: QueueEvents, first: int) -> None:
        """Update the state, and store the features of new submissions."""
        start = max(first, self._needs.features)
        awake = start
        sees_waiting = self.settings.sees_waiting
        if sees_waiting and first < start < self.count:
            # from the first of a minute on, as in a longer replay
            minute_s = self._log.submit_s[start] // LIKE_S * LIKE_S
            awake = max(first, int(np.searchsorted(self._log.submit_s, minute_s)))
        named = (self.settings.knows_user, self.settings.knows_queue)
        how, view = (awake, self.unix_start_s, *named), self.settings.view
        rows, started = part.submitted(awake), self._log.started
        features = self.state.replay(part, self._columns, started, how, len(rows), view)
        needed = rows >= start
        self._features[rows[needed] - self._needs.features] = features[needed]

    def _learn(self, anchor: int, place: int) -> None:
        """Learn a model after so many submissions, and start the correction again from an earlier
        anchor."""
        number = self._trained
        self._trained += 1
        if anchor < self._needs.model:
            return
        self._train(anchor)
        start = find_correction_start(self._anchors, number)
        if start > self.correction.first:
            earlier, self.correction = self.correction, self._pass_from(start)
            # catches up with the events before it takes over
            self.correction.to(self._events, place)
            self.correction.replace(earlier)

    def _train(self, anchor: int) -> None:
        """Learn a model from what was known right after so many jobs had appeared."""
        shift = self._needs.features
        part = slice(max(shift, anchor - WINDOW), anchor)
        features: NDArray[np.float32] = self._features[part.start - shift : part.stop - shift]
        model = learn_model(self._viewed, part, features, self.settings.sees_waiting)
        newest = self.models[-1:] if model is None else [model]
        # one more than answer: the oldest fades out while the newest replaces it
        self.models = [*self.models, *newest][-MODELS - 1 :]

    def _answer(self, start: int, place: int) -> None:
        """Predict, issue and judge the bounds of the submissions between these places."""
        part = self._events.part(start, place)
        rows = part.submitted(self._needs.corrected)
        if self.models and len(rows):
            features = self._features[rows - self._needs.features].astype(np.float64)
            past = self._rows.past[rows - self._needs.corrected]
            submits = (part.kinds == SUBMIT) & (part.rows >= self._needs.corrected)
            counts = np.searchsorted(self._shown, start + np.flatnonzero(submits))
            replaced = compute_replacement(self._anchors[self._trained - 1], counts)
            knots = blend_predictions(average_knots(self.models, features, replaced), past)
            self._rows.describe(rows, knots, replaced, features, self.settings.knows_user)
        issued_s = self._issued if self._is_whole else None
        self.answered.update(self.correction.to(self._events, place, issued_s, self._levels))

    @property
    def replaced(self) -> float:
        """How far the newest model and correction have replaced the earlier ones, from 0 to 1."""
        anchors = self._anchors[: self._trained][-1:]
        return float(compute_replacement(anchors[0], self.count)) if anchors else 1.0

    def record_of(self, queue: int) -> IssuedRecord:
        """Return the record of the newest bounds for jobs of a queue, by number; of all if −1."""
        queues = self._viewed.log.queue
        missed = [m for row, m in self.correction.missed if queue in {-1, int(queues[row])}]
        return count_outcomes(missed)

    @property
    def floor(self) -> QueuePredictor:
        """QBETS."""
        return self._past.floor

    @property
    def past(self) -> PastKnots:
        """Quantiles of past waits."""
        return self._past.past

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
        """Check that all parts have the same waiting jobs, and are consistent."""
        self.floor.check()
        self.correction.check(set(self.floor.waiting))
        if set(self.state.waiting) != set(self.floor.waiting):
            raise AssertionError("state and floor know different jobs")


def learn_model(
    viewed: ViewedLog, part: slice, features: NDArray[np.float32], sees_waiting: bool
) -> ConditionalModel | None:
    """Return a model of the waits of a part of the jobs, by what was known when the last of them
    appeared; None if that is too little. ``features``: of these jobs."""
    now_s, log = float(viewed.shown_s[part.stop - 1]), viewed.log
    # a start in the same second is not known yet, unless it is what makes a job appear
    has_started = log.start_s[part] < (now_s if sees_waiting else np.inf)
    age_s = now_s - log.submit_s[part]
    started = has_started & log.started[part]
    if int(started.sum()) < LEAST:
        return None
    # without those that wait for very long it would learn that no job waits long
    late = ~has_started & (age_s > np.quantile(log.wait_s[part][started], _LATE))
    use = started | late
    waits_s = np.where(late, age_s, log.wait_s[part])[use]
    return fit(features[use].astype(np.float64), waits_s)


def _view_jobs(log: JobLog, settings: Settings, only_at_s: float | None) -> ViewedLog:
    """Return the jobs of a log as the view shows them: for a single question those that have
    appeared by then, unless jobs appear at their submission."""
    viewed = select_view(log, settings.view)
    return viewed if only_at_s is None or settings.sees_waiting else viewed.until(only_at_s)


def _make_events(viewed: ViewedLog, settings: Settings) -> QueueEvents:
    return make_events(viewed.log, ends=True, view=settings.view)


def _digest_of(events: QueueEvents, log: JobLog, place: int) -> bytes:
    """Return a digest of events and of the jobs that they submit."""
    result, part = hashlib.blake2b(), events.part(0, place)
    # waits only of jobs that have left: those of others become known later
    jobs, left = part.submitted(), part.rows[part.kinds == LEAVE]
    columns = (log.procs, log.request_s, log.user, log.queue)
    for column in (*part, *(column[jobs] for column in columns), log.wait_s[left]):
        result.update(np.ascontiguousarray(column).tobytes())
    return result.digest()


def _make_columns(state: QueueState, log: JobLog, settings: Settings) -> JobColumns:
    """Return the jobs of a log as the state counts them."""
    procs = log.procs if settings.procs is None else np.full(len(log), settings.procs)
    fixed_s = settings.request_s
    request_s = log.request_s if fixed_s is None else np.full(len(log), fixed_s)
    sizes = (procs.astype(np.float64), request_s.astype(np.float64))
    return state.columns((log.submit_s, log.start_s), sizes, list_users(log), log.queue)
