"""Scratch folders of a run's replicas: commands to run there, and the outputs they must have
written.

Used wherever tasks run as processes: by the manager on its own machine, and by the pilots of slots.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from vgrads.agent.containers import container_name, end_container, ending
from vgrads.agent.environment import pass_environment, refusal, withheld
from vgrads.agent.processes import MARK, kill_marked
from vgrads.agent.programs.staging import LIST
from vgrads.agent.programs.workdirs import fetch_from_workdir, note_workdir
from vgrads.execmgr.tasks.command_line import TaskFolders, command_text
from vgrads.execmgr.tasks.environment import environment_for
from vgrads.execmgr.tasks.inputs import Inputs
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.execmgr.tasks.output import keep_output, put_first
from vgrads.execmgr.tasks.process import NOTES, AttemptVerdict, TaskProcess, explain
from vgrads.kernel.user_files import copy_user_file
from vgrads.planner.snapshot import ReplicaKey
from vgrads.workflows.dag import Workflow
from vgrads.workflows.task_environment import with_env

HERE = "tasks"
"""Kind of the scratch folders of tasks on the manager's own machine."""
AWAY = "slot-tasks"
"""Kind of the scratch folders of tasks in slots elsewhere."""
AGENTS = ".agents"
"""In a run's folder: port and keys of its manager for agents, reused by a later manager."""
CLAIMS = ".committed"
"""In a workflow's folder: the owner of the outputs of each task that is claimed."""
SIBLINGS = ".beside"
"""In a run's folder: its copies of the sibling files of the set."""
FETCHED = ".fetched"
"""In a run's folder: downloaded inputs, shared by its tasks there."""
_ODD = re.compile(r"[^A-Za-z0-9._+@=,:-]|^\.")
_LONGEST_NAME = 150  # below the 255 bytes of a name (NAME_MAX), with room for suffixes


def file_name(text: str) -> str:
    """Encode a name as a single part of a path; one without special characters is unchanged."""
    name = _ODD.sub(lambda sign: "".join(f"%{byte:02X}" for byte in sign[0].encode()), text)
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:100]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def run_token(folder: Path) -> str:
    """Return the prefix of the marks of a run's tasks: derived from the path of its folder."""
    return hashlib.sha256(str(folder).encode()).hexdigest()[:16]


def results_in(run_folder: Path, workflow: str) -> Path:
    """Return the folder in a run's folder to which a workflow's outputs are committed."""
    return run_folder / workflow / "results"


