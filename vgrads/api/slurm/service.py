"""A private service of Slurm's commands: the jobs of one user, in one folder."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from vgrads.api.bags.in_process import LocalChannel
from vgrads.api.slurm.commands import SlurmCommands
from vgrads.api.slurm.folders import JobFolders
from vgrads.api.slurm.journal import JobJournal, read_journal
from vgrads.api.slurm.outer import find_outer, path_without_ours
from vgrads.api.slurm.promise_recorder import PromiseRecorder
from vgrads.api.slurm.records import MIN_JOB_AGE_S
from vgrads.api.slurm.scheduler import JobScheduler
from vgrads.api.slurm.shapes import Partitions
from vgrads.api.slurm.table import JobTable
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.storage.status import is_worked_on
from vgrads.exchange.keys import find_socket
from vgrads.kernel.errors import InputError
from vgrads.kernel.files import write_whole
from vgrads.slurm.environment import PLACE
from vgrads.vgrid.catalog import Catalog

KEEP_S = 90 * 86_400.0
_LOOK_S = 60.0


def remove_ended(table: JobTable, folders: JobFolders, before_s: float = float("inf")) -> None:
    """Remove environment and script of jobs that had ended by then: all, where no service runs."""
    for number in table.ended_before(before_s):
        folders.remove(number)


class JobRetention:
    """What is removed when. ``keep_s``: how long ended jobs are listed, in seconds."""

    def __init__(
        self, journal: JobJournal, folders: JobFolders, keep_s: float, clock: Callable[[], float]
    ) -> None:
        self._journal, self._folders, self._keep_s, self._clock = journal, folders, keep_s, clock
        self._looked_s = clock()

    def look(self) -> None:
        """Remove environment and script of jobs that can no longer be requeued, and old jobs."""
        now_s, table = self._clock(), self._journal.table
        remove_ended(table, self._folders, now_s - MIN_JOB_AGE_S)
        if now_s - self._looked_s > _LOOK_S:
            self._looked_s = now_s
            for number in table.older_than(now_s - self._keep_s):
                self._journal.write({"removed": number}, durable=False)


JOURNAL = "journal"
LOG = "log"
"""File with the messages of a service that was started in the background."""
_PROBLEM = "problem"
"""File with the reason why no job could run in the last process."""


def socket_of(folder: Path) -> Path:
    """Return the socket of the service in a folder. Raise InputError where its path is too long."""
    path = find_socket(folder)
    if path is None:
        raise InputError(
            "is too long for the path of a socket",
            where=str(folder / "socket"),
            fix="set VGRADS_HOME to a shorter path",
        )
    return path


def refuse_second(folder: Path) -> NoReturn:
    """Raise InputError: another process serves this folder."""
    raise InputError("a service of Slurm's commands runs there already", where=str(folder))


class SlurmService:
    """What answers the commands. ``folder`` lies where all nodes reach it; ``keep_s``: how long
    ended jobs are listed, in seconds; ``rules``: of the dispatcher, which ends this process where
    it hangs: what runs is taken up at the next start."""

    def __init__(
        self,
        folder: Path,
        catalog: Catalog,
        clock: Callable[[], float] = time.time,
        keep_s: float = KEEP_S,
        rules: Rules | None = None,
    ) -> None:
        outer = find_outer(os.environ.get("PATH", ""))
        _hide_from_drivers()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._journal, folders = JobJournal(folder / JOURNAL), JobFolders(folder / "jobs")
        partitions = Partitions(catalog)
        channel = LocalChannel(
            catalog, folder / "dispatcher", _name_of(folder), rules=rules or Rules(), watched=True
        )
        chores = (
            PromiseRecorder(self._journal, clock).look,
            JobRetention(self._journal, folders, keep_s, clock).look,
        )
        self._scheduler = JobScheduler(self._journal, folders, channel, partitions, chores, clock)
        self._commands = SlurmCommands(
            self._scheduler, self._journal, folders, partitions, outer, clock, last_problem(folder)
        )
        self._called_s = time.monotonic()
        self._folder, self._folders = folder, folders

    def start(self) -> None:
        """Take up stored jobs, and release new ones from now on."""
        self._scheduler.start()

    def stop(self) -> None:
        """Stop; what runs is taken up at the next start."""
        self._scheduler.stop()
        remove_ended(self._journal.table, self._folders)  # the next service may never come
        self._journal.close()
        self.store_problem()

    def store_problem(self) -> None:
        """Store why no job can run any more, for ``vgrads slurm status``."""
        write_whole(self._folder / _PROBLEM, self.problem.encode())

    def answer(self, command: str, body: dict[str, Any]) -> dict[str, Any]:
        """Answer a command."""
        self._called_s = time.monotonic()
        return self._commands.answer(command, body)

    @property
    def problem(self) -> str:
        """Return why no job can run any more in this process; empty where they can."""
        return self._scheduler.problem

    def unused_s(self) -> float:
        """Return for how long no command came and no job was unfinished, in seconds."""
        with self._scheduler.lock:
            if self._scheduler.table.unfinished:
                self._called_s = time.monotonic()
        return time.monotonic() - self._called_s


def sweep(folder: Path) -> None:
    """Remove environments of ended jobs that a killed service has left, where none runs. Raise
    InputError for a damaged journal."""
    table = read_journal(folder / JOURNAL)[0]
    if table.submissions and not is_worked_on(folder):
        remove_ended(table, JobFolders(folder / "jobs"))


def last_problem(folder: Path) -> str:
    """Return why no job could run in the last process of a folder; empty where they could."""
    try:
        return (folder / _PROBLEM).read_text()
    except FileNotFoundError:
        return ""


def _name_of(folder: Path) -> str:
    """Return the name of a service, which begins the names of its slots: no other has it."""
    path = folder / "name"
    if not path.exists():
        write_whole(path, f"slurm-{secrets.token_hex(5)}".encode())
    return path.read_text()


def _hide_from_drivers() -> None:
    """Keep our own commands, and variables of a job in which the service was started, from the
    drivers: they call the real Slurm."""
    os.environ["PATH"] = path_without_ours(os.environ.get("PATH", os.defpath))
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        if name != PLACE:
            del os.environ[name]
