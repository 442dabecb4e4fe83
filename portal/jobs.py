"""Planning and running from the command line: files in, progress on the terminal, charts and rows out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from execmgr.acquisitions import acquisitions
from execmgr.runner import Watcher
from execmgr.states import Event, RunState
from kernel.documents import load_mapping
from kernel.errors import InfeasibleError, InputError
from kernel.files import write_text
from kernel.units import parse_duration
from planner.explain import explain
from planner.make import STANDARD, Options
from planner.policies import check_rule, make_pipeline
from portal.config import home
from portal.execution import Outcome, RunOptions, Setup, resume_run, run_plan
from portal.gantt_view import render_html, render_svg, standalone_svg
from portal.operations import Instant, Planned, open_grid, plan_set
from portal.progress import (
    RunReporter,
    console,
    outcome_sentence,
    print_plan,
    print_warnings,
    relaxation_text,
)
from portal.run_record import RunRecord
from portal.schema import outcome_json, plan_json, planned_gantt, run_gantt
from portal.sites import choose_catalog, past_acquisitions
from portal.tables import Store
from portal.webhook import Webhook
from portal.wiring import any_real
from workflows.sets import load_set


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


@dataclass(frozen=True, kw_only=True)
class HowToPlan:
    """Options of a plan. ``learned``: let what earlier runs saw of the sites correct what their file states."""

    seed: int = 0
    learned: bool = True
    options: Options = STANDARD


def how_to_plan(
    seed: int, as_stated: bool, policy: str = "vgrads", probability: str = "joint"
) -> HowToPlan:
    """The options of the command line as a value."""
    options = Options(policy=policy, probability=probability)
    return HowToPlan(seed=seed, learned=not as_stated, options=options)


def plan_file(set_file: Path, sites: Path | None, at: Instant, how: HowToPlan) -> Planned:
    """Plan the set in a file against the sites given, named by the set, of the database, or embedded.

    InputError for an unknown policy or rule comes before anything is read.
    """
    make_pipeline(how.options.policy)
    check_rule(how.options.probability)
    wanted, named = load_set(set_file)
    catalog = choose_catalog(sites or (Path(named) if named else None))
    out = console(stderr=True)
    with out.status("planning") as status:
        seen = past_acquisitions() if how.learned else ()
        grid = open_grid(catalog, at, notify=status.update, seen=seen)
        status.update("planning")
        planned = plan_set(wanted, grid, how.seed, how.options)
    print_warnings(out, [w for log in grid.logs.values() for w in log.warnings])
    return planned


def refuse(planned: Planned, set_file: Path) -> NoReturn:
    """Exit 3 with what is lacking and what would do."""
    plan = planned.plan
    would = "; ".join(map(relaxation_text, plan.relaxations))
    raise InfeasibleError(
        f"no plan finishes {plan.needed} workflows within {plan.deadline_s:.0f} s",
        lacking=plan.lacking + (f"; any of these would do: {would}" if would else ""), where=str(set_file),
    )  # fmt: skip


def explain_task(plan: str, task: str) -> dict[str, Any]:
    """Why a task stands where it does: in a plan's JSON file, or a set or run of the database."""
    file = Path(plan)
    if file.is_file():
        document = load_mapping(file)
    else:
        with Store() as store:
            set_id = store.get_run(plan).set_id if plan.startswith("run-") else plan
            row = store.get_set(set_id)
        if row is None:
            raise InputError(f"no file and no set or run '{plan}'", where="PLAN")
        document = json.loads(row.plan)
    if "placements" not in document or "slots" not in document:
        raise InputError("is no plan; write one with 'vgrads plan SET --json'", where=plan)
    return explain(document, task)


def run_study(name: str, arguments: Sequence[str]) -> None:
    """Hand over to a study that is installed under a name; without one, or with a wrong one, list them."""
    known = {point.name: point for point in entry_points(group="vgrads.studies")}
    if name in ("--help", "-h"):
        console().print(
            f"vgrads study NAME [options]; studies: {', '.join(sorted(known))}. Each has --help.",
            highlight=False,
        )
        return
    if name not in known:
        raise InputError(
            f"no study '{name}'", where="NAME", fix=f"one of {', '.join(sorted(known))}"
        )
    known[name].load()(list(arguments))


def parse_speed(text: str) -> float | None:
    """``max`` → None, else virtual seconds a real second."""
    if text == "max":
        return None
    speed = parse_duration(text, "--speed")
    if speed <= 0:
        raise InputError("must be above 0, or 'max'", where="--speed")
    return speed


