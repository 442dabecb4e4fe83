"""Runs from the command line: carried out here, resumed, cancelled, told to a person and to a
webhook."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from rich.console import Console

from vgrads.api.config import run_folder
from vgrads.api.plans.answers import outcome_json, plan_json, run_gantt
from vgrads.api.plans.execution import Outcome, RunOptions
from vgrads.api.plans.planning import Planned
from vgrads.api.queues.histories import Instant
from vgrads.api.wiring import any_real
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.states import Event, RunState
from vgrads.execmgr.runner import Watcher
from vgrads.execmgr.tasks.folder import make_room
from vgrads.kernel.errors import InputError
from vgrads.portal.charts.exports import reasons_of
from vgrads.portal.cli.plans.live import LiveLine, RunReporter, later
from vgrads.portal.cli.plans.plan_text import outcome_sentence, print_plan
from vgrads.portal.cli.plans.planning import draw_gantt
from vgrads.portal.cli.plans.run_text import held_slots, name_troubles
from vgrads.portal.cli.terminal import console
from vgrads.portal.jobs.runs import ask_to_stop, create_run, go_on, take_over, tidy, unended
from vgrads.portal.jobs.webhook import Webhook
from vgrads.portal.records.earlier import refuse_unfinished
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store, new_id
from vgrads.workflows.sets import WorkflowSet

_SECOND_S = 5.0  # in which a second Ctrl-C is waited for


@dataclass(frozen=True, kw_only=True)
class HowToRun:
    """Options of a run from the command line."""

    speed: float | None
    seed: int
    gantt: Path | None
    folder: Path | None
    as_json: bool
    at: Instant = None
    webhook: str = ""
    keep: str = "all"
    replan: bool = True


def run_here(planned: Planned, how: HowToRun) -> Outcome:
    """Execute a plan in this process, keep it in the database, say how it ended."""
    out = console(stderr=how.as_json)
    _webhook_secret(how)
    if planned.wanted.released:
        why = "its tasks are released one by one, which nobody can do here"
        raise InputError(why, where="released", fix="hand it over to a service: vgrads serve")
    print_plan(out, planned.plan)
    chosen = how.folder.resolve() if how.folder else None
    with Store() as store, _alone_in(chosen):
        if chosen is not None:
            refuse_unfinished(store, chosen)
            make_room(chosen, planned.snapshot.wanted.workflows)
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
        new = create_run(store, planned, options, chosen)
        real = any_real(planned.grid.catalog, planned.plan)
        pace = 1.0 if real else how.speed
        with (
            _told(how, run_id, out) as told,
            _interruptible(store, run_id, how, out),
            following(out, new.book, 0.0, pace) as watchers,
        ):
            outcome = new.execute(_Watch([*watchers, *told]))
            for hook in told:
                hook.outcome = outcome_json(outcome)
        _conclude(outcome, options, how, out, real)
        name_troubles(outcome, new.record, options.folder, out)
    return outcome


@dataclass
class _Watch:
    """A run's watchers as one."""

    watchers: list[Watcher]

    def __call__(self, book: Book, state: RunState, events: list[Event]) -> None:
        for watch in self.watchers:
            watch(book, state, events)


def _webhook_secret(how: HowToRun) -> str:
    """What both ends of the webhook know; InputError where one is wanted and nothing is known."""
    secret = os.environ.get("VGRADS_WEBHOOK_SECRET", "")
    if how.webhook and not secret:
        raise InputError(
            "VGRADS_WEBHOOK_SECRET is not set", where="--webhook", fix="both ends must know it"
        )
    return secret


@contextmanager
def following(
    out: Console, book: Book, passed_s: float, pace: float | None
) -> Iterator[list[Watcher]]:
    """Lines for what happens; where a person looks, one that says how the run stands.

    ``pace``: seconds of the run in one of ours; None where it is over too soon to be looked at.
    """
    reporter = RunReporter(out, book)
    for line in later(book, passed_s) if pace is not None else ():
        out.print(f"            {line}")
    if pace is None or not out.is_terminal:
        yield [reporter]
        return
    shown = LiveLine(out, book, datetime.now().astimezone() - timedelta(seconds=passed_s), pace)
    with shown.shown():
        yield [shown, reporter]


@contextmanager
def _alone_in(folder: Path | None) -> Iterator[None]:
    """InputError where another run works in a folder that its user chose."""
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(f"cannot be used: {error.strerror}", where=f"--out {folder}") from error
    try:
        with suppress(OSError):  # of file systems that have no such locks
            _lock(held, folder)
        yield
    finally:
        os.close(held)


