"""Whether missed promises are announced before they are due, what is paid after they are lost, and
what the changes help that a message then names.

``python -m benchmarks.planning.bench_announced --runs 300``: LEAD sets over the shipped sites with
so little time and money that a quarter to a third is missed, each planned at a random instant of
their histories and run by the execution manager from there, with replanning. The states are those
of the journal (:func:`vgrads.execmgr.core.promise_record.judge_promise`). Runs in danger are run
once more: at the first danger the cheapest sufficient change is sent to the run's mailbox. Sets
that need all their workflows are also run with a task whose command always fails. With the
environment variable ``VGRADS_EFFORT=0.1`` it takes about 10 s a run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from vgrads_studies.promises.replication import lead

from benchmarks.bench_replanning import Record
from benchmarks.planning.bench_managed import Question
from vgrads.api.config import embedded_data, read_planning_effort
from vgrads.api.plans.execution import RunOutcome, run_plan
from vgrads.api.plans.planning import Planned, open_grid, plan_set
from vgrads.api.plans.replanners import sufficient_changes
from vgrads.api.plans.run_setup import RunOptions
from vgrads.api.wiring import make_virtual_engine
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.promise_record import judge_promise
from vgrads.execmgr.core.states import Event, ReplicaEnded, RequestChange, RunState
from vgrads.execmgr.engines.outside import OutsideEngine
from vgrads.execmgr.mailbox import Mail, TaskUpdate
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.kernel.clock import SimClock
from vgrads.kernel.promise_state import PromiseState
from vgrads.kernel.streams import stream
from vgrads.planner.make import Options
from vgrads.planner.plan import Relaxation
from vgrads.planner.snapshot import ReplicaKey, Snapshot, TaskKey
from vgrads.vgrid.catalog import load_catalog
from vgrads.workflows.sets import WorkflowSet

QUESTIONS = (
    Question(2, 4, 5350.0, 0.65),
    Question(3, 4, 5600.0, 0.9),
    Question(3, 3, 5800.0, 0.75),
    Question(1, 1, 5300.0, 0.95),
    Question(2, 3, 5400.0, 0.65),
    Question(4, 4, 6200.0, 0.8),
    Question(2, 4, 5450.0, 0.9),
    Question(3, 4, 5700.0, 0.65),
    Question(3, 3, 5900.0, 0.95),
    Question(1, 1, 5400.0, 0.6),
    Question(2, 3, 5500.0, 0.9),
    Question(4, 4, 6300.0, 0.65),
)
"""Sets whose plan reaches about what is requested, and sets whose user takes less."""
_SPREAD = 0.15  # of run times
_BUDGETS_USD = (0.0, 6.0)
_BAD = (PromiseState.AT_RISK, PromiseState.CANNOT_BE_MET, PromiseState.FAILING)
_ORDER = ("s", "workflows", "USD")  # of changes that cost the same
_PARTIAL_EVERY = 20


@dataclass(frozen=True, slots=True)
class Announced:
    """A run: whether it was kept; whether its plan was below the request from the start; when, as
    shares of the time until the deadline, it was first reported as in danger, and that it cannot be
    met (None: never); paid slots that cost more than one billing unit after that; the change that
    was made in another run at the first danger (empty: none suffices), and whether the promise was
    kept after it. ``failing_after``: time from the second failure of a task whose command always
    fails until the run was reported as failing, in lengths of that task; None: not measured."""

    kept: bool
    below: bool
    danger: float | None
    lost: float | None
    paid_on: int
    change: str
    after_change: bool
    failing_after: float | None


class Mailbox:
    """The mailbox of a run, to which changes of its request are sent."""

    def __init__(self) -> None:
        self.changes: list[RequestChange] = []

    def take(self, after: int) -> Mail | None:
        """Return the changes after this number."""
        fresh = tuple(enumerate(self.changes, 1))[after:]
        return Mail(upto=len(self.changes), changes=fresh) if fresh else None

    def answer(self, answers: Sequence[TaskUpdate]) -> None:
        """Do nothing: no tasks are released here."""


class MailRecord(Record):
    """A journal with a mailbox."""

    def __init__(self) -> None:
        super().__init__()
        self.box = Mailbox()

    def mailbox(self) -> Mailbox:  # type: ignore[override]
        """Return the mailbox of the run."""
        return self.box


class FailingEngine(OutsideEngine):
    """Virtual tasks of which one always ends with exit code 2."""

    def __init__(self, snapshot: Snapshot, seed: int, failing: TaskKey) -> None:
        super().__init__(SimClock())
        self._engine, self._failing = make_virtual_engine(self.clock, snapshot, seed), failing

    def recover(self, orders: Sequence[TaskOrder]) -> None:
        self._engine.recover(orders)

    def start(self, orders: Sequence[TaskOrder]) -> None:
        self._engine.start(orders)

    def commit(self, orders: Sequence[TaskOrder]) -> None:
        self._engine.commit(orders)

    def cancel(self, key: ReplicaKey) -> None:
        self._engine.cancel(key)

    def poll(self) -> list[ReplicaEnded]:
        """Return the ends of tasks, with the failures."""
        return [
            replace(event, ok=False, reason="exit code 2", code=2, ended=2)
            if event.key[:2] == self._failing
            else event
            for event in self._engine.poll()
        ]

    def stored(self) -> None:
        self._engine.stored()

    def wake_at(self) -> float:
        return self._engine.wake_at()

    def close(self) -> None:
        self._engine.close()

    def detach(self) -> None:
        self._engine.detach()


@dataclass(slots=True)
class Watch:
    """Sees the first danger of a run; then, with a ``mailbox``, the cheapest sufficient change is
    sent to it."""

    planned: Planned
    mailbox: Mailbox | None = None
    danger_s: float | None = None
    change: str = ""
    below: bool = field(init=False)

    def __post_init__(self) -> None:
        self.below = not self.planned.plan.meets_request

    def __call__(self, execution: ExecutionPlan, state: RunState, _: list[Event]) -> None:
        if self.danger_s is not None or judge_promise(execution, state) not in _BAD:
            return
        self.danger_s = state.now_s
        if self.mailbox is None:
            return
        names = tuple(site.name for site in self.planned.grid.catalog.sites)
        changes = sufficient_changes(self.planned.grid, names, execution, state)
        if changes:
            best = min(changes, key=lambda change: (change.cost_usd, _ORDER.index(change.unit)))
            self.change = best.change
            self.mailbox.changes.append(request_of(best, execution))


def request_of(change: Relaxation, execution: ExecutionPlan) -> RequestChange:
    """Return the changed request that a message names."""
    plan = execution.plan
    if change.unit == "s":
        return RequestChange(deadline_s=plan.deadline_s + change.amount)
    if change.unit == "workflows":
        return RequestChange(needed=plan.needed - round(change.amount))
    budget_usd = execution.snapshot.workflow_set.budget_usd or 0.0
    return RequestChange(budget_usd=budget_usd + change.amount)


def plan_and_run(number: int) -> Announced | None:
    """Plan a set at an instant and run it; None where there is no plan."""
    question = QUESTIONS[number % len(QUESTIONS)]
    workflow_set = WorkflowSet(
        name="lead",
        workflows=tuple(lead().renamed(f"w{n}") for n in range(question.count)),
        deadline_s=question.deadline_s,
        needed=question.needed,
        probability=question.probability,
        budget_usd=_BUDGETS_USD[number // len(QUESTIONS) % len(_BUDGETS_USD)],
        runtime_spread=_SPREAD,
    )
    at_s = float(stream(number, "announced runs").uniform(5.0, 28.0)) * 86_400.0
    planned = plan_set(
        workflow_set,
        open_grid(load_catalog(embedded_data() / "sites.toml"), at_s),
        options=Options(effort=read_planning_effort()),
    )
    if not planned.plan.feasible:
        return None
    watch, after = Watch(planned), Watch(planned)
    outcome = _run(planned, number, at_s, Record(), watch)
    after_change = False
    if watch.danger_s is not None:
        record = MailRecord()
        after = Watch(planned, record.box)
        after_change = _run(planned, number, at_s, record, after).kept
    lost_s, due_s = outcome.state.promise.lost_s, question.deadline_s
    return Announced(
        kept=outcome.kept,
        below=watch.below,
        danger=None if watch.danger_s is None else watch.danger_s / due_s,
        lost=None if lost_s is None else lost_s / due_s,
        paid_on=_paid_on(outcome, lost_s),
        change=after.change,
        after_change=after_change,
        failing_after=_failing_after(planned, number, at_s),
    )


def _run(
    planned: Planned,
    number: int,
    at_s: float,
    record: Record,
    watch: Watch,
) -> RunOutcome:
    with tempfile.TemporaryDirectory() as folder:
        options = RunOptions(run_id="r", folder=Path(folder), seed=number, at=at_s)
        return run_plan(planned, options, record, watch)


def _failing_after(planned: Planned, number: int, at_s: float) -> float | None:
    """Run a set whose workflows are all needed, with a task whose command always fails; return how
    long after its second failure the run was reported as failing, in lengths of the task; ``inf``:
    never."""
    workflow_set = planned.workflow_set
    if workflow_set.needed < len(workflow_set.workflows):
        return None
    draws = stream(number, "failing task")
    workflow = workflow_set.workflows[draws.integers(len(workflow_set.workflows))]
    task = (workflow.name, workflow.order[draws.integers(len(workflow.order))])
    fails_s: list[float] = []
    failing_s: list[float] = []

    def watch(execution: ExecutionPlan, state: RunState, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, ReplicaEnded) and not event.ok and event.key[:2] == task:
                fails_s.append(event.at_s)
        if not failing_s and judge_promise(execution, state) == PromiseState.FAILING:
            failing_s.append(state.now_s)

    with tempfile.TemporaryDirectory() as folder:
        options = RunOptions(run_id="r", folder=Path(folder), seed=number, at=at_s)
        engine = FailingEngine(planned.snapshot, number, task)
        run_plan(planned, options, Record(), watch, engine)
    if len(fails_s) < 2:  # it never began, or something else ended it
        return None
    after_s = failing_s[0] - fails_s[1] if failing_s else float("inf")
    return max(0.0, after_s) / planned.snapshot.task(task).runtime_s


def _paid_on(outcome: RunOutcome, lost_s: float | None) -> int:
    """Return how many slots cost more than one billing unit after the promise was lost."""
    count = 0
    for name, record in outcome.state.slots.items():
        offer = outcome.execution.uses[name].slot
        if lost_s is None or not offer.paid or record.ready_s is None or record.ended_s is None:
            continue
        before = offer.cost_usd(max(0.0, lost_s - record.ready_s))
        unit = offer.cost_usd(min(1.0, offer.billing_s))
        count += offer.cost_usd(record.ended_s - record.ready_s) - before > unit + 0.01
    return count


def table(runs: Sequence[Announced]) -> list[tuple[str, str]]:
    """Return what is measured, in words and numbers."""
    missed = [run for run in runs if not run.kept]
    kept = [run for run in runs if run.kept]
    lost = sum(run.lost is not None for run in missed)
    announced = [1.0 - run.danger for run in missed if run.danger is not None and run.danger < 1.0]
    in_time = [run.failing_after for run in runs if run.failing_after is not None]
    fell = [run for run in runs if run.danger is not None and not run.below]
    return [
        ("runs, of which missed", f"{len(runs)}, {len(missed)}"),
        ("missed runs announced before due", _share(len(announced), len(missed))),
        ("median lead, of the time until the deadline", f"{np.median(announced or [0.0]):.2f}"),
        ("cannot be met, among missed", _share(lost, len(missed))),
        ("false: cannot be met, and kept", str(sum(run.lost is not None for run in kept))),
        (
            "at risk from the start, as planned below the request, among kept",
            _share(sum(run.danger is not None and run.below for run in kept), len(kept)),
        ),
        ("at risk later, among kept", _share(sum(run.kept for run in fell), len(kept))),
        ("slots paid for more than a unit after a loss", str(sum(run.paid_on for run in runs))),
        *_changed("at risk from the start", (r for r in runs if r.danger is not None and r.below)),
        *_changed("at risk later", fell),
        (
            "failing within a task's length of the second failure",
            _share(sum(lengths <= 1.0 for lengths in in_time), len(in_time)),
        ),
    ]


def _changed(title: str, runs: Iterable[Announced]) -> list[tuple[str, str]]:
    """Return what became of runs in danger without and with the cheapest sufficient change."""
    chosen = list(runs)
    counts = {word: 0 for word in sorted({run.change for run in chosen if run.change})}
    for run in chosen:
        if run.change:
            counts[run.change] += 1
    changes = ", ".join(f"{word} {count}" for word, count in counts.items())
    offered = [run for run in chosen if run.change]
    return [
        (f"{title}: a change was found", _share(len(offered), len(chosen)) + f": {changes}"),
        (f"{title}: kept without it", _share(sum(run.kept for run in chosen), len(chosen))),
        (
            f"{title}: kept with it",
            _share(sum(run.after_change for run in chosen), len(chosen)),
        ),
    ]


def _share(count: int, total: int) -> str:
    return f"{count / max(1, total):.3f} ({count} of {total})"


def print_table(runs: Sequence[Announced]) -> None:
    """Print what is measured."""
    print("| measure | value |\n| --- | --: |")
    for name, value in table(runs):
        print(f"| {name} | {value} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    runs: list[Announced] = []
    with ProcessPoolExecutor(chosen.processes) as pool:
        for number, run in enumerate(pool.map(plan_and_run, range(chosen.runs))):
            runs += [run] if run is not None else []
            if number % _PARTIAL_EVERY == _PARTIAL_EVERY - 1:
                print_table(runs)
    print_table(runs)


if __name__ == "__main__":
    main()
