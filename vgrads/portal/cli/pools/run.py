"""Pool commands: run one, show what it would decide and what it has decided."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from vgrads.api.config import make_home
from vgrads.api.pools.document import load_pool
from vgrads.api.pools.execution import PoolWork
from vgrads.api.pools.view import PoolMemory, PoolStatus, decide_now, entry_of
from vgrads.dispatch.storage.status import exclusive
from vgrads.kernel.errors import InputError
from vgrads.kernel.files import write_whole
from vgrads.portal.cli.pools.ledger import ledger_of
from vgrads.portal.cli.pools.text import pool_line, pool_table
from vgrads.portal.cli.terminal import console, table_text
from vgrads.portal.records.reader import new_id
from vgrads.portal.records.reading.sites import choose_catalog
from vgrads.vgrid.catalog import describe_this_machine


def run_pool(file: Path, sites: Path | None, service: str | None, as_json: bool) -> int:
    """Lease nodes until the pool is ended; return the exit code."""
    document = load_pool(file)
    catalog = choose_catalog(sites) if sites else describe_this_machine()
    folder = make_home() / "pools" / document.name
    out, lasting = console(stderr=as_json), console(stderr=as_json, lasting=True)
    with ledger_of(service) as ledger, exclusive(folder), _show_table(lasting) as watch:
        work = PoolWork(folder, catalog, document, ledger, _run_of(folder), watch=watch)
        with _handle_signals(work):
            ended = work.carry_out()
    if as_json:
        sys.stdout.write(json.dumps({"pool": document.name, "problem": ended.hopeless}) + "\n")
    if ended.hopeless:
        out.print(f"no agent can start: {ended.hopeless}", style="bold red")
        return 4
    out.print(f"{document.name}: ended, all slots were released")
    return 0


def _run_of(folder: Path) -> str:
    """Return the prefix of a pool's slot names at sites: the same at each run."""
    path = folder / "run"
    if not path.exists() or not path.read_text():
        write_whole(path, new_id("pool").encode())
    return path.read_text()


@contextmanager
def _handle_signals(work: PoolWork) -> Iterator[None]:
    """Handle signals: Ctrl-C releases everything, a second one and SIGTERM leave it as it is."""
    count = 0

    def came(number: int, _: object) -> None:
        nonlocal count
        count += 1
        if number == signal.SIGTERM or count > 1:
            work.leave()
        else:
            work.end()

    before = {number: signal.signal(number, came) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _show_table(out: Console) -> Iterator[Any]:
    """Show a table on a terminal; else print a line at each change."""
    if out.is_terminal:
        with Live(console=out, refresh_per_second=2, transient=True) as live:
            yield lambda status: live.update(table_text(pool_table(status), out.width))
        return
    last = ""

    def report(status: Mapping[str, Any]) -> None:
        nonlocal last
        line = pool_line(status)
        if line != last:
            last = line
            out.print(line)

    yield report


def would_decide(file: Path, service: str | None) -> dict[str, Any]:
    """Show what a pool without nodes would decide now."""
    document = load_pool(file)
    with ledger_of(service) as ledger:
        status = ledger.read()
    nothing = PoolStatus(now_s=0.0)
    decided, _ = decide_now(status, document, nothing, PoolMemory())
    return entry_of(document, "", decided, nothing) | {"name": document.name}


def select_pool(name: str | None, service: str | None) -> dict[str, Any]:
    """Return a pool's entry. Raise InputError where there is none, or the choice is ambiguous."""
    with ledger_of(service) as ledger:
        pools = {str(pool["name"]): pool for pool in ledger.read().pools}
    if name is None and len(pools) == 1:
        return next(iter(pools.values()))
    if name is None:
        listed = ", ".join(pools) or "none: start one with 'vgrads pool run POOL.yaml'"
        raise InputError(
            "the name of the pool is missing",
            fix=f"there are {listed}" if pools else f"there is {listed}",
        )
    if name not in pools:
        raise InputError(
            f"no pool '{name}' is running", fix=f"running: {', '.join(pools) or 'none'}"
        )
    return dict(pools[name])
