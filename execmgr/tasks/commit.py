"""Outputs of the copy that counts, moved to where they belong: one copy's, whole, and on the disk.

Which copy counts is the core's decision (:mod:`vgrads.execmgr.core.step`). Here it is made to hold:
a copy gathers its outputs in a folder, which becomes the task's claim in one rename; a claim that
is there already is another copy's, and is kept. Then each output moves from the claim to the
results. Whoever is killed in between is followed by somebody who goes on from the claim. Before the
end is told, all of it is on the disk.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from vgrads.execmgr.engines.base import TaskOrder
from vgrads.execmgr.tasks.folder import CLAIMS, TaskFolder, file_name
from vgrads.execmgr.tasks.helper_thread import HelperThread
from vgrads.kernel.clock import boot_id

_GATHERED = ".out"
_WHOSE = ".copy"
_READ_ONLY = 0o555
_BEATEN = "another copy was first"
_libc = ctypes.CDLL(None, use_errno=True)
Tell = Callable[[TaskOrder, str], None]
"""Told of an order, and why its outputs do not count; empty where they do."""


class Committer:
    """Commits in a thread of its own, several at once where several wait: one sync for all of
    them."""

    def __init__(self, folder: TaskFolder, tell: Tell) -> None:
        self._folder, self._tell = folder, tell
        self._helper = HelperThread("committer", self._work)

    def put(self, orders: Sequence[TaskOrder]) -> None:
        """Have the outputs of these copies committed."""
        for order in orders:
            self._helper.put(order)

    def close(self) -> None:
        """Finish what was asked for, and no more."""
        self._helper.close()

    def _work(self, waiting: SimpleQueue[TaskOrder | None]) -> None:
        while (order := waiting.get()) is not None:
            bundle, last = [order], False
            with suppress(Empty):
                while (another := waiting.get_nowait()) is not None:
                    bundle.append(another)
                last = True
            for one, reason in zip(bundle, commit(self._folder, bundle), strict=True):
                self._tell(one, reason)
            if last:
                return


def commit(folder: TaskFolder, orders: Sequence[TaskOrder]) -> list[str]:
    """Commit the outputs of these copies; for each, why they do not count, empty where they do."""
    reasons = [_attempt(folder, order) for order in orders]
    if not all(reasons):
        try:
            sync(folder.run_folder)
        except OSError as error:
            reasons = [reason or _why(error) for reason in reasons]
    for order, reason in zip(orders, reasons, strict=True):
        if reason and _is_of(_whose(_claim(folder, order)), order):
            shutil.rmtree(_claim(folder, order), ignore_errors=True)  # the task is to be done again
    return reasons


def is_committed(folder: TaskFolder, order: TaskOrder) -> bool:
    """True where some copy's outputs of this task are where they belong, or can be put there now.

    A claim of before the machine was started anew does not count: nobody said that it is on the
    disk.
    """
    whose = _whose(_claim(folder, order))
    if not whose or whose.get("boot") != boot_id():
        return False
    return not _place(folder, order)


def _attempt(folder: TaskFolder, order: TaskOrder) -> str:
    try:
        claim = _claim(folder, order)
        whose = _whose(claim)
        if whose and whose["boot"] != boot_id():
            shutil.rmtree(claim)
            whose = {}
        if not whose:
            whose = _stake(folder, order, claim)
        if not _is_of(whose, order):
            return _BEATEN
        return _place(folder, order)
    except OSError as error:
        return _why(error)


def _stake(folder: TaskFolder, order: TaskOrder, claim: Path) -> dict[str, object]:
    """Gather the outputs and claim the task with them; whose claim is there in the end."""
    scratch = folder.place(order)
    gathered = scratch / _GATHERED
    gathered.mkdir(exist_ok=True)
    for name in order.outputs:
        source, target = scratch / name, gathered / name
        if os.path.lexists(source):
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)
            _forbid_writing(target)
        elif not os.path.lexists(target):
            raise FileNotFoundError(f"'{name}' is not there any more")
    mine = {"copy": order.key[2], "attempt": order.attempt, "boot": boot_id()}
    (gathered / _WHOSE).write_text(json.dumps(mine))
    claim.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):  # another copy's claim is no empty folder, so it stays
        gathered.rename(claim)
    found = _whose(claim)
    if not found:
        raise OSError("the claim could not be made")
    return found


def _place(folder: TaskFolder, order: TaskOrder) -> str:
    """Move what lies in the task's claim to the results; why that cannot be done."""
    claim, results = _claim(folder, order), folder.results(order.key[0])
    try:
        for name in order.outputs:
            source, target = claim / name, results / name
            if not os.path.lexists(source):
                continue  # moved before
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)  # of an earlier task that wrote the same name
            source.replace(target)
    except OSError as error:
        return _why(error)
    return ""


def _why(error: OSError) -> str:
    return f"cannot commit: {error}"


def _claim(folder: TaskFolder, order: TaskOrder) -> Path:
    return folder.run_folder / order.key[0] / CLAIMS / file_name(order.key[1])


def _whose(claim: Path) -> dict[str, object]:
    try:
        found: dict[str, object] = json.loads((claim / _WHOSE).read_text())
        return found if {"copy", "attempt", "boot"} <= found.keys() else {}
    except (OSError, ValueError):
        return {}


def _is_of(whose: dict[str, object], order: TaskOrder) -> bool:
    """True where a claim is this attempt's own: another's is never touched."""
    return (whose.get("copy"), whose.get("attempt")) == (order.key[2], order.attempt)


def _forbid_writing(path: Path) -> None:
    """Results are read by other tasks, through links where they are large."""
    if path.is_symlink():
        return
    for one in (path, *path.rglob("*")) if path.is_dir() else (path,):
        if not one.is_symlink() and not one.is_dir():
            one.chmod(one.stat().st_mode & _READ_ONLY)


def sync(folder: Path) -> None:
    """Everything of the folder's file system onto the disk (syncfs(2)); OSError where it did not
    get there."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if _libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
