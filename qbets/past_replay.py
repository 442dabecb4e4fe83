"""Replay of a history into QBETS, which starts again at its own anchors."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from vgrads.kernel.arrays import Floats, Ints
from vgrads.qbets.blend import REFRESH, PastKnots
from vgrads.qbets.correction_pass import SubmittedRows
from vgrads.qbets.events import QueueEvents, list_users
from vgrads.qbets.predictor import JobArrival, QueuePredictor, Settings
from vgrads.qbets.state.queue_tables import LEAVE, SUBMIT
from vgrads.traces.records import JobLog

BACK = 2
"""Anchors between the start of what is learned and the jobs that it answers."""
FLOOR_STEP = 16_384
"""Submissions between anchors of QBETS."""


def find_floor_start(row: int) -> int:
    """Return the first submission that QBETS has learned from when it answers this one."""
    return max(0, (row // FLOOR_STEP - BACK) * FLOOR_STEP)


class FurtherBounds(NamedTuple):
    """Probabilities of bounds beside that of the settings, and their confidence."""

    levels: tuple[float, ...] = ()
    confidence: float = 0.95


NONE = FurtherBounds()


class PastReplay:
    """QBETS, and the quantiles of past waits, for the submissions of ``rows``."""

    def __init__(
        self, settings: Settings, rows: SubmittedRows, further: FurtherBounds = NONE
    ) -> None:
        """``further``: bounds that are recorded beside that of the settings."""
        self.past, self._further = PastKnots(), further
        self._settings, self._rows = settings, rows
        self._begin = self._first = find_floor_start(rows.first)
        self._next = (rows.first // FLOOR_STEP + 1) * FLOOR_STEP
        self.floor = self._new_floor()

    def _new_floor(self) -> QueuePredictor:
        return QueuePredictor(replace(self._settings, method="qbets"))

    def read(self, log: JobLog, issued: Floats) -> None:
        """Prepare for a log; ``issued`` receives the bounds."""
        self._issued = issued
        self._log, self._users = log, list_users(log)

    def __getstate__(self) -> dict[str, object]:
        """Leave out what comes from the log."""
        dropped = ("_issued", "_log", "_users")
        return {name: value for name, value in vars(self).items() if name not in dropped}

    def follow(
        self,
        events: QueueEvents,
        shown: Ints,
        places: tuple[int, int],
        counts: tuple[int, int],
    ) -> None:
        """Apply the events of these places, between these numbers of jobs that have appeared;
        ``shown``: the places at which they do."""
        (start, last), (first, count) = places, counts
        # at each anchor QBETS starts anew, two anchors back: where a replay began changes no answer
        while self._next < count:
            row, place = self._next, int(shown[self._next])
            self._apply(events.part(start, place), first)
            start, self._next = place, row + FLOOR_STEP
            self._first = find_floor_start(row)
            if self._first > self._begin:
                self.floor = self._new_floor()
                # only learned from: no bound is recorded for submissions before `row`
                self._apply(events.part(int(shown[self._first]), place), row)
        self._apply(events.part(start, last), first)

    def _apply(self, part: QueueEvents, from_row: int) -> None:
        """Apply events; record bounds and quantiles of the submissions from this one on."""
        started, sees_waiting = self._rows.started, self._settings.sees_waiting
        for at_s, kind, row in zip(*(column.tolist() for column in part), strict=True):
            if row < self._first:
                continue
            if kind == SUBMIT:
                self._submit(row, at_s, from_row)
            elif kind == LEAVE and not sees_waiting:
                self._show(row)
            elif kind == LEAVE and started[row]:
                self.floor.start(row, at_s)
            elif kind == LEAVE:
                self.floor.withdraw(row, at_s)

    def _submit(self, row: int, at_s: float, from_row: int) -> None:
        floor, rows, arrival = self.floor, self._rows, self._arrival(row)
        # from the last refresh on: what is cached must be the same as in a longer replay
        if row >= max(from_row, rows.first // REFRESH * REFRESH):
            self._look_back(row, arrival)
        if self._further.levels and row >= from_row:
            bounds_s, longest_s = floor.bounds_at(arrival, *self._further)
            rows.floor_levels_s[row] = self._issued[row, 1:] = bounds_s
            rows.floor_longest_s[row] = longest_s
        # after the questions: once submitted, the job would be counted as waiting ahead of itself
        bound_s = floor.submit(row, at_s, arrival)
        if bound_s is not None and row >= from_row:
            rows.floor_s[row] = self._issued[row, 0] = bound_s

    def _show(self, row: int) -> None:
        """Learn the wait of a job that appears after its start."""
        submit_s, wait_s = float(self._log.submit_s[row]), float(self._log.wait_s[row])
        self.floor.show(row, submit_s, wait_s, self._arrival(row))
        self.past.refresh(self.floor, row)

    def _arrival(self, row: int) -> JobArrival:
        log = self._log
        shape = self._settings.shape(int(log.procs[row]), float(log.request_s[row]))
        return JobArrival(*shape, int(self._users[row]), int(log.queue[row]))

    def _look_back(self, row: int, arrival: JobArrival) -> None:
        """Store the quantiles of past waits for a submission."""
        question = self._settings.as_question(arrival)
        past = self.past.of(self.floor, self.floor.bin_for(question), row)
        if past is not None and row >= self._rows.first:
            self._rows.past[row - self._rows.first] = past
