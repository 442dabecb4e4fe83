"""Planned by vgrads and run in virtual time, among the load that came."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

from vgrads.api.plans.execution import Outcome, RunOptions, Setup, run_plan
from vgrads.api.plans.planning import Grid, Planned, plan_set
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.journal import MemoryJournal
from vgrads.planner.make import Options
from vgrads.research.promises.arena import Case
from vgrads.research.promises.rivals import Result

PAPER, OURS = "the paper's planner", "vgrads"
POLICIES = {PAPER: Options(probability="paper"), OURS: Options()}


class Notebook(MemoryJournal):
    """A run's record for nobody but the study."""

    def __init__(self) -> None:
        super().__init__()
        self.books: dict[int, Book] = {}

    def keep_setup(self, setup: Setup) -> None:
        """A study starts no run again."""

    def keep_book(self, version: int, book: Book) -> None:
        """What was planned anew on the way."""
        self.books[version] = book

    def mailbox(self) -> None:
        """Nobody releases tasks here."""

    def stop_reason(self) -> str:
        """Nobody stops a study's run."""
        return ""


def plan_case(grid: Grid, case: Case, policy: str) -> tuple[Planned, float]:
    """A plan and the seconds that it took."""
    begin = time.perf_counter()
    planned = plan_set(case.wanted, grid, case.number, POLICIES[policy])
    return planned, time.perf_counter() - begin


def run_case(planned: Planned, case: Case, replan: bool = True) -> tuple[Outcome, Notebook]:
    """The plan carried out by the execution manager itself."""
    record = Notebook()
    with tempfile.TemporaryDirectory() as folder:
        options = RunOptions(
            run_id=f"run-{case.number:06d}", folder=Path(folder), seed=case.number, replan=replan
        )
        return run_plan(planned, options, record), record


def play(grid: Grid, case: Case, policy: str, replan: bool = True) -> Result:
    """Plan, run, and count; a set that cannot be planned is promised nothing, and none of it is
    run."""
    planned, planning_s = plan_case(grid, case, policy)
    promised = planned.plan.promise.probability if planned.plan.feasible else 0.0
    if not planned.plan.placements:
        return Result(
            in_time=0,
            kept=False,
            held_hours=0.0,
            used_hours=0.0,
            usd=0.0,
            promised=promised,
            done_s=(math.inf,) * len(case.wanted.workflows),
            planning_s=planning_s,
        )
    outcome, _ = run_case(planned, case, replan)
    done = tuple(outcome.done.get(w.name, math.inf) for w in case.wanted.workflows)
    held, usd = holdings(outcome)
    used = sum(
        t.procs * t.runtime_s
        for w in case.wanted.workflows
        if w.name in outcome.done
        for t in w.tasks.values()
    )
    ready = [r.ready_s for r in outcome.state.slots.values() if r.ready_s is not None]
    return Result(
        in_time=outcome.in_time,
        kept=outcome.kept,
        held_hours=held,
        used_hours=used / 3600.0,
        usd=usd,
        done_s=done,
        promised=promised,
        planning_s=planning_s,
        binding_s=max(ready, default=math.inf),
    )


def holdings(outcome: Outcome) -> tuple[float, float]:
    """Processor hours held from grant (or readiness, where that is told first) to end, and what the
    paid ones cost."""
    held, usd = 0.0, 0.0
    for name, record in outcome.state.slots.items():
        slot = outcome.book.uses[name].slot
        begun_s = record.granted_s if record.granted_s is not None else record.ready_s
        if begun_s is None:
            continue
        end_s = record.ended_s if record.ended_s is not None else slot.end_s
        length_s = max(0.0, end_s - begun_s)
        held += slot.procs * length_s / 3600.0
        if record.ready_s is not None:
            usd += slot.cost_usd(end_s - record.ready_s)
    return held, usd
