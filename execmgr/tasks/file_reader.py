"""Reads files that users name in a process of its own, for one bag or one run.

The process that asks may have the database open, which it must not read
(:mod:`vgrads.kernel.user_files`), and may be root, which must not read what the user may not; and a
file may never answer. The child has the account of the user's tasks where there is one, and is
killed when its time is over.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Protocol

from vgrads.kernel import user_files
from vgrads.kernel.user_files import Answer, database_parts

FileValues = tuple[int, int, str]
"""Size in bytes, last change (ns since 1970) and digest of a file."""
_MOST_HANGS = 3  # children that are killed before no more is read
_LATE = "does not answer in time"
_CHUNK = 1 << 16
_GRACE_S = 5  # after which a child ends by itself, where this process was killed
_PROGRAM = (sys.executable, "-I", "-S", user_files.__file__)
_VARIABLES = ("LD_LIBRARY_PATH", "TMPDIR")  # without the first, some Pythons do not start


class ReadsFiles(Protocol):
    """Reads files."""

    def read(
        self, files: Mapping[str, FileValues | None] | Collection[str], folders: bool = False
    ) -> dict[str, Answer]:
        """Return for each file its values; None if there is none; or why it was not read."""


class FileReader:
    """Reads files in a child process, which starts with the first question; for any number of
    threads.

    ``account``: under which it reads, if this process is root (0: that of this process);
    ``limit_s``: for one question. ``unread``: file → why it was not read.
    """

    def __init__(self, account: int = 0, limit_s: float = 60.0) -> None:
        self._account, self._limit_s = account, limit_s
        self._child: subprocess.Popen[bytes] | None = None
        self._hangs, self._came = 0, b""
        self._lines: deque[bytes] = deque()
        self._turn = threading.Lock()
        self.unread: dict[str, str] = {}

    def read(
        self, files: Mapping[str, FileValues | None] | Collection[str], folders: bool = False
    ) -> dict[str, Answer]:
        """Return for each file its values; None if there is none; or why it was not read.

        Values of earlier, where they are stated, are returned where size and last change are still
        these. ``folders``: folders count as files.
        """
        before = files if isinstance(files, Mapping) else dict.fromkeys(files)
        with self._turn:
            # a file that did not answer in time would cost the whole limit again
            question = {name: was for name, was in before.items() if self.unread.get(name) != _LATE}
            answers: dict[str, Answer] = {}
            if question and self._hangs < _MOST_HANGS:
                # not strict: a child that hangs or dies leaves the rest without an answer
                for name, answer in zip(question, self._answers(question, folders), strict=False):
                    answers[name] = answer
            result = {name: answers.get(name, _LATE) for name in before}
            self.unread |= {name: why for name, why in result.items() if isinstance(why, str)}
        return result

    def _answers(self, files: Mapping[str, FileValues | None], folders: bool) -> Iterator[Answer]:
        """Yield the answers of the child, as many as come in time."""
        request = {
            "refused": sorted(database_parts()),
            "folders": folders,
            "files": list(files.items()),
        }
        end_s = time.monotonic() + self._limit_s
        try:
            child = self._start()
            assert child.stdin is not None
            child.stdin.write(f"{json.dumps(request)}\n".encode())
            child.stdin.flush()
            for _ in files:
                answer = json.loads(self._line(child, end_s))
                yield tuple(answer) if isinstance(answer, list) else answer
        except (OSError, EOFError, ValueError):  # also killed by somebody else
            self._hangs += 1
            self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            self._came = b""
            self._lines.clear()
            self._child = subprocess.Popen(
                [*_PROGRAM, str(self._account), str(ceil(self._limit_s) + _GRACE_S)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
                start_new_session=True,
            )
        return self._child

    def _line(self, child: subprocess.Popen[bytes], end_s: float) -> bytes:
        """Return the next line of the child. TimeoutError if it does not come in time, EOFError if
        the child has ended."""
        assert child.stdout is not None
        watch = select.poll()
        watch.register(child.stdout, select.POLLIN)
        while not self._lines:
            left_s = end_s - time.monotonic()
            if left_s <= 0 or not watch.poll(left_s * 1000.0):
                raise TimeoutError
            # without a buffer: poll does not see what a buffer has read already
            part = os.read(child.stdout.fileno(), _CHUNK)
            if not part:
                raise EOFError
            *lines, self._came = (self._came + part).split(b"\n")
            self._lines.extend(lines)
        return self._lines.popleft()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        for stream in (child.stdin, child.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()
        with suppress(subprocess.TimeoutExpired):  # one that waits for a dead disk stays
            child.wait(0.5)

    def note(self) -> str:
        """Return how many files were not read, with the first of them; empty if there are none."""
        if not self.unread:
            return ""
        name, why = next(iter(self.unread.items()))
        more = f" and {len(self.unread) - 1:,} more" if len(self.unread) > 1 else ""
        return f"{name}{more} cannot be compared later ({why}): tasks that name them run again"

    def close(self) -> None:
        """End the child."""
        with self._turn:
            self._end()

    def __enter__(self) -> FileReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RunFilesReader:
    """Reads the files of a run: its own, in the folders ``ours``, with the account of this process;
    what its tasks name elsewhere with theirs."""

    def __init__(self, account: int, ours: Collection[Path]) -> None:
        self._named = FileReader(account)
        self._own = FileReader() if account else self._named
        self._ours = tuple(ours)

    def read(
        self, files: Mapping[str, FileValues | None] | Collection[str], folders: bool = False
    ) -> dict[str, Answer]:
        """As :meth:`FileReader.read`."""
        before = files if isinstance(files, Mapping) else dict.fromkeys(files)
        ours = {name for name in before if any(map(Path(name).is_relative_to, self._ours))}
        result: dict[str, Answer] = {}
        for reader, chosen in ((self._own, ours), (self._named, before.keys() - ours)):
            if chosen:
                result |= reader.read({name: before[name] for name in chosen}, folders)
        return result

    def note(self) -> str:
        """Return how many files that tasks name were not read; empty if there are none."""
        return self._named.note()

    def close(self) -> None:
        """End the processes."""
        self._named.close()
        self._own.close()

    def __enter__(self) -> RunFilesReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
