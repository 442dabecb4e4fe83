"""Start commands as processes: without copying this process (posix_spawn(3)), and through a shell
only where one is needed.

The system stops the calling thread until the child executes its program: on a busy machine, until
the child gets a processor. ``os.posix_spawn`` stops all threads for so long, so the C library is
called directly where that is possible.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
from typing import Any, Mapping, Sequence

from .commands import SHELL, shell_words, too_long, words_of
from .processes import lend_priority

_FOR_THE_SHELL = (
    errno.ENOENT,
    errno.EACCES,
    errno.ENOEXEC,
    errno.ENOTDIR,
    errno.ETXTBSY,
    errno.E2BIG,
)
"""Errors at which the shell is used: it reports the problem of the program, or runs it."""
_THERE = 'cd -- "$0" && exec "$@"'
_SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
_DEFAULT = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})


def account_folder(folder: str, account: int) -> str:
    """Return the folder of an account's tasks that declare no files, next to that of the others."""
    return f"{folder}-{account}"


def give_to(account: int, path: str) -> None:
    """Make a folder, with all in it, another account's, and unreadable to others."""
    os.chmod(path, 0o700)  # noqa: PTH101
    os.chown(path, account, account)
    for folder, folders, names in os.walk(path):
        for name in (*folders, *names):
            os.chown(os.path.join(folder, name), account, account, follow_symlinks=False)  # noqa: PTH118


def make_account_folder(folder: str, account: int) -> str:
    """Return that folder, which exists then. Raise OSError where the account cannot enter it."""
    path = account_folder(folder, account)
    if not os.path.isdir(path):  # noqa: PTH112
        _refuse_closed(path)
        os.mkdir(path)  # noqa: PTH102
        give_to(account, path)
    return path


def _refuse_closed(path: str) -> None:
    """Raise OSError where other accounts cannot reach a file at this path."""
    while path != "/":
        path = os.path.dirname(path)  # noqa: PTH120
        if not os.stat(path).st_mode & 0o001:  # noqa: PTH116
            why = f"the accounts of tasks cannot enter {path}: set TMPDIR to an open folder"
            raise OSError(errno.EACCES, why)


def _make_account_words(account: int) -> list[str]:
    """Return the words that run a program under another account, which needs no entry in the
    system's list, and from which no program with the set-user-ID bit leads back to root."""
    program = shutil.which("setpriv", path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}")
    if not program:
        raise OSError(errno.ENOENT, "tasks of several users need the command 'setpriv' here")
    under = [f"--reuid={account}", f"--regid={account}", "--clear-groups", "--no-new-privs"]
    return [program, *under, "--"]


def as_bytes(environment: Mapping[str, str]) -> dict[bytes, bytes]:
    """Encode an environment for :meth:`Launcher.begin`: once, not for each task."""
    return {os.fsencode(key): os.fsencode(value) for key, value in environment.items()}


_SPAWN_FLAGS = 0x80 | 0x04 | 0x08
"""POSIX_SPAWN_SETSID, POSIX_SPAWN_SETSIGDEF, POSIX_SPAWN_SETSIGMASK in glibc and in musl."""
_ROOM = 1024
"""Bytes for an object of the C library; the largest, the attributes in glibc, has 336."""


class NativeSpawn:
    """posix_spawn(3) of the C library, called so that other threads continue."""

    def __init__(self) -> None:
        """Raise ImportError, AttributeError, OSError where Python or the C library lacks parts."""
        import ctypes  # noqa: PLC0415 a part of Python that some nodes lack

        self._ctypes = ctypes
        self._call = ctypes.CDLL(None).posix_spawn
        quick = ctypes.PyDLL(None)  # for calls that do not wait
        self._begin = quick.posix_spawn_file_actions_init
        self._dup, self._cd, self._end = (
            quick.posix_spawn_file_actions_adddup2,
            quick.posix_spawn_file_actions_addchdir_np,
            quick.posix_spawn_file_actions_destroy,
        )
        self._attributes = ctypes.create_string_buffer(_ROOM)
        signals, none = ctypes.create_string_buffer(_ROOM), ctypes.create_string_buffer(_ROOM)
        for error in (
            quick.posix_spawnattr_init(self._attributes),
            quick.sigfillset(signals),
            quick.sigemptyset(none),
            quick.posix_spawnattr_setsigdefault(self._attributes, signals),
            quick.posix_spawnattr_setsigmask(self._attributes, none),
            quick.posix_spawnattr_setflags(self._attributes, ctypes.c_short(_SPAWN_FLAGS)),
        ):
            _check(error)

    def __call__(
        self,
        program: str,
        words: Sequence[str],
        environment: Mapping[bytes, bytes],
        streams: Sequence[int],
        folder: str,
    ) -> int:
        """Start a program in a session of its own, with default signals, in a folder if one is
        stated; return its process number. Raise OSError, ValueError where that fails."""
        ctypes = self._ctypes
        arguments = [os.fsencode(word) for word in words]
        variables = [b"%s=%s" % item for item in environment.items()]
        if b"\0" in b"".join((*arguments, *variables)) or "\0" in program + folder:
            raise ValueError("embedded null byte")
        number, actions = ctypes.c_int(), ctypes.create_string_buffer(_ROOM)
        _check(self._begin(actions))
        try:
            for there, here in enumerate(streams):
                _check(self._dup(actions, here, there))
            if folder:
                _check(self._cd(actions, os.fsencode(folder)))
            error = self._call(
                ctypes.byref(number),
                os.fsencode(program),
                actions,
                self._attributes,
                (ctypes.c_char_p * (len(arguments) + 1))(*arguments, None),
                (ctypes.c_char_p * (len(variables) + 1))(*variables, None),
            )
        finally:
            self._end(actions)
        _check(error, program)
        return int(number.value)


