"""Input files of tasks: sibling files of the set, and outputs of earlier tasks.

Inputs are read-only: a small one is a separate copy, a large one a link to a read-only file; a file
that a task reads and writes under one name is always a copy. The sibling files of the set are
linked from a copy that belongs to the run, so that no task can reach those of the user (up to
:data:`_MAX_COPIED_BYTES`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.execmgr.tasks.provenance import SiblingFiles, reads_of, sibling_files
from vgrads.kernel.user_files import open_user_file

_MOST_COPIED = 16 * 2**20
"""Bytes up to which an input is copied if the file system cannot share blocks: some milliseconds.
"""
_MAX_COPIED_BYTES = 256 * 2**20
"""Bytes of sibling files of a set that a run copies."""
_PART = 2**20  # bytes
_FICLONE = 0x40049409  # ioctl_ficlone(2)


class Inputs:
    """Sources of inputs. ``copies``: the folder of the run's copies of the sibling files of the
    set; ``results``: the folder of a workflow's outputs."""

    def __init__(self, copies: Path, set_folder: Path, results: Callable[[str], Path]) -> None:
        self._copies, self._set_folder, self._results = copies, set_folder, results

    @cached_property
    def _siblings(self) -> dict[str, Path]:
        """Sibling files of the set by name, listed once; small ones in the run's copy."""
        result, left = {}, _MAX_COPIED_BYTES
        for name, file in sibling_files(self._set_folder).items():
            left -= file.stat().st_size
            result[name] = _make_local_copy(file, self._copies) if left >= 0 else file
        return result

    @cached_property
    def _named(self) -> SiblingFiles:
        """The same, indexed by the names that commands use."""
        return SiblingFiles(self._siblings)

    def reads(self, order: TaskOrder) -> dict[str, Path]:
        """Return the files that count for a task, by name; OSError if an input is missing."""
        inputs = {name: self._input(order, name) for name in order.inputs}
        return reads_of(order, order.environment, self._named) | inputs

    def sources(self, order: TaskOrder) -> dict[str, Path]:
        """Return the files that a task may read, by name: sibling files of the set, and its inputs;
        OSError if one is missing."""
        paths = {name: path for name, path in self._siblings.items() if name not in order.outputs}
        return paths | {name: self._input(order, name) for name in order.inputs}

    def _input(self, order: TaskOrder, name: str) -> Path:
        created = self._results(order.key[0]) / name
        # an output of this run hides a file of the set that has the same name
        if created.exists():
            return created
        if name in self._siblings:
            return self._siblings[name]
        source = self._set_folder / name
        if not source.exists():
            raise FileNotFoundError(f"input '{name}' does not exist")
        return source

    def stage(self, order: TaskOrder, scratch: Path) -> None:
        """Stage a task's inputs in its scratch folder."""
        declared = set(order.inputs)
        for name, source in self.sources(order).items():
            target = scratch / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if name in declared:
                _stage_input(source, target, name in order.outputs)
            else:
                target.symlink_to(source)


def _make_local_copy(file: Path, folder: Path) -> Path:
    """Return a run's read-only copy of a sibling file, with the same modification time, so that a
    change of the original can be detected."""
    stored_path = folder / file.name
    if not stored_path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{file.name}.{os.getpid()}.draft"
        # before the copy: a change during it then shows as a newer time of the original
        was = file.stat()
        _copy_file(file, draft)
        os.utime(draft, ns=(was.st_atime_ns, was.st_mtime_ns))
        draft.chmod(was.st_mode & 0o555)
        # in one rename, so that a copy is complete or absent, also for a later manager
        draft.replace(stored_path)
    return stored_path


def _stage_input(source: Path, target: Path, for_writing: bool) -> None:
    """Stage an input in a scratch folder."""
    if source.is_dir():
        if for_writing:
            shutil.copytree(source, target, symlinks=True, copy_function=_copy_file)
            _let_write(target)
        else:
            target.symlink_to(source)
    elif for_writing or source.stat().st_size <= _MOST_COPIED:
        _copy_file(source, target)
        target.chmod(source.stat().st_mode | 0o200)
    else:
        with open_user_file(source) as old:
            cloned = _clone(old, target)
        if not cloned:
            target.symlink_to(source)


def _let_write(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o200)


def _copy_file(source: str | Path, target: str | Path) -> str:
    """Copy the content, sharing blocks if the file system can."""
    with open_user_file(source) as old:
        if not _clone(old, Path(target)):
            with Path(target).open("wb") as new:
                shutil.copyfileobj(old, new, _PART)
        Path(target).chmod(stat.S_IMODE(os.fstat(old.fileno()).st_mode))
    return str(target)


def _clone(old: BinaryIO, target: Path) -> bool:
    """Create a copy on write (ioctl_ficlone(2)); return False if the file system does not support
    it."""
    try:
        with target.open("xb") as new:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
            return True
    except OSError as error:
        with suppress(FileNotFoundError):
            target.unlink()
        # a copy would not fit either
        if error.errno == errno.ENOSPC:
            raise
        return False
