"""Bag commands: run, resume, cancel, show status and output, explain why a task waits."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console

from vgrads.api.bags.answers import results, why
from vgrads.api.bags.results_folder import (
    BagResults,
    check_names,
    check_target,
    is_table,
    write_results,
)
from vgrads.api.bags.sites import check_places, select_usable_sites
from vgrads.api.config import dispatcher_folder
from vgrads.bags.bag import BagSpec
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.document import BagDocument, load_bag
from vgrads.dispatch.goal_document import USUAL_PROBABILITY
from vgrads.dispatch.storage.folder import open_bag
from vgrads.kernel.deadline import parse_deadline
from vgrads.kernel.errors import InputError
from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_count, format_duration, format_usd
from vgrads.portal.cli.bags.status_text import nodes_json, status_json
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.terminal import console, table_text
from vgrads.portal.jobs.bags import Crew, Submission, cancel, resumable, retry, submit
from vgrads.portal.records.bags import BagStore, PlainStore, open_store
from vgrads.portal.records.reader import new_id
from vgrads.portal.records.reading.bags import ENDED, HERE, BagEntry
from vgrads.portal.records.reading.sites import choose_catalog
from vgrads.vgrid.catalog import Catalog, describe_this_machine

if TYPE_CHECKING:
    from vgrads.api.pools.ledger import Ledger
    from vgrads.portal.records.store import Store


_NO_GOAL = (
    "the bag runs as without its deadline; a deadline with 'probability', 'fraction', 'at_least' "
    "or 'budget_usd' is a goal, which decides about nodes"
)


@dataclass(frozen=True, kw_only=True)
class HowToWork:
    """Options of ``vgrads bags run``. ``service``: the service with the pools; ``contact``: the
    names under which they reach the manager; ``rerun``: do the tasks again that were done in an
    earlier run of the bag; ``out``: folder, or table, of results; ``separate``: a file for what
    each task printed; ``goal``: fields of the goal that replace those of the bags."""

    sites: Path | None
    policy: str = "fair-share"
    service: str | None = None
    contact: str = ""
    as_json: bool = False
    rerun: bool = False
    out: Path | None = None
    separate: bool = False
    goal: Mapping[str, Any] = field(default_factory=dict)


def run_bags(files: Sequence[Path], how: HowToWork) -> int:
    """Run bags in this process; return the exit code."""
    check_out(how.out, len(files))
    catalog = choose_catalog(how.sites) if how.sites else describe_this_machine()
    read = [(_read(file, how.goal), file) for file in files]
    # every bag is checked before the first one is submitted
    for (document, bag), file in read:
        try:
            check_places(select_usable_sites(catalog, document), document)
            if how.out is not None and not is_table(how.out):
                check_names(bag)
        except InputError as error:
            raise error.within(str(file)) from None
    for (_, bag), file in read:
        doubts = (f"policy: {doubt}" for doubt in (bag.policy.doubts if bag.policy else ()))
        for note in (*bag.notes, *doubts):
            console(stderr=True).print(f"{file}: {note}", highlight=False, markup=False)
    for (document, _), file in read:
        if document.deadline is not None and document.goal is None:
            console(stderr=True).print(f"{file}: {_NO_GOAL}", highlight=False, markup=False)
    with open_store() as store:
        dispatcher = new_id("bag")
        how_submitted = Submission(rerun=how.rerun)
        submitted = [
            submit(store, dispatcher, document, file.resolve().parent, catalog, how_submitted)
            for (document, _), file in read
        ]
        for row, reused in submitted:
            if reused:
                console(stderr=True).print(
                    f"{row.id} ({row.name}): {reused:,} of "
                    f"{format_count(row.tasks, 'task', 'were')} done before "
                    "(--rerun does them again)",
                    highlight=False,
                )
        return work_on(store, dispatcher, catalog, [row for row, _ in submitted], how)


def _read(file: Path, goal: Mapping[str, Any]) -> tuple[BagDocument, BagSpec]:
    """Read a bag. A deadline of the command line is a goal, also where the bag states no other
    part of one."""
    if "deadline" in goal:
        parse_deadline(goal["deadline"], None, "--deadline")
    document, bag = load_bag(file, goal)
    if "deadline" in goal and document.goal is None:
        return load_bag(file, {**goal, "probability": USUAL_PROBABILITY})
    return document, bag


def resume_bags(bag_id: str, how: HowToWork) -> int:
    """Resume the work of a dispatcher; return the exit code."""
    check_out(how.out, 1)
    with open_store() as store:
        rows = resumable(store, bag_id)
        catalog = choose_catalog(how.sites) if how.sites else describe_this_machine()
        return work_on(store, rows[0].dispatcher, catalog, rows, how)


def retry_bag(bag_id: str, tasks: Sequence[int] | None, how: HowToWork) -> int:
    """Do tasks of a bag again: these, or (None) all that failed or were not run; return the exit
    code. Where another process works on the bag, that does it."""
    check_out(how.out, 1)
    with open_store() as store:
        row = BagStore(store.records).get(bag_id)
        catalog = choose_catalog(how.sites) if how.sites else describe_this_machine()
        if row.owner == HERE:
            document = open_bag(dispatcher_folder(row.dispatcher), row.number).document
            check_places(select_usable_sites(catalog, document), document)
        count, elsewhere = retry(store, row, tasks)
        if not elsewhere:
            rows = BagStore(store.records).open_of(row.dispatcher)
            return work_on(store, row.dispatcher, catalog, rows, how)
    who = "its dispatcher" if row.owner == HERE else "its service"
    text = f"{who} does {count:,} {'task' if count == 1 else 'tasks'} again"
    answer_with(how.as_json, {"bag": row.id, "tasks": count, "message": text}, lambda: text)
    return 0


def cancel_bag(bag_id: str, how: HowToWork) -> str:
    """Cancel a bag; return a message with the result."""
    with open_store() as store:
        row = BagStore(store.records).get(bag_id)
        outcome = cancel(store, row, "cancelled by command")
        if outcome:
            return outcome
        catalog = choose_catalog(how.sites) if how.sites else describe_this_machine()
        Crew(store, row.dispatcher, catalog, Rules(policy=how.policy), own=True).carry_out()
    return "cancelled; all slots were released"


def work_on(
    store: PlainStore | Store,
    dispatcher: str,
    catalog: Catalog,
    rows: Sequence[BagEntry],
    how: HowToWork,
) -> int:
    """Run the bags of a dispatcher's folder and show progress; return the exit code."""
    out = console(stderr=how.as_json)
    with _show_table(console(stderr=how.as_json, lasting=True), rows) as watch:
        crew = Crew(
            store,
            dispatcher,
            catalog,
            Rules(policy=how.policy),
            watch=watch,
            contact=how.contact,
            own=True,
            ledger=_open_ledger(how.service) if how.service else None,
        )
        stopped = crew.carry_out()
    ended = [BagStore(store.records).get(row.id) for row in rows]
    places, problem = ({}, None) if stopped else _write_all(ended, how)
    if how.as_json:
        message = [status_json(row) | {"results": _format_place(places, row)} for row in ended]
        sys.stdout.write(json.dumps({"bags": message, "stopped": stopped}) + "\n")
    for row in ended:
        _conclude(out, row)
        if row.id in places:
            out.print(f"Results: {places[row.id]}", highlight=False, markup=False, soft_wrap=True)
    if stopped:
        out.print(
            (
                f"{stopped}: 'vgrads bags resume {rows[0].id}' continues the bag, 'vgrads bags "
                "cancel "
                f"{rows[0].id}' cancels the rest"
            ),
            style="bold yellow",
        )
    # raised last: what became of the bags is shown whatever became of their files
    if problem is not None:
        raise problem
    if any(row.state == "interrupted" for row in ended):
        return 5
    return 0 if all(row.state == "done" for row in ended) else 1


