"""Lines of files of records, one at a time: plain, gzip or xz, in UTF-8 or in the UTF-16 that
PowerShell writes."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from vgrads.kernel.errors import InputError
from vgrads.kernel.user_files import open_user_file

CUT_OFF = "the compressed file is cut off or damaged"
LONGEST_LINE = 1 << 27  # characters; JSON may be one line, binary files have none
_BYTE_ORDER_MARK = "\ufeff"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class CutOffError(InputError):
    """A compressed file ends before its end."""


def open_lines(path: Path, errors: str = "strict") -> Iterator[str]:
    """Return the lines of a plain, gzip or xz file, each with its newline, without byte order
    marks; only newlines separate them. ``errors``: of decoding, as in ``bytes.decode``. InputError
    if it is no text."""
    number = 0
    try:
        with open_user_file(path, any_kind=True) as raw, _decode_line(raw, errors) as stream:
            while line := stream.readline(LONGEST_LINE):
                number += 1
                if "\0" in line or len(line) >= LONGEST_LINE:
                    raise InputError("is not a text file", where=f"{path}: line {number}")
                yield line.lstrip(_BYTE_ORDER_MARK) if line[0] == _BYTE_ORDER_MARK else line
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8 text", where=f"{path}: after line {number}") from error
    except FileNotFoundError as error:
        raise InputError("no such file", where=str(path)) from error
    except IsADirectoryError as error:
        raise InputError("is a folder, not a file", where=str(path)) from error
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise CutOffError(CUT_OFF, where=str(path)) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _decode_line(raw: io.BufferedReader, errors: str) -> IO[str]:
    magic = raw.peek(6)[:6]
    stream: IO[bytes] = raw
    if magic[:2] == b"\x1f\x8b":
        stream = io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=raw)))
    elif magic == b"\xfd7zXZ\x00":
        stream = io.BufferedReader(cast(io.RawIOBase, lzma.LZMAFile(raw)))  # noqa: SIM115 the caller closes it
    if stream is not raw:
        magic = cast(io.BufferedReader, stream).peek(2)[:2]
    encoding = "utf-16" if magic[:2] in _UTF_16 else "utf-8"
    # a carriage return within a record must not end its line
    return io.TextIOWrapper(stream, encoding=encoding, errors=errors, newline="\n")
