"""Commands in a pseudo-terminal of a stated width, and what a person would see there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from vgrads.kernel.text_table import display_width
from vgrads.portal.main import main

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]")


@dataclass(frozen=True)
class Screen:
    """The output of a command. ``raw``: with control sequences."""

    code: int
    raw: str

    @property
    def text(self) -> str:
        return _CONTROL.sub("", self.raw).replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        return [line for part in self.text.split("\n") for line in part.split("\r")]

    @property
    def words(self) -> set[str]:
        """All words, without rules and without the last line of a narrower table."""
        text = re.sub(r"not\s+shown:.*?\(--wide\s+shows\s+all\)", "", self.text, flags=re.DOTALL)
        return {word for word in text.split() if set(word) != {"─"}}

    def too_long(self, columns: int) -> list[str]:
        """The lines that the terminal would break within a word."""
        return [
            line
            for line in self.lines
            if display_width(line.rstrip()) > columns and " " in line.strip()
        ]


def in_terminal(columns: int, *arguments: object) -> Screen:
    """Run a command in this process with a pseudo-terminal as its output and error."""
    with terminal_of(columns) as written, pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return Screen(int(stop.value.code or 0), b"".join(written).decode())


def open_terminal(columns: int) -> tuple[int, int]:
    """Open a pseudo-terminal; return the end that reads what programs print, and theirs."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return reader, writer


@contextmanager
def terminal_of(columns: int) -> Iterator[list[bytes]]:
    """A pseudo-terminal as output and error of this process; what is written there."""
    reader, writer = open_terminal(columns)
    written: list[bytes] = []
    thread = threading.Thread(target=_copy, args=(reader, written))
    thread.start()
    saved = [(stream, getattr(sys, stream)) for stream in ("stdout", "stderr")]
    descriptors = [(number, os.dup(number)) for number in (1, 2)]
    try:
        for number, _ in descriptors:
            os.dup2(writer, number)
        for name, _ in saved:
            setattr(sys, name, os.fdopen(os.dup(writer), "w", encoding="utf-8"))
        yield written
    finally:
        for name, stream in saved:
            getattr(sys, name).close()
            setattr(sys, name, stream)
        for number, descriptor in descriptors:
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(writer)
        thread.join()
        os.close(reader)


def _copy(reader: int, written: list[bytes]) -> None:
    """Read until the terminal is closed, which Linux reports as an error."""
    try:
        while data := os.read(reader, 65536):
            written.append(data)
    except OSError:
        return
