"""Orders of tasks as agents get them: a shell text, files, settings.

Where a site shares the manager's files, the task's folder is prepared here, and the agent runs a
text in it. Elsewhere the agent fetches inputs by their digest and sends outputs; the programs that
it needs beside the command are sent as inputs too.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vgrads.agent.programs import staging, workdirs
from vgrads.exchange.digests import FileDigests
from vgrads.execmgr.tasks.command_line import TaskFolders, command_text, join_words, variable
from vgrads.execmgr.tasks.environment import environment_for
from vgrads.execmgr.tasks.folder import TaskFolder
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.execmgr.tasks.output import MAX_STORED, STDERR, STDOUT
from vgrads.kernel.files import write_whole
from vgrads.workflows.task_environment import with_env

_PYTHON = variable("VGRADS_PYTHON")
_FOLDER, _INPUTS = variable("VGRADS_FOLDER"), variable("VGRADS_INPUTS")
_STAGING, _WORKDIRS = ".staging.py", ".workdirs.py"
_FETCHED = "../.fetched"
_NO_GO = 125


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOrder:
    """What an agent gets of an order: input name → digest, names of outputs, settings."""

    command: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Sequence[str] = ()


class AgentOrders:
    """Prepares orders for agents; from several threads. ``apart``: sites that share no files with
    this machine; ``account``: of the tasks, where agents run as root (0: that of the agents)."""

    def __init__(self, folder: TaskFolder, apart: frozenset[str], account: int = 0) -> None:
        self._folder, self._apart, self._account = folder, apart, account
        self._digests = FileDigests()
        self._writing = threading.Lock()

    def is_apart(self, order: TaskOrder) -> bool:
        """Return True where the files of an order must be sent."""
        return order.site in self._apart

    def input(self, digest: str) -> Path | None:
        """Return the file of a digest that an order reads."""
        return self._digests.path(digest)

    def prepare(self, order: TaskOrder) -> AgentOrder:
        """Prepare an attempt; OSError if an input is missing or the disk is full."""
        if not order.command:
            raise OSError("has no command to run")
        order = replace(
            order, environment=with_env(order.environment, self._folder.values)
        )  # also into containers
        return self._apart_order(order) if self.is_apart(order) else self._shared_order(order)

    def _shared_order(self, order: TaskOrder) -> AgentOrder:
        scratch = self._folder.stage(order)
        program = self._folder.run_folder / _STAGING
        if order.fetches or order.sends:
            self._copy_program(program)
        folders = TaskFolders(
            folder=str(scratch),
            reads=self._folder.reads(order, scratch),
            python=_PYTHON,
            staging=str(program),
            passes=self._folder.allowed.get(order.site, ()),
        )
        text = command_text(order, folders)
        begin = f"cd -- {shlex.quote(str(scratch))} || exit {_NO_GO}\nexec >{STDOUT} 2>{STDERR}"
        return AgentOrder(command=f"{begin}\n{text}", settings=self._settings(order, scratch))

    def _copy_program(self, program: Path) -> None:
        """Store the program that transfers files where the site sees it."""
        with self._writing:
            if not program.exists():
                write_whole(program, Path(staging.__file__).read_bytes())

    def _apart_order(self, order: TaskOrder) -> AgentOrder:
        scratch = self._folder.empty(order)
        files = self.files_of(order, scratch)
        folders = TaskFolders(
            folder=_FOLDER,
            reads=(_INPUTS, *([f"{_FOLDER}/{_FETCHED}"] if order.fetches else [])),
            python=_PYTHON,
            staging=_STAGING,
            passes=self._folder.allowed.get(order.site, ()),
        )
        text = command_text(order, folders)
        if order.environment.workdir and order.outputs:
            text = _add_workdir(order, text)
        # files travel without their mode: names of programs are sent with the order
        programs = [name for name, path in files.items() if path.stat().st_mode & 0o100]
        return AgentOrder(
            command=text,
            settings=self._settings(order, None) | {"executable": programs},
            inputs={name: self._digests.of(path) for name, path in files.items()},
            outputs=order.outputs,
        )

    def files_of(self, order: TaskOrder, scratch: Path) -> dict[str, Path]:
        """Return the files that are sent with an order, by name; OSError if one is missing.

        Also called for an order that an agent got from an earlier manager: it may still fetch them.
        """
        files = self._folder.inputs.sources(order)
        folder = next((name for name, path in files.items() if path.is_dir()), None)
        if folder is not None:
            raise OSError(
                f"input '{folder}' is a folder, and its site shares no files with this machine: "
                "pack it into a file"
            )
        if self._folder.note_moves(order, scratch, ".", _FETCHED):
            files |= {
                staging.LIST: scratch / staging.LIST,
                _STAGING: Path(staging.__file__),
            }
        if order.environment.workdir and order.outputs:
            files[_WORKDIRS] = Path(workdirs.__file__)
        return files

    def serve(self, order: TaskOrder) -> None:
        """Serve the files of an order that an agent got from an earlier manager; OSError if one is
        missing."""
        if self.is_apart(order):
            scratch = self._folder.place(order)
            scratch.mkdir(parents=True, exist_ok=True)
            for path in self.files_of(order, scratch).values():
                # whose file has a digest is known to input from then on
                self._digests.of(path)

    def _settings(self, order: TaskOrder, scratch: Path | None) -> dict[str, Any]:
        box = order.environment.boxed
        return {
            "procs": order.procs,
            "memory_mib": order.memory_mib,
            "env": environment_for(order, self._folder.values, scratch),
            "pass_env": self._folder.requested,
            "output_bytes": MAX_STORED,
            "container": box.engine if box else "",
            "live": scratch is None,
            "account": self._account,
        }


def _add_workdir(order: TaskOrder, text: str) -> str:
    """Return the text with a copy of what the task wrote into its workdir."""
    words = (_PYTHON, "-I", _WORKDIRS)
    rest = (order.environment.workdir or "", *order.outputs)
    note, fetch = join_words((*words, "note", *rest)), join_words((*words, "fetch", *rest))
    return f"{note} || exit {_NO_GO}\n( eval {shlex.quote(text)} ) || exit\n{fetch}"
