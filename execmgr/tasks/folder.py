"""Where the copies of a run's tasks work: scratch folders, what they may read, what they must have
written.

Used wherever tasks run as processes: by the manager on its own machine, and by the pilots of slots.
Inputs are not for writing: a small one is a copy of its own, a large one a link to a file that may
only be read; what a task reads and writes under one name is always a copy. The files beside the set
are linked from a copy that the run made of them, so that no task can reach those of the user (up to
:data:`_MOST_BESIDE`).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from vgrads.agent.environment import pass_environment, refusal, withheld
from vgrads.agent.staging import LIST
from vgrads.execmgr.engines.base import TaskOrder
from vgrads.execmgr.tasks.command_line import Place, command_text
from vgrads.execmgr.tasks.containers import container_name, end_container, ending
from vgrads.execmgr.tasks.environment import environment_for
from vgrads.execmgr.tasks.output import keep_output, put_first
from vgrads.execmgr.tasks.process import NOTES, TaskProcess, Verdict, explain
from vgrads.execmgr.tasks.processes import MARK, kill_marked, run_token
from vgrads.execmgr.tasks.provenance import Beside, files_beside, reads_of
from vgrads.execmgr.tasks.workdirs import fetch_from_workdir, note_workdir
from vgrads.planner.snapshot import CopyKey
from vgrads.workflows.dag import Workflow
from vgrads.workflows.manner import with_env

_MOST_COPIED = 16 * 2**20
"""Bytes up to which an input is copied where the file system cannot share blocks: some
milliseconds."""
_MOST_BESIDE = 256 * 2**20
"""Bytes of files beside the set of which a run keeps a copy of its own."""
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
_FICLONE = 0x40049409  # ioctl_ficlone(2)


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
    def _beside(self) -> dict[str, Path]:
        """Files beside the set by name, looked for once; small ones in a copy that is the run's."""
        kept, left = self.run_folder / BESIDE, _MOST_BESIDE
        found = {}
        for name, file in files_beside(self.set_folder).items():
            left -= file.stat().st_size
            found[name] = _kept_copy(file, kept) if left >= 0 else file
        return found

    @cached_property
    def _named(self) -> Beside:
        """The same, to be found by how commands name them."""
        return Beside(self._beside)

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

    def reads(self, order: TaskOrder) -> dict[str, Path]:
        """The files that count for a task, by name; OSError where an input is not there."""
        inputs = {name: self._input(order, name) for name in order.inputs}
        return reads_of(order, order.manner, self._named) | inputs

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
        for name, source in self.sources(order).items():
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
        declared = set(order.inputs)
        for name, source in self.sources(order).items():
            target = scratch / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if name in declared:
                _stage(source, target, name in order.outputs)
            else:
                target.symlink_to(source)
        return scratch

    def sources(self, order: TaskOrder) -> dict[str, Path]:
        """What a task may read, by name: files beside the set, and its inputs; OSError where one is
        not there."""
        found = {name: path for name, path in self._beside.items() if name not in order.outputs}
        return found | {name: self._input(order, name) for name in order.inputs}

    def _input(self, order: TaskOrder, name: str) -> Path:
        made = self.results(order.key[0]) / name
        if made.exists():
            return made
        if name in self._beside:
            return self._beside[name]
        found = self.set_folder / name
        if not found.exists():
            raise FileNotFoundError(f"input '{name}' is not there")
        return found

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


def _kept_copy(file: Path, folder: Path) -> Path:
    """A run's copy of a file beside the set, that may only be read; as old as the file, so that it
    can be told whether that was changed."""
    kept = folder / file.name
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{file.name}.{os.getpid()}.draft"
        was = file.stat()
        _copy(file, draft)
        os.utime(draft, ns=(was.st_atime_ns, was.st_mtime_ns))
        draft.chmod(was.st_mode & 0o555)
        draft.replace(kept)
    return kept


def _stage(source: Path, target: Path, for_writing: bool) -> None:
    """An input in a scratch folder."""
    if source.is_dir():
        if for_writing:
            shutil.copytree(source, target, symlinks=True, copy_function=_copy)
            _let_write(target)
        else:
            target.symlink_to(source)
    elif for_writing or source.stat().st_size <= _MOST_COPIED:
        _copy(source, target)
        target.chmod(source.stat().st_mode | 0o200)
    elif not _clone(source, target):
        target.symlink_to(source)


def _let_write(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o200)


def _copy(source: str | Path, target: str | Path) -> str:
    """The content, sharing blocks where the file system can."""
    if not _clone(Path(source), Path(target)):
        shutil.copyfile(source, target)
    shutil.copymode(source, target)
    return str(target)


def _clone(source: Path, target: Path) -> bool:
    """A copy on write (ioctl_ficlone(2)); False where the file system has none."""
    with source.open("rb") as old:
        try:
            with target.open("xb") as new:
                fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
                return True
        except OSError as error:
            with suppress(FileNotFoundError):
                target.unlink()
            if error.errno == errno.ENOSPC:
                raise
            return False


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