@dataclass(frozen=True)
class TaskFolder:
    """The run's folder, and the folder of the set with the files that tasks read.

    ``kind`` separates the scratch folders of engines. ``own``: the tasks belong to the user of this
    process and get its environment, except secrets; otherwise only harmless variables.
    ``requested``: variables that the set requests; ``values``: those that were submitted with the
    run; ``allowed``: by site, variables that it passes to all; ``private``: by site, whether URLs
    of private addresses may be used (default: yes); ``patience_s``: for a server of files;
    ``account``: of the tasks, where agents run as root (0: that of the agents).
    """

    run_folder: Path
    set_folder: Path
    kind: str = HERE
    own: bool = False
    requested: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    private: Mapping[str, bool] = field(default_factory=dict)
    patience_s: float = 120.0
    account: int = 0
    _of_workflow: dict[str, Path] = field(default_factory=dict, init=False, compare=False)

    @cached_property
    def marks(self) -> str:
        """Common prefix of the marks of all processes of this run and this kind."""
        return f"{run_token(self.run_folder)}.{self.kind}:"

    @cached_property
    def inputs(self) -> Inputs:
        """Files that tasks may read."""
        return Inputs(
            self.run_folder / SIBLINGS, self.set_folder, partial(results_in, self.run_folder)
        )

    @cached_property
    def _passed(self) -> dict[str, tuple[dict[str, str], list[str]]]:
        return {}

    def _environment(self, site: str) -> tuple[dict[str, str], list[str]]:
        """Return the variables of this process's environment that tasks at a site get, and the
        requested ones that they do not get."""
        if site not in self._passed:
            allowed = self.allowed.get(site, ())
            passed, refused = pass_environment(os.environ, self.own, self.requested, allowed)
            passed |= self.values
            self._passed[site] = passed, [name for name in refused if name not in passed]
        return self._passed[site]

    def mark(self, order: TaskOrder) -> str:
        """Return the mark of all processes of one attempt."""
        return f"{self._replica_marks(order)}{order.attempt}"

    def _replica_marks(self, order: TaskOrder) -> str:
        return f"{self.marks}{'/'.join(map(str, order.key))}/"

    def place(self, order: TaskOrder) -> Path:
        """Return the scratch folder of one attempt."""
        return self.place_of(order.key, order.attempt)

    def place_of(self, key: ReplicaKey, attempt: int) -> Path:
        """Return the scratch folder of an attempt of a replica."""
        again = f".again{attempt}" if attempt else ""
        return self._scratch_folders(key[0]) / f"{file_name(key[1])}.{key[2]}{again}"

    def _scratch_folders(self, workflow: str) -> Path:
        """Return the folder of a workflow's scratch folders; each part of a path costs time."""
        if workflow not in self._of_workflow:
            self._of_workflow[workflow] = self.run_folder / workflow / self.kind
        return self._of_workflow[workflow]

    def noted(self) -> Iterator[Path]:
        """Return the files in which tasks recorded their processes."""
        return self.run_folder.glob(f"*/{self.kind}/*/{NOTES}")

    def results(self, workflow: str) -> Path:
        """Return the folder to which a workflow's outputs are committed."""
        return results_in(self.run_folder, workflow)

    def prepare(self, order: TaskOrder) -> TaskProcess:
        """Prepare an attempt as a process of this machine, in an empty folder; OSError if an input
        is missing or the disk is full.

        First make sure that earlier attempts of the replica are dead on this machine.
        """
        before = self._replica_marks(order)
        if order.attempt and not kill_marked(lambda mark: mark.startswith(before)):
            raise OSError("its last attempt cannot be killed")
        scratch = self.stage(order)
        mark = self.mark(order)
        passed, _ = self._environment(order.site)
        named = {
            name: passed[name]
            for name in (*self.requested, *self.allowed.get(order.site, ()))
            if name in passed
        }
        if named:  # also into containers
            order = replace(order, environment=with_env(order.environment, named))
        environment = environment_for(order, passed, scratch) | {MARK: mark}
        folders = TaskFolders(
            folder=str(scratch),
            reads=self.reads(order, scratch),
            name=container_name(mark),
            python=sys.executable,
        )
        careful = order.environment.boxed is not None or bool(order.environment.workdir)
        text, ending = command_text(order, folders), _make_ending(order, mark)
        return TaskProcess(text, scratch, environment, careful=careful, ending=ending)

    def stage(self, order: TaskOrder) -> Path:
        """Create an attempt's folder, with its inputs and the lists that its programs read; OSError
        if an input is missing or the disk is full."""
        scratch = self.empty(order)
        self.inputs.stage(order, scratch)
        if order.environment.workdir and order.outputs:
            note_workdir(order.environment.workdir, order.outputs, scratch)
        self.note_moves(order, scratch, str(scratch), str(self.run_folder / FETCHED))
        return scratch

    def empty(self, order: TaskOrder) -> Path:
        """Create an attempt's folder; one of a manager that was killed is replaced."""
        scratch = self.place(order)
        try:
            scratch.mkdir(parents=True)
        except FileExistsError:
            shutil.rmtree(scratch)
            scratch.mkdir(parents=True)
        return scratch

    def note_moves(self, order: TaskOrder, scratch: Path, there: str, fetched: str) -> bool:
        """Write the list of files to fetch and send for the program that transfers them
        (:mod:`vgrads.agent.programs.staging`); return False if there are none.

        ``there``: the task's folder where it runs; ``fetched``: the folder of fetched files there.
        """
        if not order.fetches and not order.sends:
            return False
        written = {*order.outputs, *(file.name for file in order.sends)}
        workdir = [order.environment.workdir] if order.environment.workdir else []
        work = {
            "fetch": [asdict(f) | {"writes": f.name in written} for f in order.fetches],
            "send": [asdict(file) for file in order.sends],
            "folders": [there, *workdir],
            "kept": fetched,
            "private": self.private.get(order.site, True),
            "patience_s": self.patience_s,
        }
        (scratch / LIST).write_text(json.dumps(work))
        return True

    def end_container(self, order: TaskOrder) -> None:
        """End the container that an attempt may have left without supervision."""
        end_container(_make_ending(order, self.mark(order)), os.environ)

    def reads(self, order: TaskOrder, scratch: Path) -> tuple[str, ...]:
        """Return the folders that links in a scratch folder point into, for a container; outermost
        ones only."""
        if order.environment.boxed is None:
            return ()
        folders = {self.run_folder / FETCHED} if order.fetches else set()
        for name, source in self.inputs.sources(order).items():
            if (scratch / name).is_symlink():
                # of a file directly under / the file itself is bound, not the whole file system
                folders |= {
                    path if path.parent == path.parents[-1] else path.parent
                    for path in (source, source.resolve())
                }
        return tuple(sorted(str(path) for path in folders if not folders & set(path.parents)))

    def input_mib(self, order: TaskOrder) -> tuple[float, float]:
        """Return the MiB of an attempt's inputs, and of those that are only linked because they are
        local."""
        staged = [self.place(order) / name for name in order.inputs]
        sizes = [(path.stat().st_size / 2**20, path.is_symlink()) for path in staged]
        return sum(mib for mib, _ in sizes), sum(mib for mib, linked in sizes if linked)

    def judge(self, order: TaskOrder, code: int) -> AttemptVerdict:
        """Return whether an ended attempt succeeded: it must have written all its outputs."""
        scratch = self.place(order)
        passed, refused = self._environment(order.site)
        # only after a failure: a variable that was kept back may be the cause
        secrets = withheld(os.environ, passed) if code and self.own else []
        if refused or secrets:
            put_first(scratch, refusal([*refused, *secrets]))
        return self.verdict(order, code)

    def verdict(self, order: TaskOrder, code: int) -> AttemptVerdict:
        """Return whether an attempt with this exit code succeeded, from what is in its folder."""
        scratch = self.place(order)
        if code:
            return explain(code, scratch)
        if order.environment.workdir:
            fetch_from_workdir(order.environment.workdir, order.outputs, scratch, copy_user_file)
        missing = [name for name in order.outputs if not os.path.lexists(scratch / name)]
        return (
            AttemptVerdict(f"did not write '{missing[0]}'", code, ended=code)
            if missing
            else AttemptVerdict()
        )


