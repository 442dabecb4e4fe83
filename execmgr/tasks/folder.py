"""Where the copies of a run's tasks work: scratch folders, what they run there, what they must have
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

from vgrads.agent.environment import pass_environment, refusal, withheld
from vgrads.agent.staging import LIST
from vgrads.execmgr.engines.base import TaskOrder
from vgrads.execmgr.tasks.command_line import Place, command_text
from vgrads.execmgr.tasks.containers import container_name, end_container, ending
from vgrads.execmgr.tasks.environment import environment_for
from vgrads.execmgr.tasks.inputs import Inputs
from vgrads.execmgr.tasks.output import keep_output, put_first
from vgrads.execmgr.tasks.process import NOTES, TaskProcess, Verdict, explain
from vgrads.execmgr.tasks.processes import MARK, kill_marked, run_token
from vgrads.execmgr.tasks.workdirs import fetch_from_workdir, note_workdir
from vgrads.planner.snapshot import CopyKey
from vgrads.workflows.dag import Workflow
from vgrads.workflows.manner import with_env

HERE = "tasks"
"""The kind of the scratch folders of tasks that run on the manager's own machine."""
AWAY = "slot-tasks"
"""The kind of the scratch folders of tasks that run in slots elsewhere."""
CONTACT = "contact.json"
"""In a run's folder: where its workers find the manager, for a later one."""
CLAIMS = ".committed"
"""In a workflow's folder: for each task whose outputs count, whose they are."""
BESIDE = ".beside"
"""In a run's folder: its own copies of the files beside the set."""
FETCHED = ".fetched"
"""In a run's folder: inputs that were fetched from elsewhere, for whichever task there wants
them."""
_ODD = re.compile(r"[^A-Za-z0-9._+@=,:-]|^\.")
_LONGEST_NAME = 150


def file_name(text: str) -> str:
    """A name as a single part of a path, whatever is in it; one without odd signs stays as it
    is."""
    found = _ODD.sub(lambda sign: "".join(f"%{byte:02X}" for byte in sign[0].encode()), text)
    if len(found) <= _LONGEST_NAME:
        return found
    return f"{found[:100]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def results_in(run_folder: Path, workflow: str) -> Path:
    """The folder in a run's that a workflow's outputs are committed to."""
    return run_folder / workflow / "results"


