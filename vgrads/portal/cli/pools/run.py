"""Pools at a terminal: run one, ask what it would decide, what it has decided."""

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

from vgrads.api.config import home
from vgrads.api.pools.document import load_pool
from vgrads.api.pools.view import Here, PoolMemory, decide_now, entry_of
from vgrads.api.pools.work import PoolWork
from vgrads.dispatch.storage.kept import only_one
from vgrads.kernel.errors import InputError
from vgrads.portal.cli.pools.ledger import ledger_of
from vgrads.portal.cli.pools.text import pool_line, pool_table
from vgrads.portal.cli.terminal import console
from vgrads.portal.records.sites import choose_catalog, this_machine
from vgrads.portal.records.store import new_id


def run_pool(file: Path, sites: Path | None, service: str | None, as_json: bool) -> int:
    """Lend hosts until somebody ends it; the exit code."""
    document = load_pool(file)
    catalog = choose_catalog(sites) if sites else this_machine()
    folder = home() / "pools" / document.name
    out = console(stderr=as_json)
    with ledger_of(service) as ledger, only_one(folder), _shown(out) as watch:
        work = PoolWork(folder, catalog, document, ledger, _run_of(folder), watch=watch)
        with _signals(work):
            ended = work.carry_out()
    if as_json:
        sys.stdout.write(json.dumps({"pool": document.name, "problem": ended.hopeless}) + "\n")
    if ended.hopeless:
        out.print(f"no host can come: {ended.hopeless}", style="bold red")
        return 4
    out.print(f"{document.name}: ended, everything was given back")
    return 0


def _run_of(folder: Path) -> str:
    """What the names of a pool's slots begin with at sites: the same whenever it is run."""
    path = folder / "run"
    if not path.exists() or not path.read_text():
        fresh = path.with_suffix(".new")
        fresh.write_text(new_id("pool"))
        fresh.replace(path)
    return path.read_text()


@contextmanager
def _signals(work: PoolWork) -> Iterator[None]:
    """Ctrl-C gives everything back, a second one and SIGTERM leave it as it is."""
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
def _shown(out: Console) -> Iterator[Any]:
    """A table where a person looks; else a line whenever something changes."""
    if out.is_terminal:
        with Live(console=out, refresh_per_second=2, transient=True) as live:
            yield lambda status: live.update(pool_table(status))
        return
    last = ""

    def tell(status: Mapping[str, Any]) -> None:
        nonlocal last
        line = pool_line(status)
        if line != last:
            last = line
            out.print(line, soft_wrap=True)

    yield tell


def would_decide(file: Path, service: str | None) -> dict[str, Any]:
    """What a pool that has nothing yet would decide now."""
    document = load_pool(file)
    with ledger_of(service) as ledger:
        standing = ledger.read()
    nothing = Here(now_s=0.0)
    decided, _ = decide_now(standing, document, nothing, PoolMemory())
    return entry_of(document, "", decided, nothing) | {"name": document.name}


def one_pool(name: str | None, service: str | None) -> dict[str, Any]:
    """A pool's entry; InputError where there is none, or it is not clear which is meant."""
    with ledger_of(service) as ledger:
        pools = {str(pool["name"]): pool for pool in ledger.read().pools}
    if name is None and len(pools) == 1:
        return next(iter(pools.values()))
    if name is None:
        listed = ", ".join(pools) or "none: vgrads pool run POOL.yaml runs one"
        raise InputError(
            "which pool is meant?", fix=f"there are {listed}" if pools else f"there is {listed}"
        )
    if name not in pools:
        raise InputError(
            f"no pool '{name}' is at work", fix=f"at work: {', '.join(pools) or 'none'}"
        )
    return dict(pools[name])
