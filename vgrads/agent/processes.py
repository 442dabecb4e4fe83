"""Processes of tasks, found by a mark in their environment, and verified to be dead before their
end is reported (proc(5)).

A task's children may leave its process group (``setsid``), outlive it (``&``) or lose their parent
(a shell that was killed), but they always inherit an environment. Linux shows it in ``/proc``.

A process that clears its environment, leaves its session and closes its files has no mark any more,
but it still descends from its task: where its parent ends, the system gives it to the nearest
ancestor that asks for such children (``PR_SET_CHILD_SUBREAPER``, prctl(2)). So descent finds what
belongs to the tasks of this agent and nothing else, whatever its account.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Callable, Collection, Iterable, Iterator, Mapping

from .containers import CLIENTS, container_name, end_container, ending

MARK = "VGRADS_COPY"
"""The variable that holds a task's mark in the environment of all its processes."""
DEATH_S = 10.0
"""Time in which killed processes must be gone; one that waits for a dead disk does not die at all.
"""
_PAUSE_S = 0.02
_EXEC_S, _EXEC_PAUSE_S = 5.0, 0.001  # how long a process may be in execve(2), and between checks
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}
"""Numbers of a system call that the C library has no function for, by machine."""
_KCMP_VM = 1
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def marked(selects: Callable[[str], bool]) -> dict[int, str]:
    """Return the live processes of this user with a selected mark: process number → mark. Reads all
    of ``/proc``, and again until it lists no new process: one that was listed may have started
    another and ended before it was read."""
    matching: dict[int, str] = {}
    read: set[int] = set()
    while True:
        new = [pid for pid in processes() if pid not in read]
        if not new:
            return matching
        read.update(new)
        for pid in new:
            mark = variable_of(pid, MARK)
            if mark and selects(mark):
                matching[pid] = mark


def kill_marked(selects: Callable[[str], bool], patience_s: float = DEATH_S) -> bool:
    """Kill them, their new children, and the containers that they supervise; return False if any
    are left after this time (seconds)."""
    end_s = time.monotonic() + patience_s
    clients: dict[str, str] = {}
    while True:
        matching = marked(selects)
        if not matching:
            break
        clients.update(kill_all(matching))
        if time.monotonic() > end_s:
            return False
        time.sleep(_PAUSE_S)
    for mark, engine in clients.items():
        end_container(ending(engine, container_name(mark)), os.environ)
    return True


def kill_all(matching: Mapping[int, str]) -> dict[str, str]:
    """Kill these marked processes once; return the container engines among them: mark → engine."""
    names = {mark: name_of(pid) for pid, mark in matching.items()}
    for pid in matching:
        kill(pid)
    return {mark: name for mark, name in names.items() if name in CLIENTS}


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to one process; an ended one is no error."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def variable_of(pid: int, name: str) -> str:
    """Return a variable of a process's initial environment; empty if it is not set, or not
    readable."""
    try:
        body = b"\0" + environment_of(pid)
    except OSError:
        return ""
    _, separator, rest = body.partition(b"\0" + name.encode() + b"=")
    return rest.partition(b"\0")[0].decode(errors="replace") if separator else ""


def environment_of(pid: int) -> bytes:
    """Return the initial environment of a process, as ``/proc`` lists it; empty for a zombie or a
    kernel thread. Raise OSError where it does not exist or belongs to somebody else.

    During execve(2), a process has neither a command line nor a place for its environment, often
    until after its parent has continued, and on a busy machine for long: it is read again.
    """
    end_s = 0.0
    while True:
        # first: the environment is there then; not every system states the place
        has_begun = _read(pid, "cmdline") != b"" or _has_place_for_environment(pid)
        environment = _read(pid, "environ")
        if environment or has_begun:
            return environment
        try:
            os.readlink(f"/proc/{pid}/exe")
        except OSError:  # no program: nothing is being executed
            return environment
        now_s = time.monotonic()
        end_s = end_s or now_s + _EXEC_S
        if now_s >= end_s:
            return environment
        time.sleep(_EXEC_PAUSE_S)