def _open_ledger(service: str) -> Ledger:
    from vgrads.portal.cli.pools.ledger import service_ledger  # noqa: PLC0415 few bags use pools

    return service_ledger(service)


def _conclude(out: Console, row: BagEntry) -> None:
    status = json.loads(row.summary)
    if not status:
        return
    # after a retry this would include the time between
    took_s = 0.0 if status.get("retried") else (status["ended_s"] or 0.0) - status["came_s"]
    reused = status.get("reused", 0)
    here = max(0, status["done"] - reused)
    rate = f", {here / took_s:,.0f} a second" if took_s > 0 and here else ""
    if row.state in ENDED:
        line = (
            f"{row.id} ({row.name}): {status['done']:,} of "
            f"{format_count(status['tasks'], 'task')} done"
        )
        line += f" ({reused:,} of them before)" if reused else ""
        line += f" in {format_duration(took_s)}{rate}" if took_s > 0 else ""
        if status["failed"]:
            line += f"; {status['failed']:,} failed: 'vgrads bags logs {row.id} --failed' shows why"
        line += _describe_goal(status.get("goal") or {})
        good = row.state == "done"
        out.print(
            line,
            style="bold green" if good else "bold red",
        )


def _describe_goal(goal: Mapping[str, Any]) -> str:
    """Return whether a goal was reached in time, and what it cost; empty without a goal."""
    if not goal:
        return ""
    reached_s = goal["reached_s"]
    in_time = reached_s is not None and reached_s <= goal["due_s"]
    spent = f", {format_usd(goal['spent_usd'])} spent" if goal["spent_usd"] else ""
    return f"; the goal was {'reached in time' if in_time else 'not reached in time'}{spent}"


