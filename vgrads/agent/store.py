"""Files of tasks on a host: inputs come by their digest and are kept, outputs are sent before the
end is told.

Shipped to hosts: the standard library only, Python 3.8 or newer. A few threads wait for the
network, each with a connection of its own.
"""

from __future__ import annotations

import hashlib
import os
import queue
import random
import shutil
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Mapping
from urllib.parse import quote

from .link import Manager

_THREADS = 4
_PIECE = 1 << 20
_TRIES = 3  # with an input whose bytes are not what its digest says
_LONGEST_S = 20.0  # between two tries


class Hopeless(Exception):
    """Trying again does not help."""


class Store:
    """The cache of inputs, and the threads that move files."""

    def __init__(self, manager: Manager, folder: Path, ring: Callable[[], None]) -> None:
        self._manager, self._folder, self._ring = manager, folder, ring
        self._work: queue.SimpleQueue[Callable[[Any], None]] = queue.SimpleQueue()
        self._threads = 0
        self._stop = threading.Event()
        self.fetched: deque[tuple[str, str, float]] = deque()
        """Digests of inputs that came, each with what was wrong, else empty, and when it began to
        come."""
        self.sent: deque[tuple[Any, float, list[str]]] = deque()
        """What :meth:`send` was called with, the seconds that it took and what is to be complained
        of."""

    def cached(self) -> list[str]:
        """Digests of the inputs that are here."""
        with suppress(OSError):
            return sorted(name for name in os.listdir(self._folder) if is_digest(name))  # noqa: PTH208
        return []

    def has(self, digest: str) -> bool:
        """True where an input is here."""
        return (self._folder / digest).is_file()

    def fetch(self, digest: str) -> None:
        """Fetch an input; it stands in ``fetched`` when it is here, or cannot be had."""

        def work(line: _Line) -> None:
            try:
                self._fetch(line, digest)
                self.fetched.append((digest, "", line.began_s))
            except (Hopeless, OSError) as error:  # OSError: no room on the disk
                self.fetched.append((digest, f"input {digest[:12]}: {error}", time.monotonic()))
            self._ring()

        self._begin(work)

    def _fetch(self, line: _Line, digest: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / f".{os.getpid()}.{threading.get_ident()}.part"
        try:
            for _ in range(_TRIES):
                if line.get(f"/inputs/{digest}", part) == digest:
                    part.chmod(0o444)  # tasks see it through a link
                    part.replace(self._folder / digest)
                    return
            raise Hopeless("other bytes than its digest says")
        finally:
            with suppress(OSError):
                part.unlink()

    def place(self, folder: Path, inputs: Mapping[str, str], outputs: list[str]) -> None:
        """A task's folder with its inputs; OSError, Hopeless where that cannot be made."""
        folder.mkdir()
        for name in outputs:
            _inside(folder, name).parent.mkdir(parents=True, exist_ok=True)
        for name, digest in inputs.items():
            path = _inside(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if name in outputs:
                shutil.copyfile(self._folder / digest, path)
            else:
                path.symlink_to(self._folder / digest)

    def send(
        self, token: object, key: tuple[int, int, int], folder: Path, outputs: list[str]
    ) -> None:
        """Send a task's outputs and remove its folder; it stands in ``sent`` then."""

        def work(line: _Line) -> None:
            began_s, wrong = time.monotonic(), []
            for name in outputs:
                path = _inside(folder, name)
                try:
                    if path.is_file():
                        line.put(
                            f"/outputs/{key[0]}/{key[1]}/{key[2]}/{quote(name, safe='')}", path
                        )
                    else:
                        wrong.append(f"did not write {name!r}")
                except (Hopeless, OSError) as error:
                    wrong.append(f"could not send {name!r}: {error}")
            shutil.rmtree(folder, ignore_errors=True)
            self.sent.append((token, time.monotonic() - began_s, wrong))
            self._ring()

        self._begin(work)

    def _begin(self, work: Callable[[_Line], None]) -> None:
        self._work.put(work)
        if self._threads < _THREADS:
            self._threads += 1
            threading.Thread(target=self._work_on, daemon=True).start()

    def _work_on(self) -> None:
        line = _Line(self._manager, self._stop)
        while not self._stop.is_set():
            self._work.get()(line)

    def close(self) -> None:
        """No more tries."""
        self._stop.set()


class _Line:
    """A thread's connection; tries again until the manager is back."""

    def __init__(self, manager: Manager, stop: threading.Event) -> None:
        self._manager, self._stop = manager, stop
        self._connection: Any = None
        self.began_s = 0.0  # when the last answer began to come

    def get(self, address: str, path: Path) -> str:
        """Write what is there to a file; its sha256."""

        def once(connection: Any) -> tuple[int, str]:
            connection.request("GET", address, headers=self._manager.headers)
            answer = connection.getresponse()
            self.began_s = time.monotonic()
            digest = hashlib.sha256()
            if answer.status != 200:
                answer.read()
                return answer.status, ""
            try:
                file = path.open("wb")
            except OSError as error:
                raise Hopeless(str(error)) from None
            with file:
                for piece in iter(lambda: answer.read(_PIECE), b""):
                    digest.update(piece)
                    _write(file, piece)
            if answer.length:
                raise ConnectionResetError("cut")
            return 200, digest.hexdigest()

        return self._insist(once)

    def put(self, address: str, path: Path) -> None:
        """Send a file."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            for piece in iter(lambda: file.read(_PIECE), b""):
                digest.update(piece)

        def once(connection: Any) -> tuple[int, str]:
            headers = {
                **self._manager.headers,
                "X-Sha256": digest.hexdigest(),
                "Content-Length": str(path.stat().st_size),
            }
            with path.open("rb") as file:
                connection.request("PUT", address, body=file, headers=headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status, ""

        self._insist(once)

    def _insist(self, once: Callable[[Any], tuple[int, str]]) -> str:
        import http.client  # noqa: PLC0415 loads much; most hosts move no files

        pause_s = 1.0
        while not self._stop.is_set():
            try:
                if self._connection is None:
                    self._connection = http.client.HTTPConnection("manager")
                    self._connection.sock = self._manager.connect()
                status, said = once(self._connection)
                if status == 200:
                    return said
                if 400 <= status < 500 and status not in (408, 429):
                    raise Hopeless(f"the manager says {status}")
            except (OSError, http.client.HTTPException):
                pass  # it is away: the task's end waits, and so does whoever needs the input
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._stop.wait(random.uniform(0, pause_s))
            pause_s = min(2 * pause_s, _LONGEST_S)
        raise Hopeless("the host leaves")


def _write(file: Any, piece: bytes) -> None:
    try:
        file.write(piece)
    except OSError as error:  # the disk, not the network
        raise Hopeless(str(error)) from None


def _inside(folder: Path, name: str) -> Path:
    """A file of a task's folder; Hopeless for a name that leads out of it."""
    path = Path(name)
    if not name or path.is_absolute() or ".." in path.parts:
        raise Hopeless(f"no name of a file in a task's folder: {name!r}")
    return folder / path


def is_digest(name: str) -> bool:
    """True for a sha256 in hexadecimal."""
    return len(name) == 64 and all(letter in "0123456789abcdef" for letter in name)
