"""A task as a process: its shell with everything that it begins, which ends with it.

The shell leads a session of its own; it notes its number and, at its end, the exit code in the
scratch folder, so whoever comes after finds what runs, and what has ended, by looking. All that it
begins inherits the writing end of a pipe: when nobody holds that any more, nothing of the task is
left.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgrads.agent.commands import JOINED, SHELL, parts_of, too_long, words_of
from vgrads.agent.descriptors import descriptor_limit, explain_limit, has_room
from vgrads.agent.spawner import Ended, Spawner
from vgrads.agent.staging import SAID
from vgrads.execmgr.core.times import Times
from vgrads.execmgr.tasks.containers import end_container
from vgrads.execmgr.tasks.free_spawn import spawn
from vgrads.execmgr.tasks.output import STDERR, tail
from vgrads.execmgr.tasks.processes import (
    DEATH_S,
    MARK,
    is_over,
    kill_marked,
    marked,
    runs,
    signal_group,
)

NOTES = ".task"
"""In a scratch folder: the number of the task's process, and when it has ended, its exit code."""
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
"""Between looks at a task whose memory is watched, or that somebody may stop."""
QUICK_S = 0.2
"""In which what is left of a task usually dies."""
IDLE_S = 3600.0
"""Between looks at what tells of itself."""
_LONG_S = (
    0.5  # a task of this length is worth a look through all processes: daemons let go of the pipe
)
_HELD_AT = 198
"""What a task holds its pipe as, or the number above: where scripts look for nothing. Lower where
the limit is."""
DESCRIPTORS = 3
"""Of this process that a task takes: two ends of its pipe until it has begun, one afterwards, and
its process."""
_OF_ITS_OWN = 8
"""Of a task that has a spawner of its own."""
_alone: set[TaskProcess] = set()
_attended = threading.Condition()
"""Guards the tasks that have a spawner of their own."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MIB = 1024 * 1024


class TaskProcess:
    """A task that this process begins."""

    def __init__(
        self,
        command: str,
        scratch: Path,
        environment: Mapping[str, str],
        careful: bool = False,
        ending: Sequence[str] = (),
    ) -> None:
        """``careful``: what it leaves is looked for however short it was; ``ending``: the words
        that end its container."""
        self._command, self._scratch, self._environment = command, scratch, environment
        self._careful, self._ending = careful, ending
        self._spawner: Spawner | None = None
        self._pid = self._left = -1
        self._began_s = self._ended_s = 0.0
        self._usage: Any = None

    def begin(self, spawner: Spawner, token: Hashable) -> None:
        """Begin it in its scratch folder; OSError where it cannot be. The spawner tells its end by
        the token."""
        parts = parts_of(self._command)
        inner = 'eval "$1"' if len(parts) == 1 else JOINED
        simple = words_of(self._command)  # leaves the shell as it is: one process less
        text = _ATTENDED.format(inner if simple else f"( {inner} )")
        words = [SHELL, "-c", text, str(self._scratch), *parts]
        self._left, held = os.pipe()
        self._began_s, self._spawner = time.monotonic(), spawner
        try:
            null = spawner.null
            at = _held_at(held)
            self._pid = spawn(words, self._environment, {0: null, 1: null, 2: null, at: held})
        except OSError as error:
            self.close()
            raise too_long(error, self._command) from None
        except BaseException:
            self.close()
            raise
        finally:
            os.close(held)
        spawner.watch(self._pid, token)

    def attend(self, memory_mib: float = 0.0, stop: Callable[[], bool] | None = None) -> int:
        """Begin it and wait for its end, within its memory where that is stated; ``stop`` ends it.
        Its exit code.

        When this returns, nothing of the task runs any more; OSError where something cannot be
        killed.
        """
        spawner = self._begin_alone(stop)
        try:
            while not (ended := spawner.reap(LOOK_S if memory_mib > 0 or stop else IDLE_S)):
                if stop is not None and stop():
                    self.signal(signal.SIGKILL)
                elif memory_mib > 0:
                    self.hold_to(memory_mib, memory_of_sessions())
            if not self.is_gone(QUICK_S):
                if ended[0].code:
                    end_container(self._ending, self._environment)
                if not kill_marked(lambda one: one == self._environment[MARK]):
                    raise OSError("processes of it cannot be killed")
            self.has_ended(ended[0])
            return ended[0].code
        finally:
            self.close()
            with _attended:
                spawner.close()
                _alone.discard(self)
                _attended.notify_all()

    def _begin_alone(self, stop: Callable[[], bool] | None) -> Spawner:
        """Begin it with a spawner of its own, when others that end have made room for its
        descriptors."""
        with _attended:
            while _alone and not has_room(_OF_ITS_OWN) and not (stop is not None and stop()):
                _attended.wait(LOOK_S)
            try:
                spawner = Spawner()
                try:
                    self.begin(spawner, "")
                except BaseException:
                    self.close()
                    spawner.close()
                    raise
            except OSError as error:
                raise explain_limit(error) from None
            _alone.add(self)
            return spawner

    def has_ended(self, ended: Ended) -> None:
        """Its end was heard of now."""
        self._ended_s, self._usage = time.monotonic(), ended.usage

    def times(self, came_s: float, begun_s: float, inputs: tuple[float, float]) -> Times:
        """Where its time went, if it was ordered at an instant and its inputs were brought from
        another one on; ``inputs``: their MiB, and how many of these were here."""
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
        """Of one whose shell has ended: True where nothing of it is left in this time, False where
        one must look.

        Another task that is just being begun may hold the pipe for an instant.
        """
        short = time.monotonic() - self._began_s < _LONG_S and not self._careful
        return short and is_over(self._left, patience_s)

    def hold_to(self, memory_mib: float, used: Mapping[int, float]) -> None:
        """End it where it uses more memory than is stated; ``used``: by session, all in MiB."""
        if self._ending:  # a container's processes are of other sessions
            mine = memory_of(marked(lambda one: one == self._environment[MARK]))
        else:
            mine = used.get(self._pid, 0.0)
        if mine > memory_mib:
            (self._scratch / ".over").write_text(
                f"out of memory: {mine:.0f} MiB in use, {memory_mib:.0f} MiB are stated"
            )
            self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """To the task's whole group, from any thread; one that has ended is no error."""
        if self._spawner is not None:
            self._spawner.signal(self._pid, number)

    def close(self) -> None:
        """Let go of the pipe."""
        left, self._left = self._left, -1
        if left >= 0:
            os.close(left)