def run_here(planned: Planned, how: HowToRun) -> bool:
    """Execute a plan in this process, keep it in the database, say how it ended."""
    out = console(stderr=how.as_json)
    _webhook_secret(how)
    print_plan(out, planned.plan)
    with Store() as store:
        set_id = store.add_set(
            planned.wanted.name,
            {"name": planned.wanted.name},
            plan_json(planned.plan),
            planned_gantt(planned),
        )
        run_id = store.add_run(set_id)
        folder = (how.folder or home() / "runs" / run_id).resolve()
        options = RunOptions(
            run_id=run_id, folder=folder, speed=how.speed, seed=how.seed, at=how.at
        )
        record = RunRecord(store.engine, run_id)
        reporter = RunReporter(out, planned.plan, planned.snapshot)
        outcome = _carry_out(
            store,
            record,
            planned_gantt(planned),
            lambda: run_plan(planned, options, record, reporter),
        )
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


def resume_here(run_id: str, how: HowToRun, stop: str = "") -> bool:
    """Go on with a run whose manager is gone; with ``stop``, only to give everything back."""
    out = console(stderr=how.as_json)
    with Store() as store:
        row = store.get_run(run_id)
        if row.state not in ("running", "interrupted"):
            raise InputError(f"run '{run_id}' is over: {row.state}", fix="vgrads status lists runs")
        record = RunRecord(store.engine, run_id)
        setup: Setup = record.setup()
        record.take()
        books, events = record.books(), record.events()
        if stop:
            record.stop_now(stop)
        if not any_real(setup.catalog, books[0].plan):
            record.begin_again()
            out.print("simulated sites end with their manager: played again from the beginning")
        reporter = RunReporter(out, books[0].plan, books[0].snapshot)
        gantt = json.loads(row.gantt)
        outcome = _carry_out(
            store, record, gantt, lambda: resume_run(setup, books, events, record, reporter)
        )
    return _conclude(outcome, setup.options, how, out)


def cancel_run(run_id: str, how: HowToRun) -> str:
    """Stop a run: ask its manager, or where there is none, give everything back from here."""
    with Store() as store:
        row = store.get_run(run_id)
        if row.state not in ("running", "interrupted"):
            raise InputError(f"run '{run_id}' is over: {row.state}", fix="vgrads status lists runs")
        asked = RunRecord(store.engine, run_id).ask_to_stop("cancelled by command")
    if asked:
        return "its manager was asked to stop"
    resume_here(run_id, how, stop="cancelled by command")
    return "cancelled; everything was given back"


def _carry_out(
    store: Store, record: RunRecord, gantt: dict[str, Any], work: Callable[[], Outcome]
) -> Outcome:
    """Do a run's work under its lease, and keep how it ended."""
    run_id = record.run_id
    record.take()
    store.set_run_state(run_id, "running")
    try:
        outcome = work()
    except BaseException:
        store.end_run(run_id, "interrupted", {}, gantt)
        raise
    finally:
        record.leave()
    store.add_acquisitions(run_id, acquisitions(outcome.book, outcome.state))
    store.end_run(run_id, outcome.verdict, outcome_json(outcome), run_gantt(outcome))
    return outcome


def _conclude(outcome: Outcome, options: RunOptions, how: HowToRun, out: Console) -> bool:
    sentence = outcome_sentence(outcome)
    if how.gantt:
        _draw(how.gantt, run_gantt(outcome), sentence)
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


def write_gantt(path: Path, planned: Planned) -> None:
    """The chart of a plan."""
    _draw(path, planned_gantt(planned), "Planned, not run.")


def draw_run(run_id: str, path: Path) -> None:
    """The chart of a run in the database."""
    with Store() as store:
        row = store.get_run(run_id)
    gantt = json.loads(row.gantt)
    if not gantt:
        raise InputError(f"'{run_id}' has no chart yet; it is {row.state}")
    _draw(path, gantt, f"The promise was {row.state}.")


def _draw(path: Path, gantt: Mapping[str, Any], sentence: str) -> None:
    """A page, or with the ending ``.svg`` the chart alone."""
    page = render_html(gantt, sentence)
    write_text(path, standalone_svg(render_svg(gantt)) if path.suffix == ".svg" else page)


def run_summaries(run_id: str | None) -> list[dict[str, Any]]:
    """One run, or the newest ones."""
    with Store() as store:
        rows = [store.get_run(run_id)] if run_id else store.list_runs()
    return [
        {
            "run": r.id,
            "set": r.set_id,
            "state": r.state,
            "started": r.started.isoformat(),
            "outcome": json.loads(r.outcome),
        }
        for r in rows
    ]


def print_runs(out: Console, rows: list[dict[str, Any]]) -> None:
    """Runs as a table."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("run", "state", "started", "in time"):
        table.add_column(name)
    for row in rows:
        outcome = row["outcome"]
        done = f"{outcome['in_time']}, {outcome['needed']} needed" if "in_time" in outcome else "–"
        table.add_row(row["run"], row["state"], row["started"][:19], done)
    out.print(table)
