"""What follows from a computed promise and from a changed request: part of one step."""

from __future__ import annotations

from vgrads.execmgr.core.promise_record import record_check
from vgrads.execmgr.core.rule_state import RuleState
from vgrads.execmgr.core.slot_order import NOT_PAID
from vgrads.execmgr.core.states import (
    PromiseChecked,
    PromiseRecord,
    ReplicaRecord,
    ReplicaState,
    RequestChanged,
    RequestRecord,
    SlotProgress,
    SlotRecord,
)
from vgrads.execmgr.core.triggers import is_beyond_help
from vgrads.kernel.units import billed_s

IMPOSSIBLE = "the promise cannot be met by the current plan"
"""Why the remainder is planned again before a promise is said to be lost."""
MOST_REPLANS = 20
"""How often the remainder of a run is planned again, at most."""
_RELEASE_EARLIER = 0.01
"""Share of a billing unit by which a slot is released before its end: releasing takes time."""


class PromiseRules(RuleState):
    """Transitions of the promise and of the request."""

    recheck_superfluous = False  # slot ready, workflow done, or less required

    def promise_checked(self, event: PromiseChecked) -> None:
        """Record a promise; it is lost once no plan was found for one that is impossible."""
        record = record_check(self.state, event)
        final = record.helpless or self.execution.released or self.state.replans >= MOST_REPLANS
        if not event.possible and (final or is_beyond_help(self.execution, self.faulty)):
            record = record._replace(lost_s=self.now_s)
            self.state = self.state._replace(deferred=False)
            self.note("the promise cannot be met any more")
            self._after_loss()
        elif not event.possible:
            record = record._replace(fallen=IMPOSSIBLE)
        self.state = self.state._replace(promise=record)

    def _after_loss(self) -> None:
        """Do what the set states for a promise that cannot be met any more."""
        rule = self.execution.snapshot.workflow_set.when_lost
        if rule == "stop":
            self.cancel("the promise cannot be met any more, and the set states 'when_lost: stop'")
        elif rule == "stop_paying":
            for slot, record in self.slots.items():
                if self.execution.uses[slot].slot.paid and not record.closing:
                    self._stop_paying(slot)

    def _stop_paying(self, slot: str) -> None:
        """Release a paid slot at the end of the billing unit that has begun; request none."""
        record, offer = self.slots[slot], self.execution.uses[slot].slot
        if record.state is not None and record.state.ended:
            return
        if record.ready_s is None:
            for key in self.execution.order[slot]:
                self.stop_replica(key, ReplicaState.SKIPPED, NOT_PAID)
        else:
            paid_s = billed_s(self.now_s - record.ready_s, offer.billing_s)
            until_s = record.ready_s + paid_s - _RELEASE_EARLIER * offer.billing_s
            self.set_slot(slot, paid_until_s=max(self.now_s, until_s))
        self.touched.add(slot)

    def request_changed(self, event: RequestChanged) -> None:
        """Take over the plan for a changed request; what was lost under the one before may be
        possible now, and slots are paid for again."""
        plan, change = self.execution.plan, event.change
        record = RequestRecord(
            at_s=self.now_s,
            deadline_s=plan.deadline_s,
            needed=plan.needed,
            probability=plan.requested_probability,
            budget_usd=self.execution.snapshot.workflow_set.budget_usd,
            promise=event.promise,
            message=event.message,
            by=change.by,
            refused=event.refused,
        )
        requests = (*self.state.requests, record)
        self.state = self.state._replace(requests=requests, changes_read=event.message)
        if event.refused:
            self.note(f"the request was not changed: {event.refused}")
            return
        dropped = (self.state.dropped - set(change.add_sites)) | set(change.drop_sites)
        points = self.state.promise.points
        self.state = self.state._replace(
            version=event.version,
            dropped=dropped,
            promise=PromiseRecord(highest=event.promise, points=points),
            replanning=False,
            deferred=False,
        )
        for slot, slot_record in self.slots.items():
            if slot_record.paid_until_s is not None and not slot_record.closing:
                self.set_slot(slot, paid_until_s=None)
        self.plan_changed = self.recheck_superfluous = True
        self.note(f"the request was changed{f' by {change.by}' if change.by else ''}")
        take_over_order(self)

    def cancel(self, reason: str) -> None:
        """Cancel running and waiting replicas; their slots are then empty and are released."""
        self.state = self.state._replace(cancelled=reason, replanning=False, deferred=False)
        self.note(f"stopped: {reason}")
        for (
            key,
            record,
        ) in self.replicas.items():  # waiting ones first, so that none starts instead
            if record.state == ReplicaState.WAITING:
                failed = record._replace(
                    state=ReplicaState.CANCELLED, end_s=self.now_s, reason=reason
                )
                self.replicas = self.replicas.set(key, failed)
                if key[:2] not in self.done:
                    self.lost = self.lost.set(key[:2], reason)
        for key in self.replicas:
            self.stop_replica(key, ReplicaState.CANCELLED, reason)
        self.touched.update(self.slots)


def take_over_order(to: RuleState) -> None:
    """Skip the waiting replicas that are not in the new order, and add those that are new."""
    for key, record in to.replicas.items():
        if record.state == ReplicaState.WAITING and key not in to.execution.position:
            failed = record._replace(
                state=ReplicaState.SKIPPED, end_s=to.now_s, reason="planned again"
            )
            to.replicas = to.replicas.set(key, failed)
    to.touched.update(to.execution.order)
    for slot, order in to.execution.order.items():
        fresh = [key for key in order if key not in to.replicas]
        to.slots = to.slots.set(slot, to.slots.get(slot, SlotRecord()))
        before = to.progress.get(slot, SlotProgress())
        for key in fresh:
            to.replicas = to.replicas.set(key, ReplicaRecord())
            # a task that was lost has a replica again
            if key[:2] in to.lost:
                to.lost = to.lost.delete(key[:2])
        waiting = (n for n, k in enumerate(order) if to.replicas[k].state == ReplicaState.WAITING)
        to.progress = to.progress.set(slot, before._replace(next=next(waiting, len(order))))
