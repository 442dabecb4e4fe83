"""The service of Slurm's commands, as the command line installs, starts and reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from vgrads.api.config import make_home
from vgrads.api.slurm.service import LOG, last_problem, refuse_second, socket_of, sweep
from vgrads.kernel.errors import InputError, SiteError
from vgrads.kernel.files import write_text
from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_count
from vgrads.portal.charts.gantt import render_html
from vgrads.portal.charts.promise_chart import promise_chart
from vgrads.portal.records.reading.sites import choose_catalog
from vgrads.slurm.installation import install
from vgrads.slurm.program import (
    CommandFailure,
    ServiceUnreachable,
    host_and_port,
    listens,
    send_once,
)
from vgrads.vgrid.catalog import Catalog, describe_this_machine

_OF_SITES = ("SLURM_CONF", "SGE_ROOT", "SGE_CELL", "PBS_CONF_FILE")
"""Variables that state where batch systems are configured: those at the installation."""

_LOOK_S = 0.02
_MOST_STARTS = 5


def slurm_folder() -> Path:
    """Return the folder of the service of this user."""
    folder = make_home() / "slurm"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def sites_catalog(sites: Path | None) -> Catalog:
    return choose_catalog(sites) if sites else describe_this_machine()


def _list_words(sites: Path | None) -> list[str]:
    if sites is None:
        return []
    return ["--sites", str(sites) if str(sites) == "here" else str(sites.resolve())]


def install_commands(folder: Path, sites: Path | None) -> list[Path]:
    """Write Slurm's commands into a folder; return their paths."""
    sites_catalog(sites)  # a fault in it is reported now
    # whoever calls first may have another environment, and modules in the current folder
    stated = {name: os.environ[name] for name in _OF_SITES if name in os.environ}
    stated["VGRADS_HOME"] = str(make_home().absolute())
    variables = [f"{name}={value}" for name, value in stated.items()]
    start = [
        "/usr/bin/env",
        *variables,
        sys.executable,
        "-P",
        "-m",
        "vgrads",
        "slurm",
        "up",
        "--background",
    ]
    start += _list_words(sites)
    socket = socket_of(slurm_folder().absolute())
    return install(folder.expanduser().absolute(), sys.executable, str(socket), start=start)


def install_for_address(folder: Path, address: str, token_file: Path | None) -> list[Path]:
    """Write Slurm's commands for a service at an address; return their paths."""
    try:
        host_and_port(address)
    except CommandFailure as error:
        raise InputError(str(error), where="--address") from error
    token = (token_file or slurm_folder() / "token").expanduser().absolute()
    target = folder.expanduser().absolute()
    return install(target, sys.executable, address, token_file=str(token))


def start_in_background(sites: Path | None, idle: str) -> None:
    """Start the service; return when it accepts commands. Its messages go to the file ``log`` of
    its folder. Raise SiteError where it does not start, InputError where one runs."""
    folder = slurm_folder()
    address, log = str(socket_of(folder)), folder / LOG
    if listens(address):
        refuse_second(folder)
    command = [sys.executable, "-m", "vgrads", "slurm", "up", "--idle", idle, *_list_words(sites)]
    process, begin = _begin(command, log)
    starts = 1
    while not listens(address):
        code = process.poll()
        if code is not None and code < 0 and starts < _MOST_STARTS:  # killed: try again
            process, begin = _begin(command, log)
            starts += 1
        elif code is not None:
            raise SiteError(
                _find_last_message(log, begin) or f"it ended; see {log}",
                site="the service of Slurm's commands",
                transient=False,
            )
        time.sleep(_LOOK_S)


def _begin(command: list[str], log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a process that writes to a log; return it, and where in the log it begins."""
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
        begin = file.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            # Ctrl-C at the terminal from which it was started must not end it
            start_new_session=True,
            cwd="/",
        )
    return process, begin


def _find_last_message(log: Path, begin: int) -> str:
    """Return the last message of the command line after this position of the log, with the lines
    that belong to it."""
    with log.open("rb") as file:
        file.seek(begin)
        # the first message has no line break before it
        text = "\n" + file.read().decode(errors="replace")
    _, separator, message = text.rpartition("\nvgrads: ")
    return "; ".join(filter(None, map(str.strip, message.splitlines()))) if separator else ""


def read_status() -> dict[str, Any]:
    """Return the unfinished jobs, with where they run or why they wait, and the groups with a
    deadline. Raise InputError where no service can start, since the journal is damaged."""
    try:
        return {"running": True, **_answer_of("status")}
    except (ServiceUnreachable, CommandFailure):
        sweep(slurm_folder())  # says also whether a damaged journal lets no service start
        problem = last_problem(slurm_folder())
        return {"running": False, "jobs": [], "groups": [], "problem": problem}


def _answer_of(command: str, **fields: str) -> dict[str, Any]:
    """Return the service's answer. Raise ServiceUnreachable, CommandFailure."""
    path = str(socket_of(slurm_folder()))
    _, body = send_once(path, "", command, json.dumps(fields).encode())
    answer: dict[str, Any] = json.loads(body)
    return answer


def write_gantt(group: str, path: Path) -> str:
    """Write the Gantt chart of a group and its promise over time as a page; return a sentence
    about the group."""
    try:
        answer = _answer_of("gantt", group=group)
    except (ServiceUnreachable, CommandFailure) as error:
        raise SiteError(
            str(error), site="the service of Slurm's commands", transient=False
        ) from error
    if "gantt" not in answer:
        names = ", ".join(answer["groups"]) or "none"
        raise InputError(f"no group '{group}' has a deadline; groups: {names}")
    sentence = _group_text(answer["group"])
    chart = {**answer["gantt"], "facts": sentence}
    promises = promise_chart(answer["promises"], chart["now_s"], chart["deadline_s"])
    write_text(path, render_html(chart, promises=promises))
    return sentence


def status_text(status: dict[str, Any]) -> object:
    """Return a table of jobs, and a line for each group."""
    problem = [f"no job could run: {status['problem']}"] if status["problem"] else []
    if not status["running"]:
        text = "the service is not running: the first command, or `vgrads slurm up`, starts it"
        return [text, *problem]
    if not status["jobs"]:
        return "no job is unfinished"
    return [_make_table(status["jobs"]), *map(_group_text, status["groups"]), *problem]


def _group_text(group: dict[str, Any]) -> str:
    due = datetime.fromtimestamp(group["deadline_s"]).strftime("%Y-%m-%d %H:%M")
    share = "no promise can be given until the group has run once"
    if group["promise"] is not None:
        share = f"probability {group['promise']:.2f}"
    jobs = f"{group['ended']} of {format_count(group['jobs'], 'job', 'have')} ended"
    if group["expected"] is not None:
        jobs += f", about {group['expected']:.0f} are expected"
    return f"group {group['name']}: {jobs}; deadline {due}: {share}"


def _make_table(rows: list[dict[str, Any]]) -> TextTable:
    columns = (
        Column("job"),
        Column("name", shorten=True),
        Column("state"),
        Column("where"),
        Column("why", below=True),
    )
    cells = (tuple(str(row[column.name]) for column in columns) for row in rows)
    return TextTable(columns, tuple(map(Row, cells)))
