"""Execution of a plan by the execution manager at a site where every slot starts when its job
really did."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from vgrads.api.plans.execution import RunOutcome
from vgrads.api.wiring import make_virtual_engine
from vgrads.drivers.api import SlotSpec, SlotState, SlotStatus
from vgrads.drivers.ledger import SlotLedger
from vgrads.execmgr.core.completion import find_done_workflows
from vgrads.execmgr.core.execution_plan import make_execution
from vgrads.execmgr.core.journal import MemoryJournal
from vgrads.execmgr.runner import Runner, RunnerSetup
from vgrads.kernel.clock import Clock, SimClock
from vgrads.kernel.events import EventQueue
from vgrads.planner.plan import Plan
from vgrads.planner.snapshot import Snapshot
from vgrads_studies.promises.ours import holdings
from vgrads_studies.promises.rivals import Result


class RecordedQueue:
    """Returns recorded starts, by the names of the slots; each lives for the requested time."""

    def __init__(self, starts_s: Mapping[str, float], clock: Clock) -> None:
        self._starts_s, self._clock = starts_s, clock
        self._ledger = SlotLedger()
        self._due: EventQueue[tuple[str, SlotState]] = EventQueue()

    def submit(self, spec: SlotSpec) -> None:
        if spec.id in self._ledger:
            return
        now_s = self._clock.now()
        start_s = max(now_s, self._starts_s[spec.name])
        self._ledger.move(spec.id, SlotState.QUEUED, now_s)
        self._due.push(start_s, (spec.id, SlotState.READY))
        self._due.push(start_s + spec.duration_s, (spec.id, SlotState.EXPIRED))

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        self._advance()
        return self._ledger.status(slots, self._clock.now())

    def cancel(self, slot: str) -> None:
        self._advance()
        if slot in self._ledger:
            self._ledger.move(slot, SlotState.RELEASED, self._clock.now())

    def wake_at(self) -> float:
        return self._due.peek_time()

    def close(self) -> None:
        for slot in self._ledger.open_slots():
            self.cancel(slot)

    def _advance(self) -> None:
        for at_s, (slot, state) in self._due.pop_until(self._clock.now()):
            self._ledger.move(slot, state, at_s)


def carry_out(plan: Plan, snapshot: Snapshot, starts_s: Mapping[str, float]) -> RunOutcome:
    """Run the plan to its end in virtual time, without replanning."""
    execution, clock = make_execution(plan, snapshot), SimClock()
    sites = dict.fromkeys(use.slot.site for use in plan.uses)
    around = RunnerSetup(
        drivers={site: RecordedQueue(starts_s, clock) for site in sites},
        clock=clock,
        journal=MemoryJournal(),
        engine=make_virtual_engine(clock, snapshot, snapshot.seed),
    )
    state = Runner(f"set-{snapshot.seed}", execution, around).run()
    return RunOutcome(execution=execution, state=state, done=find_done_workflows(execution, state))


def run_recorded(
    plan: Plan, snapshot: Snapshot, starts_s: Mapping[str, float], planning_s: float
) -> Result:
    """Return the outcome of a plan and its promise."""
    outcome = carry_out(plan, snapshot, starts_s)
    workflows = snapshot.workflow_set.workflows
    done_s = tuple(outcome.done.get(w.name, math.inf) for w in workflows)
    used = sum(
        t.procs * t.runtime_s for w in workflows if w.name in outcome.done for t in w.tasks.values()
    )
    return Result(
        in_time=outcome.in_time,
        kept=outcome.kept,
        slot_hours=holdings(outcome)[0],
        used_hours=used / 3600.0,
        usd=0.0,
        done_s=done_s,
        promised=plan.promise.probability,
        planning_s=planning_s,
    )
