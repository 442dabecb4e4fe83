"""One copy of a task in its own folder: inputs linked in, a process group run, outputs committed.

Used wherever tasks run as processes: by the manager on its own machine, and by the pilots of slots.

A copy runs in a scratch folder in which its inputs and the files beside the set are linked. When it
exits with 0 and has written every declared output, these move into the workflow's folder in one
rename each: a result is there whole or not at all. The shell around a task notes its process and its
exit code in the scratch folder, so whoever comes after finds what runs, and what has ended, by looking.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from execmgr.engine import TaskOrder
from workflows.dag import Workflow

_MOST_LINKS = 1000  # files beside the set that are linked into each scratch folder
AWAY = "slot-tasks"
"""The kind of the scratch folders of tasks that run in slots elsewhere."""
CONTACT = "contact.json"
"""In a run's folder: where its workers find the manager, for a later one."""
NOTES = ".task"
"""In a scratch folder: the number of the task's process, and when it has ended, its exit code."""
_ATTENDED = """\
echo $$ >.task
( eval "$1" ) >stdout.txt 2>stderr.txt
code=$?
echo $code >>.task
exit $code
"""
_LOOK_S = 0.2  # between looks at a process, where nobody tells of its end
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MIB = 1024 * 1024


@dataclass(frozen=True)
class TaskFolder:
    """Where a run's tasks work: the run's folder, and the folder of the set with the files that they read.

    ``kind`` keeps the scratch folders of one engine apart from those of another.
    """

    run_folder: Path
    set_folder: Path
    kind: str = "tasks"

    @cached_property
    def _beside(self) -> list[Path]:
        """Files beside the set, looked for once: they belong to the set and do not change."""
        return [p for p in sorted(self.set_folder.iterdir()) if p.is_file()][:_MOST_LINKS]

    def place(self, order: TaskOrder) -> Path:
        """The scratch folder of one attempt."""
        again = f".again{order.attempt}" if order.attempt else ""
        return self.run_folder / order.key[0] / self.kind / f"{order.key[1]}.{order.key[2]}{again}"

    def noted(self) -> Iterator[Path]:
        """The files in which tasks noted their processes."""
        return self.run_folder.glob(f"*/{self.kind}/*/{NOTES}")

    def results(self, workflow: str) -> Path:
        """The folder that a workflow's outputs are committed to."""
        return self.run_folder / workflow / "results"

    def launch(self, order: TaskOrder) -> subprocess.Popen[bytes]:
        """Begin an attempt in an empty folder; OSError where an input is not there or the disk is full."""
        scratch = self._prepare(order)
        environment = os.environ | {
            "VGRADS_WORKFLOW": order.key[0], "VGRADS_TASK": order.key[1], "VGRADS_SLOT": order.slot,
            "VGRADS_PROCS": str(order.procs), "OMP_NUM_THREADS": str(order.procs),
        }  # fmt: skip
        return subprocess.Popen(
            ["/bin/sh", "-c", _ATTENDED, "vgrads", order.command], cwd=scratch, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _prepare(self, order: TaskOrder) -> Path:
        scratch = self.place(order)
        try:
            scratch.mkdir(parents=True)
        except FileExistsError:  # of a manager that was killed
            shutil.rmtree(scratch)
            scratch.mkdir(parents=True)
        if order.outputs:
            self.results(order.key[0]).mkdir(exist_ok=True)
        for name, source in self.sources(order).items():
            target = scratch / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)
        return scratch

    def sources(self, order: TaskOrder) -> dict[str, Path]:
        """What a task may read, by name: files beside the set, and its inputs; OSError where one is not there."""
        found = {p.name: p for p in self._beside if p.name not in order.outputs}
        return found | {name: self._input(order, name) for name in order.inputs}

    def _input(self, order: TaskOrder, name: str) -> Path:
        made = self.results(order.key[0]) / name
        found = made if made.exists() else self.set_folder / name
        if not found.exists():
            raise FileNotFoundError(f"input '{name}' is not there")
        return found

    def finish(self, order: TaskOrder, code: int) -> str:
        """Commit the outputs of an attempt that ended; why it failed, empty where it did not."""
        scratch = self.place(order)
        return _explain(code, scratch) if code else self._commit(order, scratch)

    def _commit(self, order: TaskOrder, scratch: Path) -> str:
        """Move the outputs into place. Where somebody was killed in the middle of that, go on."""
        if not order.outputs:
            return ""
        begun = scratch / ".commit"
        for name in order.outputs:
            if not (scratch / name).exists() and not begun.exists():
                return f"did not write '{name}'"
        try:
            begun.touch()
            for name in order.outputs:
                target = self.results(order.key[0]) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # moved before
                    (scratch / name).replace(target)
        except OSError as error:
            return f"cannot commit: {error}"
        return ""


