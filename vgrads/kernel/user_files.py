"""Files that users name, opened by a process that may have the database open.

Closing any descriptor of an SQLite file releases all locks of the process on it
(https://www.sqlite.org/howtocorrupt.html, 2.2): another process then takes the database for unused,
deletes its log, and what is acknowledged afterwards is lost. A user can name the database, or a
link to it, wherever a file is named. So each file is looked at through a descriptor with
``O_PATH``, whose end releases no lock, and opened only if it is not a part of the database.

Also a program, ``python -I -S user_files.py ACCOUNT SECONDS``, that reads files for such a process
(:mod:`vgrads.execmgr.tasks.file_reader`). The standard library only.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import stat
import sys
from collections.abc import Collection
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

MOST_READ = 2**30
"""Bytes of a file above which its content is not read: its size and modification time are used
instead."""
Identity = tuple[int, int]
"""Device and inode of a file."""
_MOST_DIGESTS = 2**16  # that the program remembers
_PARTS = ("", "-wal", "-shm", "-journal")
_NO_DATA = frozenset(
    (
        *("proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs"),
        *("securityfs", "pstore", "bpf", "configfs", "fusectl", "mqueue", "binfmt_misc"),
        *("efivarfs", "selinuxfs", "smackfs", "rpc_pipefs", "nsfs", "autofs", "nfsd", "binder"),
        *("functionfs", "resctrl"),
    )
)
"""File systems whose files are not stored data: reading one may wait, or change something."""
_databases: dict[str, None] = {}
_file_systems: dict[str, str] = {}


def protect_database(file: Path | str) -> None:
    """Refuse from now on to open this SQLite file, which this process is about to open, and the
    files that belong to it, as files of users."""
    _databases[os.path.realpath(file)] = None


def database_parts() -> set[Identity]:
    """Return the files of the databases that this process has opened, as far as they exist."""
    # looked up each time: SQLite creates and deletes its log and index files
    parts = {identity_of(path + part) for path in tuple(_databases) for part in _PARTS}
    return {identity for identity in parts if identity is not None}


def identity_of(path: Path | str) -> Identity | None:
    """Return the device and inode that a name leads to; None where there is nothing."""
    try:
        status = os.stat(path)  # noqa: PTH116 many of them
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def is_database(path: Path | str) -> bool:
    """Return whether a path leads to a part of a database that this process has opened."""
    return identity_of(path) in database_parts()


def open_user_file(
    path: Path | str, *, follow: bool = True, any_kind: bool = False
) -> BufferedReader:
    """Open a file that a user named for reading. OSError if it cannot be read, is a part of the
    database, no regular file (``any_kind``: a pipe too), or on a file system without data.
    ``follow``: symbolic links."""
    return _open(path, database_parts(), follow, any_kind)


def read_user_file(path: Path | str, *, any_kind: bool = False) -> bytes:
    """Return the content of a file that a user named; OSError if it cannot be read, or is no
    regular file (``any_kind``: a pipe too)."""
    with open_user_file(path, any_kind=any_kind) as file:
        return file.read()


def copy_user_file(source: Path | str, target: Path | str) -> str:
    """Copy the content of a regular file that a user named, and its mode and times; OSError if that
    fails. Return the target."""
    with open_user_file(source) as old, Path(target).open("wb") as new:
        shutil.copyfileobj(old, new, 2**20)
        # by the descriptor and not by the name, which may lead to another file by now
        shutil.copystat(f"/proc/self/fd/{old.fileno()}", target)
    return str(target)


def _open(
    path: Path | str, refused: Collection[Identity], follow: bool, any_kind: bool
) -> BufferedReader:
    flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    handle = os.open(path, flags)
    try:
        status = os.fstat(handle)
        if (status.st_dev, status.st_ino) in refused:
            raise OSError(errno.EPERM, "is a file of vgrads' own database", str(path))
        if not any_kind:
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "is not a regular file", str(path))
            kind = _find_file_system(handle)
            if kind in _NO_DATA:
                raise OSError(errno.EPERM, f"is on a file system without data ({kind})", str(path))
        # by the descriptor and not by the name, which may lead to another file by now
        return open(f"/proc/self/fd/{handle}", "rb")  # noqa: PTH123 the one looked at
    finally:
        os.close(handle)


def _find_file_system(handle: int) -> str:
    """Return the kind of the file system of an open file; empty where it is not known."""
    with suppress(OSError):
        lines = Path(f"/proc/self/fdinfo/{handle}").read_text().split("\n")
        mount = next((line.split()[1] for line in lines if line.startswith("mnt_id:")), "")
        if mount not in _file_systems:
            # an unknown mount: all are read anew, since the numbers of mounts are used again
            _file_systems.clear()
            for line in Path("/proc/self/mountinfo").read_text().split("\n")[:-1]:
                before, _, after = line.partition(" - ")
                _file_systems[before.split()[0]] = after.split()[0]
        return _file_systems.get(mount, "")
    return ""


def size_and_mtime(path: Path) -> tuple[int, int]:
    """Return the size and last change of a file or of a folder's whole content; OSError if it is
    missing."""
    status = path.stat()
    if not path.is_dir():
        return status.st_size, status.st_mtime_ns
    inside = [file.lstat() for file in path.rglob("*")]
    changed_ns = max((item.st_mtime_ns for item in inside), default=status.st_mtime_ns)
    return sum(item.st_size for item in inside), changed_ns


def digest_of(path: Path, refused: Collection[Identity]) -> str:
    """Return the SHA-256 of a file's content, or of a folder's names and contents. OSError if it
    cannot be read."""
    if not path.is_dir():
        with _open(path, refused, True, False) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    whole = hashlib.sha256()
    # sorted, since rglob has no fixed order
    for item in sorted(path.rglob("*")):
        content = (
            item.readlink()
            if item.is_symlink()
            else ""
            if item.is_dir()
            else digest_of(item, refused)
        )
        # no name contains a NUL, so that different folders never give the same text
        whole.update(f"{item.relative_to(path)}\0{content}\0".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


Answer = tuple[int, int, str] | str | None
"""Size, last change and digest of a file; why it was not read; None where there is no file."""


class _Reading:
    """Answers of the program; each content is read once."""

    def __init__(self) -> None:
        self._digests: dict[tuple[str, int, int], str] = {}

    def answer(
        self,
        name: str,
        before: tuple[int, int, str] | None,
        refused: Collection[Identity],
        folders: bool,
    ) -> Answer:
        path = Path(name)
        try:
            mode = path.stat().st_mode
            if stat.S_ISREG(mode) or (folders and stat.S_ISDIR(mode)):
                return self._read(path, before, refused)
            return None
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            missing = error.errno in (errno.ENAMETOOLONG, errno.ELOOP)
            return None if missing else error.strerror or str(error)

    def _read(
        self, path: Path, before: tuple[int, int, str] | None, refused: Collection[Identity]
    ) -> Answer:
        size, changed_ns = size_and_mtime(path)
        if path.is_dir():  # much may change in it without new times
            return size, changed_ns, digest_of(path, refused) if size <= MOST_READ else ""
        if size > MOST_READ:
            return size, changed_ns, ""
        if before is not None and (before[0], before[1]) == (size, changed_ns):
            return before
        key = (str(path), size, changed_ns)
        if key not in self._digests:
            if len(self._digests) >= _MOST_DIGESTS:
                self._digests.clear()
            self._digests[key] = digest_of(path, refused)
        # the digest of a file that changed while it was read is that of no content
        unchanged = (size, changed_ns) == size_and_mtime(path)
        return (size, changed_ns, self._digests[key]) if unchanged else "is being changed"


def _drop_to(account: int) -> None:
    """Become an account without groups, for good."""
    if account and os.geteuid() == 0:
        # groups before the user: afterwards there is no right to change them
        os.setgroups([])
        os.setresgid(account, account, account)
        os.setresuid(account, account, account)


def main(account: int, limit_s: int) -> None:
    """Answer requests: a line with the files, and the files to refuse; for each file a line. A
    request that takes longer than ``limit_s`` ends the process."""
    _drop_to(account)
    reading = _Reading()
    for line in sys.stdin:
        # a read may never return: the default action of the signal ends the process
        signal.alarm(limit_s)
        request = json.loads(line)
        refused = {tuple(part) for part in request["refused"]}
        for name, before in request["files"]:
            answer = reading.answer(name, before, refused, request["folders"])
            print(json.dumps(answer), flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