def _check(error: int, name: str = "") -> None:
    if error:
        raise OSError(error, os.strerror(error), *([name] if name else []))


def _make_native_spawn() -> NativeSpawn | None:
    """Return :class:`NativeSpawn`; None where it does not work."""
    try:
        return NativeSpawn()
    except (ImportError, AttributeError, OSError):
        return None


class Launcher:
    """Starts commands, and caches the paths of their programs; for any number of threads."""

    def __init__(self, native: bool = True) -> None:
        """``native``: call the C library, where that is possible."""
        self._programs: dict[tuple[bytes, str], str] = {}
        self._native = _make_native_spawn() if native else None

    @property
    def is_parallel(self) -> bool:
        """Return True where other threads continue while one starts a command."""
        return self._native is not None

    def begin(
        self,
        command: str,
        environment: Mapping[bytes, bytes],
        streams: Sequence[int],
        folder: str,
        account: int = 0,
    ) -> int:
        """Start a command and return its process number, which leads a session and a process group.
        Raise OSError where it cannot be started.

        ``streams``: descriptors of its standard input, output and error. ``folder``: its working
        directory, else that of this process; setting it costs a shell (0.4 ms) where the C library
        cannot. ``account``: under which it runs, if not under that of this process, which is root.
        """
        if account:
            under = [*_make_account_words(account), *shell_words(command)]
            return self._there(under[0], under, environment, streams, folder)
        words = words_of(command)
        program = self._find(words[0], environment) if words else ""
        if program and (self._native is not None or not folder):
            try:
                return self._call(program, words, environment, streams, folder)
            except OSError as error:
                if error.errno not in _FOR_THE_SHELL:
                    raise
                self._programs.clear()
        words = words if program and folder and self._native is None else shell_words(command)
        if folder:
            os.stat(folder)  # noqa: PTH116 an error names it, not the program
        try:
            return self._there(SHELL, words, environment, streams, folder)
        except OSError as error:
            raise too_long(error, command) from None

    def _there(
        self,
        program: str,
        words: list[str],
        environment: Mapping[bytes, bytes],
        streams: Sequence[int],
        folder: str,
    ) -> int:
        """Start a program in a folder, through a shell where necessary."""
        if folder and self._native is None:
            program, words, folder = SHELL, [SHELL, "-c", _THERE, folder, *words], ""
        return self._call(program, words, environment, streams, folder)

    def _call(
        self,
        program: str,
        words: list[str],
        environment: Mapping[bytes, bytes],
        streams: Sequence[int],
        folder: str,
    ) -> int:
        if self._native is not None:
            pid = self._native(program, words, environment, streams, folder)
        else:
            actions = [(os.POSIX_SPAWN_DUP2, here, there) for there, here in enumerate(streams)]
            options: dict[str, Any] = {
                "file_actions": actions,
                "setsigdef": _DEFAULT,
                "setsigmask": (),
            }
            try:
                pid = os.posix_spawn(program, words, environment, setsid=True, **options)
            except NotImplementedError:  # C library before glibc 2.26: own group, no session
                pid = os.posix_spawn(program, words, environment, setpgroup=0, **options)
        lend_priority(pid)
        return pid

    def _find(self, name: str, environment: Mapping[bytes, bytes]) -> str:
        """Return the program that a shell would run; empty where there is none, or where it depends
        on the working directory."""
        if "/" in name:
            return name
        path = environment.get(b"PATH", os.fsencode(os.defpath))
        program = self._programs.get((path, name))
        if program is not None:
            return program
        for part in os.fsdecode(path).split(":"):
            if not part.startswith("/"):
                return ""
            program = part + "/" + name
            if os.access(program, os.X_OK) and not os.path.isdir(program):  # noqa: PTH112
                self._programs[(path, name)] = program
                return program
        return ""