def clean_up(folder: TaskFolder, workflow: Workflow, final_only: bool) -> None:
    """Remove what a finished workflow needs no more: scratch folders, and with ``final_only`` also outputs
    that other tasks of the workflow have read. Nothing outside the run's folder is touched.
    """
    shutil.rmtree(folder.run_folder / workflow.name / folder.kind, ignore_errors=True)
    if not final_only:
        return
    read = {name for task in workflow.tasks.values() for name in task.inputs}
    made = {name for task in workflow.tasks.values() for name in task.outputs}
    for name in read & made:
        (folder.results(workflow.name) / name).unlink(missing_ok=True)


def _explain(code: int, scratch: Path) -> str:
    """An exit code in words, with the last line of what the task complained of."""
    told = scratch / "stderr.txt"
    lines = told.read_text(errors="replace").strip().splitlines() if told.exists() else []
    if (scratch / ".over").exists():
        return (scratch / ".over").read_text()
    number = -code if code < 0 else code - 128  # the shell tells of a signal as 128 and more
    killed = number in {one.value for one in signal.Signals}
    how = f"killed by {signal.Signals(number).name}" if killed else f"exit code {code}"
    return f"{how}: {lines[-1][:200]}" if lines else how


def attend(
    process: subprocess.Popen[bytes],
    scratch: Path,
    memory_mib: float,
    stop: Callable[[], bool] | None = None,
) -> int:
    """Wait for a task's end, within its memory where that is stated; ``stop`` ends it. Its exit code."""
    if memory_mib <= 0 and stop is None:
        return process.wait()
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK_S)
        if stop is not None and stop():
            signal_group(process.pid, signal.SIGKILL)
        elif memory_mib > 0 and (used := _memory_mib(process.pid)) > memory_mib:
            (scratch / ".over").write_text(
                f"out of memory: {used:.0f} MiB in use, {memory_mib:.0f} MiB are stated"
            )
            signal_group(process.pid, signal.SIGKILL)


def _memory_mib(session: int) -> float:
    """Resident memory of all processes of a session, where the system tells (Linux)."""
    pages = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                pages += int(fields[21])
    return pages * _PAGE / _MIB


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a task with all its children; one that has ended is no error."""
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def _notes(scratch: Path) -> list[int]:
    """[process], [process, exit code], or nothing yet."""
    try:
        whole = (scratch / NOTES).read_text().split("\n")[:-1]
        return [int(line) for line in whole]
    except (OSError, ValueError):
        return []


def alive(scratch: Path) -> int | None:
    """The process of a scratch folder, if it still runs: its number may be somebody else's by now."""
    notes = _notes(scratch)
    with suppress(OSError):
        if len(notes) == 1 and Path(f"/proc/{notes[0]}/cwd").resolve() == scratch.resolve():
            return notes[0]
    return None


def has_ended(scratch: Path) -> bool:
    """True where a task's exit code was noted."""
    return len(_notes(scratch)) == 2


def await_end(scratch: Path, stop: Callable[[], bool] | None = None) -> int:
    """The exit code of a task that somebody else started; −9 where it ends without one. ``stop`` ends it."""
    while True:
        pid, notes = alive(scratch), _notes(scratch)
        if len(notes) == 2:
            return notes[1]
        if pid is None:
            return -signal.SIGKILL
        if stop is not None and stop():
            signal_group(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)
