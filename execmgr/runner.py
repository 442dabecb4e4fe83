"""The loop of a run: collects events, journals them, steps the core, carries out commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from vgrads.drivers.api import Driver, SlotState
from vgrads.execmgr.core.alarm_checks import AlarmChecks, AlarmSender
from vgrads.execmgr.core.completion import over
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.journal import EventJournal
from vgrads.execmgr.core.lease_errors import LeaseLost
from vgrads.execmgr.core.promise_checks import PromiseChecks, PromiseNow
from vgrads.execmgr.core.states import (
    AlarmsAcknowledged,
    Cancelled,
    CancelReplica,
    Command,
    CommitReplica,
    Event,
    ReleaseSlot,
    ReleaseUpdate,
    Replanned,
    ReplicaEnded,
    ReplicaState,
    RequestChange,
    RequestChanged,
    RequestSlot,
    RunState,
    SlotUpdate,
    StartReplica,
    Tick,
)
from vgrads.execmgr.core.step import begin, step
from vgrads.execmgr.core.submissions import (
    SubmissionChecks,
    SubmissionPlanner,
    no_submission_planner,
)
from vgrads.execmgr.core.times import Times, with_own
from vgrads.execmgr.engines.base import Engine
from vgrads.execmgr.mailbox import Mail, Mailbox, RunMailbox, TaskUpdate, added_to
from vgrads.execmgr.pilots import SitePolling
from vgrads.execmgr.sites import Sites
from vgrads.execmgr.task_orders import task_order
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import InputError
from vgrads.planner.snapshot import ReplicaKey
from vgrads.workflows.task import Task

Watcher = Callable[[ExecutionPlan, RunState, list[Event]], None]
"""Called with the valid execution plan, the state of the run, and the last events."""
Replanner = Callable[[ExecutionPlan, RunState], tuple[ExecutionPlan | None, str]]
"""The remainder → a better execution plan (stored where execution plans are stored), or None, and
the reason."""
POLL_S = 0.5  # longest wait of the loop (s); task ends are seen at once


Grower = Callable[
    [ExecutionPlan, RunState, Sequence[tuple[str, Task]]], tuple[ExecutionPlan | None, str]
]
"""The same for tasks that were added to workflows."""


def no_replanner(_: ExecutionPlan, __: RunState) -> tuple[ExecutionPlan | None, str]:
    """Never replan."""
    return None, "no planner is available here"


def _no_grower(
    _: ExecutionPlan, __: RunState, ___: Sequence[tuple[str, Task]]
) -> tuple[ExecutionPlan | None, str]:
    return None, "no tasks can be added here"


def _plan_added(
    add: Grower, execution: ExecutionPlan, state: RunState, fresh: Sequence[tuple[str, Task]]
) -> tuple[ExecutionPlan | None, str]:
    """Call ``add``; a stopped run gets no more tasks, and tasks that do not fit are refused."""
    if state.cancelled:
        return None, f"the run is stopped: {state.cancelled}"
    try:
        return add(execution, state, fresh)
    except InputError as error:
        return None, str(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedPlan:
    """The execution plan for a changed request, stored where execution plans are stored, and its
    promise; or the reason for which the request is not changed."""

    execution: ExecutionPlan | None = None
    promise: float | None = None
    refused: str = ""


RequestChanger = Callable[[ExecutionPlan, RunState, RequestChange], ChangedPlan]


def _no_changer(_: ExecutionPlan, __: RunState, ___: RequestChange) -> ChangedPlan:
    return ChangedPlan(refused="no planner is available here")


def _change(
    around: RunnerSetup,
    execution: ExecutionPlan,
    state: RunState,
    message: tuple[int, RequestChange],
) -> tuple[ExecutionPlan, Event]:
    """Plan the remainder for a changed request; a stopped run gets no other one. The plan is valid
    together with the event that reports it, so a change is applied once, whichever manager reads
    its message."""
    number, change = message
    if state.cancelled:
        changed = ChangedPlan(refused=f"the run is stopped: {state.cancelled}")
    else:
        try:
            changed = around.change_request(execution, state, change)
        except InputError as error:
            changed = ChangedPlan(refused=str(error))
    event = RequestChanged(
        at_s=around.clock.now(),
        message=number,
        version=state.version + (changed.execution is not None),
        change=change,
        promise=changed.promise,
        refused=changed.refused,
    )
    return changed.execution or execution, event


def _convert_mail(mail: Mail, at_s: float) -> list[Event]:
    """Return what messages report besides changes; the last one ends their reading."""
    acknowledged: list[Event] = [
        AlarmsAcknowledged(at_s=at_s, upto=upto, by=by) for upto, by in mail.acknowledged
    ]
    update = ReleaseUpdate(
        at_s=at_s, upto=mail.upto, released=mail.released, abandoned=mail.abandoned
    )
    return [*acknowledged, update]


def _list_running(state: RunState, committing: bool) -> list[ReplicaKey]:
    """Return the replicas that run, or those that have run and are being committed."""
    return [
        key
        for key, record in state.replicas.items()
        if record.state == ReplicaState.RUNNING and record.committing == committing
    ]


def _nobody() -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class RunnerSetup:
    """Environment of a run: a driver for each site, an engine, a clock, a journal.

    ``replan`` is called if too few workflows are left, a slot is overdue, or the promise, which
    ``promise_now`` computes about once a minute, has fallen; ``stop_requested`` returns a
    reason if a user has cancelled the run; ``mailbox``: messages of the program that releases the
    tasks, if they are released, and changes of the request, which ``change_request`` plans;
    ``add_tasks`` is called if that program adds tasks;
    ``plan_submissions`` is called while submissions are ahead, as often as it says; ``poll_s``:
    maximum wait of the loop; ``polling``: particulars of a site; ``alarms``: sends messages about
    the promise.
    """

    drivers: Mapping[str, Driver]
    engine: Engine
    clock: Clock
    journal: EventJournal
    replan: Replanner = no_replanner
    promise_now: PromiseNow | None = None
    add_tasks: Grower = _no_grower
    change_request: RequestChanger = _no_changer
    plan_submissions: SubmissionPlanner = no_submission_planner
    mailbox: Mailbox | None = None
    stop_requested: Callable[[], str] = _nobody
    poll_s: float = POLL_S
    polling: Mapping[str, SitePolling] = field(default_factory=dict)
    alarms: AlarmSender | None = None


class Runner:
    """Carries out one plan. ``watch`` is called after every step, for progress and charts."""

    def __init__(
        self, run: str, execution: ExecutionPlan, around: RunnerSetup, watch: Watcher | None = None
    ) -> None:
        self.run_id, self.execution, self.around = run, execution, around
        self.state = begin(execution)
        self._watch, self._due_s = watch, 0.0
        self._submissions = SubmissionChecks(around.plan_submissions, around.clock)
        self._promise = PromiseChecks(around.promise_now, around.clock)
        self._alarms = AlarmChecks(around.alarms, around.clock)
        self.own_work = ManagerOverhead(around.clock)
        self._mailbox = RunMailbox(around.mailbox, around.clock, execution.released)
        self._sites = Sites(run, around.drivers, around.clock, around.polling)

    def run(self) -> RunState:
        """Run until all is terminal; slots are released and tasks ended in any case."""
        return self._look_after(lambda: self._handle([Tick(at_s=self.around.clock.now())]))

    def resume(self, state: RunState) -> RunState:
        """Continue at the end of a journal, whose fold ``state`` is, with this runner's execution
        plan: open slots and running tasks are found again, or done without. Commands after the last
        event may have been carried out or not; repeating them has no effect."""
        self.state = state
        return self._look_after(self._recover)

    def cancel(self, state: RunState, reason: str) -> RunState:
        """Release the resources of a run whose manager is gone: nothing is planned, requested or
        started."""
        self.state = state
        return self._look_after(lambda: self._give_back(reason))

    def _take_slots(self, take: Callable[[str, SlotState], list[Event]]) -> list[Event]:
        """Take over open slots from an earlier manager; releases that it began are continued."""
        events: list[Event] = []
        for slot, record in self.state.slots.items():
            if record.state is not None and not record.state.ended:
                # first, since all requests to the site use the slot's present name
                self._sites.rename(self.execution, slot, record.again)
                events += take(slot, record.state)
                if record.closing:
                    events += self._sites.close(self.execution, slot)
        return events

    def _give_back(self, reason: str) -> None:
        events = self._take_slots(self._sites.know)
        # with nothing to continue, the engine ends all that the earlier manager left
        self.around.engine.recover([])
        self._handle([*events, Cancelled(at_s=self.around.clock.now(), reason=reason)])

    def _look_after(self, begin_with: Callable[[], None]) -> RunState:
        """Work to the end, also of messages, and release everything; an interrupted run keeps its
        slots. A manager whose run was taken over detaches from everything."""
        try:
            begin_with()
            self._check_plan()
            while not over(self.state) or self._alarms.under_way(self.execution, self.state):
                self._wait()
                self._handle(self._collect())
                self._check_plan()
                self._read_mail()
        except LeaseLost:  # it belongs, or may belong, to another manager; it goes on
            self._sites.forget()
            self.around.engine.detach()
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                self._sites.forget()
            self._leave()
            raise
        self._leave()
        return self.state

    def _recover(self) -> None:
        events = self._take_slots(partial(self._sites.find, self.execution))
        engine = self.around.engine
        engine.recover(self._orders(_list_running(self.state, committing=False)))
        engine.commit(self._orders(_list_running(self.state, committing=True)))
        self._handle([*events, Tick(at_s=self.around.clock.now())])

    def _leave(self) -> None:
        self.around.engine.close()
        self._sites.leave()

    def _handle(self, events: list[Event]) -> None:
        """Journal, step, act; events that result from actions are handled next, a new plan last, so
        that it applies to the state that the planner saw. A pending plan is part of the state: an
        event that cancels the run withdraws the request."""
        while events or self.state.replanning:
            events = events or [self._replan()]
            # durable before anything is done: a later manager comes to the same commands
            self.around.journal.append(events)
            results: list[Event] = []
            # a manager that was stopped for long may have been replaced, and must not act any more
            self.around.journal.confirm()
            # only what the journal has may be forgotten where the task ran
            self.around.engine.stored()
            for event in events:
                self.state, commands = step(self.execution, self.state, event)
                results += self._act(commands)
            if self._watch:
                self._watch(self.execution, self.state, events)
            events = results

    def _read_mail(self) -> None:
        """Apply changes of the request and messages of the releasing program; send it news."""
        mail = self._mailbox.take(self.state.mailbox_read)
        if mail is not None:
            for message in mail.changes:
                # others were applied before a crash that came before the end
                # of their reading was recorded
                if message[0] > self.state.changes_read:
                    self.execution, event = _change(
                        self.around, self.execution, self.state, message
                    )
                    self._handle([event])
            refused = self._add_tasks(mail.added)
            self._handle(_convert_mail(mail, self.around.clock.now()))
            if refused:
                self._mailbox.answer(refused)
        self._mailbox.report(self.execution, self.state)

    def _add_tasks(self, added: Sequence[tuple[str, Task]]) -> list[TaskUpdate]:
        """Plan with added tasks; return updates for those that cannot be planned."""
        fresh = list(added_to(self.execution, added))
        if not fresh:
            return []
        execution, reason = _plan_added(self.around.add_tasks, self.execution, self.state, fresh)
        if execution is None:
            return [TaskUpdate(task=(w, t.id), state="lost", reason=reason) for w, t in fresh]
        self._change_plan(execution, reason)
        return []

    def _check_plan(self) -> None:
        """Check the promise, who is to be notified of it, and plan the submissions that are still
        ahead again, where due."""
        self._handle(self._promise.due(self.execution, self.state))
        self._handle(self._alarms.due(self.execution, self.state))
        if (changed := self._submissions.due(self.execution, self.state)) is not None:
            self._change_plan(*changed)

    def _change_plan(self, execution: ExecutionPlan, reason: str) -> None:
        self.execution, version = execution, self.state.version + 1
        now_s = self.around.clock.now()
        self._handle([Replanned(at_s=now_s, version=version, reason=reason)])

    def _collect(self) -> list[Event]:
        events = self._sites.news(self.execution)
        events += self.own_work.shared(self.around.engine.poll())
        stopped = self.state.cancelled
        if not stopped and (reason := self.around.stop_requested() or self._mailbox.left_alone()):
            events.append(Cancelled(at_s=self.around.clock.now(), reason=reason))
        # a task that ended at the same instant as its slot comes first
        events.sort(key=lambda event: (event.at_s, isinstance(event, SlotUpdate)))
        now = self.around.clock.now()
        due = now >= (self._due_s if self.around.clock.virtual else self.state.due_s)
        return events if events or not due else [Tick(at_s=now)]

    def _act(self, commands: list[Command]) -> list[Event]:
        if not commands:
            return []
        events: list[Event] = []
        starts = self._orders(c.key for c in commands if isinstance(c, StartReplica))
        commits = self._orders(c.key for c in commands if isinstance(c, CommitReplica))
        for command in commands:
            if isinstance(command, RequestSlot):
                events += self._sites.open(self.execution, command.slot)
            elif isinstance(command, ReleaseSlot):
                events += self._sites.close(self.execution, command.slot)
            elif isinstance(command, CancelReplica):
                self.around.engine.cancel(command.key)
        if commits:
            self.around.engine.commit(commits)
        if starts:
            self.around.engine.start(starts)
        return events

    def _replan(self) -> Event:
        """Call the planner; the execution plan changes together with the event that reports it."""
        execution, reason = self.around.replan(self.execution, self.state)
        version = self.state.version
        if execution is not None:
            self.execution, version = execution, version + 1
        return Replanned(at_s=self.around.clock.now(), version=version, reason=reason)

    def _orders(self, keys: Iterable[ReplicaKey]) -> list[TaskOrder]:
        return [task_order(self.execution, self.state, key) for key in keys]

    def _wait(self) -> None:
        """Wait for the next event: a jump in virtual time, a wait for the engine in real time."""
        clock, engine = self.around.clock, self.around.engine
        now = clock.now()
        due = min(self.state.due_s, engine.wake_at(), self._sites.wake_at(self.execution))
        due = min(due, self._submissions.again_s, self._promise.again_s)
        if clock.virtual:
            # no jump beyond the deadline, at which all that still waits is ended
            self._due_s = min(due, max(self.execution.plan.deadline_s, now) + 1.0)
            clock.advance_to(self._due_s)
        else:
            engine.wait(min(max(0.0, due - now), self.around.poll_s))


class ManagerOverhead:
    """``spent``: total times of all attempts that ended under this manager."""

    def __init__(self, clock: Clock) -> None:
        self.spent = Times()
        self._clock, self._worked_s = clock, time.thread_time()

    def shared(self, ended: Sequence[ReplicaEnded]) -> list[ReplicaEnded]:
        """Return the ended attempts, each with its part of this manager's work since the last
        ones."""
        if not ended or self._clock.virtual:
            return list(ended)
        before_s, self._worked_s = self._worked_s, time.thread_time()
        own_s = max(0.0, self._worked_s - before_s) / len(ended)
        replica_ended = [replace(item, times=with_own(item.times, own_s)) for item in ended]
        for entry in replica_ended:
            self.spent = self.spent.and_then(entry.times)
        return replica_ended
