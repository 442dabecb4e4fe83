"""Runs from the command line: carried out here, resumed, cancelled, told to a person and to a webhook."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from desk.answers import outcome_json, plan_json, planned_gantt, run_gantt
from desk.config import run_folder
from desk.execution import Outcome, RunOptions, run_plan
from desk.histories import Instant
from desk.planning import Planned
from execmgr.runner import Watcher
from execmgr.states import Event, RunState
from kernel.errors import InputError
from portal.charts.exports import reasons_of
from portal.cli.planning import draw_gantt
from portal.cli.terminal import RunReporter, console, outcome_sentence, print_plan
from portal.jobs.runs import carry_out, go_on, take_over, tidy, unended
from portal.jobs.webhook import Webhook
from portal.records.run_record import RunRecord
from portal.records.store import Store
from workflows.written import document_of


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


def run_here(planned: Planned, how: HowToRun) -> bool:
    """Execute a plan in this process, keep it in the database, say how it ended."""
    out = console(stderr=how.as_json)
    _webhook_secret(how)
    print_plan(out, planned.plan)
    with Store() as store:
        set_id = store.add_set(
            planned.wanted.name,
            document_of(planned.wanted),
            plan_json(planned.plan),
            planned_gantt(planned),
        )
        run_id = store.add_run(set_id)
        folder = (how.folder or run_folder(run_id)).resolve()
        options = RunOptions(
            run_id=run_id,
            folder=folder,
            speed=how.speed,
            seed=how.seed,
            at=how.at,
            replan=how.replan,
            own=True,
        )
        record = RunRecord(store.engine, run_id)
        reporter = RunReporter(out, planned.plan, planned.snapshot)
        gantt = planned_gantt(planned)
        with _told(how, run_id, reporter, out) as watch:
            outcome = carry_out(
                store, record, gantt, lambda: run_plan(planned, options, record, watch)
            )
            watch.outcome = outcome_json(outcome)
    return _conclude(outcome, options, how, out)


@dataclass
class _Watch:
    """A run's watchers as one, and how it ended once that is known."""

    watchers: list[Watcher]
    outcome: dict[str, Any] = field(default_factory=lambda: {"state": "interrupted"})

    def __call__(self, state: RunState, events: list[Event]) -> None:
        for watch in self.watchers:
            watch(state, events)


def _webhook_secret(how: HowToRun) -> str:
    """What both ends of the webhook know; InputError where one is wanted and nothing is known."""
    secret = os.environ.get("VGRADS_WEBHOOK_SECRET", "")
    if how.webhook and not secret:
        raise InputError(
            "VGRADS_WEBHOOK_SECRET is not set", where="--webhook", fix="both ends must know it"
        )
    return secret


@contextmanager
def _told(how: HowToRun, run_id: str, reporter: RunReporter, out: Console) -> Iterator[_Watch]:
    """The reporter, and the webhook where one is wanted; its secret is ``VGRADS_WEBHOOK_SECRET``."""
    if not how.webhook:
        yield _Watch([reporter])
        return
    hook = Webhook(how.webhook, _webhook_secret(how), run_id)
    watch = _Watch([reporter, hook])
    try:
        yield watch
    finally:
        hook.close(watch.outcome)
        if hook.undelivered:
            out.print(f"webhook: {hook.undelivered} messages were not taken", style="yellow")


def resume_here(run_id: str, how: HowToRun, stop: str = "", until: int | None = None) -> bool:
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
        reporter = RunReporter(out, taken.begun.books[0].plan, taken.begun.books[0].snapshot)
        outcome = go_on(store, record, taken, reporter)
    return _conclude(outcome, taken.begun.setup.options, how, out)


def cancel_run(run_id: str, how: HowToRun) -> str:
    """Stop a run: ask its manager, or where there is none, give everything back from here."""
    with Store() as store:
        unended(store, run_id)
        asked = RunRecord(store.engine, run_id).ask_to_stop("cancelled by command")
    if asked:
        return "its manager was asked to stop"
    resume_here(run_id, how, stop="cancelled by command")
    return "cancelled; everything was given back"


def _conclude(outcome: Outcome, options: RunOptions, how: HowToRun, out: Console) -> bool:
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
    out.print(sentence, style="bold green" if outcome.kept else "bold red", highlight=False)
    return outcome.kept
