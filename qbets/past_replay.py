"""Replay of a history into QBETS, which starts again at its own anchors."""

from __future__ import annotations

from dataclasses import replace

from vgrads.kernel.arrays import Floats, Ints
from vgrads.qbets.blend import REFRESH, PastKnots
from vgrads.qbets.correction_pass import SubmittedRows
from vgrads.qbets.events import QueueEvents, arrivals_of
from vgrads.qbets.predictor import JobArrival, QueuePredictor, Settings
from vgrads.qbets.state.queue_tables import LEAVE, SUBMIT
from vgrads.traces.records import JobLog

BACK = 2
"""Anchors between the start of what is learned and the jobs that it answers."""
FLOOR_STEP = 16_384
"""Submissions between anchors of QBETS."""


def floor_start(row: int) -> int:
    """Return the first submission that QBETS has learned from when it answers this one."""
    return max(0, (row // FLOOR_STEP - BACK) * FLOOR_STEP)


class PastReplay:
    """QBETS, and the quantiles of past waits, for the submissions of ``rows``."""

    def __init__(self, settings: Settings, rows: SubmittedRows) -> None:
        self.past = PastKnots()
        self._settings, self._rows = settings, rows
        self._begin = self._first = floor_start(rows.first)
        self._next = (rows.first // FLOOR_STEP + 1) * FLOOR_STEP
        self.floor = self._new_floor()

    def _new_floor(self) -> QueuePredictor:
        return QueuePredictor(replace(self._settings, method="qbets"))

    def read(self, log: JobLog, issued: Floats) -> None:
        """Prepare for a log; ``issued`` receives the bounds."""
        self._issued = issued
        self._arrivals = arrivals_of(log, self._settings, self._begin)

    def __getstate__(self) -> dict[str, object]:
        """Leave out what comes from the log."""
        dropped = ("_issued", "_arrivals")
        return {name: value for name, value in vars(self).items() if name not in dropped}

    def follow(
        self,
        events: QueueEvents,
        submissions: Ints,
        places: tuple[int, int],
        counts: tuple[int, int],
    ) -> None:
        """Apply the events of these places, between these numbers of submissions."""
        (start, last), (first, count) = places, counts
        while self._next < count:
            row, place = self._next, int(submissions[self._next])
            self._apply(events.part(start, place), first)
            start, self._next = place, row + FLOOR_STEP
            self._first = floor_start(row)
            if self._first > self._begin:
                self.floor = self._new_floor()
                self._apply(events.part(int(submissions[self._first]), place), row)
        self._apply(events.part(start, last), first)

    def _apply(self, part: QueueEvents, from_row: int) -> None:
        """Apply events; record bounds and quantiles of the submissions from this one on."""
        floor, rows = self.floor, self._rows
        past_from = max(from_row, rows.first // REFRESH * REFRESH)
        for at_s, kind, row in zip(*(column.tolist() for column in part), strict=True):
            if row < self._first:
                continue
            if kind == SUBMIT:
                arrival = self._arrivals[row - self._begin]
                if row >= past_from:
                    self._look_back(row, arrival)
                bound_s = floor.submit(row, at_s, arrival)
                if bound_s is not None and row >= from_row:
                    rows.floor_s[row] = self._issued[row] = bound_s
            elif kind == LEAVE and rows.started[row]:
                floor.start(row, at_s)
            elif kind == LEAVE:
                floor.withdraw(row, at_s)

    def _look_back(self, row: int, arrival: JobArrival) -> None:
        """Store the quantiles of past waits for a submission."""
        question = self._settings.as_question(arrival)
        past = self.past.of(self.floor, self.floor.bin_for(question), row)
        if past is not None and row >= self._rows.first:
            self._rows.past[row - self._rows.first] = past
