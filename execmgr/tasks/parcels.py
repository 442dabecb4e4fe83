"""Files of a task on their way between machines that share none: packed, checked, written whole or
not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

MOST_MIB = 512.0
"""In one parcel. It travels through the memory of both ends; more belongs on a shared file
system."""


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file: its name below the folder, its mode, its content with the checksum that was reckoned
    at the source."""

    name: str
    mode: int
    sha256: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Parcel:
    """Files that travel together."""

    files: tuple[PackedFile, ...]

    @property
    def mib(self) -> float:
        return sum(len(file.content) for file in self.files) / 1024 / 1024


def pack(files: Mapping[str, Path]) -> Parcel:
    """Name → file as a parcel; OSError where one is missing or they are too many MiB."""
    size_mib = sum(path.stat().st_size for path in files.values()) / 1024 / 1024
    if size_mib > MOST_MIB:
        raise OSError(
            f"its files have {size_mib:.0f} MiB, over the {MOST_MIB:.0f} that are sent; "
            "share a file system instead"
        )
    return Parcel(tuple(_packed(name, path) for name, path in sorted(files.items())))


def _packed(name: str, path: Path) -> PackedFile:
    content = path.read_bytes()
    return PackedFile(
        name, path.stat().st_mode & 0o777, hashlib.sha256(content).hexdigest(), content
    )


def unpack(parcel: Parcel, folder: Path, only: Iterable[str] | None = None) -> None:
    """Write a parcel's files below a folder, each in one rename; OSError where a checksum is wrong.

    ``only``: the names that were asked for; others are not written, and none may lead out of the
    folder.
    """
    wanted = None if only is None else set(only)
    for file in parcel.files:
        if wanted is not None and file.name not in wanted:
            continue
        target = folder / file.name
        if not target.resolve().is_relative_to(folder.resolve()):
            raise OSError(f"'{file.name}' leads out of its folder")
        if hashlib.sha256(file.content).hexdigest() != file.sha256:
            raise OSError(f"'{file.name}' was damaged on its way")
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.draft")
        draft.write_bytes(file.content)
        draft.chmod(file.mode)
        draft.replace(target)
