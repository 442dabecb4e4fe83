"""Releases jobs to open bags when nothing holds them back, and follows them to their end."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from vgrads.api.bags.in_process import LocalChannel
from vgrads.api.bags.open_calls import Ended
from vgrads.api.slurm.bags import ShapeBag, ShapeBags
from vgrads.api.slurm.control import JobControl
from vgrads.api.slurm.folders import JobFolders
from vgrads.api.slurm.journal import JobJournal
from vgrads.api.slurm.outcomes import changes_of, outcome_of, place_of
from vgrads.api.slurm.records import JobRecord
from vgrads.api.slurm.shapes import Partitions
from vgrads.api.slurm.waiting import NEVER, WaitingJobs, Why
from vgrads.kernel.errors import VgradsError
from vgrads.slurm.job import JobState

_log = logging.getLogger(__name__)
_LOOK_S = 0.5
_MOST_LOSSES = 3
"""A job whose nodes were lost so often is NODE_FAIL, also if it may be requeued."""


class JobScheduler:
    """Jobs between submission and end. All methods are called with :attr:`lock` held, apart from
    :meth:`start` and :meth:`stop`. ``chores`` are called twice a second."""

    def __init__(
        self,
        journal: JobJournal,
        folders: JobFolders,
        channel: LocalChannel,
        partitions: Partitions,
        chores: Sequence[Callable[[], None]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folders, self._clock, self._chores = folders, clock, chores
        self.table = journal.table
        self.lock = threading.RLock()
        self._ends: SimpleQueue[tuple[int, Sequence[Ended]]] = SimpleQueue()
        self._bags = ShapeBags(journal, folders, channel, partitions, self._ends.put)
        self._waiting = WaitingJobs(self.table, clock)
        self.control = JobControl(
            self._bags, folders, journal, self._waiting, self.consider, self.run_again
        )
        self.problem = ""  # why no job can run any more in this process
        self._losses: Counter[int] = Counter()
        self._stopping = threading.Event()
        self._worker = threading.Thread(target=self._work, name="vgrads-slurm", daemon=True)

    def start(self) -> None:
        """Take up the jobs that are stored; then work in a thread."""
        with self.lock:
            ended = self._bags.start()
            # all of them first, so that the ends below find who waits for them
            for number in self.table.unfinished:
                self._waiting.register(self.table.submissions[number][0])
            for bag, task in ended:
                self._finish(bag, Ended(task, None))
            for number in list(self.table.unfinished):
                self.consider(self.table.submissions[number])
        self._worker.start()

    def stop(self) -> None:
        """Stop, and leave what runs to the next start; release all nodes where nothing is left."""
        self._stopping.set()
        self._worker.join()
        self._bags.stop(leave=bool(self.table.unfinished))

    def _work(self) -> None:
        looked_s = 0.0
        while not self._stopping.is_set():
            with suppress(Empty):
                item = self._ends.get(timeout=_LOOK_S)
                # not stored yet: without it the job would run for ever
                if not self._guarded(self._on_ends, *item):
                    self._ends.put(item)
            if time.monotonic() - looked_s >= _LOOK_S:
                looked_s = time.monotonic()
                self._guarded(self._look)

    def _guarded(self, work: Callable[..., None], *arguments: object) -> bool:
        """Work while the lock is held; return False on a full disk: it is tried again."""
        try:
            with self.lock:
                work(*arguments)
        except OSError as error:
            _log.error("%s", error)
            self._stopping.wait(_LOOK_S)
            return False
        except Exception:  # of one job: the others go on
            _log.exception("while jobs were looked at")
        return True

    def submitted(self, records: Sequence[JobRecord]) -> None:
        """Take on a new submission."""
        self._waiting.register(records[0])
        self.consider(records)

    def consider(self, records: Sequence[JobRecord]) -> None:
        """Release those of these jobs of one submission that nothing holds back."""
        waiting = [r for r in records if r.state is JobState.PENDING and not r.is_released]
        if not waiting:
            return
        first = waiting[0].submission
        if first.last_start_s < self._clock():
            self._remove_late(waiting)
            return
        room = (first.array_limit or float("inf")) - self.table.active(first.id)
        why, released = self._waiting.judge(waiting[0]), []
        reasons: defaultdict[Why, list[JobRecord]] = defaultdict(list)
        for record in waiting:
            reason, left = why(record)
            if not reason and room <= 0:
                reason = "JobArrayTaskLimit"
            if not reason:
                released.append(record)
                room -= 1
            elif (reason, left) != (record.reason, record.dependency):
                reasons[reason, left].append(record)
        for (reason, left), changed in reasons.items():
            self._bags.change(changed, {"reason": reason, "dependency": left})
            if reason == NEVER and first.kill_on_invalid:
                self.cancel(changed, first.uid)
        if released:
            self._release(released)

    def _release(self, records: Sequence[JobRecord]) -> None:
        """Release jobs; what no site accepts fails alone."""
        try:
            self._bags.release(records)
            self._bags.change(records, {"reason": "Resources", "dependency": ""})
        except VgradsError as error:
            _log.error("jobs from %s on: %s", records[0].id, error)
            self._bags.change(records, {"reason": "BadConstraints"})

    def _on_ends(self, number: int, ends: Sequence[Ended]) -> None:
        bag = self._bags.numbered(number)
        for ended in ends:
            if ended.task < 0:
                self.problem = ended.how
            elif ended.task in bag.records:
                self._finish(bag, ended)

    def _finish(self, bag: ShapeBag, ended: Ended) -> None:
        record = bag.records[ended.task]
        outcome = outcome_of(self._folders, record, ended, self._clock())
        state = JobState(outcome["state"])
        lost = state is JobState.NODE_FAIL and record.submission.requeue
        self._losses[record.id] += lost
        if state is JobState.REQUEUED or (lost and self._losses[record.id] < _MOST_LOSSES):
            self.run_again(record, changes_of(outcome))
        else:
            self._end([record], outcome)
        del bag.records[ended.task]

    def _end(self, records: Sequence[JobRecord], outcome: Mapping[str, Any]) -> None:
        """Store the end of jobs of one submission that all ended so, and look at who waits."""
        first = records[0].submission
        # stored before the jobs that wait for this end are released
        self._bags.change(records, changes_of(outcome))
        if first.id not in self.table.unfinished:
            self._waiting.forget(first.id)
        elif first.array_limit:
            self.consider(self.table.submissions[first.id])
        self._consider_dependents(first.id)

    def _consider_dependents(self, number: int) -> None:
        over = number not in self.table.unfinished
        for dependent in self._waiting.dependents(number, over):
            if dependent in self.table.submissions:
                self.consider(self.table.submissions[dependent])

    def _look(self) -> None:
        """Notice starts, and what time alone changes."""
        for record in self._bags.just_begun():
            if started := self._folders.started(*place_of(record)):
                place = {name: started[name] for name in ("start_s", "node", "lost")}
                self._bags.change([record], {"state": "RUNNING", "reason": "None", **place})
        for number in (*self._waiting.take_due(), *self._waiting.after_starts()):
            self.consider(self.table.submissions[number])
        for number in self._waiting.take_late():
            self._remove_late(self.table.submissions[number])
        for chore in self._chores:
            chore()

    def _remove_late(self, records: Sequence[JobRecord]) -> None:
        """End the jobs of a submission that no node has, as Slurm does after their deadline."""
        waiting = [record for record in records if record.state is JobState.PENDING]
        self._bags.withdraw(waiting)
        now_s = self._clock()
        removed = [record for record in waiting if not record.is_released]
        outcome = {"state": "DEADLINE", "signal": 1, "start_s": now_s, "end_s": now_s}
        if removed:
            self._end(removed, outcome)

    def cancel(self, records: Sequence[JobRecord], uid: int) -> None:
        """Cancel jobs that have not ended; those that run end soon."""
        outcome = {"state": "CANCELLED", "end_s": self._clock(), "cancelled_by": uid}
        # what no agent has is taken back at once; the rest must be ended on its node
        self._bags.withdraw(records)
        by_submission: defaultdict[int, list[JobRecord]] = defaultdict(list)
        for record in records:
            if record.is_released:
                self._folders.send(*place_of(record), "cancel", str(uid))
            else:
                by_submission[record.submission.id].append(record)
        for group in by_submission.values():
            self._end(group, outcome)

    def run_again(self, record: JobRecord, ended: Mapping[str, Any] | None = None) -> None:
        """Make a job pending anew; ``ended``: how it has changed by its end, if not stored yet."""
        self._bags.change([record], record.fresh(ended or {}))
        self._waiting.register(record)
        self.consider([record])