def _lock(held: int, folder: Path) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError(
            "another run works there", where=f"--out {folder}", fix="choose another folder"
        ) from error


@contextmanager
def _told(how: HowToRun, run_id: str, out: Console) -> Iterator[list[Webhook]]:
    """The webhook where one is wanted; its secret is ``VGRADS_WEBHOOK_SECRET``."""
    if not how.webhook:
        yield []
        return
    hook = Webhook(how.webhook, _webhook_secret(how), run_id)
    try:
        yield [hook]
    finally:
        hook.close()
        if hook.undelivered:
            out.print(f"webhook: {hook.undelivered} messages were not taken", style="yellow")


@contextmanager
def _interruptible(store: Store, run_id: str, how: HowToRun, out: Console) -> Iterator[None]:
    """After Ctrl-C, say what is still held and how to go on; a second one gives all of it back."""
    try:
        yield
    except KeyboardInterrupt:
        held = held_slots(RunRecord(store.engine, run_id))
        for line in held:
            out.print(f"  still held: {line}", style="yellow", highlight=False, markup=False)
        out.print(
            (
                f"interrupted: 'vgrads resume {run_id}' goes on, 'vgrads cancel {run_id}' "
                "gives everything back"
            )
            + (f"; Ctrl-C once more within {_SECOND_S:.0f} s does so now" if held else ""),
            style="bold yellow",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        if held and _second_interrupt():
            cancel_run(run_id, how)
        raise


def _second_interrupt() -> bool:
    try:
        time.sleep(_SECOND_S)
    except KeyboardInterrupt:
        return True
    return False


def resume_here(run_id: str, how: HowToRun, stop: str = "", until: int | None = None) -> Outcome:
    """Go on with a run whose manager is gone; with ``stop``, only to give everything back.

    ``until``: as if only the events of its journal before this one had happened.
    """
    out = console(stderr=how.as_json)
    with Store() as store:
        unended(store, run_id)
        record = RunRecord(store.engine, run_id)
        taken = take_over(store, record, stop, until)
        if taken.replayed and not taken.stop:
            out.print("simulated sites end with their manager: played again from the beginning")
        begun, options = taken.begun, taken.begun.setup.options
        pace = None if taken.replayed or taken.stop else 1.0
        book = begun.books[0 if taken.replayed else begun.state.version]
        with (
            _interruptible(store, run_id, how, out),
            following(out, book, begun.passed_s, pace) as watchers,
        ):
            outcome = go_on(store, record, taken, _Watch(watchers))
        _conclude(outcome, options, how, out, not taken.replayed)
        name_troubles(outcome, record, options.folder, out)
    return outcome


def cancel_run(run_id: str, how: HowToRun) -> str:
    """Stop a run: ask its manager, or where there is none, give everything back from here."""
    with Store() as store:
        unended(store, run_id)
        done = ask_to_stop(store, run_id, "cancelled by command")
    if done:
        return done
    resume_here(run_id, how, stop="cancelled by command")
    return "cancelled; everything was given back"


def _conclude(
    outcome: Outcome, options: RunOptions, how: HowToRun, out: Console, real: bool
) -> None:
    sentence = outcome_sentence(outcome)
    tidy(outcome, options, how.keep)
    if how.gantt:
        reasons = reasons_of(plan_json(outcome.book.plan))
        draw_gantt(how.gantt, run_gantt(outcome), sentence, reasons)
        out.print(f"Gantt chart: {how.gantt}", highlight=False)
    if options.folder.is_dir():
        out.print(f"Results: {options.folder}", highlight=False)
    if how.as_json:
        document = plan_json(outcome.book.plan) | {
            "run": options.run_id,
            "outcome": outcome_json(outcome),
        }
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
    if not real and _has_commands(outcome.book.snapshot.wanted):
        out.print(
            (
                "All sites are simulated: no command was run. '--sites here' runs them on this "
                "machine."
            ),
            style="yellow",
            highlight=False,
        )
    out.print(sentence, style="bold green" if outcome.kept else "bold red", highlight=False)


def _has_commands(wanted: WorkflowSet) -> bool:
    return any(task.command for workflow in wanted.workflows for task in workflow.tasks.values())


def exit_code_of(outcome: Outcome) -> int:
    """0 kept, 1 broken, 5 cancelled."""
    return {"kept": 0, "broken": 1, "cancelled": 5}[outcome.verdict]
