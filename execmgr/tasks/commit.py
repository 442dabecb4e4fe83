"""Commit of outputs: those of exactly one replica are moved to the results, complete, and on the
disk.

The core decides which replica counts (:mod:`vgrads.execmgr.core.step`). The commit enforces it: a
replica gathers its outputs in a folder, which becomes the task's claim in one rename; an existing
claim belongs to another replica, and is kept. Then each output moves from the claim to the results.
If the process is killed in between, its successor continues from the claim. All of it is on the
disk before the end is reported.
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

from vgrads.execmgr.tasks.folder import CLAIMS, TaskFolder, file_name
from vgrads.execmgr.tasks.helper_thread import HelperThread
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.kernel.clock import boot_id

_GATHERED = ".out"
_WHOSE = ".copy"
_READ_ONLY = 0o555
_BEATEN = "another replica was first"
_libc = ctypes.CDLL(None, use_errno=True)
Report = Callable[[TaskOrder, str], None]
"""Called with an order, and why its outputs do not count; empty if they do."""


class Committer:
    """Commits in a separate thread; waiting commits are done together, with one sync."""

    def __init__(self, folder: TaskFolder, report: Report) -> None:
        self._folder, self._report = folder, report
        self._helper = HelperThread("committer", self._work)

    def put(self, orders: Sequence[TaskOrder]) -> None:
        """Enqueue the outputs of these replicas for the commit."""
        for order in orders:
            self._helper.put(order)

    def close(self) -> None:
        """Finish the queued commits, and stop."""
        self._helper.close()

    def _work(self, waiting: SimpleQueue[TaskOrder | None]) -> None:
        while (order := waiting.get()) is not None:
            bundle, last = [order], False
            with suppress(Empty):
                while (another := waiting.get_nowait()) is not None:
                    bundle.append(another)
                last = True
            for item, reason in zip(bundle, commit(self._folder, bundle), strict=True):
                self._report(item, reason)
            if last:
                return


def commit(folder: TaskFolder, orders: Sequence[TaskOrder]) -> list[str]:
    """Commit the outputs of these replicas; return for each why they do not count, empty if they
    do."""
    reasons = [_find_attempt(folder, order) for order in orders]
    # one syncfs for all that wait: it costs as much for one output as for many
    if not all(reasons):
        try:
            sync(folder.run_folder)
        except OSError as error:
            reasons = [reason or _explain_error(error) for reason in reasons]
    for order, reason in zip(orders, reasons, strict=True):
        if reason and _is_of(_read_claim(_claim(folder, order)), order):
            shutil.rmtree(_claim(folder, order), ignore_errors=True)  # the task must run again
    return reasons


def is_committed(folder: TaskFolder, order: TaskOrder) -> bool:
    """True if outputs of any replica of this task are in place, or can be put there now.

    A claim from before a reboot does not count: it may not have reached the disk.
    """
    whose = _read_claim(_claim(folder, order))
    if not whose or whose.get("boot") != boot_id():
        return False
    return not _place(folder, order)


def _find_attempt(folder: TaskFolder, order: TaskOrder) -> str:
    try:
        claim = _claim(folder, order)
        whose = _read_claim(claim)
        # its data may not have reached the disk before the machine stopped
        if whose and whose["boot"] != boot_id():
            shutil.rmtree(claim)
            whose = {}
        if not whose:
            whose = _write_claim(folder, order, claim)
        if not _is_of(whose, order):
            return _BEATEN
        return _place(folder, order)
    except OSError as error:
        return _explain_error(error)


def _write_claim(folder: TaskFolder, order: TaskOrder, claim: Path) -> dict[str, object]:
    """Gather the outputs and claim the task with them; return the owner of the claim."""
    scratch = folder.place(order)
    gathered = scratch / _GATHERED
    gathered.mkdir(exist_ok=True)
    for name in order.outputs:
        source, target = scratch / name, gathered / name
        if os.path.lexists(source):
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)
            _forbid_writing(target)
        # not even gathered by a commit that was interrupted
        elif not os.path.lexists(target):
            raise FileNotFoundError(f"'{name}' no longer exists")
    mine = {"copy": order.key[2], "attempt": order.attempt, "boot": boot_id()}
    (gathered / _WHOSE).unlink(missing_ok=True)  # the task may have put a link or a pipe there
    with (gathered / _WHOSE).open("x") as file:
        file.write(json.dumps(mine))
    claim.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):  # another's claim is not empty, so it stays
        gathered.rename(claim)
    result = _read_claim(claim)
    if not result:
        raise OSError("the claim could not be created")
    return result


def _place(folder: TaskFolder, order: TaskOrder) -> str:
    """Move the files of the task's claim to the results; return why that failed, or empty."""
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
        return _explain_error(error)
    return ""


def _explain_error(error: OSError) -> str:
    return f"cannot commit: {error}"


def _claim(folder: TaskFolder, order: TaskOrder) -> Path:
    return folder.run_folder / order.key[0] / CLAIMS / file_name(order.key[1])


def _read_claim(claim: Path) -> dict[str, object]:
    try:
        result: dict[str, object] = json.loads((claim / _WHOSE).read_text())
        return result if {"copy", "attempt", "boot"} <= result.keys() else {}
    except (OSError, ValueError):
        return {}


def _is_of(whose: dict[str, object], order: TaskOrder) -> bool:
    """True if a claim belongs to this attempt: others are never touched."""
    return (whose.get("copy"), whose.get("attempt")) == (order.key[2], order.attempt)


def _forbid_writing(path: Path) -> None:
    """Make results read-only: other tasks read them, large ones through links."""
    if path.is_symlink():
        return
    for entry in (path, *path.rglob("*")) if path.is_dir() else (path,):
        if not entry.is_symlink() and not entry.is_dir():
            entry.chmod(entry.stat().st_mode & _READ_ONLY)


def sync(folder: Path) -> None:
    """Write all data of the folder's file system to the disk (syncfs(2)); OSError if that
    failed."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if _libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