def _has_place_for_environment(pid: int) -> bool:
    """Return True where the system states at which address the environment of a process ends
    (``env_end`` in proc(5)), whether or not anything is in it."""
    fields = _read_stat(pid)
    return len(fields) > 48 and fields[48] != b"0"


def runs(pid: int) -> bool:
    """True while a process exists and is no zombie."""
    fields = _read_stat(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; with its number this identifies it. None:
    it does not exist."""
    fields = _read_stat(pid)
    return int(fields[19]) if len(fields) > 19 else None


def parent_of(pid: int) -> int | None:
    """Return the number of a process's parent; None if the process does not exist."""
    fields = _read_stat(pid)
    return int(fields[1]) if len(fields) > 1 else None


def lend_priority(pid: int) -> None:
    """Give a new session the priority of this process, if that is a low one. Linux may schedule
    each session as a group with a weight of its own, and then a low priority counts only within it
    (sched(7), autogroup). Users other than root may do so ten times a second."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    if nice > 0:
        with suppress(OSError), open(f"/proc/{pid}/autogroup", "w") as file:  # noqa: PTH123
            file.write(str(nice))


def name_of(pid: int) -> str:
    """Return the name of a process's program; empty if it does not exist."""
    try:
        return _read(pid, "comm").decode(errors="replace").strip()
    except OSError:
        return ""


def memory_of_sessions() -> dict[int, float]:
    """Return the resident memory (MiB) of all processes of each session or process group (proc(5),
    stat: fields 5, 6 and 24). Pages that processes share are counted for each of them."""
    result: dict[int, float] = {}
    for pid in processes():
        for leader, value in _measure_by_leader(pid).items():
            result[leader] = result.get(leader, 0.0) + value
    return result


def _measure_by_leader(pid: int) -> dict[int, float]:
    with suppress(ValueError, IndexError):
        fields = _read_stat(pid)
        if fields:
            return dict.fromkeys((int(fields[2]), int(fields[3])), int(fields[21]) * _PAGE_MIB)
    return {}


def of_session(leader: int) -> list[int]:
    """Return the processes of a session or process group."""
    return [pid for pid in processes() if leader in _measure_by_leader(pid)]


def memory_of(pids: Iterable[int]) -> float:
    """Return the memory (MiB) of some processes: of a page that n processes share, each has an nth
    (proc(5), smaps_rollup); where Linux does not show that, their resident memory. A process that
    has none of its own yet, between vfork(2) and execve(2), has nothing."""
    value, all_pids = 0.0, set(pids)
    for pid in all_pids:
        parent = parent_of(pid)
        if parent in all_pids and _has_memory_of(pid, parent):
            continue
        with suppress(OSError, ValueError, IndexError):
            value += (
                _read_proportional_memory(pid) or int(_read(pid, "statm").split()[1]) * _PAGE_MIB
            )
    return value


def _has_memory_of(pid: int, parent: int) -> bool:
    """Return True where a process uses the very memory of another one (kcmp(2), KCMP_VM)."""
    number = _KCMP.get(os.uname().machine)
    with suppress(ImportError, OSError, AttributeError):
        import ctypes  # noqa: PLC0415 a part of Python that some nodes lack

        if number is not None:
            return bool(ctypes.CDLL(None).syscall(number, pid, parent, _KCMP_VM, 0, 0) == 0)
    return False


def _read_proportional_memory(pid: int) -> float:
    """Return the proportional memory (MiB) of a process; 0 where it is not shown."""
    with suppress(OSError, ValueError, IndexError):
        _, _, rest = _read(pid, "smaps_rollup").partition(b"\nPss:")
        return int(rest.split(None, 1)[0]) / 1024.0
    return 0.0


def _read_stat(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` from the state on (proc(5): field 3); none for a
    process that does not exist."""
    try:
        return _read(pid, "stat").rpartition(b")")[2].split()
    except OSError:
        return []


def _read(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123
        return file.read()


def processes() -> Iterator[int]:
    """Return the numbers of all processes, as ``/proc`` lists them."""
    for entry in os.scandir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112
        if entry.name.isdigit():
            yield int(entry.name)


def conceal() -> None:
    """Make the memory and the first environment of this process unreadable to other processes of
    its user (``PR_SET_DUMPABLE``, prctl(2)); root reads them all the same."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes  # noqa: PLC0415 a part of Python that some nodes lack

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def adopt() -> None:
    """Become the parent of descendants whose parents end, where the system allows it."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes  # noqa: PLC0415 a part of Python that some nodes lack

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_of(parent: int) -> list[int]:
    """Return the children of a process, zombies too."""
    try:
        return [
            int(word)
            for thread in os.listdir(f"/proc/{parent}/task")  # noqa: PTH208
            for word in _read_words(f"/proc/{parent}/task/{thread}/children")
        ]
    except OSError:  # a kernel without this file
        return [pid for pid in processes() if parent_of(pid) == parent]


def _read_words(path: str) -> list[str]:
    with open(path) as file:  # noqa: PTH123
        return file.read().split()


def end_descendants(patience_s: float = DEATH_S) -> None:
    """Kill all descendants of this process and wait for them, for this time (seconds) at most.
    Those of its session are only waited for, before the others are killed: they end a container,
    say, for which they need what watches over it."""
    session = os.getsid(0)
    for helpers in (True, False):
        end_s = time.monotonic() + patience_s
        while time.monotonic() < end_s:
            every = _add_descendants(children_of(os.getpid()))
            left = [p for p in every if _is_helper(p, session) == helpers and not _reap(p)]
            if not left:
                break
            for pid in left if not helpers else ():
                kill(pid)
            time.sleep(_PAUSE_S)


def _add_descendants(pids: Iterable[int]) -> list[int]:
    """Return these processes and all that descend from them."""
    result, parents = list(pids), {pid: parent_of(pid) for pid in processes()}
    by_parent: dict[int | None, list[int]] = {}
    for pid, parent in parents.items():
        by_parent.setdefault(parent, []).append(pid)
    for pid in result:  # which grows
        result += by_parent.get(pid, ())
    return result


def _reap(pid: int) -> bool:
    """Wait for a child if it has ended; return True where it has, or is none."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not runs(pid)


class Orphans:
    """The adopted children of an agent. Each belongs to one of the children that ran when it came:
    to that whose mark it has, else it is ended when none of them runs any more."""

    def __init__(self) -> None:
        self._owners: dict[int, set[int]] = {}
        self._ended: set[int] = set()  # children that have ended since the last look

    def __bool__(self) -> bool:
        return bool(self._owners or self._ended)

    def note_end(self, pid: int) -> None:
        """A child of the agent has ended: it may have left processes."""
        self._ended.add(pid)

    def look(
        self, own: Callable[[], Collection[int] | None], is_owner: Callable[[str], bool]
    ) -> None:
        """End what belongs to no running child. ``own``: returns the agent's own children, None
        while one is being started; ``is_owner``: whether a mark is that of one of them."""
        before = own()
        present = children_of(os.getpid())
        running = own()
        if before is None or running is None:
            return
        children, session = {*before, *running}, os.getsid(0)
        adopted = [pid for pid in present if pid not in children and not _is_helper(pid, session)]
        here = {pid for pid in adopted if not _reap(pid)}
        owners = {pid: self._owners.get(pid, children | self._ended) for pid in here}
        self._ended.clear()
        ending = []
        for pid, possible in owners.items():
            mark = variable_of(pid, MARK)
            if not is_owner(mark) if mark else possible.isdisjoint(running):
                ending.append(pid)
        for pid in _add_descendants(ending) if ending else ():
            kill(pid)
        self._owners = owners


def _is_helper(pid: int, session: int) -> bool:
    """Return True for a process that the agent itself uses: tasks have sessions of their own."""
    try:
        return os.getsid(pid) == session
    except OSError:
        return False
