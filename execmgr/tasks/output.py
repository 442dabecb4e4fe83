"""What tasks print: kept for every attempt, the end of it where it is long."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

STDOUT, STDERR = "stdout.txt", "stderr.txt"
"""In a scratch folder: what a task printed."""
MOST_KEPT = 2**20
"""Bytes of the end of each that are kept when scratch folders go, and that travel from other
machines."""


def tail(file: Path, most: int = 4096) -> str:
    """The end of a file, whole lines where it is longer; empty where there is none, or something
    else in its place."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as printed:
            if not stat.S_ISREG(os.fstat(handle).st_mode):  # a task may have put anything there
                return ""
            size = printed.seek(0, os.SEEK_END)
            printed.seek(max(0, size - most))
            text = printed.read(most).decode(errors="replace")
    except OSError:
        return ""
    return text.partition("\n")[2] if size > most and "\n" in text else text


def since(file: Path, position: int, whole_lines: bool, most: int = MOST_KEPT) -> tuple[str, int]:
    """What a file has had since a position, and the position behind it; nothing where there is
    none, or something else in its place. ``whole_lines``: a line that is still being written waits
    for its end."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as printed:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return "", position
            printed.seek(position)
            found = printed.read(most)
    except OSError:
        return "", position
    if whole_lines and len(found) < most:
        found = found[: found.rfind(b"\n") + 1]
    return found.decode(errors="replace"), position + len(found)


def put_first(scratch: Path, line: str) -> None:
    """Put a line before what a task complained of: its last line stays the reason of its end."""
    file = scratch / STDERR
    with suppress(OSError):
        if file.is_file() and not file.is_symlink():
            text = tail(file, MOST_KEPT)
            if not text.startswith(line):
                file.write_text(f"{line}\n{text}")


def shorten(scratch: Path) -> dict[str, Path]:
    """Cut what a task that has ended printed down to its end; name → file of what there is."""
    found = {}
    for name in (STDOUT, STDERR):
        file = scratch / name
        if not file.is_file() or file.is_symlink():
            continue
        if file.stat().st_size > MOST_KEPT:
            file.write_text(tail(file, MOST_KEPT))
        found[name] = file
    return found


def keep_output(scratch: Path) -> None:
    """Remove a scratch folder's content but for what its task printed."""
    kept = set(shorten(scratch).values())
    for path in scratch.iterdir() if scratch.is_dir() else ():
        if path in kept:
            continue
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