def _held_at(held: int) -> int:
    """The number that a task holds its pipe as: one that the limit allows, and not the one that it
    has here."""
    limit = descriptor_limit()
    at = _HELD_AT if limit < 0 else min(_HELD_AT, limit - 2)
    return at + (held == at)


def memory_of(pids: Iterable[int]) -> float:
    """Resident memory (MiB) of some processes, where the system tells (Linux)."""
    found = 0.0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            found += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / _MIB
    return found


def memory_of_sessions() -> dict[int, float]:
    """Resident memory (MiB) of all processes of each session, where the system tells (Linux)."""
    found: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            session = int(fields[3])
            found[session] = found.get(session, 0.0) + int(fields[21]) * _PAGE / _MIB
    return found


def _notes(scratch: Path) -> list[int]:
    """[process], [process, exit code], or nothing yet."""
    try:
        whole = (scratch / NOTES).read_text().split("\n")[:-1]
        return [int(line) for line in whole]
    except (OSError, ValueError):
        return []


def alive(scratch: Path) -> int | None:
    """The process of a scratch folder, if it still runs: its number may be somebody else's by
    now."""
    notes = _notes(scratch)
    with suppress(OSError):
        here = Path(f"/proc/{notes[0]}/cwd").resolve() == scratch.resolve() if notes else False
        if len(notes) == 1 and here and runs(notes[0]):
            return notes[0]
    return None


def has_ended(scratch: Path) -> bool:
    """True where a task's exit code was noted."""
    return len(_notes(scratch)) == 2


def noted_code(scratch: Path) -> int:
    """The exit code that a task noted; −9 where it ended without."""
    notes = _notes(scratch)
    return notes[1] if len(notes) == 2 else -signal.SIGKILL


def await_end(scratch: Path, mark: str, stop: Callable[[], bool] | None = None) -> int:
    """The exit code of a task that somebody else began; −9 where it ends without one. ``stop`` ends
    it.

    As with :meth:`TaskProcess.attend`, nothing of the task runs any more then.
    """
    while (pid := alive(scratch)) is not None:
        if stop is not None and stop():
            signal_group(pid, signal.SIGKILL)
        time.sleep(LOOK_S)
    if not kill_marked(lambda one: one == mark, DEATH_S):
        raise OSError("processes of it cannot be killed")
    return noted_code(scratch)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why an attempt did not do its task, empty where it did; ``code``: the exit code that its
    command chose.

    Without one, a signal or something around it ended it: the next attempt may fare better.
    ``times``: where the attempt's time went, as far as it was measured; ``ended``: the exit code as
    a shell tells it, 128 and more for signals.
    """

    reason: str = ""
    code: int | None = None
    times: Times | None = None
    ended: int | None = None


def explain(code: int, scratch: Path) -> Verdict:
    """An exit code in words, with the last line of what the task complained of."""
    if (scratch / ".over").exists():  # its own doing, as often as it is tried
        return Verdict((scratch / ".over").read_text(), code, ended=_as_told(code))
    if (scratch / SAID).exists():
        said = json.loads((scratch / SAID).read_text())
        return Verdict(
            said["reason"], None if said["luck"] else code, ended=None if said["luck"] else code
        )
    number = -code if code < 0 else code - 128  # the shell tells of a signal as 128 and more
    killed = number in {one.value for one in signal.Signals}
    how = f"killed by {signal.Signals(number).name}" if killed else f"exit code {code}"
    complaints = tail(scratch / STDERR).strip().splitlines()
    said = complaints[-1][:200] if complaints else ""
    return Verdict(
        f"{how}: {said}" if said else how, None if killed else code, ended=_as_told(code)
    )


def _as_told(code: int) -> int:
    """An exit code as a shell tells it."""
    return 128 - code if code < 0 else code
