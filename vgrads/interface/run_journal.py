"""The journal of a run in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vgrads.api.plans.attempts import TaskAttempt, list_attempts
from vgrads.api.plans.execution import StartedRun, cancel_run
from vgrads.api.plans.run_setup import Setup
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.journal import MemoryJournal, event_to_json, fold
from vgrads.execmgr.core.states import Event, RunState

EventCallback = Callable[[Mapping[str, Any]], None]


class RunJournal(MemoryJournal):
    """The journal of a run, in memory; each event is passed on as it happens."""

    def __init__(self, on_event: EventCallback | None = None) -> None:
        super().__init__()
        self._on_event = on_event
        self._setup: Setup | None = None
        self._executions: dict[int, ExecutionPlan] = {}

    def keep_setup(self, setup: Setup) -> None:
        """Store what the run was started with."""
        self._setup = setup

    def store_execution(self, version: int, execution: ExecutionPlan) -> None:
        """Store a version of the plan."""
        self._executions[version] = execution

    def mailbox(self) -> None:
        """No tasks are released one by one here."""

    def alarms(self) -> None:
        """Send no messages about the promise."""

    def stop_reason(self) -> str:
        """Only an exception stops the run."""
        return ""

    def watch(self, _: ExecutionPlan, __: RunState, events: list[Event]) -> None:
        """Pass events on."""
        if self._on_event is not None:
            for event in events:
                self._on_event(event_to_json(event))

    @property
    def versions(self) -> list[ExecutionPlan]:
        """The plan as it was executed, in the order of its versions."""
        return [self._executions[n] for n in sorted(self._executions)]

    def attempts(self) -> list[TaskAttempt]:
        """All attempts so far."""
        return list_attempts(self.versions, self.events)[0]

    def release_all(self) -> None:
        """Release the slots of an interrupted run and end its tasks."""
        if self._setup is not None and self._executions:
            state = fold(self.versions, self.events)
            begun = StartedRun(setup=self._setup, executions=self.versions, state=state)
            cancel_run(begun, self, "interrupted")
