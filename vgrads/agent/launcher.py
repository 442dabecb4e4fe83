"""Start commands as processes: without copying this process (``os.posix_spawn``), and through a
shell only where one is needed.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
from typing import Any, Mapping, Sequence

from .commands import SHELL, shell_words, too_long, words_of

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


def _under(account: int) -> list[str]:
    """Return the words that run a program under another account, which needs no entry in the
    system's list."""
    program = shutil.which("setpriv", path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}")
    if not program:
        raise OSError(errno.ENOENT, "tasks of several users need the command 'setpriv' here")
    return [program, f"--reuid={account}", f"--regid={account}", "--clear-groups", "--"]


def as_bytes(environment: Mapping[str, str]) -> dict[bytes, bytes]:
    """Encode an environment for :meth:`Launcher.begin`: once, not for each task."""
    return {os.fsencode(key): os.fsencode(value) for key, value in environment.items()}


class Launcher:
    """Starts commands, and caches the paths of their programs."""

    def __init__(self) -> None:
        self._programs: dict[tuple[bytes, str], str] = {}

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
        directory, else that of this process; setting it costs a shell (0.4 ms), since
        posix_spawn(3) does not support it everywhere. ``account``: under which it runs, if not
        under that of this process, which is root.
        """
        if account:
            under = _under(account)
            return self._call(under[0], [*under, *shell_words(command)], environment, streams)
        words = words_of(command)
        program = self._find(words[0], environment) if words else ""
        if program and not folder:
            try:
                return self._call(program, words, environment, streams)
            except OSError as error:
                if error.errno not in _FOR_THE_SHELL:
                    raise
                self._programs.clear()
        words = words if program and folder else shell_words(command)
        if folder:
            words = [SHELL, "-c", _THERE, folder, *words]
        try:
            return self._call(SHELL, words, environment, streams)
        except OSError as error:
            raise too_long(error, command) from None

    def _call(
        self,
        program: str,
        words: list[str],
        environment: Mapping[bytes, bytes],
        streams: Sequence[int],
    ) -> int:
        actions = [(os.POSIX_SPAWN_DUP2, here, there) for there, here in enumerate(streams)]
        options: dict[str, Any] = {
            "file_actions": actions,
            "setsigdef": _DEFAULT,
            "setsigmask": (),
        }
        try:
            return os.posix_spawn(program, words, environment, setsid=True, **options)
        except NotImplementedError:  # C library before glibc 2.26: own group, no session
            return os.posix_spawn(program, words, environment, setpgroup=0, **options)

    def _find(self, name: str, environment: Mapping[bytes, bytes]) -> str:
        """Return the program that a shell would run; empty where there is none, or where it depends
        on the working directory."""
        if "/" in name:
            return name
        path = environment.get(b"PATH", os.fsencode(os.defpath))
        existing = self._programs.get((path, name))
        if existing is not None:
            return existing
        for part in os.fsdecode(path).split(":"):
            if not part.startswith("/"):
                return ""
            program = part + "/" + name
            if os.access(program, os.X_OK) and not os.path.isdir(program):  # noqa: PTH112
                self._programs[(path, name)] = program
                return program
        return ""
