"""Plans by vgrads, run in virtual time under the recorded load."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

from vgrads.api.plans.execution import RunOutcome, run_plan
from vgrads.api.plans.planning import GridSnapshot, Planned, plan_set
from vgrads.api.plans.run_setup import RunOptions, Setup
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.journal import MemoryJournal
from vgrads.planner.make import Options
from vgrads_studies.promises.arena import Case
from vgrads_studies.promises.rivals import Result

PAPER, OURS = "the paper's planner", "vgrads"
POLICIES = {PAPER: Options(probability="paper"), OURS: Options()}


class Notebook(MemoryJournal):
    """A run's record in memory, for the study only."""

    def __init__(self) -> None:
        super().__init__()
        self.executions: dict[int, ExecutionPlan] = {}

    def keep_setup(self, setup: Setup) -> None:
        """Do nothing: a study resumes no run."""

    def store_execution(self, version: int, execution: ExecutionPlan) -> None:
        """Record plans that were recomputed during the run."""
        self.executions[version] = execution

    def mailbox(self) -> None:
        """Return no mailbox: no tasks are released here."""

    def alarms(self) -> None:
        """Send no messages about the promise."""

    def stop_reason(self) -> str:
        """Return an empty reason: a study's run is never cancelled."""
        return ""


def plan_case(grid: GridSnapshot, case: Case, policy: str) -> tuple[Planned, float]:
    """Return a plan and its planning time in seconds."""
    begin = time.perf_counter()
    planned = plan_set(case.workflow_set, grid, case.number, POLICIES[policy])
    return planned, time.perf_counter() - begin


def run_case(planned: Planned, case: Case, replan: bool = True) -> tuple[RunOutcome, Notebook]:
    """Run the plan with the execution manager itself."""
    record = Notebook()
    with tempfile.TemporaryDirectory() as folder:
        options = RunOptions(
            run_id=f"run-{case.number:06d}", folder=Path(folder), seed=case.number, replan=replan
        )
        return run_plan(planned, options, record), record


def simulate(grid: GridSnapshot, case: Case, policy: str, replan: bool = True) -> Result:
    """Plan, run, and count; a set that cannot be planned gets no promise, and is not run."""
    planned, planning_s = plan_case(grid, case, policy)
    promised = planned.plan.promise.probability if planned.plan.feasible else 0.0
    if not planned.plan.placements:
        return Result(
            in_time=0,
            kept=False,
            slot_hours=0.0,
            used_hours=0.0,
            usd=0.0,
            promised=promised,
            done_s=(math.inf,) * len(case.workflow_set.workflows),
            planning_s=planning_s,
        )
    outcome, _ = run_case(planned, case, replan)
    done = tuple(outcome.done.get(w.name, math.inf) for w in case.workflow_set.workflows)
    reserved, usd = holdings(outcome)
    used = sum(
        t.procs * t.runtime_s
        for w in case.workflow_set.workflows
        if w.name in outcome.done
        for t in w.tasks.values()
    )
    ready = [r.ready_s for r in outcome.state.slots.values() if r.ready_s is not None]
    return Result(
        in_time=outcome.in_time,
        kept=outcome.kept,
        slot_hours=reserved,
        used_hours=used / 3600.0,
        usd=usd,
        done_s=done,
        promised=promised,
        planning_s=planning_s,
        binding_s=max(ready, default=math.inf),
    )


def holdings(outcome: RunOutcome) -> tuple[float, float]:
    """Return processor hours held from grant (or readiness, where that is reported first) to end,
    and the cost of the paid ones."""
    reserved, usd = 0.0, 0.0
    for name, record in outcome.state.slots.items():
        slot = outcome.execution.uses[name].slot
        begun_s = record.granted_s if record.granted_s is not None else record.ready_s
        if begun_s is None:
            continue
        end_s = record.ended_s if record.ended_s is not None else slot.end_s
        length_s = max(0.0, end_s - begun_s)
        reserved += slot.procs * length_s / 3600.0
        if record.ready_s is not None:
            usd += slot.cost_usd(end_s - record.ready_s)
    return reserved, usd
