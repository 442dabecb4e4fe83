"""Text files as input and output: plain, gzip or xz, with errors that name them; durable files."""

from __future__ import annotations

import gzip
import lzma
import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from vgrads.kernel.errors import InputError
from vgrads.kernel.user_files import is_database, open_user_file


def read_text(path: Path, errors: str = "strict", *, any_kind: bool = True) -> str:
    """Return the UTF-8 text of a plain, gzip or xz file; ``errors`` as in ``bytes.decode``;
    ``any_kind``: of a pipe too."""
    try:
        with open_user_file(path, any_kind=any_kind) as file:
            raw = file.read()
        # by the content, whatever the name says
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        elif raw[:6] == b"\xfd7zXZ\x00":
            raw = lzma.decompress(raw)
        return raw.decode("utf-8", errors)
    except FileNotFoundError as error:
        raise InputError("no such file", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8 text", where=str(path)) from error
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise InputError("the compressed file is cut off or damaged", where=str(path)) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text to a file; InputError if that fails."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, body: bytes) -> None:
    """Write bytes to a file; InputError if that fails."""
    refuse_database(path)
    try:
        path.write_bytes(body)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from error


def refuse_database(path: Path) -> None:
    """Raise InputError for a file of the database that this process has open, which a user named to
    be written."""
    if is_database(path):
        raise InputError("is a file of vgrads' own database", where=str(path))


def write_whole(path: Path, body: bytes, mode: int = 0o666) -> None:
    """Write a file atomically, so that it is complete or absent even after a crash. OSError if that
    fails; ``mode``: of a new file, less the umask."""
    draft = path.with_suffix(".draft")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with name_in_errors(path, draft):
        with os.fdopen(os.open(draft, flags, mode), "wb") as file:
            file.write(body)
            file.flush()
            # the content before the name: after a crash the name must not lead to an empty file
            os.fsync(file.fileno())
        draft.replace(path)
    # the new name is durable only with its folder
    sync_folder(path.parent)


@contextmanager
def name_in_errors(path: Path, draft: Path) -> Iterator[None]:
    """Name a file in an OSError, and not the draft that is to replace it, of which nobody knows."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and os.fspath(error.filename) == str(draft):
            error.filename = str(path)
            error.filename2 = None
        raise


@contextmanager
def replace_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that replaces this path when it is complete; no crash of this process leaves a
    part of it there. OSError if that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # several threads and processes may replace the same file
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with name_in_errors(path, draft):
        try:
            with draft.open("wb") as file:
                yield file
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names of a folder's files durable. OSError if that fails."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
