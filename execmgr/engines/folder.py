"""What engines share whose tasks work in folders: ends told in two steps, outputs committed in
between; how they were made is kept."""

from __future__ import annotations

import time
from collections.abc import Sequence

from vgrads.execmgr.core.states import CopyEnded
from vgrads.execmgr.core.times import Times
from vgrads.execmgr.engines.base import TaskOrder
from vgrads.execmgr.engines.news import News, NewsDesk
from vgrads.execmgr.tasks.commit import Committer, is_committed
from vgrads.execmgr.tasks.folder import TaskFolder
from vgrads.execmgr.tasks.process import Verdict
from vgrads.execmgr.tasks.witness import Witness
from vgrads.kernel.clock import Clock
from vgrads.planner.snapshot import CopyKey


class FolderEngine(NewsDesk):
    """Tells that a copy has run, commits its outputs when it is asked to, and tells that too."""

    def __init__(self, clock: Clock, folder: TaskFolder, news: News | None = None) -> None:
        super().__init__(news)
        self._clock, self._folder = clock, folder
        self._committer = Committer(folder, self._tell_committed)
        self._witness = Witness(folder)
        self._asked_s: dict[CopyKey, float] = {}  # since when a copy waits to be committed

    def commit(self, orders: Sequence[TaskOrder]) -> None:
        self._asked_s.update(dict.fromkeys((order.key for order in orders), time.monotonic()))
        self._committer.put(orders)

    def _finish(self) -> None:
        """Commit what was asked for, and keep how it was made."""
        self._committer.close()
        self._witness.close()

    def _done_before(self, order: TaskOrder) -> bool:
        """Tell the end of a copy whose task is committed already: its journal was cut off behind
        that."""
        if not order.outputs or not is_committed(self._folder, order):
            return False
        self._tell_committed(order, "")
        return True

    def _tell(self, order: TaskOrder, verdict: Verdict) -> None:
        """A copy has run; whether it did its task."""
        self._put(order, verdict, committed=bool(verdict.reason) or not order.outputs)

    def _tell_committed(self, order: TaskOrder, reason: str) -> None:
        if not reason:
            self._witness.put(order)
        now_s = time.monotonic()
        commit_s = now_s - self._asked_s.pop(order.key, now_s)
        self._put(order, Verdict(reason, times=Times(commit_s=commit_s)), committed=True)

    def _put(self, order: TaskOrder, verdict: Verdict, committed: bool) -> None:
        self.news.put(
            CopyEnded(
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
