"""Where an executor's calls run: a dispatcher of this process, or a service."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgrads.api.bags.open_calls import Channel
from vgrads.api.config import THIS_MACHINE, make_home
from vgrads.dispatch.storage.status import is_worked_on
from vgrads.execmgr.tasks.command_line import preparation
from vgrads.executor.keyed import KeyedResults
from vgrads.kernel.collector import pause_collector
from vgrads.kernel.errors import InputError
from vgrads.workflows.task_environment import TaskEnvironment

if TYPE_CHECKING:
    from vgrads.interface.catalogs import Sites

_MOST_PRINTED = 4096
_OLD_S = 86_400.0
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Place:
    """``document``: fields of its bags; ``command``: of their Python; ``places``: calls at once;
    ``results``: those by key, of an executor with a name."""

    connect: Callable[[], Channel]
    document: dict[str, Any]
    command: str
    places: int
    clean_up: Callable[[], None] = field(default=lambda: None)
    results: KeyedResults | None = None


def place_of(
    sites: Sites | None, name: str, environment: str, max_workers: int | None, token: str
) -> Place:
    """Return where calls run; InputError for what does not fit together."""
    results = _name_results(name) if name else None
    document = {"name": name or "executor", "output_bytes": _MOST_PRINTED}
    if isinstance(sites, str) and sites.startswith(("http://", "https://")):
        from vgrads.executor.service import ServiceChannel

        command = python_command(environment, "")
        connect = partial(ServiceChannel, sites, token, goes_on=results is not None)
        return Place(connect, document, command, 8, results=results)
    return replace(_connect_here(sites, environment, max_workers, document), results=results)


def _connect_here(
    sites: Sites | None,
    environment: str,
    max_workers: int | None,
    document: dict[str, Any],
) -> Place:
    with pause_collector():
        from vgrads.api.bags.in_process import LocalChannel
        from vgrads.vgrid.catalog import describe_this_machine

    is_local = sites in ("local", THIS_MACHINE, None)
    if is_local:
        # inside a job this process may use fewer processors than the machine has
        procs = max_workers or len(os.sched_getaffinity(0))
        catalog = describe_this_machine(procs)
    else:
        from vgrads.interface.catalogs import catalog_of

        catalog, procs = catalog_of(sites), max_workers or 8
    hosts: dict[str, Any] = {"idle": "10m"}
    if max_workers and not is_local:
        hosts["most"] = max_workers
    run = f"executor-{secrets.token_hex(5)}"
    runs = make_home() / "executor-runs"
    runs.mkdir(exist_ok=True, mode=0o700)
    _remove_old(runs)
    folder = runs / run
    return Place(
        lambda: LocalChannel(catalog, folder, run),
        document | {"hosts": hosts},
        python_command(environment, sys.executable if is_local else ""),
        procs,
        lambda: shutil.rmtree(folder, ignore_errors=True),
    )


def _remove_old(runs: Path) -> None:
    """Remove what killed programs left a day ago."""
    for folder in runs.iterdir():
        # another program may remove it at the same time
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _OLD_S and not is_worked_on(folder):
                shutil.rmtree(folder)


def _name_results(name: str) -> KeyedResults:
    if "/" in name or "\0" in name or name in (".", "..") or len(name.encode()) > _LONGEST_NAME:
        raise InputError(
            f"{name!r} is no name of a folder", where="name", fix="give a name without '/'"
        )
    folder = make_home() / "executors"
    folder.mkdir(exist_ok=True, mode=0o700)
    return KeyedResults(folder / name)


def python_command(environment: str, python: str) -> str:
    """Return the shell command of the Python of an environment; without one, of ``python``."""
    kind, colon, name = environment.partition(":")
    if not environment:
        return f"exec {shlex.quote(python)}" if python else ""
    if kind in ("conda", "module") and colon and name:
        stated = TaskEnvironment(
            conda=name if kind == "conda" else None,
            setup=(f"module load {shlex.quote(name)}",) if kind == "module" else (),
        )
        return f"{preparation(stated)}exec python"
    path = Path(environment).expanduser()
    if colon and not path.exists():
        raise InputError(
            f"'{environment}' is no environment",
            where="environment",
            fix="give the folder of a virtual environment, conda:NAME or module:NAME",
        )
    return f"exec {shlex.quote(str(path.absolute() / 'bin' / 'python'))}"
