"""Digests of files that agents fetch, and the files of digests."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from vgrads.kernel.user_files import open_user_file


class _Entry(NamedTuple):
    """``stamp``: changes with the file's content; its first value is the size in bytes."""

    stamp: tuple[int, int, int]
    digest: str


class FileDigests:
    """The SHA-256 of files, computed again when a file has changed; from several threads."""

    def __init__(self) -> None:
        self._entries: dict[Path, _Entry] = {}
        self._paths: dict[str, Path] = {}

    def of(self, path: Path) -> str:
        """Return the digest of a file's current content. OSError if it cannot be read."""
        stat = path.stat()
        # with the inode: a file that replaces another may have the same size and time
        stamp = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        entry = self._entries.get(path)
        if entry is None or entry.stamp != stamp:
            with open_user_file(path) as file:
                entry = _Entry(stamp, hashlib.file_digest(file, "sha256").hexdigest())
            self._entries[path] = entry
            self._paths[entry.digest] = path
        return entry.digest

    def latest(self, path: Path) -> tuple[str, int] | None:
        """Return the last digest of a file, and its size in bytes then; None if it has none."""
        entry = self._entries.get(path)
        return None if entry is None else (entry.digest, entry.stamp[0])

    def path(self, digest: str) -> Path | None:
        """Return a file whose last digest is this one."""
        path = self._paths.get(digest)
        if path is not None and self._entries[path].digest == digest:
            return path
        # that file has changed since, but another may still have the content
        return next((p for p, entry in self._entries.items() if entry.digest == digest), None)