def _make_ending(order: TaskOrder, mark: str) -> tuple[str, ...]:
    """Return the command that ends an attempt's container, if one is needed."""
    box = order.environment.boxed
    return () if box is None else ending(box.engine, container_name(mark))


def make_room(run_folder: Path, left: Iterable[Workflow]) -> None:
    """Remove files of an earlier run from a folder that could be mistaken for files of the
    remaining tasks."""
    for name in (SIBLINGS, FETCHED, AGENTS):
        shutil.rmtree(run_folder / name, ignore_errors=True)
    for workflow in left:
        for kind in (CLAIMS, HERE, AWAY):
            shutil.rmtree(run_folder / workflow.name / kind, ignore_errors=True)
        results = results_in(run_folder, workflow.name)
        for name in {name for task in workflow.tasks.values() for name in task.outputs}:
            if (results / name).is_dir() and not (results / name).is_symlink():
                shutil.rmtree(results / name)
            else:
                (results / name).unlink(missing_ok=True)


def clean_up(folder: TaskFolder, workflow: Workflow, final_only: bool) -> None:
    """Remove files that a finished workflow no longer needs: scratch folders except printed text,
    and with ``final_only`` also outputs that other tasks of the workflow have read. Nothing outside
    the run's folder is touched."""
    base = folder.run_folder / workflow.name
    shutil.rmtree(base / CLAIMS, ignore_errors=True)
    for scratch in (base / folder.kind).glob("*"):
        keep_output(scratch)
    if not final_only:
        return
    read = {name for task in workflow.tasks.values() for name in task.inputs}
    created = {name for task in workflow.tasks.values() for name in task.outputs}
    for name in read & created:
        (folder.results(workflow.name) / name).unlink(missing_ok=True)