@dataclass(frozen=True)
class TaskFolder:
    """The run's folder, and the folder of the set with the files that tasks read.

    ``kind`` keeps the scratch folders of one engine apart from those of another. ``own``: the tasks
    belong to whoever runs this process and get its environment, less secrets; else only what is
    harmless. ``requested``: names that the set wants passed; ``values``: those that came with the
    run; ``allowed``: by site, what it passes to all.
    """

    run_folder: Path
    set_folder: Path
    kind: str = HERE
    own: bool = False
    requested: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def marks(self) -> str:
        """What the marks of all processes begin with that belong to this run and this kind."""
        return f"{run_token(self.run_folder)}.{self.kind}:"

    @cached_property
    def inputs(self) -> Inputs:
        """What tasks may read."""
        return Inputs(
            self.run_folder / BESIDE, self.set_folder, partial(results_in, self.run_folder)
        )

    @cached_property
    def _passed(self) -> dict[str, tuple[dict[str, str], list[str]]]:
        return {}

    def _environment(self, site: str) -> tuple[dict[str, str], list[str]]:
        """What tasks at a site are passed of this process's environment, and what of the requested
        they are not."""
        if site not in self._passed:
            allowed = self.allowed.get(site, ())
            passed, refused = pass_environment(os.environ, self.own, self.requested, allowed)
            passed |= self.values
            self._passed[site] = passed, [name for name in refused if name not in passed]
        return self._passed[site]

    def mark(self, order: TaskOrder) -> str:
        """The mark of all processes of one attempt."""
        return f"{self._copy_marks(order)}{order.attempt}"

    def _copy_marks(self, order: TaskOrder) -> str:
        return f"{self.marks}{'/'.join(map(str, order.key))}/"

    def place(self, order: TaskOrder) -> Path:
        """The scratch folder of one attempt."""
        return self.place_of(order.key, order.attempt)

    def place_of(self, key: CopyKey, attempt: int) -> Path:
        """The scratch folder of an attempt of a copy."""
        again = f".again{attempt}" if attempt else ""
        return self.run_folder / key[0] / self.kind / f"{file_name(key[1])}.{key[2]}{again}"

    def noted(self) -> Iterator[Path]:
        """The files in which tasks noted their processes."""
        return self.run_folder.glob(f"*/{self.kind}/*/{NOTES}")

    def results(self, workflow: str) -> Path:
        """The folder that a workflow's outputs are committed to."""
        return results_in(self.run_folder, workflow)

    def prepare(self, order: TaskOrder) -> TaskProcess:
        """An attempt in an empty folder, to be begun; OSError where an input is not there or the
        disk is full.

        Earlier attempts of the copy are proven dead on this machine first.
        """
        before = self._copy_marks(order)
        if order.attempt and not kill_marked(lambda mark: mark.startswith(before)):
            raise OSError("its last attempt cannot be killed")
        scratch = self._stage_all(order)
        note_workdir(order, scratch)
        self._note_moves(order, scratch)
        mark = self.mark(order)
        passed, _ = self._environment(order.site)
        named = {
            name: passed[name]
            for name in (*self.requested, *self.allowed.get(order.site, ()))
            if name in passed
        }
        order = replace(order, manner=with_env(order.manner, named))  # into containers, too
        environment = environment_for(order, passed, (MARK, mark), scratch)
        name = container_name(mark)
        place = Place(
            folder=scratch,
            reads=self._reads(order, scratch),
            user=(os.getuid(), os.getgid()),
            name=name,
            python=sys.executable,
        )
        boxed = order.manner.boxed
        return TaskProcess(
            command_text(order, place),
            scratch,
            environment,
            careful=boxed is not None or bool(order.manner.workdir),
            ending=_ending(order, mark),
        )

    def _note_moves(self, order: TaskOrder, scratch: Path) -> None:
        """What is to be fetched and sent, for the program that does it
        (:mod:`vgrads.agent.staging`)."""
        if not order.fetches and not order.sends:
            return
        written = {*order.outputs, *(file.name for file in order.sends)}
        fetch = [asdict(file) | {"writes": file.name in written} for file in order.fetches]
        folders = [str(scratch), *([order.manner.workdir] if order.manner.workdir else [])]
        work = {
            "fetch": fetch,
            "send": [asdict(file) for file in order.sends],
            "folders": folders,
            "kept": str(self.run_folder / FETCHED),
        }
        (scratch / LIST).write_text(json.dumps(work))

    def end_container(self, order: TaskOrder) -> None:
        """End what an attempt may have left in a container that nobody looks after any more."""
        end_container(_ending(order, self.mark(order)), os.environ)

    def _reads(self, order: TaskOrder, scratch: Path) -> tuple[Path, ...]:
        """The folders that links in a scratch folder lead into, for a container; outermost ones
        only."""
        if order.manner.boxed is None:
            return ()
        found = {self.run_folder / FETCHED} if order.fetches else set()
        for name, source in self.inputs.sources(order).items():
            if (scratch / name).is_symlink():
                found |= {
                    path if path.parent == path.parents[-1] else path.parent
                    for path in (source, source.resolve())
                }
        return tuple(sorted(path for path in found if not found & set(path.parents)))

    def _stage_all(self, order: TaskOrder) -> Path:
        scratch = self.place(order)
        try:
            scratch.mkdir(parents=True)
        except FileExistsError:  # of a manager that was killed
            shutil.rmtree(scratch)
            scratch.mkdir(parents=True)
        self.inputs.stage(order, scratch)
        return scratch

    def input_mib(self, order: TaskOrder) -> tuple[float, float]:
        """MiB of an attempt's inputs, and of those that are only linked since they lie here."""
        staged = [self.place(order) / name for name in order.inputs]
        sizes = [(path.stat().st_size / 2**20, path.is_symlink()) for path in staged]
        return sum(mib for mib, _ in sizes), sum(mib for mib, linked in sizes if linked)

    def judge(self, order: TaskOrder, code: int) -> Verdict:
        """Whether an attempt that ended did its task: it must have written all its outputs."""
        scratch = self.place(order)
        passed, refused = self._environment(order.site)
        secrets = withheld(os.environ, passed) if code and self.own else []
        if refused or secrets:
            put_first(scratch, refusal([*refused, *secrets]))
        if code:
            return explain(code, scratch)
        fetch_from_workdir(order, scratch)
        missing = [name for name in order.outputs if not os.path.lexists(scratch / name)]
        return Verdict(f"did not write '{missing[0]}'", code, ended=code) if missing else Verdict()


def _ending(order: TaskOrder, mark: str) -> tuple[str, ...]:
    """The words that end an attempt's container, if it has one that needs any."""
    box = order.manner.boxed
    return () if box is None else ending(box.engine, container_name(mark))


def make_room(run_folder: Path, left: Iterable[Workflow]) -> None:
    """In a folder that an earlier run used, remove what would be taken for that of the tasks that
    are left to do."""
    for name in (BESIDE, FETCHED):
        shutil.rmtree(run_folder / name, ignore_errors=True)
    (run_folder / CONTACT).unlink(missing_ok=True)
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
    """Remove what a finished workflow needs no more: scratch folders but for what tasks printed,
    and with ``final_only`` also outputs that other tasks of the workflow have read. Nothing outside
    the run's folder is touched.
    """
    base = folder.run_folder / workflow.name
    shutil.rmtree(base / CLAIMS, ignore_errors=True)
    for scratch in (base / folder.kind).glob("*"):
        keep_output(scratch)
    if not final_only:
        return
    read = {name for task in workflow.tasks.values() for name in task.inputs}
    made = {name for task in workflow.tasks.values() for name in task.outputs}
    for name in read & made:
        (folder.results(workflow.name) / name).unlink(missing_ok=True)
