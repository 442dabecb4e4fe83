"""Common part of engines whose tasks work in folders: ends are reported in two steps, with the
commit in between; provenance is recorded."""

from __future__ import annotations

import time
from collections.abc import Sequence

from vgrads.execmgr.core.states import ReplicaEnded
from vgrads.execmgr.core.times import Times
from vgrads.execmgr.engines.completion_queue import CompletionQueue, Completions
from vgrads.execmgr.tasks.commit import Committer, is_committed
from vgrads.execmgr.tasks.folder import TaskFolder
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.execmgr.tasks.process import AttemptVerdict
from vgrads.execmgr.tasks.provenance_recorder import ProvenanceRecorder
from vgrads.kernel.clock import Clock
from vgrads.planner.snapshot import ReplicaKey


class FolderEngine(CompletionQueue):
    """Reports that a replica has run, commits its outputs on request, and reports the commit."""

    def __init__(self, clock: Clock, folder: TaskFolder, news: Completions | None = None) -> None:
        super().__init__(news)
        self._clock, self._folder = clock, folder
        self._committer = Committer(folder, self._report_committed)
        self._recorder = ProvenanceRecorder(folder)
        self._commit_requested_s: dict[
            ReplicaKey, float
        ] = {}  # since when a replica waits to be committed

    def commit(self, orders: Sequence[TaskOrder]) -> None:
        self._commit_requested_s.update(
            dict.fromkeys((order.key for order in orders), time.monotonic())
        )
        self._committer.put(orders)

    def _finish(self) -> None:
        """Finish the requested commits and provenance records."""
        self._committer.close()
        self._recorder.close()

    def _done_before(self, order: TaskOrder) -> bool:
        """Report the end of a replica whose task is committed already: its journal was truncated
        after that."""
        # without outputs nothing on the disk shows that the task was done
        if not order.outputs or not is_committed(self._folder, order):
            return False
        self._report_committed(order, "")
        return True

    def _report(self, order: TaskOrder, verdict: AttemptVerdict) -> None:
        """Report that a replica has run, and whether it succeeded."""
        # a failed replica, and one without outputs, has nothing to commit
        self._put(order, verdict, committed=bool(verdict.reason) or not order.outputs)

    def _report_committed(self, order: TaskOrder, reason: str) -> None:
        if not reason:
            self._recorder.put(order)
        now_s = time.monotonic()
        commit_s = now_s - self._commit_requested_s.pop(order.key, now_s)
        self._put(order, AttemptVerdict(reason, times=Times(commit_s=commit_s)), committed=True)

    def _put(self, order: TaskOrder, verdict: AttemptVerdict, committed: bool) -> None:
        self.news.put(
            ReplicaEnded(
                at_s=self._clock.now(),
                key=order.key,
                ok=not verdict.reason,
                reason=verdict.reason,
                committed=committed,
                code=verdict.code,
                times=verdict.times,
                ended=verdict.ended,
            )
        )
