"""A task as a process: its shell and all processes that it starts, which end with it.

The shell leads a new session; it records its pid and, at its end, the exit code in the scratch
folder, so a later manager finds running and ended tasks there. All processes that it starts inherit
the writing end of a pipe: when no process holds that end any more, nothing of the task is left.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgrads.agent.commands import JOINED, SHELL, parts_of, too_long, words_of
from vgrads.agent.descriptors import descriptor_limit
from vgrads.agent.processes import (
    MARK,
    marked,
    memory_of,
    runs,
)
from vgrads.agent.programs.staging import STAGED_MARK
from vgrads.agent.spawner import ExitedChild, Spawner
from vgrads.execmgr.core.times import Times
from vgrads.execmgr.tasks.free_spawn import spawn
from vgrads.execmgr.tasks.output import STDERR, read_tail
from vgrads.kernel.user_files import read_user_file

NOTES = ".task"
"""In a scratch folder: the pid of the task's process, and after its end the exit code."""
# the shell survives the SIGTERM that ends its command, so that it can record the exit code
_ATTENDED = """\
cd -- "$0" || exit 125
trap : TERM
echo $$ >.task
{} >stdout.txt 2>stderr.txt
code=$?
echo $code >>.task
exit $code
"""
LOOK_S = 0.2
"""Polling interval of a task whose memory is watched, or that may be cancelled."""
QUICK_S = 0.2
"""Time in which remaining processes of a task usually end."""
IDLE_S = 3600.0
"""Polling interval where events are reported."""
_LONG_S = 0.5  # from this on scan all processes: daemons close the pipe
_RESERVED_FD = 198
"""Descriptor of the pipe in a task, or the number above: scripts do not use it. Lower if the limit
is."""
DESCRIPTORS = 3
"""Descriptors of this process per task: two ends of its pipe until it has started, one afterwards,
and its process."""


class TaskProcess:
    """A task that this process starts."""

    def __init__(
        self,
        command: str,
        scratch: Path,
        environment: Mapping[str, str],
        careful: bool = False,
        ending: Sequence[str] = (),
    ) -> None:
        """``careful``: search for remaining processes even if the task was short; ``ending``: the
        command that ends its container."""
        self._command, self._scratch, self._environment = command, scratch, environment
        self._careful, self._ending = careful, ending
        self._spawner: Spawner | None = None
        self._pid = self._left = -1
        self._began_s = self._ended_s = 0.0
        self._usage: Any = None

    def begin(self, spawner: Spawner, token: Hashable) -> None:
        """Start it in its scratch folder; OSError if that fails. The spawner reports its end with
        the token."""
        parts = parts_of(self._command)
        inner = 'eval "$1"' if len(parts) == 1 else JOINED
        simple = words_of(self._command)  # does not change the shell: one process less
        text = _ATTENDED.format(inner if simple else f"( {inner} )")
        words = [SHELL, "-c", text, str(self._scratch), *parts]
        self._left, reserved_fd = os.pipe()
        self._began_s, self._spawner = time.monotonic(), spawner
        try:
            null = spawner.null
            at = _reserve_fd(reserved_fd)
            self._pid = spawn(
                words, self._environment, {0: null, 1: null, 2: null, at: reserved_fd}
            )
        except OSError as error:
            self.close()
            raise too_long(error, self._command) from None
        except BaseException:
            self.close()
            raise
        finally:
            # from here on only the task holds this end: its closing
            # shows that nothing of it is left
            os.close(reserved_fd)
        spawner.watch(self._pid, token)

    def has_ended(self, ended: ExitedChild) -> None:
        """Record its end and resource usage."""
        self._ended_s, self._usage = time.monotonic(), ended.usage

    def times(self, came_s: float, begun_s: float, inputs: tuple[float, float]) -> Times:
        """Return the times of a task that was ordered at ``came_s`` and whose inputs were
        transferred from ``begun_s`` on; ``inputs``: their MiB, and the part of these that was
        present."""
        ran = self._usage is not None
        return Times(
            waited_s=begun_s - came_s,
            in_s=self._began_s - begun_s,
            in_mib=inputs[0],
            cached_mib=inputs[1],
            ran_s=self._ended_s - self._began_s if ran else 0.0,
            cpu_s=self._usage.ru_utime + self._usage.ru_stime if ran else 0.0,
            peak_mib=self._usage.ru_maxrss / 1024.0 if ran else 0.0,
        )

    def is_gone(self, patience_s: float = 0.0) -> bool:
        """For a task whose shell has ended: True if nothing of it is left within this time, False
        if a search is needed.

        Another task that is being started may hold the pipe for an instant.
        """
        short = time.monotonic() - self._began_s < _LONG_S and not self._careful
        return short and _is_over(self._left, patience_s)

    def hold_to(self, memory_mib: float, used: Mapping[int, float]) -> None:
        """End it if it uses more memory than stated; ``used``: by session, all in MiB."""
        if self._ending:  # a container's processes are in other sessions
            mine = memory_of(marked(lambda name: name == self._environment[MARK]))
        else:
            mine = used.get(self._pid, 0.0)
        if mine > memory_mib:
            # the kill leaves no reason; explain finds it here
            (self._scratch / ".over").write_text(
                f"out of memory: {mine:.0f} MiB in use, {memory_mib:.0f} MiB are stated"
            )
            self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the task's whole group, from any thread; an ended task is no error."""
        if self._spawner is not None:
            self._spawner.signal(self._pid, number)

    def close(self) -> None:
        """Close the pipe."""
        left, self._left = self._left, -1
        if left >= 0:
            os.close(left)


