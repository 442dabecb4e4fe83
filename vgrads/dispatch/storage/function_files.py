"""A bag whose tasks are calls of functions: large parts of the calls, and large values.

A command of such a bag has three fields, separated by tabs: what it calls, in words; the call,
packed (:mod:`vgrads.agent.functions.packing`), in base64; the digests of its large parts, which lie
in ``parts/``, with commas between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vgrads.dispatch.core.protocol import Files
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.exchange.function_file import build_function_file, compute_function_digest
from vgrads.kernel.errors import InputError

_DIGEST = re.compile(r"[0-9a-f]{64}")
PARTS = "parts"
"""Folder of a bag with the large parts of its calls, by digest (SHA-256)."""


@dataclass
class FunctionFiles(BagFiles):
    """The files of a bag of calls."""

    _arrived: set[tuple[int, int]] = field(default_factory=set)

    @property
    def declared(self) -> bool:
        """Return True: a call may have large parts."""
        return True

    def of(self, task: int) -> Files | None:
        """Return the large parts of a call; None where it has none."""
        digests = find_digests(self.bag.commands.command(task))
        return Files({digest: digest for digest in digests}, ()) if digests else None

    def digests(self, task: int) -> list[str]:
        """Return the digests of the large parts of a call."""
        return find_digests(self.bag.commands.command(task))

    def input(self, digest: str) -> Path | None:
        """Return the file of a large part, or of the program that runs calls."""
        # it comes from an agent and becomes part of a path: nothing but a digest may reach the disk
        if not _DIGEST.fullmatch(digest):
            return None
        path = self.folder / PARTS / digest
        if digest == compute_function_digest() and not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(build_function_file())
        return path if path.is_file() else None

    def place(self, task: int, attempt: int, name: str) -> Path:
        """Return the destination of a large value. Raise InputError for another file."""
        if name != f"{task}.value":
            raise InputError("is not the value of the function", where=name)
        self._arrived.add((task, attempt))
        return self.arriving(task, attempt) / name

    def finish_commits(self, status: Sequence[int], ends: Iterable[np.ndarray]) -> None:
        """Complete the commits after a crash; attempts that still run may report their values."""
        folders = (self.folder / "arriving").glob("*.*")
        for task, attempt in (map(int, folder.name.split(".")[:2]) for folder in folders):
            self._arrived.add((task, attempt))
        super().finish_commits(status, ends)

    def settle(self, task: int, attempt: int, counts: bool) -> None:
        """Commit or discard the value of an ended attempt, if it was large."""
        # most values are small and come with the result: for them
        # nothing is moved or deleted on disk
        if (task, attempt) in self._arrived:
            self._arrived.discard((task, attempt))
            super().settle(task, attempt, counts)


def find_digests(command: str) -> list[str]:
    """Return the digests of the large parts of a call."""
    last: Sequence[str] = command.rpartition("\t")[2].split(",")
    return [digest for digest in last if digest]
