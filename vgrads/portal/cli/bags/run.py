"""Bags at a terminal: run, resume, cancel, look, read what tasks printed, ask why one waits."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vgrads.api.bags.answers import results, why
from vgrads.api.bags.places import check_places
from vgrads.dispatch.core.talk import Rules
from vgrads.dispatch.document import BagDocument, load_bag
from vgrads.dispatch.server.manager import GUEST
from vgrads.dispatch.storage.kept import is_worked_on
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_duration
from vgrads.portal.cli.pools.ledger import service_ledger
from vgrads.portal.cli.terminal import console
from vgrads.portal.jobs.bags import Crew, bag_standing, cancel, dispatcher_folder, resumable, submit
from vgrads.portal.records.bags import ENDED, Bags
from vgrads.portal.records.sites import choose_catalog, this_machine
from vgrads.portal.records.store import Store, new_id
from vgrads.portal.records.tables import BagRow
from vgrads.vgrid.catalog import Catalog


@dataclass(frozen=True, kw_only=True)
class HowToWork:
    """Options of ``vgrads bags run``. ``service``: where pools find it; ``contact``: under which
    names."""

    sites: Path | None
    policy: str = "fair-share"
    service: str | None = None
    contact: str = ""
    as_json: bool = False


def run_bags(files: Sequence[Path], how: HowToWork) -> int:
    """Carry bags out in this process; the exit code."""
    catalog = choose_catalog(how.sites) if how.sites else this_machine()
    read = [(load_bag(file), file) for file in files]
    for (document, _), file in read:
        try:
            check_places(_usable(catalog, document), document)
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


def _usable(catalog: Catalog, document: BagDocument) -> Catalog:
    if not document.sites:
        return catalog
    named = [name for name in document.sites if name != GUEST]
    return replace(catalog, sites=tuple(catalog.site(name) for name in named))


def resume_bags(bag_id: str, how: HowToWork) -> int:
    """Go on where a dispatcher left off; the exit code."""
    with Store() as store:
        rows = resumable(store, bag_id)
        catalog = choose_catalog(how.sites) if how.sites else this_machine()
        return work_on(store, rows[0].dispatcher, catalog, rows, how)


def cancel_bag(bag_id: str, how: HowToWork) -> str:
    """Stop a bag; what was done, in words."""
    with Store() as store:
        row = Bags(store.engine).get(bag_id)
        said = cancel(store, row, "cancelled by command")
        if said:
            return said
        catalog = choose_catalog(how.sites) if how.sites else this_machine()
        Crew(store, row.dispatcher, catalog, Rules(policy=how.policy), own=True).carry_out()
    return "cancelled; everything was given back"


def work_on(
    store: Store, dispatcher: str, catalog: Catalog, rows: Sequence[BagRow], how: HowToWork
) -> int:
    """Carry out what a dispatcher's folder holds, shown as it goes; the exit code."""
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
    ended = [Bags(store.engine).get(row.id) for row in rows]
    if how.as_json:
        told = [status_json(row) for row in ended]
        sys.stdout.write(json.dumps({"bags": told, "stopped": stopped}) + "\n")
    for row in ended:
        _conclude(out, row)
    if stopped:
        out.print(
            (
                f"{stopped}: 'vgrads bags resume {rows[0].id}' goes on, 'vgrads bags cancel "
                f"{rows[0].id}' drops the rest"
            ),
            style="bold yellow",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    if any(row.state == "interrupted" for row in ended):
        return 5
    return 0 if all(row.state == "done" for row in ended) else 1


def _conclude(out: Console, row: BagRow) -> None:
    standing = json.loads(row.summary)
    if not standing:
        return
    folder = dispatcher_folder(row.dispatcher) / "bags" / f"{row.number:04d}"
    took_s = (standing["ended_s"] or 0.0) - standing["came_s"]
    rate = f", {standing['done'] / took_s:,.0f} a second" if took_s > 0 else ""
    if row.state in ENDED:
        line = (
            f"{row.id} ({row.name}): {standing['done']:,} of {standing['tasks']:,} tasks done "
            f"in {format_duration(max(0.0, took_s))}{rate}"
        )
        if standing["failed"]:
            line += (
                f"; {standing['failed']:,} failed: 'vgrads bags logs {row.id} --failed' shows why"
            )
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
def _shown(out: Console, rows: Sequence[BagRow]) -> Iterator[Any]:
    """Where a person looks, a table that says how the bags stand; else nothing until the end."""
    out.print(
        f"{', '.join(row.id for row in rows)}: {sum(row.tasks for row in rows):,} tasks",
        highlight=False,
    )
    if not out.is_terminal:
        said = set[str]()

        def tell(status: Mapping[str, Any]) -> None:
            for problem in set(_problems(status)) - said:
                said.add(problem)
                out.print(problem, highlight=False, markup=False, soft_wrap=True)

        yield tell
        return
    with Live(console=out, refresh_per_second=2, transient=True) as live:
        yield lambda status: live.update(status_table(status))


def status_table(status: Mapping[str, Any]) -> Table:
    """How a dispatcher's bags stand."""
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
    """What keeps everything, or a bag, from going on."""
    of_bags = [f"{bag['name']}: {bag['problem']}" for bag in status["bags"] if bag["problem"]]
    return [*filter(None, [status.get("problem")]), *of_bags]


def _hosts_line(status: Mapping[str, Any]) -> str:
    coming = f", {status['coming']} asked for" if status.get("coming") else ""
    trouble = "".join(f"; {problem}" for problem in _problems(status))
    last = status["reasons"][-1] if status.get("reasons") else None
    return f"{status['host_count']} hosts{coming}{trouble}" + (
        f"\n{last['site']}: {last['reason']}" if last else ""
    )


def status_json(row: BagRow) -> dict[str, Any]:
    """A bag for programs."""
    return {
        "id": row.id,
        "name": row.name,
        "owner": row.owner,
        "tasks": row.tasks,
        "created": row.created.isoformat(),
        "dispatcher": row.dispatcher,
        **_numbers(row),
    }


def _numbers(row: BagRow) -> dict[str, Any]:
    fresh = bag_standing(row)
    state = fresh["state"] if fresh and row.state in ("waiting", "running") else row.state
    names = (
        "waiting",
        "running",
        "done",
        "failed",
        "dropped",
        "tried_again",
        "copied",
        "typical_s",
        "rate",
        "left_s",
        "problem",
        "times",
    )
    return {"state": state} | ({name: fresh.get(name) for name in names} if fresh else {})


def bags_table(rows: Sequence[BagRow]) -> Table:
    """The newest bags, and under them what keeps any from going on."""
    table, problems = Table(), list[str]()
    for name in ("bag", "name", "state", "tasks", "done", "failed", "handed over"):
        table.add_column(name, justify="right" if name in ("tasks", "done", "failed") else "left")
    for row in rows:
        numbers = _numbers(row)
        state = numbers["state"]
        if state in ("waiting", "running"):
            if not is_worked_on(dispatcher_folder(row.dispatcher)):
                state = f"{state}, nobody at work: vgrads bags resume {row.id}"
            elif numbers.get("problem"):
                problems.append(f"{row.id}: {numbers['problem']}")
        table.add_row(
            row.id,
            Text(row.name),
            Text(state),
            f"{row.tasks:,}",
            f"{numbers.get('done') or 0:,}",
            f"{numbers.get('failed') or 0:,}",
            f"{row.created:%Y-%m-%d %H:%M}",
        )
    if problems:
        table.caption, table.caption_justify = Text("\n".join(problems)), "left"
    return table


def show_logs(bag_id: str, tasks: Sequence[int], failed: bool, as_json: bool) -> None:
    """What tasks printed and how they ended, a block or a JSON line each."""
    with Store() as store:
        row = Bags(store.engine).get(bag_id)
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
    """Why a task stands where it stands, and why not on a host."""
    with Store() as store:
        row = Bags(store.engine).get(bag_id)
    return why(dispatcher_folder(row.dispatcher), row.number, task, host)