def _write_all(
    ended: Sequence[BagEntry], how: HowToWork
) -> tuple[dict[str, Path], InputError | None]:
    """Write the results of bags; return where they are, and why those of one cannot be written."""
    places: dict[str, Path] = {}
    for row in ended:
        try:
            places[row.id] = write_results_of(row, how, ended)
        except InputError as error:
            later = f"'vgrads bags results {row.id} --out DIR' writes them later"
            return places, InputError(error.what, where=error.where, fix=error.fix or later)
    return places, None


def _format_place(places: Mapping[str, Path], row: BagEntry) -> str | None:
    return str(places[row.id]) if row.id in places else None


@contextmanager
def _show_table(out: Console, rows: Sequence[BagEntry]) -> Iterator[Any]:
    """Show a status table of the bags on a terminal; otherwise no output until the end."""
    out.print(
        f"{', '.join(row.id for row in rows)}: "
        f"{format_count(sum(row.tasks for row in rows), 'task')}",
        highlight=False,
    )
    if not out.is_terminal:
        shown = set[str]()

        def report(status: Mapping[str, Any]) -> None:
            # each problem is printed once, however long it lasts
            for problem in set(_list_problems(status)) - shown:
                shown.add(problem)
                out.print(problem, highlight=False, markup=False)

        yield report
        return
    from rich.live import Live  # noqa: PLC0415 for terminals only

    with Live(console=out, refresh_per_second=2, transient=True) as live:
        yield lambda status: live.update(table_text(status_table(status), out.width))


def status_table(status: Mapping[str, Any]) -> TextTable:
    """Return the status table of a dispatcher's bags."""
    columns = (
        Column("bag", shorten=True),
        Column("state"),
        Column("done", right=True),
        Column("failed", right=True, fold=2),
        Column("running", right=True, fold=3),
        Column("waiting", right=True, fold=4),
        Column("a second", right=True, fold=5),
        Column("left", right=True, fold=1),
    )
    return TextTable(columns, tuple(map(_make_bag_row, status["bags"])), notes=_list_notes(status))


def _make_bag_row(bag: Mapping[str, Any]) -> Row:
    counts = (f"{bag[name]:,}" for name in ("done", "failed", "running", "waiting"))
    left = "" if bag["left_s"] is None else format_duration(bag["left_s"])
    return Row((bag["name"], bag["state"], *counts, f"{bag['rate']:,.1f}", left))


