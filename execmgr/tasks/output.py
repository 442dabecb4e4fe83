"""Printed text of tasks: stored for every attempt; only the end if it is long."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from vgrads.kernel.user_files import is_database, open_user_file

STDOUT, STDERR = "stdout.txt", "stderr.txt"
"""In a scratch folder: printed text of a task."""
MAX_STORED = 2**20
"""Bytes at the end of each that are kept when scratch folders are removed, and sent from other
machines."""


def read_tail(file: Path, most: int = 4096) -> str:
    """Return the end of a file, whole lines if it is longer; empty if it is missing or not a
    regular file."""
    try:
        with open_user_file(file, follow=False) as printed:  # a task may have put anything there
            size = printed.seek(0, os.SEEK_END)
            printed.seek(max(0, size - most))
            text = printed.read(most).decode(errors="replace")
    except OSError:
        return ""
    # what was cut off in front began within a line
    return text.partition("\n")[2] if size > most and "\n" in text else text


def read_since(
    file: Path, position: int, whole_lines: bool, most: int = MAX_STORED
) -> tuple[str, int]:
    """Return the text of a file after a position, and the new position; nothing if the file is
    missing or not a regular file. ``whole_lines``: an unfinished line is returned only when it is
    complete."""
    try:
        with open_user_file(file, follow=False) as printed:
            printed.seek(position)
            body = printed.read(most)
    except OSError:
        return "", position
    # a full part may end within a line that is too long to wait for
    if whole_lines and len(body) < most:
        body = body[: body.rfind(b"\n") + 1]
    return body.decode(errors="replace"), position + len(body)


def put_first(scratch: Path, line: str) -> None:
    """Put a line before a task's standard error: its last line remains the reason of its end."""
    file = scratch / STDERR
    with suppress(OSError):
        if file.is_file() and not file.is_symlink() and not is_database(file):
            text = read_tail(file, MAX_STORED)
            if not text.startswith(line):
                file.write_text(f"{line}\n{text}")


def shorten(scratch: Path) -> dict[str, Path]:
    """Truncate the printed text of an ended task to its end; return name → file of those that
    exist."""
    result = {}
    for name in (STDOUT, STDERR):
        file = scratch / name
        if not file.is_file() or file.is_symlink() or is_database(file):
            continue
        if file.stat().st_size > MAX_STORED:
            file.write_text(read_tail(file, MAX_STORED))
        result[name] = file
    return result


def keep_output(scratch: Path) -> None:
    """Remove a scratch folder's content except the printed text of its task."""
    stored_names = set(shorten(scratch).values())
    for path in scratch.iterdir() if scratch.is_dir() else ():
        if path in stored_names:
            continue
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
