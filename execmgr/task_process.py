"""A task as a process: its shell with everything that it begins, which ends with it.

The shell leads a session of its own; it notes its number and, at its end, the exit code in the scratch folder,
so whoever comes after finds what runs, and what has ended, by looking. All that it begins inherits the writing
end of a pipe: when nobody holds that any more, nothing of the task is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from execmgr.processes import DEATH_S, MARK, is_over, kill_marked, runs, signal_group
from execmgr.task_output import STDERR, tail

NOTES = ".task"
"""In a scratch folder: the number of the task's process, and when it has ended, its exit code."""
_ATTENDED = """\
trap : TERM
echo $$ >.task
( eval "$1" ) >stdout.txt 2>stderr.txt
code=$?
echo $code >>.task
exit $code
"""
_LOOK_S = 0.2  # between looks at a task whose memory is watched, or that somebody may stop
_QUICK_S = 0.2  # in which what is left of a task usually dies
_LONG_S = (
    0.5  # a task of this length is worth a look through all processes: daemons let go of the pipe
)
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MIB = 1024 * 1024


class TaskProcess:
    """A task that this process began."""

    def __init__(self, command: str, scratch: Path, environment: Mapping[str, str]) -> None:
        """Begin it in its scratch folder; OSError where it cannot be."""
        self._scratch, self._mark = scratch, environment[MARK]
        self._left, held = os.pipe()
        try:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _ATTENDED, "vgrads", command], cwd=scratch, env=environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(held,),
            )  # fmt: skip
        except BaseException:
            os.close(self._left)
            raise
        finally:
            os.close(held)
        self._watch, self._began_s = os.pidfd_open(self._shell.pid), time.monotonic()
        self._lock, self._reaped = threading.Lock(), False

    @property
    def pid(self) -> int:
        """Number of its shell, which leads its session."""
        return self._shell.pid

    def attend(self, memory_mib: float = 0.0, stop: Callable[[], bool] | None = None) -> int:
        """Wait for its end, within its memory where that is stated; ``stop`` ends it. Its exit code.

        When this returns, nothing of the task runs any more; OSError where something cannot be killed.
        """
        while not is_over(self._watch, _LOOK_S if memory_mib > 0 or stop else 3600.0):
            if stop is not None and stop():
                self.signal(signal.SIGKILL)
            elif memory_mib > 0 and (used := _memory_mib(self.pid)) > memory_mib:
                (self._scratch / ".over").write_text(
                    f"out of memory: {used:.0f} MiB in use, {memory_mib:.0f} MiB are stated"
                )
                self.signal(signal.SIGKILL)
        with self._lock:
            signal_group(self.pid, signal.SIGKILL)  # its number is its own until it is waited for
            code, self._reaped = self._shell.wait(), True
        os.close(self._watch)
        quick = time.monotonic() - self._began_s < _LONG_S
        gone = (is_over(self._left, _QUICK_S) and quick) or self._kill_the_rest()
        os.close(self._left)
        if not gone:
            raise OSError("processes of it cannot be killed")
        return code

    def signal(self, number: signal.Signals) -> None:
        """To the task's whole group, from any thread; one that has ended is no error."""
        with self._lock:
            if not self._reaped:
                signal_group(self.pid, number)

    def _kill_the_rest(self) -> bool:
        return kill_marked(lambda mark: mark == self._mark)


def _memory_mib(session: int) -> float:
    """Resident memory of all processes of a session, where the system tells (Linux)."""
    pages = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                pages += int(fields[21])
    return pages * _PAGE / _MIB


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
        here = Path(f"/proc/{notes[0]}/cwd").resolve() == scratch.resolve() if notes else False
        if len(notes) == 1 and here and runs(notes[0]):
            return notes[0]
    return None


def has_ended(scratch: Path) -> bool:
    """True where a task's exit code was noted."""
    return len(_notes(scratch)) == 2


def await_end(scratch: Path, mark: str, stop: Callable[[], bool] | None = None) -> int:
    """The exit code of a task that somebody else began; −9 where it ends without one. ``stop`` ends it.

    As with :meth:`TaskProcess.attend`, nothing of the task runs any more then.
    """
    while (pid := alive(scratch)) is not None:
        if stop is not None and stop():
            signal_group(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)
    if not kill_marked(lambda one: one == mark, DEATH_S):
        raise OSError("processes of it cannot be killed")
    notes = _notes(scratch)
    return notes[1] if len(notes) == 2 else -signal.SIGKILL


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why an attempt did not do its task, empty where it did; ``code``: the exit code that its command chose.

    Without one, a signal or something around it ended it: the next attempt may fare better.
    """

    reason: str = ""
    code: int | None = None


def explain(code: int, scratch: Path) -> Verdict:
    """An exit code in words, with the last line of what the task complained of."""
    if (scratch / ".over").exists():  # its own doing, as often as it is tried
        return Verdict((scratch / ".over").read_text(), code)
    number = -code if code < 0 else code - 128  # the shell tells of a signal as 128 and more
    killed = number in {one.value for one in signal.Signals}
    how = f"killed by {signal.Signals(number).name}" if killed else f"exit code {code}"
    complaints = tail(scratch / STDERR).strip().splitlines()
    said = complaints[-1][:200] if complaints else ""
    return Verdict(f"{how}: {said}" if said else how, None if killed else code)
