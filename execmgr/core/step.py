"""The core of execution: ``step(execution, state, event) → (state, commands)``, pure.

A replica starts when its slot is ready, its inputs are at the site, processors are free, enough
time is left before the ends of its slot and the deadline, and it delays no earlier replica of the
slot's order beyond its plan (:mod:`vgrads.planner.rules`). Replicas that can no longer succeed are
skipped with a reason, with all tasks that need them, so no queue blocks: slots and the deadline
end, and so do all replicas that still wait.

A failed replica is retried if no other replica of its task is left, or as the rules for its exit
codes say (:mod:`vgrads.execmgr.core.escalation`). Superfluous replicas are released early. If fewer
workflows are left than are needed, a slot is overdue, or the promise has fallen, the planner
replans the remainder, at most once a minute; its result arrives as an event.
"""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from vgrads.drivers.api import SlotState
from vgrads.execmgr.core.alarms import record_alarm, record_checked
from vgrads.execmgr.core.completion import find_alike
from vgrads.execmgr.core.early_release import released_early
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.promise_record import add_failure
from vgrads.execmgr.core.promise_rules import (
    IMPOSSIBLE,
    MOST_REPLANS,
    PromiseRules,
    take_over_order,
)
from vgrads.execmgr.core.retries import abandon_task, retry_failed
from vgrads.execmgr.core.slot_order import settle
from vgrads.execmgr.core.states import (
    AlarmRaised,
    AlarmsAcknowledged,
    AlarmSent,
    Cancelled,
    Command,
    CommitReplica,
    Event,
    PromiseChecked,
    PromiseRecord,
    ReleaseUpdate,
    Replan,
    Replanned,
    ReplicaEnded,
    ReplicaRecord,
    ReplicaState,
    RequestChanged,
    RunState,
    SiteSilent,
    SlotProgress,
    SlotRecord,
    SlotRequestedAgain,
    SlotUpdate,
)
from vgrads.execmgr.core.triggers import explain_shortfall, find_overdue_slots, is_beyond_help
from vgrads.planner.snapshot import ReplicaKey, TaskKey

REPLAN_PAUSE_S = 60.0
"""Shortest time between two requests for replanning."""


def begin(execution: ExecutionPlan) -> RunState:
    """Return the state before the first event."""
    return RunState(
        slots=Map(dict.fromkeys(execution.uses, SlotRecord())),
        progress=Map(dict.fromkeys(execution.uses, SlotProgress())),
        replicas=Map(dict.fromkeys(execution.placements, ReplicaRecord())),
        done=Map(),
        lost=Map(),
        wake_s=0.0 if execution.uses else float("inf"),
        promise=PromiseRecord(highest=execution.plan.promise.probability),
    )


def step(execution: ExecutionPlan, state: RunState, event: Event) -> tuple[RunState, list[Command]]:
    """Return the state after an event, and the commands that follow. O(slots and replicas
    touched)."""
    if isinstance(event, AlarmRaised | AlarmSent | AlarmsAcknowledged):
        return record_alarm(state, event), []
    rule_state = Transition(execution, state, max(event.at_s, state.now_s))
    _apply(rule_state, event)
    settle(rule_state)
    rule_state.release_early()
    rule_state.consider_replan()
    return rule_state.freeze(), rule_state.commands


def _apply(rule_state: Transition, event: Event) -> None:
    if isinstance(event, SlotUpdate):
        rule_state.slot_update(event)
    elif isinstance(event, SlotRequestedAgain):
        rule_state.slot_requested_again(event)
    elif isinstance(event, ReplicaEnded):
        rule_state.replica_ended(event)
    elif isinstance(event, Replanned):
        rule_state.replanned(event)
    elif isinstance(event, Cancelled):
        rule_state.cancel(event.reason)
    elif isinstance(event, RequestChanged):
        rule_state.request_changed(event)
    elif isinstance(event, ReleaseUpdate):
        rule_state.releases_updated(event)
    elif isinstance(event, PromiseChecked):
        rule_state.promise_checked(event)
        rule_state.state = record_checked(rule_state.execution, rule_state.state, event)
    elif isinstance(event, SiteSilent):
        rule_state.note(event.reason)