def _list_problems(status: Mapping[str, Any]) -> list[str]:
    """Return the problems that block the dispatcher, or a bag."""
    of_bags = [f"{bag['name']}: {bag['problem']}" for bag in status["bags"] if bag["problem"]]
    return [*filter(None, [status.get("problem")]), *of_bags]


def _list_notes(status: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the number of hosts, all problems, and the last refusal of a site."""
    coming = f", {status['coming']} requested" if status.get("coming") else ""
    last = status["reasons"][-1] if status.get("reasons") else None
    refusal = (f"{last['site']}: {last['reason']}",) if last else ()
    return (
        f"{format_count(status['host_count'], 'host')}{coming}",
        *_list_problems(status),
        *refusal,
    )


def show_results(bag_id: str, how: HowToWork) -> dict[str, Any]:
    """Write the results of a bag so far; return where they are."""
    check_out(how.out, 1)
    with open_store() as store:
        row = BagStore(store.records).get(bag_id)
    return {"bag": row.id, "results": str(write_results_of(row, how))}


def show_logs(bag_id: str, tasks: Sequence[int], failed: bool, as_json: bool) -> None:
    """Print the output and results of tasks, a block or a JSON line each."""
    with open_store() as store:
        row = BagStore(store.records).get(bag_id)
    out = console()
    for result in results(dispatcher_folder(row.dispatcher), row.number, tasks, failed):
        if as_json:
            sys.stdout.write(json.dumps(result) + "\n")
            continue
        out.print(
            (
                f"task {result['task']}, attempt {result['attempt']}, {result['how']} after "
                f"{result['ran_s']:.2f} s on {result['host']}"
            ),
            style="bold",
        )
        out.print(f"$ {result['command']}", style="dim", soft_wrap=True)
        for text in (result["out"], result["err"]):
            if text:
                sys.stdout.write(text if text.endswith("\n") else text + "\n")


def explain_nodes(bag_id: str) -> dict[str, Any]:
    """Return why nodes were requested and released for a bag."""
    with open_store() as store:
        return nodes_json(BagStore(store.records).get(bag_id))


def explain_task(bag_id: str, task: int, host: str) -> dict[str, Any]:
    """Explain the state of a task, and why an agent does not get it."""
    with open_store() as store:
        row = BagStore(store.records).get(bag_id)
    return why(dispatcher_folder(row.dispatcher), row.number, task, host)


class ResultOptions(Protocol):
    """``out``: the folder, or the table; ``separate``: a file for what each task printed."""

    @property
    def out(self) -> Path | None: ...
    @property
    def separate(self) -> bool: ...


def check_out(out: Path | None, bags: int) -> None:
    """Raise InputError where results could not be written there, before anything runs."""
    if out is None:
        return
    if bags > 1 and is_table(out):
        raise InputError("names a table, which takes one bag", where="--out", fix="name a folder")
    check_target(out)


def write_results_of(row: BagEntry, how: ResultOptions, rows: Sequence[BagEntry] = ()) -> Path:
    """Write the results of a bag; return where they are. ``rows``: all bags of the command, each of
    which gets a folder of its own in ``out``. Without ``out`` they are in the folder of the bag,
    with a table where the bag is not large."""
    folder = dispatcher_folder(row.dispatcher)
    if how.out is not None:
        target = how.out / _name_folder(row, rows) if len(rows) > 1 else how.out
        write_results(folder, row.number, target, how.separate)
        return target.absolute()
    own = folder / "bags" / f"{row.number:04d}" / "results"
    own.mkdir(parents=True, exist_ok=True)
    if BagResults(folder, row.number).may_have_table:
        write_results(folder, row.number, own)
    return own


def _name_folder(row: BagEntry, rows: Sequence[BagEntry]) -> str:
    alike = sum(other.name == row.name for other in rows)
    # a name that several bags have, or that would hide the folder, is replaced by the id
    return row.name if alike == 1 and not row.name.startswith(".") else row.id
