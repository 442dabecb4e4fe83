"""Messages about the promise of a run, sent by its manager's process: in threads, repeated where a
target does not take them, never delaying the run."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, timedelta
from functools import cache, partial

from sqlalchemy import Engine as SqlEngine

from vgrads.api.plans.execution import find_changes_of_run
from vgrads.execmgr.core.alarm_checks import AlarmResult
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import AlarmRecord, RunState
from vgrads.kernel.errors import brief
from vgrads.portal.jobs.alarm_delivery import AlarmDelivery, AlarmSettings, deliver
from vgrads.portal.jobs.alarm_text import RunAddress, alarm_text, helps_no_more
from vgrads.portal.jobs.run_changes import stored_run
from vgrads.portal.records.alarm_targets import AlarmTarget, AlarmTargets
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.sets import Sets
from vgrads.portal.records.tables import OPERATOR, RunRow
from vgrads.workflows.alarm_rules import AlarmRule

_log = logging.getLogger("vgrads.runs")
PAUSES_S = (5.0, 30.0, 120.0)
"""Pauses before a message is sent again to a target that did not take it."""
_LISTED_S = 5.0  # for how long a list of targets is used again


class AlarmMessages:
    """Sends the messages of one run: an :class:`vgrads.execmgr.core.alarm_checks.AlarmSender`.
    Each is sent by a thread of its own; those of a rule in their order, so that the last message
    that arrives is the newest."""

    def __init__(
        self,
        engine: SqlEngine,
        record: RunRecord,
        run: RunRow,
        settings: AlarmSettings,
        pauses_s: tuple[float, ...] = PAUSES_S,
    ) -> None:
        self._engine, self._targets, self._lease = engine, AlarmTargets(engine), record.lease
        head = Sets(engine).head(run.set_id)
        self._owner = head.owner if head else OPERATOR
        self._settings, self._pauses_s = settings, pauses_s
        began = run.started if run.started.tzinfo else run.started.replace(tzinfo=UTC)
        page = f"{settings.url}/sets/{run.set_id}" if settings.url else ""
        self._address = RunAddress(run.id, began.astimezone(), page)
        self._listed: tuple[float, tuple[str, ...]] = (-_LISTED_S, ())
        self._threads: dict[int, _MessageThread] = {}  # the newest, by rule
        self._results: queue.SimpleQueue[AlarmResult] = queue.SimpleQueue()

    def targets(self, rule: AlarmRule) -> tuple[str, ...]:
        """Return the names of a rule's targets: all of the run's owner where it names none."""
        if rule.to:
            return tuple(dict.fromkeys(rule.to))
        now_s, (listed_s, names) = time.monotonic(), self._listed
        if now_s - listed_s >= _LISTED_S:
            entries = self._lease.while_leased(lambda: self._targets.list(self._owner))
            names = tuple(entry.name for entry in entries)
            self._listed = (now_s, names)
        return names

    def minute_of_day(self, at_s: float) -> int:
        """Return the local minute of the day at an instant of the run's clock."""
        at = self._address.began + timedelta(seconds=at_s)
        return at.astimezone().hour * 60 + at.astimezone().minute

    def send(self, execution: ExecutionPlan, state: RunState, alarm: AlarmRecord) -> None:
        """Begin to send a message to its targets without a result."""
        targets = []
        for name in alarm.unsent:
            target = self._lease.while_leased(partial(self._targets.find, self._owner, name))
            if target is None:
                self._results.put(AlarmResult(alarm.number, name, False, "no target has this name"))
            else:
                targets.append(target)
        if not targets:
            return
        # computed once for all tries, by the first of them
        text = cache(partial(self._text, execution, state, alarm))
        send = partial(self._try, alarm, text=text)
        before = self._threads.get(alarm.rule)
        thread = _MessageThread(targets, send, self._pauses_s, before)
        self._threads[alarm.rule] = thread
        thread.start()

    def results(self) -> list[AlarmResult]:
        """Return the results since the last call."""
        results = []
        while not self._results.empty():
            results.append(self._results.get())
        return results

    def under_way(self, is_last_try: bool) -> bool:
        """Return True if results are still to come. ``is_last_try``: failed targets are tried once
        more at most, at once."""
        threads = list(self._threads.values())
        if is_last_try:
            for thread in threads:
                thread.hurry.set()
        return any(thread.is_alive() for thread in threads) or not self._results.empty()

    def _text(
        self, execution: ExecutionPlan, state: RunState, alarm: AlarmRecord
    ) -> tuple[str, str]:
        """Return the text of a message, with the changes that would suffice now: computed by its
        thread, as it takes a while. Without them it is sent too."""
        changes = None
        if not helps_no_more(state, alarm):
            try:
                begun = replace(stored_run(self._engine, self._address.run_id), state=state)
                changes = find_changes_of_run(begun)
            except Exception:
                _log.exception("what would help run %s was not computed", self._address.run_id)
        return alarm_text(execution, state, alarm, self._address, changes)

    def _try(
        self,
        alarm: AlarmRecord,
        targets: list[AlarmTarget],
        is_last: bool,
        text: Callable[[], tuple[str, str]],
    ) -> list[AlarmTarget]:
        """Send a message to targets; return those that failed. Failures of the last try are
        results."""
        try:
            deliveries = deliver(targets, *text(), self._settings.allowed)
        except Exception as error:  # whatever it is: it is the targets' result, not the run's
            deliveries = [AlarmDelivery(target.name, False, brief(error)) for target in targets]
        for item in deliveries:
            if item.ok or is_last:
                self._results.put(AlarmResult(alarm.number, item.target, item.ok, item.reason))
        failed = {item.target for item in deliveries if not item.ok}
        return [target for target in targets if target.name in failed]


class _MessageThread(threading.Thread):
    """Sends one message, after the one ``before`` of its rule. ``hurry``: one more try, at once."""

    def __init__(
        self,
        targets: list[AlarmTarget],
        send: Callable[[list[AlarmTarget], bool], list[AlarmTarget]],
        pauses_s: Sequence[float],
        before: _MessageThread | None,
    ) -> None:
        super().__init__(daemon=True)
        self.hurry = threading.Event()
        self._targets, self._send, self._pauses_s = targets, send, pauses_s
        self._before = before

    def run(self) -> None:
        """Send until all targets have it, or no try is left."""
        if self._before is not None:
            self._before.hurry.set()
            self._before.join()
            # the earlier thread, and those before it, need not stay in memory
            self._before = None
        targets = self._targets
        for pause_s in (*self._pauses_s, None):
            is_last = pause_s is None or self.hurry.is_set()
            targets = self._send(targets, is_last)
            if not targets or is_last:
                return
            self.hurry.wait(pause_s)
