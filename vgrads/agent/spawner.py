"""Tasks as processes: begun without a shell where none is needed, waited for all at once.

Shipped to hosts as it is: nothing but the standard library, Python 3.8 or newer. ``os.posix_spawn``
begins a task without copying this process; each child leads a session of its own. The ends of all
children come through one epoll over their descriptors (pidfd_open(2), Linux 5.3), and where there
are none, by a look at each known child after SIGCHLD or every ``LOOK_S``: never at any child, for
others of this process may not be ours.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import select
import shlex
import signal
import threading
import time
from contextlib import suppress
from typing import Any, Hashable, Mapping, NamedTuple, Sequence

SHELL = "/bin/sh"
LOOK_S = 0.02
"""Between looks at the children where nothing tells of their ends."""
_SIGNS = re.compile(r"[\\|&;<>()$`*?\[\]#~{}!^\x00-\x08\x0a-\x1f\x7f]")
"""What a shell may take for more than a letter, wherever it stands."""
_OF_THE_SHELL = frozenset(
    [
        ".",
        ":",
        "[",
        "alias",
        "bg",
        "break",
        "case",
        "cd",
        "command",
        "continue",
        "do",
        "done",
        "echo",
        "elif",
        "else",
        "esac",
        "eval",
        "exec",
        "exit",
        "export",
        "fc",
        "fg",
        "fi",
        "for",
        "function",
        "getopts",
        "hash",
        "if",
        "in",
        "jobs",
        "kill",
        "local",
        "printf",
        "pwd",
        "read",
        "readonly",
        "return",
        "select",
        "set",
        "shift",
        "source",
        "test",
        "then",
        "time",
        "times",
        "trap",
        "type",
        "ulimit",
        "umask",
        "unalias",
        "unset",
        "until",
        "wait",
        "while",
    ]
)
_FOR_THE_SHELL = (
    errno.ENOENT,
    errno.EACCES,
    errno.ENOEXEC,
    errno.ENOTDIR,
    errno.ETXTBSY,
    errno.E2BIG,
)
"""It says what is wrong with such a program, or runs it."""
_THERE = 'cd -- "$0" && exec "$@"'
_PART = 32_000
"""Characters of an argument at most: the system takes 128 KiB (MAX_ARG_STRLEN), and a character has
up to four bytes."""
_SPARE = 16
"""Descriptors that are left for all else: files that are copied, databases, connections."""
_FEW = 128
"""Descriptors that this process never takes beside those of tasks."""
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
JOINED = 'IFS=; eval "unset IFS; set --\n$*"'
"""Runs a command that comes in parts: its arguments."""
_DEFAULT = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})


class Ended(NamedTuple):
    """A child that has ended: what it was begun as, its number, its wait status, and what it used
    (getrusage(2)).

    ``lingering``: others of its process group were there, and were killed. ``usage.ru_maxrss``
    (KiB) is never below what this process had in memory when it began the child, which is then a
    bound only.
    """

    token: Any
    pid: int
    status: int
    usage: Any
    lingering: bool

    @property
    def code(self) -> int:
        """Its exit code, or −N where signal N ended it."""
        return code_of(self.status)


def code_of(status: int) -> int:
    """The exit code of a wait status, or −N where signal N ended the process."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def as_bytes(environment: Mapping[str, str]) -> dict[bytes, bytes]:
    """An environment as :meth:`Spawner.spawn` takes it: encoded once, not for each task."""
    return {os.fsencode(key): os.fsencode(value) for key, value in environment.items()}


def words_of(command: str) -> list[str]:
    """The words of a command that means the same without a shell; empty where it needs one."""
    if _SIGNS.search(command):
        return []
    try:
        words = shlex.split(command) if "'" in command or '"' in command else _blanks(command)
    except ValueError:  # the shell says what is wrong with the quotes
        return []
    return [] if not words or words[0] in _OF_THE_SHELL or "=" in words[0] else words


def parts_of(command: str) -> list[str]:
    """A command as arguments none of which is too long for the system."""
    return [command[at : at + _PART] for at in range(0, len(command), _PART)] or [""]


def shell_words(command: str) -> list[str]:
    """The words that have a shell run a command, however long it is."""
    parts = parts_of(command)
    return [SHELL, "-c", command] if len(parts) == 1 else [SHELL, "-c", JOINED, SHELL, *parts]