def _is_over(descriptor: int, patience_s: float) -> bool:
    """True if the reading end of a pipe reports its end within this time."""
    watch = select.poll()
    watch.register(descriptor, select.POLLIN | select.POLLHUP)
    return bool(watch.poll(max(0.0, patience_s) * 1000.0))


def _reserve_fd(reserved_fd: int) -> int:
    """Return the descriptor of the pipe in the task: within the limit, and different from its
    number here."""
    limit = descriptor_limit()
    at = _RESERVED_FD if limit < 0 else min(_RESERVED_FD, limit - 2)
    return at + (reserved_fd == at)


def _read_notes(scratch: Path) -> list[int]:
    """Return [pid], [pid, exit code], or nothing yet."""
    try:
        # a line without its line break is still being written
        whole = read_user_file(scratch / NOTES).decode().split("\n")[:-1]
        return [int(line) for line in whole]
    except (OSError, ValueError):
        return []


def find_process(scratch: Path) -> int | None:
    """Return the process of a scratch folder, if it still runs; its pid may have been reused."""
    notes = _read_notes(scratch)
    with suppress(OSError):
        here = Path(f"/proc/{notes[0]}/cwd").resolve() == scratch.resolve() if notes else False
        if len(notes) == 1 and here and runs(notes[0]):
            return notes[0]
    return None


def has_ended(scratch: Path) -> bool:
    """True if a task's exit code was recorded."""
    return len(_read_notes(scratch)) == 2


def read_exit_code(scratch: Path) -> int:
    """Return the recorded exit code of a task; −9 if it ended without one."""
    notes = _read_notes(scratch)
    return notes[1] if len(notes) == 2 else -signal.SIGKILL


@dataclass(frozen=True, slots=True)
class AttemptVerdict:
    """Why an attempt failed, empty if it succeeded; ``code``: the exit code of its command.

    Without one, a signal or something outside the command ended it: the next attempt may succeed.
    ``times``: times of the attempt, as far as they were measured; ``ended``: the exit code as a
    shell reports it, 128 and more for signals.
    """

    reason: str = ""
    code: int | None = None
    times: Times | None = None
    ended: int | None = None


def explain(code: int, scratch: Path) -> AttemptVerdict:
    """Describe an exit code, with the last line of the task's standard error."""
    if over := _list_left(scratch / ".over"):  # the task's own fault, repeated at each try
        return AttemptVerdict(over, code, ended=_convert_exit_code(code))
    if staged := _list_left(scratch / STAGED_MARK):
        text = json.loads(staged)
        return AttemptVerdict(
            text["reason"], None if text["luck"] else code, ended=None if text["luck"] else code
        )
    number = -code if code < 0 else code - 128  # the shell reports a signal as 128 and more
    killed = number in {signal_.value for signal_ in signal.Signals}
    how = f"killed by {signal.Signals(number).name}" if killed else f"exit code {code}"
    complaints = read_tail(scratch / STDERR).strip().splitlines()
    text = complaints[-1][:200] if complaints else ""
    return AttemptVerdict(
        f"{how}: {text}" if text else how, None if killed else code, ended=_convert_exit_code(code)
    )


def _list_left(file: Path) -> str:
    """Return what a program left in a task's folder; empty if it is missing, or if the task has put
    something else there."""
    try:
        return read_user_file(file).decode(errors="replace")
    except OSError:
        return ""


def _convert_exit_code(code: int) -> int:
    """Return an exit code as a shell reports it."""
    return 128 - code if code < 0 else code
