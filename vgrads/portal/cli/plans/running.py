"""Runs from the command line: run here, resumed, cancelled, reported to the user and to a
webhook."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from rich.console import Console

from vgrads.api.config import run_folder
from vgrads.api.plans.answers import outcome_json, plan_json, run_gantt
from vgrads.api.plans.execution import RunOutcome
from vgrads.api.plans.planning import Planned
from vgrads.api.plans.refusals import make_infeasible_error
from vgrads.api.plans.results_folder import exclusive
from vgrads.api.plans.run_setup import RunOptions
from vgrads.api.queues.history_files import Instant
from vgrads.api.wiring import uses_real_site
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.execmgr.core.states import Event, RunState
from vgrads.execmgr.runner import Watcher
from vgrads.execmgr.tasks.folder import make_room
from vgrads.kernel.errors import InputError
from vgrads.operations.plans.requests import RunRequest
from vgrads.portal.charts.exports import reasons_of, write_chart
from vgrads.portal.cli.plans.live import LiveLine, RunReporter, later
from vgrads.portal.cli.plans.outputs import RunOutput
from vgrads.portal.cli.plans.plan_text import outcome_sentence, print_plan
from vgrads.portal.cli.plans.planning import plan_file
from vgrads.portal.cli.plans.run_text import name_troubles, open_slots
from vgrads.portal.cli.terminal import console
from vgrads.portal.jobs.runs import ask_to_stop, create_run, go_on, take_over, tidy, unended
from vgrads.portal.jobs.webhook import Webhook
from vgrads.portal.records.earlier import refuse_unfinished
from vgrads.portal.records.reader import new_id
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store
from vgrads.workflows.sets import WorkflowSet

_SECOND_S = 5.0  # time for a second Ctrl-C


@dataclass(frozen=True, kw_only=True)
class RunChoices:
    """Options of a run from the command line. ``quiet``: the standard output is for other data;
    ``set_id``: the run is one more of this stored set."""

    speed: float | None
    seed: int
    gantt: Path | None
    folder: Path | None
    as_json: bool
    at: Instant = None
    webhook: str = ""
    keep: str = "all"
    replan: bool = True
    quiet: bool = False
    set_id: str = ""


def plan_and_run(request: RunRequest, output: RunOutput) -> int:
    """Plan a set, run it to the end, return the exit code. Raise InfeasibleError where no plan is
    possible."""
    planned = plan_file(request)
    if not planned.plan.feasible:
        raise make_infeasible_error(planned.plan, str(request.set_file))
    choices = RunChoices(
        speed=request.speed,
        seed=request.seed,
        gantt=output.gantt,
        folder=request.folder,
        as_json=output.as_json,
        at=request.at,
        webhook=request.webhook,
        keep=request.keep,
        replan=request.replan,
    )
    return exit_code_of(run_here(planned, choices))


def run_here(planned: Planned, how: RunChoices) -> RunOutcome:
    """Run a plan in this process, store it in the database, report the outcome."""
    out = console(stderr=how.as_json or how.quiet)
    # read here only to refuse a missing one before anything runs
    _read_webhook_secret(how)
    if planned.workflow_set.released:
        why = "the tasks of this set are released one by one, which needs a service"
        raise InputError(why, where="released", fix="submit the set to a service: vgrads serve")
    print_plan(out, planned.plan)
    chosen = how.folder.resolve() if how.folder else None
    with Store() as store, exclusive(chosen, f"--out {chosen}"):
        if chosen is not None:
            refuse_unfinished(store, chosen)
            make_room(chosen, planned.snapshot.workflow_set.workflows)
        run_id = new_id("run")
        folder = chosen or run_folder(run_id).resolve()
        options = RunOptions(
            run_id=run_id,
            folder=folder,
            speed=how.speed,
            seed=how.seed,
            at=how.at,
            replan=how.replan,
            own=True,
        )
        new = create_run(store, planned, options, chosen, how.set_id)
        real = uses_real_site(planned.grid.catalog, planned.plan)
        pace = 1.0 if real else how.speed
        shown = console(stderr=how.as_json or how.quiet, lasting=True)
        with (
            _make_webhooks(how, run_id, shown) as webhooks,
            _handle_interrupts(store, run_id, how, shown),
            following(shown, new.execution, 0.0, pace) as watchers,
        ):
            outcome = new.execute(_Watch([*watchers, *webhooks]))
            for hook in webhooks:
                hook.outcome = outcome_json(outcome)
        _conclude(outcome, new.record, how, out, real)
    return outcome


@dataclass
class _Watch:
    """Several watchers of a run as one."""

    watchers: list[Watcher]

    def __call__(self, execution: ExecutionPlan, state: RunState, events: list[Event]) -> None:
        for watch in self.watchers:
            watch(execution, state, events)


def _read_webhook_secret(how: RunChoices) -> str:
    """Return the shared secret of the webhook. Raise InputError where a webhook is requested
    without one."""
    secret = os.environ.get("VGRADS_WEBHOOK_SECRET", "")
    if how.webhook and not secret:
        raise InputError(
            "VGRADS_WEBHOOK_SECRET is not set",
            where="--webhook",
            fix="set it to the secret that the receiver of the webhook uses",
        )
    return secret


@contextmanager
def following(
    out: Console, execution: ExecutionPlan, elapsed_s: float, pace: float | None
) -> Iterator[list[Watcher]]:
    """Print lines for events; on a terminal, also a status line.

    ``pace``: seconds of the run per real second; None where it ends too soon to be watched.
    """
    reporter = RunReporter(out, execution)
    for line in later(execution, elapsed_s) if pace is not None else ():
        out.print(f"            {line}")
    if pace is None or not out.is_terminal:
        yield [reporter]
        return
    shown = LiveLine(
        out, execution, datetime.now().astimezone() - timedelta(seconds=elapsed_s), pace
    )
    with shown.shown():
        yield [shown, reporter]


@contextmanager
def _make_webhooks(how: RunChoices, run_id: str, out: Console) -> Iterator[list[Webhook]]:
    """Return the webhook where one is requested; its secret is ``VGRADS_WEBHOOK_SECRET``."""
    if not how.webhook:
        yield []
        return
    hook = Webhook(how.webhook, _read_webhook_secret(how), run_id)
    try:
        yield [hook]
    finally:
        hook.close()
        if hook.undelivered:
            out.print(f"webhook: {hook.undelivered} messages were not delivered", style="yellow")


@contextmanager
def _handle_interrupts(store: Store, run_id: str, how: RunChoices, out: Console) -> Iterator[None]:
    """After Ctrl-C, report what is still held and how to resume; a second one releases all of
    it."""
    try:
        yield
    except KeyboardInterrupt:
        reserved = open_slots(RunRecord(store.engine, run_id))
        for line in reserved:
            out.print(f"  still reserved: {line}", style="yellow", highlight=False, markup=False)
        out.print(
            (
                f"interrupted: 'vgrads resume {run_id}' continues the run, 'vgrads cancel "
                f"{run_id}' "
                "releases all slots"
            )
            + (
                f"; press Ctrl-C again within {_SECOND_S:.0f} s to release them now"
                if reserved
                else ""
            ),
            style="bold yellow",
            highlight=False,
            markup=False,
        )
        if reserved and _handle_second_interrupt():
            cancel_run(run_id, how)
        raise


def _handle_second_interrupt() -> bool:
    try:
        time.sleep(_SECOND_S)
    except KeyboardInterrupt:
        return True
    return False


def resume_here(
    run_id: str, how: RunChoices, stop: str = "", until: int | None = None
) -> RunOutcome:
    """Resume a run whose manager is gone; with ``stop``, only release everything.

    ``until``: use only the events of its journal before this one.
    """
    out = console(stderr=how.as_json)
    with Store() as store:
        unended(store, run_id)
        record = RunRecord(store.engine, run_id)
        taken = take_over(store, record, stop, until)
        shown = console(stderr=how.as_json, lasting=True)
        if taken.replayed and not taken.stop:
            shown.print(
                "simulated sites end with their manager: the run starts again from the beginning"
            )
        begun = taken.begun
        pace = None if taken.replayed or taken.stop else 1.0
        # a replayed run begins again with its first plan, not with the one that was last in force
        execution = begun.executions[0 if taken.replayed else begun.state.version]
        with (
            _handle_interrupts(store, run_id, how, shown),
            following(shown, execution, begun.elapsed_s, pace) as watchers,
        ):
            outcome = go_on(store, record, taken, _Watch(watchers))
        _conclude(outcome, record, how, out, not taken.replayed)
    return outcome


def cancel_run(run_id: str, how: RunChoices) -> str:
    """Cancel a run: by request to its manager, or where there is none, by releasing everything from
    here."""
    with Store() as store:
        unended(store, run_id)
        done = ask_to_stop(store, run_id, "cancelled by command")
    if done:
        return done
    resume_here(run_id, how, stop="cancelled by command")
    return "cancelled; all slots were released"


def _conclude(
    outcome: RunOutcome, record: RunRecord, how: RunChoices, out: Console, real: bool
) -> None:
    """Write the chart; print errors, where the outputs are, and last the outcome of the promise."""
    sentence, folder = outcome_sentence(outcome), record.setup().options.folder
    tidy(outcome, record.setup().options, how.keep)
    name_troubles(outcome, record, folder, out)
    if how.gantt:
        reasons = reasons_of(plan_json(outcome.execution.plan))
        write_chart(how.gantt, run_gantt(outcome), sentence, reasons)
        out.print(f"Gantt chart: {how.gantt}")
    if how.as_json:
        document = plan_json(outcome.execution.plan) | {
            "run": record.run_id,
            "outcome": outcome_json(outcome),
        }
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
    if folder.is_dir():
        out.print(f"Outputs: {folder}")
    elif not real:
        hint = " '--sites here' runs the commands on this machine."
        commands = _has_commands(outcome.execution.snapshot.workflow_set)
        out.print(
            f"Outputs: none, because all sites are simulated.{hint if commands else ''}",
            style="yellow" if commands else None,
        )
    out.print(sentence, style="bold green" if outcome.kept else "bold red")


def _has_commands(workflow_set: WorkflowSet) -> bool:
    return any(
        task.command for workflow in workflow_set.workflows for task in workflow.tasks.values()
    )


def exit_code_of(outcome: RunOutcome) -> int:
    """Return 0 kept, 1 broken, 5 cancelled."""
    return {"kept": 0, "broken": 1, "cancelled": 5}[outcome.verdict]