class Transition(PromiseRules):
    """Transitions for each kind of event."""

    def slot_update(self, news: SlotUpdate) -> None:
        self._move_slot(news)
        if news.permanent:  # no more requests: the others would also be refused
            for slot in find_alike(self.execution, self.slots, news.slot):
                self._move_slot(replace(news, slot=slot))

    def _move_slot(self, news: SlotUpdate) -> None:
        record = self.slots[news.slot]
        if record.state is not None and (record.state.ended or news.state <= record.state):
            return  # late news
        self.recheck_superfluous |= news.state == SlotState.READY
        # an old reason would look like that of the end
        reason = news.reason or ("" if news.state.ended else record.reason)
        ready_s = news.at_s if news.state == SlotState.READY else record.ready_s
        granted_s = news.at_s if news.state == SlotState.GRANTED else record.granted_s
        self.set_slot(
            news.slot,
            state=news.state,
            granted_s=granted_s,
            ready_s=ready_s,
            reason=reason,
            permanent=news.permanent,
            ended_s=news.at_s if news.state.ended else None,
        )
        if news.state.ended:
            self._lose_slot(news.slot, news.reason or news.state.name.lower())

    def _lose_slot(self, slot: str, reason: str) -> None:
        for waited, ending in (
            (ReplicaState.WAITING, ReplicaState.SKIPPED),
            (ReplicaState.RUNNING, ReplicaState.FAILED),
        ):
            for key in self.execution.order[slot]:
                if self.replicas[key].state == waited:
                    self.stop_replica(key, ending, f"slot lost: {reason}")

    def slot_requested_again(self, event: SlotRequestedAgain) -> None:
        """Let running replicas of the slot wait again; replicas that have run are committed without
        it."""
        record = self.slots[event.slot]
        if record.state is None or record.state.ended:
            return
        for key in self.execution.order[event.slot]:
            replica = self.replicas[key]
            if replica.state == ReplicaState.RUNNING and not replica.committing:
                again = replica._replace(
                    state=ReplicaState.WAITING,
                    attempt=replica.attempt + 1,
                    reason=event.reason,
                )
                self.await_again(key, again)
        fresh = SlotRecord(
            state=SlotState.REQUESTED,
            requested_s=self.now_s,
            reason=event.reason,
            again=record.again + 1,
        )
        self.slots = self.slots.set(event.slot, fresh)
        progress = self.progress[event.slot]._replace(wake_s=0.0)
        self.progress = self.progress.set(event.slot, progress)
        self.touched.add(event.slot)
        self.note(f"slot {event.slot} {event.reason}")

    def replica_ended(self, event: ReplicaEnded) -> None:
        if self.replicas[event.key].state != ReplicaState.RUNNING:
            return  # late news
        task: TaskKey = event.key[:2]
        # it has run, but its outputs count only once they are committed
        if event.ok and not event.committed:
            self._commit(event.key)
            return
        self.state = add_failure(self.state, event, self.execution.slot_of(event.key))
        if not event.ok and task not in self.done and retry_failed(self, event):
            return
        record, reason = self.replicas[event.key], event.reason
        if record.code != event.code:
            record = record._replace(code=event.code)
        if not event.ok and self.execution.snapshot.task(task).environment.errors:
            reason = self.faulty.get(task, "") or reason
        ending = ReplicaState.DONE if event.ok else ReplicaState.FAILED
        self.end_as(event.key, record, ending, reason)
        if event.ok and task not in self.done:
            self.deliver(event.key)
            if self._workflow_done(task[0]):
                self.state = self.state._replace(whole=self.state.whole + 1)
                self.recheck_superfluous = True

    def _workflow_done(self, name: str) -> bool:
        """True if all its tasks are; the last ones are the last to be done."""
        return all((name, task) in self.done for task in reversed(self.workflows[name].order))

    def _commit(self, key: ReplicaKey) -> None:
        """Commit the first replica that has run; cancel a second one while the first commits."""
        record, twins = self.replicas[key], self.execution.replicas[key[:2]]
        if key[:2] in self.done or any(self.replicas[t].committing for t in twins if t != key):
            self.end_replica(key, ReplicaState.CANCELLED, "another replica was first")
        elif not record.committing:
            self.replicas = self.replicas.set(key, record._replace(committing=True))
            self.commands.append(CommitReplica(key))

    def releases_updated(self, event: ReleaseUpdate) -> None:
        """Release tasks, or give them up; unknown and completed tasks are ignored."""
        for task, release in event.released:
            if task in self.execution.replicas and task not in self.done:
                self.released = self.released.set(task, release)
                self.touched.update(
                    self.execution.slot_of(replica) for replica in self.execution.replicas[task]
                )
        for task, reason in event.abandoned:
            if task in self.execution.replicas and task not in self.done:
                abandon_task(self, task, reason)
        self.state = self.state._replace(mailbox_read=event.upto)

    def replanned(self, event: Replanned) -> None:
        """Take over the order of the new execution plan; running and terminal replicas remain, and
        waiting ones that it still has."""
        # added tasks are planned without a request
        allowed = self.state.replans + self.state.replanning
        promise = self.state.promise
        promise = promise._replace(
            # a new plan is compared with its own first promise, which is not computed yet
            highest=promise.probability if event.version == self.state.version else None,
            fallen="",
            # no better plan was found: one more check without hope, and the promise is lost
            helpless=event.version == self.state.version and promise.fallen == IMPOSSIBLE,
        )
        self.state = self.state._replace(replanning=False, replans=allowed, promise=promise)
        self.plan_changed = True
        if event.version == self.state.version:
            self.note(f"the planner ran: {event.reason}")
            return
        self.note(f"planned again: {event.reason}")
        self.state = self.state._replace(version=event.version)
        take_over_order(self)

    # what follows

    def release_early(self) -> None:
        """Release superfluous replicas early, if an event has made the promise more probable."""
        if not self.recheck_superfluous or self.state.cancelled or self.execution.released:
            return
        spare_workflows, words = released_early(self.execution, self, self.state.whole)
        for key in spare_workflows:
            self.stop_replica(
                key, ReplicaState.CANCELLED, "released early: it is not needed for the promise"
            )
        if spare_workflows:
            self.note(words)
            settle(self)

    def consider_replan(self) -> None:
        """Request replanning if too few workflows are left, a slot is overdue, or the promise has
        fallen; once for each such state, later if the last request was less than a minute ago."""
        state = self.state
        if state.replanning or state.cancelled or state.replans >= MOST_REPLANS:
            return
        if state.promise.lost_s is not None:
            return
        late, fallen = self._overdue(), state.promise.fallen
        fallen = "" if self.execution.released else fallen
        if not (late or fallen or state.deferred or self._lost_more()):
            return
        failed = sum(1 for record in self.slots.values() if record.state == SlotState.FAILED)
        # a shortfall that was planned for once leads to another request only after more losses
        how_bad = (len(self.lost), failed)
        short = explain_shortfall(self.execution, self.lost) if how_bad != state.tried else ""
        reason = short or (f"slot {late[0]} is overdue" if late else fallen)
        hopeless = is_beyond_help(self.execution, self.faulty)
        may_help = not hopeless and self.now_s < self.execution.plan.deadline_s
        due = bool(reason) and may_help
        self.state = state._replace(deferred=due and self.now_s < state.replan_from_s)
        if not due or self.state.deferred:
            return
        # each slot leads to one request, however long it stays overdue
        for slot in late:
            self.slots = self.slots.set(slot, self.slots[slot]._replace(overdue=True))
        self.note(reason)
        self.state = self.state._replace(
            replanning=True, tried=how_bad, replan_from_s=self.now_s + REPLAN_PAUSE_S
        )
        self.commands.append(Replan(reason))

    def _overdue(self) -> list[str]:
        if self.now_s < self.state.overdue_s and not self.slots_changed:
            return []
        return find_overdue_slots(self.execution, self.slots, self.now_s)

    def _lost_more(self) -> bool:
        """True if this step changed what the last :func:`explain_shortfall` was based on."""
        return self.slots_changed or self.lost is not self.state.lost
