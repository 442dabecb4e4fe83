"""Bag commands: run, resume, cancel, show status and output, explain why a task waits."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vgrads.api.bags.answers import results, why
from vgrads.api.bags.sites import check_places, usable_sites
from vgrads.api.config import dispatcher_folder
from vgrads.api.queues.sites import this_machine
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.document import load_bag
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_duration
from vgrads.portal.cli.bags.status_text import status_json
from vgrads.portal.cli.pools.ledger import service_ledger
from vgrads.portal.cli.terminal import console
from vgrads.portal.jobs.bags import Crew, cancel, resumable, submit
from vgrads.portal.records.bags import BagStore
from vgrads.portal.records.reading.bags import ENDED, BagEntry
from vgrads.portal.records.reading.sites import choose_catalog
from vgrads.portal.records.store import Store, new_id
from vgrads.vgrid.catalog import Catalog


@dataclass(frozen=True, kw_only=True)
class HowToWork:
    """Options of ``vgrads bags run``. ``service``: the service with the pools; ``contact``: the
    names under which they reach the manager."""

    sites: Path | None
    policy: str = "fair-share"
    service: str | None = None
    contact: str = ""
    as_json: bool = False


def run_bags(files: Sequence[Path], how: HowToWork) -> int:
    """Run bags in this process; return the exit code."""
    catalog = choose_catalog(how.sites) if how.sites else this_machine()
    read = [(load_bag(file), file) for file in files]
    for (document, _), file in read:
        try:
            check_places(usable_sites(catalog, document), document)
        except InputError as error:
            raise error.within(str(file)) from None
    for (_, bag), file in read:
        for doubt in bag.policy.doubts if bag.policy else ():
            console(stderr=True).print(
                f"{file}: policy: {doubt}", highlight=False, markup=False, soft_wrap=True
            )
    with Store() as store:
        dispatcher = new_id("bag")
        rows = [
            submit(store, dispatcher, document, file.resolve().parent, catalog)
            for (document, _), file in read
        ]
        return work_on(store, dispatcher, catalog, rows, how)


def resume_bags(bag_id: str, how: HowToWork) -> int:
    """Resume the work of a dispatcher; return the exit code."""
    with Store() as store:
        rows = resumable(store, bag_id)
        catalog = choose_catalog(how.sites) if how.sites else this_machine()
        return work_on(store, rows[0].dispatcher, catalog, rows, how)


def cancel_bag(bag_id: str, how: HowToWork) -> str:
    """Cancel a bag; return a message with the result."""
    with Store() as store:
        row = BagStore(store.engine).get(bag_id)
        outcome = cancel(store, row, "cancelled by command")
        if outcome:
            return outcome
        catalog = choose_catalog(how.sites) if how.sites else this_machine()
        Crew(store, row.dispatcher, catalog, Rules(policy=how.policy), own=True).carry_out()
    return "cancelled; all slots were released"


def work_on(
    store: Store, dispatcher: str, catalog: Catalog, rows: Sequence[BagEntry], how: HowToWork
) -> int:
    """Run the bags of a dispatcher's folder and show progress; return the exit code."""
    out = console(stderr=how.as_json)
    with _shown(out, rows) as watch:
        crew = Crew(
            store,
            dispatcher,
            catalog,
            Rules(policy=how.policy),
            watch=watch,
            contact=how.contact,
            own=True,
            ledger=service_ledger(how.service) if how.service else None,
        )
        stopped = crew.carry_out()
    ended = [BagStore(store.engine).get(row.id) for row in rows]
    if how.as_json:
        message = [status_json(row) for row in ended]
        sys.stdout.write(json.dumps({"bags": message, "stopped": stopped}) + "\n")
    for row in ended:
        _conclude(out, row)
    if stopped:
        out.print(
            (
                f"{stopped}: 'vgrads bags resume {rows[0].id}' continues the bag, 'vgrads bags "
                "cancel "
                f"{rows[0].id}' cancels the rest"
            ),
            style="bold yellow",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    if any(row.state == "interrupted" for row in ended):
        return 5
    return 0 if all(row.state == "done" for row in ended) else 1


def _conclude(out: Console, row: BagEntry) -> None:
    status = json.loads(row.summary)
    if not status:
        return
    folder = dispatcher_folder(row.dispatcher) / "bags" / f"{row.number:04d}"
    took_s = (status["ended_s"] or 0.0) - status["came_s"]
    rate = f", {status['done'] / took_s:,.0f} a second" if took_s > 0 else ""
    if row.state in ENDED:
        line = (
            f"{row.id} ({row.name}): {status['done']:,} of {status['tasks']:,} tasks done "
            f"in {format_duration(max(0.0, took_s))}{rate}"
        )
        if status["failed"]:
            line += f"; {status['failed']:,} failed: 'vgrads bags logs {row.id} --failed' shows why"
        good = row.state == "done"
        out.print(
            line,
            style="bold green" if good else "bold red",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    if (folder / "results").is_dir():
        out.print(f"Results: {folder / 'results'}", highlight=False, soft_wrap=True)


@contextmanager
def _shown(out: Console, rows: Sequence[BagEntry]) -> Iterator[Any]:
    """Show a status table of the bags on a terminal; otherwise no output until the end."""
    out.print(
        f"{', '.join(row.id for row in rows)}: {sum(row.tasks for row in rows):,} tasks",
        highlight=False,
    )
    if not out.is_terminal:
        shown = set[str]()

        def report(status: Mapping[str, Any]) -> None:
            for problem in set(_problems(status)) - shown:
                shown.add(problem)
                out.print(problem, highlight=False, markup=False, soft_wrap=True)

        yield report
        return
    with Live(console=out, refresh_per_second=2, transient=True) as live:
        yield lambda status: live.update(status_table(status))


def status_table(status: Mapping[str, Any]) -> Table:
    """Return the status table of a dispatcher's bags."""
    table = Table(caption=Text(_hosts_line(status)), caption_justify="left")
    for name in ("bag", "state", "done", "failed", "running", "waiting", "a second", "left"):
        table.add_column(name, justify="left" if name in ("bag", "state") else "right")
    for bag in status["bags"]:
        left = "" if bag["left_s"] is None else format_duration(bag["left_s"])
        table.add_row(
            Text(bag["name"]),
            bag["state"],
            f"{bag['done']:,}",
            f"{bag['failed']:,}",
            f"{bag['running']:,}",
            f"{bag['waiting']:,}",
            f"{bag['rate']:,.1f}",
            left,
        )
    return table


def _problems(status: Mapping[str, Any]) -> list[str]:
    """Return the problems that block the dispatcher, or a bag."""
    of_bags = [f"{bag['name']}: {bag['problem']}" for bag in status["bags"] if bag["problem"]]
    return [*filter(None, [status.get("problem")]), *of_bags]


def _hosts_line(status: Mapping[str, Any]) -> str:
    coming = f", {status['coming']} requested" if status.get("coming") else ""
    trouble = "".join(f"; {problem}" for problem in _problems(status))
    last = status["reasons"][-1] if status.get("reasons") else None
    return f"{status['host_count']} hosts{coming}{trouble}" + (
        f"\n{last['site']}: {last['reason']}" if last else ""
    )


def show_logs(bag_id: str, tasks: Sequence[int], failed: bool, as_json: bool) -> None:
    """Print the output and results of tasks, a block or a JSON line each."""
    with Store() as store:
        row = BagStore(store.engine).get(bag_id)
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
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        out.print(
            f"$ {result['command']}", style="dim", highlight=False, markup=False, soft_wrap=True
        )
        for text in (result["out"], result["err"]):
            if text:
                sys.stdout.write(text if text.endswith("\n") else text + "\n")


def explain_task(bag_id: str, task: int, host: str) -> dict[str, Any]:
    """Explain the state of a task, and why an agent does not get it."""
    with Store() as store:
        row = BagStore(store.engine).get(bag_id)
    return why(dispatcher_folder(row.dispatcher), row.number, task, host)