def too_long(error: OSError, command: str) -> OSError:
    """An error of beginning a process, in words where the command was too long."""
    if error.errno != errno.E2BIG:
        return error
    kib = len(os.fsencode(command)) // 1024
    return OSError(
        f"its command ({kib} KiB) and environment are longer than the system takes: put it "
        "into a script, an input of the task"
    )


def descriptor_limit() -> int:
    """How many descriptors this process may have (setrlimit(2)); -1: as many as it likes."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def has_room(descriptors: int) -> bool:
    """True where as many descriptors are free, and some more for all else that this process
    does."""
    limit = descriptor_limit()
    try:
        return limit < 0 or len(os.listdir("/proc/self/fd")) + descriptors + _SPARE <= limit  # noqa: PTH208
    except OSError as error:
        return error.errno not in NO_DESCRIPTORS  # without /proc nobody knows


def explain_limit(error: OSError) -> OSError:
    """An error of the system, with what to do where there are no descriptors left."""
    if error.errno not in NO_DESCRIPTORS:
        return error
    return OSError(
        f"too many open files: the limit is {descriptor_limit()}; raise it where vgrads or "
        "its slots start (ulimit -n 1024)"
    )


def _blanks(command: str) -> list[str]:
    """Split at what a shell splits at: other blanks of Unicode belong to words."""
    return [word for part in command.split(" ") for word in part.split("\t") if word]


class Spawner:
    """Begins children and tells of their ends; for one loop, or for many threads of which one
    reaps."""

    def __init__(self, descriptors: bool = True) -> None:
        """``descriptors``: wait by descriptors of processes, where the system has them."""
        self._lock = threading.Lock()
        self._children: dict[int, Hashable] = {}  # number → token
        self._pid_of: dict[int, int] = {}  # descriptor → number
        self._programs: dict[tuple[bytes, str], str] = {}
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._epoll = _epoll() if descriptors else None
        self._bell, self._ringer = os.pipe()
        self._woken = False
        os.set_blocking(self._bell, False)
        os.set_blocking(self._ringer, False)
        if self._epoll is not None:
            self._epoll.register(self._bell, select.EPOLLIN)
        elif threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, self._ring)

    def fileno(self) -> int:
        """Readable when a child has ended; without descriptors of processes reap every ``LOOK_S``
        all the same."""
        return self._bell if self._epoll is None else self._epoll.fileno()

    @property
    def look_s(self) -> float:
        """How long to wait for :meth:`fileno` at most while children run, in seconds; 0: as long as
        one likes."""
        return LOOK_S if self._epoll is None else 0.0

    def __len__(self) -> int:
        return len(self._children)

    def spawn(
        self,
        token: Hashable,
        command: str,
        environment: Mapping[bytes, bytes],
        output: Sequence[int],
        folder: str = "",
    ) -> int:
        """Begin a command; its number, which leads a session and a process group. OSError where it
        cannot be.

        ``output``: descriptors for what it prints and complains of. ``folder``: where it runs, else
        where this process stands; costs a shell (0.4 ms), since posix_spawn(3) knows no folder
        everywhere.
        """
        pid = self._begin(command, environment, output, folder)
        self.watch(pid, token)
        return pid

    def _begin(
        self, command: str, environment: Mapping[bytes, bytes], output: Sequence[int], folder: str
    ) -> int:
        words = words_of(command)
        program = self._find(words[0], environment) if words else ""
        if program and not folder:
            try:
                return self._call(program, words, environment, output)
            except OSError as error:
                if error.errno not in _FOR_THE_SHELL:
                    raise
                self._programs.clear()
        words = words if program and folder else shell_words(command)
        if folder:
            words = [SHELL, "-c", _THERE, folder, *words]
        try:
            return self._call(SHELL, words, environment, output)
        except OSError as error:
            raise too_long(error, command) from None

    def _call(
        self,
        program: str,
        words: list[str],
        environment: Mapping[bytes, bytes],
        output: Sequence[int],
    ) -> int:
        actions = [
            (os.POSIX_SPAWN_DUP2, self.null, 0),
            (os.POSIX_SPAWN_DUP2, output[0], 1),
            (os.POSIX_SPAWN_DUP2, output[1], 2),
        ]
        options: dict[str, Any] = {
            "file_actions": actions,
            "setsigdef": _DEFAULT,
            "setsigmask": (),
        }
        try:
            return os.posix_spawn(program, words, environment, setsid=True, **options)
        except (
            NotImplementedError
        ):  # a C library before glibc 2.26: a group of its own, and no session
            return os.posix_spawn(program, words, environment, setpgroup=0, **options)

    def _find(self, name: str, environment: Mapping[bytes, bytes]) -> str:
        """The program that a shell would run; empty where it finds none, or where that hangs on the
        folder."""
        if "/" in name:
            return name
        path = environment.get(b"PATH", os.fsencode(os.defpath))
        known = self._programs.get((path, name))
        if known is not None:
            return known
        for part in os.fsdecode(path).split(":"):
            if not part.startswith("/"):
                return ""
            program = part + "/" + name
            if os.access(program, os.X_OK) and not os.path.isdir(program):  # noqa: PTH112
                self._programs[(path, name)] = program
                return program
        return ""

    def watch(self, pid: int, token: Hashable) -> None:
        """Tell of the end of a child that leads its process group, whoever of this process began
        it."""
        self._children[pid] = token
        if self._epoll is None:
            return
        descriptor = -1
        try:
            descriptor = os.pidfd_open(pid)
            self._pid_of[descriptor] = pid
            self._epoll.register(descriptor, select.EPOLLIN)
        except OSError:  # no descriptors left: one that nobody can wait for must not run
            if descriptor >= 0:
                del self._pid_of[descriptor]
                os.close(descriptor)
            with self._lock:  # no signal to a number that is somebody else's
                del self._children[pid]
                _signal_group(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise

    def has_room(self, descriptors: int) -> bool:
        """True where another child can be begun; ``descriptors``: that each takes of this
        process."""
        limit = descriptor_limit()
        few = limit < 0 or (len(self._children) + 1) * descriptors + _FEW <= limit
        return few or has_room(descriptors)

    def signal(self, pid: int, number: int) -> bool:
        """Send a signal to a child's process group, from any thread; False where it has ended and
        been told."""
        with self._lock:
            return pid in self._children and _signal_group(pid, number)

    def reap(self, timeout_s: float = 0.0) -> list[Ended]:
        """The children that have ended, after waiting so long (seconds) for the first one; ends
        their groups."""
        if self._epoll is None:
            return self._look(timeout_s)
        ended = []
        for descriptor, _ in self._epoll.poll(timeout_s):
            if descriptor == self._bell:
                self._hear()
                continue
            pid = self._pid_of.pop(descriptor)
            # closing is not enough: a child that is just being begun still holds a copy of it
            self._epoll.unregister(descriptor)
            os.close(descriptor)
            ended.append(self._bury(pid))
        return ended

    def _look(self, timeout_s: float) -> list[Ended]:
        """Look at each child until one has ended or the time is up."""
        end_s = time.monotonic() + timeout_s
        while True:
            woken = self._hear()
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT
            over = [pid for pid in list(self._children) if os.waitid(os.P_PID, pid, how)]
            left_s = end_s - time.monotonic()
            if over or woken or left_s <= 0:
                return [self._bury(pid) for pid in over]
            select.select([self._bell], [], [], min(left_s, LOOK_S))

    def _bury(self, pid: int) -> Ended:
        """Wait for a child that has ended; its number is its own until then, and so is its
        group's."""
        with self._lock:
            _signal_group(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            token = self._children.pop(pid)
        return Ended(token, pid, status, usage, _signal_group(pid, 0))

    def _hear(self) -> bool:
        """True where :meth:`wake` was called since the last time."""
        with suppress(BlockingIOError):
            os.read(self._bell, 4096)
        woken, self._woken = self._woken, False
        return woken

    def wake(self) -> None:
        """Have :meth:`reap` return, from any thread."""
        self._woken = True
        self._ring()

    def _ring(self, *_: object) -> None:
        with suppress(OSError):
            os.write(self._ringer, b"!")

    def close(self) -> None:
        """Let go of what it holds; children run on."""
        held = (self.null, self._bell, self._ringer, *self._pid_of)
        self.null = self._bell = self._ringer = -1  # first: a closed number is soon another's
        self._pid_of.clear()
        for descriptor in held:
            if descriptor >= 0:
                os.close(descriptor)
        if self._epoll is not None:
            self._epoll.close()


def _epoll() -> Any:
    """For descriptors of processes; None where the system has none."""
    if not hasattr(os, "pidfd_open") or not hasattr(select, "epoll"):
        return None
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return None
    return select.epoll()


def _signal_group(pid: int, number: int) -> bool:
    """Send a signal to a process group; False where it is gone."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
