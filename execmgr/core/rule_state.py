"""One step in progress: the state of a run while it changes, and the commands to issue."""

from __future__ import annotations

from typing import Any

from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import (
    LIVE,
    CancelReplica,
    Command,
    Delivery,
    ReplicaRecord,
    ReplicaState,
    RunState,
    SlotProgress,
    StartReplica,
)
from vgrads.execmgr.core.triggers import find_first_overdue_s
from vgrads.planner.plan import Placement
from vgrads.planner.rules import SLACK_S
from vgrads.planner.snapshot import ReplicaKey, TaskKey

_INF = float("inf")


def allot_time(planned: Placement, record: ReplicaRecord) -> float:
    """Return the time of a replica: as planned, and more after its failures if its rules say so."""
    return (planned.end_s - planned.start_s) * record.time


class RuleState:
    """Maps while they change; ``state`` has them as they were before the step.

    ``touched``: slots that may need an update by :func:`vgrads.execmgr.core.slot_order.settle`;
    ``settled``: those that had one.
    """

    plan_changed = False

    def __init__(self, execution: ExecutionPlan, state: RunState, now_s: float) -> None:
        self.execution, self.now_s, self.state = execution, now_s, state
        self.slots, self.progress, self.replicas = state.slots, state.progress, state.replicas
        self.done, self.lost, self.faulty = state.done, state.lost, state.faulty
        self.released = state.released
        self.workflows = execution.snapshot.workflow_by_name
        self.commands: list[Command] = []
        self.touched: set[str] = set()
        self.settled: set[str] = set()
        # before this instant none of them is due
        if state.wake_s <= now_s:
            self.touched.update(s for s, p in state.progress.items() if p.wake_s <= now_s)

    @property
    def slots_changed(self) -> bool:
        """True if a slot's state changed in this step, or the execution plan did."""
        return self.plan_changed or self.slots is not self.state.slots

    def freeze(self) -> RunState:
        """Return the state after the step."""
        overdue_s = self.state.overdue_s
        # this goes through all slots
        if self.slots_changed:
            overdue_s = find_first_overdue_s(self.execution, self.slots)
        return self.state._replace(
            now_s=self.now_s,
            slots=self.slots,
            progress=self.progress,
            replicas=self.replicas,
            done=self.done,
            lost=self.lost,
            faulty=self.faulty,
            released=self.released,
            wake_s=self._wake_s(),
            overdue_s=overdue_s,
        )

    def _wake_s(self) -> float:
        """Return when the first slot needs a check; goes through all of them only if it was one of
        the settled ones that did until now."""
        before_s, wake_s, later = self.state.wake_s, self.state.wake_s, False
        for slot in self.settled:
            was, own_s = self.state.progress.get(slot), self.progress[slot].wake_s
            later = later or (own_s > before_s and was is not None and was.wake_s == before_s)
            wake_s = min(wake_s, own_s)
        if later:
            return min(progress.wake_s for progress in self.progress.values())
        return wake_s

    def note(self, words: str) -> None:
        """Record a decision as text for users."""
        self.state = self.state._replace(notes=(*self.state.notes, (self.now_s, words)))

    def set_slot(self, slot: str, **changes: Any) -> None:
        """Change a slot's record and mark it for an update."""
        self.slots = self.slots.set(slot, self.slots[slot]._replace(**changes))
        self.touched.add(slot)

    def begin_replica(self, key: ReplicaKey) -> None:
        """Start a waiting replica; :func:`vgrads.execmgr.core.slot_order.settle` counts its
        processors."""
        started = self.replicas[key]._replace(state=ReplicaState.RUNNING, start_s=self.now_s)
        self.replicas = self.replicas.set(key, started)
        self.commands.append(StartReplica(key))

    def await_again(self, key: ReplicaKey, record: ReplicaRecord) -> None:
        """Let a replica that ran wait again, at its position in its slot's order."""
        self.replicas = self.replicas.set(key, record)
        self._free(self.execution.placements[key], self.execution.position[key])

    def _free(self, planned: Placement, position: float = _INF) -> None:
        """Free the processors of a replica; ``position``: of the slot's order, if it waits
        again."""
        slot, progress = planned.slot, self.progress[planned.slot]
        freed = SlotProgress(
            progress.used - planned.procs, int(min(progress.next, position)), progress.wake_s
        )
        self.progress = self.progress.set(slot, freed)
        self.touched.add(slot)

    def end_replica(self, key: ReplicaKey, state: ReplicaState, reason: str) -> None:
        """Record the end of a replica; if none is left of its task, skip the tasks that need it."""
        self.end_as(key, self.replicas[key], state, reason)

    def end_as(
        self, key: ReplicaKey, before: ReplicaRecord, state: ReplicaState, reason: str
    ) -> None:
        """The same, with what else is to be recorded in ``before``."""
        planned = self.execution.placements[key]
        if before.state == ReplicaState.RUNNING:
            self._free(planned)
        self.replicas = self.replicas.set(
            key, before._replace(state=state, end_s=self.now_s, reason=reason, committing=False)
        )
        self.touched.add(planned.slot)
        if state != ReplicaState.DONE:
            self._lose_if_last(key[:2], reason)

    def stop_replica(self, key: ReplicaKey, state: ReplicaState, reason: str) -> None:
        """End a waiting or running replica."""
        if self.replicas[key].state == ReplicaState.RUNNING:
            self.commands.append(CancelReplica(key))
        if not self.replicas[key].state.settled:
            self.end_replica(key, state, reason)

    def deliver(self, key: ReplicaKey) -> None:
        """Record the first success of a task: end its other replicas and allow its children."""
        task: TaskKey = key[:2]
        self.done = self.done.set(task, Delivery(site=self.execution.site_of(key), at_s=self.now_s))
        for replica in self.execution.replicas[task]:
            state = self.replicas[replica].state
            if state in LIVE:
                running = state == ReplicaState.RUNNING
                ending = ReplicaState.CANCELLED if running else ReplicaState.SKIPPED
                self.stop_replica(replica, ending, "another replica was first")
        workflow = self.workflows[key[0]]
        for child in workflow.children[key[1]]:
            if any((key[0], parent) not in self.done for parent in workflow.tasks[child].parents):
                continue
            for replica_number in self.execution.replicas.get((key[0], child), ()):
                self.touched.add(self.execution.slot_of(replica_number))

    def _lose_if_last(self, task: TaskKey, reason: str) -> None:
        """Mark a task without remaining replicas as lost, with all tasks that need it."""
        # a list instead of recursion, since chains of tasks may be long
        pending = [(task, reason)]
        while pending:
            task, reason = pending.pop()
            replicas = self.execution.replicas[task]
            if task in self.done or not all(
                self.replicas[replica].state.settled for replica in replicas
            ):
                continue
            self.lost = self.lost.set(task, reason)
            descendants = f"its input from '{task[1]}' will never come"
            for child in self.workflows[task[0]].children[task[1]]:
                waiting = [
                    replica
                    for replica in self.execution.replicas.get((task[0], child), ())
                    if self.replicas[replica].state == ReplicaState.WAITING
                ]
                for replica in waiting:
                    skipped = self.replicas[replica]._replace(
                        state=ReplicaState.SKIPPED,
                        end_s=self.now_s,
                        reason=descendants,
                    )
                    self.replicas = self.replicas.set(replica, skipped)
                    self.touched.add(self.execution.slot_of(replica))
                # where none waits, the task was lost before, or may still be done
                if waiting:
                    pending.append(((task[0], child), descendants))

    def end_of(self, slot: str) -> float:
        """Return the last instant at which replicas of a slot can end: its end or the deadline."""
        record, end_s = self.slots[slot], self.execution.plan.deadline_s
        if record.paid_until_s is not None:
            end_s = min(end_s, record.paid_until_s)
        if record.ready_s is None:
            return end_s
        return min(end_s, record.ready_s + self.execution.slot_duration_s(slot))

    def latest_start(self, key: ReplicaKey) -> float:
        """Return the last instant at which the replica can start and end before its slot and the
        deadline."""
        planned = self.execution.placements[key]
        allotted_s = allot_time(planned, self.replicas[key])
        return self.end_of(planned.slot) - allotted_s + SLACK_S

    def inputs_at(self, planned: Placement) -> float:
        """Return when the outputs of all parents are at the replica's site; ``inf`` while a parent
        is not done, or the task is not released."""
        name, task = planned.workflow, planned.task
        if self.execution.released and not self.may_begin((name, task)):
            return _INF
        workflow, latest_s = self.workflows[name], 0.0
        for parent in workflow.tasks[task].parents:
            delivery = self.done.get((name, parent))
            if delivery is None:
                return _INF
            sites = delivery.site, self.execution.place(planned.slot)
            transfer_s = self.execution.snapshot.transfer_s(workflow, parent, task, sites)
            latest_s = max(latest_s, delivery.at_s + transfer_s)
        return latest_s

    def may_begin(self, task: TaskKey) -> bool:
        """True if a task of a set with releases was released."""
        leave = self.released.get(task)
        return leave is not None and not leave.used
