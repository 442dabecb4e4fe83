"""What tasks may read: the files beside the set, and what earlier tasks have made.

Inputs are not for writing: a small one is a copy of its own, a large one a link to a file that may
only be read; what a task reads and writes under one name is always a copy. The files beside the set
are linked from a copy that the run made of them, so that no task can reach those of the user (up to
:data:`_MOST_BESIDE`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from vgrads.execmgr.engines.base import TaskOrder
from vgrads.execmgr.tasks.provenance import Beside, files_beside, reads_of

_MOST_COPIED = 16 * 2**20
"""Bytes up to which an input is copied where the file system cannot share blocks: some
milliseconds."""
_MOST_BESIDE = 256 * 2**20
"""Bytes of files beside the set of which a run keeps a copy of its own."""
_FICLONE = 0x40049409  # ioctl_ficlone(2)


class Inputs:
    """Where inputs come from. ``copies``: the folder of the run's own copies of the files beside
    the set; ``results``: that of a workflow's outputs."""

    def __init__(self, copies: Path, set_folder: Path, results: Callable[[str], Path]) -> None:
        self._copies, self._set_folder, self._results = copies, set_folder, results

    @cached_property
    def _beside(self) -> dict[str, Path]:
        """Files beside the set by name, looked for once; small ones in a copy that is the run's."""
        found, left = {}, _MOST_BESIDE
        for name, file in files_beside(self._set_folder).items():
            left -= file.stat().st_size
            found[name] = _kept_copy(file, self._copies) if left >= 0 else file
        return found

    @cached_property
    def _named(self) -> Beside:
        """The same, to be found by how commands name them."""
        return Beside(self._beside)

    def reads(self, order: TaskOrder) -> dict[str, Path]:
        """The files that count for a task, by name; OSError where an input is not there."""
        inputs = {name: self._input(order, name) for name in order.inputs}
        return reads_of(order, order.manner, self._named) | inputs

    def sources(self, order: TaskOrder) -> dict[str, Path]:
        """What a task may read, by name: files beside the set, and its inputs; OSError where one is
        not there."""
        found = {name: path for name, path in self._beside.items() if name not in order.outputs}
        return found | {name: self._input(order, name) for name in order.inputs}

    def _input(self, order: TaskOrder, name: str) -> Path:
        made = self._results(order.key[0]) / name
        if made.exists():
            return made
        if name in self._beside:
            return self._beside[name]
        found = self._set_folder / name
        if not found.exists():
            raise FileNotFoundError(f"input '{name}' is not there")
        return found

    def stage(self, order: TaskOrder, scratch: Path) -> None:
        """Lay a task's inputs into its scratch folder."""
        declared = set(order.inputs)
        for name, source in self.sources(order).items():
            target = scratch / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if name in declared:
                _stage(source, target, name in order.outputs)
            else:
                target.symlink_to(source)


def _kept_copy(file: Path, folder: Path) -> Path:
    """A run's copy of a file beside the set, that may only be read; as old as the file, so that it
    can be told whether that was changed."""
    kept = folder / file.name
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{file.name}.{os.getpid()}.draft"
        was = file.stat()
        _copy(file, draft)
        os.utime(draft, ns=(was.st_atime_ns, was.st_mtime_ns))
        draft.chmod(was.st_mode & 0o555)
        draft.replace(kept)
    return kept


def _stage(source: Path, target: Path, for_writing: bool) -> None:
    """An input in a scratch folder."""
    if source.is_dir():
        if for_writing:
            shutil.copytree(source, target, symlinks=True, copy_function=_copy)
            _let_write(target)
        else:
            target.symlink_to(source)
    elif for_writing or source.stat().st_size <= _MOST_COPIED:
        _copy(source, target)
        target.chmod(source.stat().st_mode | 0o200)
    elif not _clone(source, target):
        target.symlink_to(source)


def _let_write(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o200)


def _copy(source: str | Path, target: str | Path) -> str:
    """The content, sharing blocks where the file system can."""
    if not _clone(Path(source), Path(target)):
        shutil.copyfile(source, target)
    shutil.copymode(source, target)
    return str(target)


def _clone(source: Path, target: Path) -> bool:
    """A copy on write (ioctl_ficlone(2)); False where the file system has none."""
    with source.open("rb") as old:
        try:
            with target.open("xb") as new:
                fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
                return True
        except OSError as error:
            with suppress(FileNotFoundError):
                target.unlink()
            if error.errno == errno.ENOSPC:
                raise
            return False
