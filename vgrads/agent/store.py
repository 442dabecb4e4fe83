"""Files of tasks on a node: inputs are fetched by digest and cached, outputs are sent before the
end is reported.

Shipped to nodes: the standard library only, Python 3.8 or newer. A few threads wait for the
network, each with its own connection.
"""

from __future__ import annotations

import hashlib
import os
import queue
import random
import shutil
import stat
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Collection, Iterator, Mapping
from urllib.parse import quote

from .link import OURS, ManagerAddress

if TYPE_CHECKING:
    from http.client import HTTPResponse

_THREADS = 4
_PIECE = 1 << 20
_TRIES = 3  # for an input whose bytes do not match its digest
_LONGEST_S = 20.0  # between two tries


class FetchFailed(Exception):
    """A permanent error: a retry does not help."""


class FileCache:
    """The cache of inputs, and the threads that transfer files."""

    def __init__(self, manager: ManagerAddress, folder: Path, ring: Callable[[], None]) -> None:
        self._manager, self._folder, self._ring = manager, folder, ring
        self._names = f"{folder}/"
        self._work: queue.SimpleQueue[Callable[[Any], None]] = queue.SimpleQueue()
        self._threads = 0
        self._stop = threading.Event()
        self.fetched: deque[tuple[str, str, float]] = deque()
        """Digests of received inputs, each with its error, else empty, and the start time of its
        transfer."""
        self.sent: deque[tuple[Any, float, list[str]]] = deque()
        """Arguments of :meth:`send`, the seconds that it took, and the errors."""

    def cached(self) -> list[str]:
        """Return the digests of the cached inputs."""
        with suppress(OSError):
            return sorted(name for name in os.listdir(self._folder) if is_digest(name))  # noqa: PTH208
        return []

    def has(self, digest: str) -> bool:
        """Return True where an input is cached."""
        return os.path.isfile(f"{self._names}{digest}")  # noqa: PTH113 for each task: fast

    def fetch(self, digest: str) -> None:
        """Fetch an input; it is added to ``fetched`` when it is cached, or cannot be fetched."""

        def work(line: _Line) -> None:
            try:
                self._fetch(line, digest)
                self.fetched.append((digest, "", line.began_s))
            except (FetchFailed, OSError) as error:  # OSError: no room on the disk
                self.fetched.append((digest, f"input {digest[:12]}: {error}", time.monotonic()))
            self._ring()

        self._begin(work)

    def _fetch(self, line: _Line, digest: str) -> None:
        self._make_folder()
        part = self._folder / f".{os.getpid()}.{threading.get_ident()}.part"
        try:
            for _ in range(_TRIES):
                if line.get(f"/inputs/{digest}", part) == digest:
                    part.chmod(0o444)  # tasks see it through a link
                    part.replace(self._folder / digest)
                    return
            raise FetchFailed("the content does not match its digest")
        finally:
            with suppress(OSError):
                part.unlink()

    def _make_folder(self) -> None:
        """Create the cache: tasks of other accounts open its files, and do not list them."""
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._folder.chmod(0o711)  # whatever the umask

    def place(
        self,
        folder: Path,
        inputs: Mapping[str, str],
        outputs: list[str],
        executable: Collection[str] = (),
    ) -> None:
        """Create a task's folder with its inputs; ``executable``: those that are programs. Raise
        OSError, FetchFailed where that fails."""
        folder.mkdir()
        for name in outputs:
            _resolve_inside(folder, name).parent.mkdir(parents=True, exist_ok=True)
        for name, digest in inputs.items():
            path = _resolve_inside(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if name in executable:
                (self._folder / digest).chmod(0o555)
            if name in outputs:
                shutil.copyfile(self._folder / digest, path)
                path.chmod(0o755 if name in executable else 0o644)
            else:
                path.symlink_to(self._folder / digest)

    def send(
        self,
        token: object,
        key: tuple[int, int, int],
        folder: Path,
        outputs: list[str],
        account: int = 0,
    ) -> None:
        """Send a task's outputs and remove its folder; it is then added to ``sent``. ``account``:
        of the task; then only its own files are sent, and links are not followed."""

        def work(line: _Line) -> None:
            began_s, wrong = time.monotonic(), []
            for name in outputs:
                path = _resolve_inside(folder, name)
                address = f"/outputs/{key[0]}/{key[1]}/{key[2]}/{quote(name, safe='')}"
                try:
                    if account:
                        with _open_own_file(folder, name, account) as number:
                            line.put(address, Path(f"/proc/self/fd/{number}"))
                    elif path.is_file():
                        line.put(address, path)
                    else:
                        raise FileNotFoundError
                except FileNotFoundError:
                    wrong.append(f"did not write {name!r}")
                except (FetchFailed, OSError) as error:
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
        """Stop all retries."""
        self._stop.set()


class _Line:
    """A thread's connection; retries until the manager answers."""

    def __init__(self, manager: ManagerAddress, stop: threading.Event) -> None:
        self._manager, self._stop = manager, stop
        self._connection: Any = None
        self.began_s = 0.0  # when the last answer started to arrive

    def get(self, address: str, path: Path) -> str:
        """Download an address to a file; return its sha256."""

        def once(connection: Any) -> tuple[int, str]:
            connection.request("GET", address, headers=self._manager.headers)
            answer = connection.getresponse()
            self.began_s = time.monotonic()
            digest = hashlib.sha256()
            if answer.status != 200:
                answer.read()
                return _find_status(answer), ""
            try:
                file = path.open("wb")
            except OSError as error:
                raise FetchFailed(str(error)) from None
            with file:
                for piece in iter(lambda: answer.read(_PIECE), b""):
                    digest.update(piece)
                    _write(file, piece)
            # the connection ended before the announced length: the next try starts again
            if answer.length:
                raise ConnectionResetError("cut")
            return 200, digest.hexdigest()

        return self._with_retries(once)

    def put(self, address: str, path: Path) -> None:
        """Upload a file."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            for piece in iter(lambda: file.read(_PIECE), b""):
                digest.update(piece)

        def once(connection: Any) -> tuple[int, str]:
            headers = {
                **self._manager.headers,
                "X-Sha256": digest.hexdigest(),
                "X-Executable": "1" if path.stat().st_mode & 0o100 else "",
                "Content-Length": str(path.stat().st_size),
            }
            with path.open("rb") as file:
                connection.request("PUT", address, body=file, headers=headers)
            answer = connection.getresponse()
            answer.read()
            return _find_status(answer), ""

        self._with_retries(once)

    def _with_retries(self, once: Callable[[Any], tuple[int, str]]) -> str:
        import http.client  # noqa: PLC0415 loads much; most hosts move no files

        pause_s = 1.0
        while not self._stop.is_set():
            try:
                if self._connection is None:
                    self._connection = http.client.HTTPConnection("manager")
                    self._connection.sock = self._manager.connect()
                status, text = once(self._connection)
                if status == 200:
                    return text
                if 400 <= status < 500 and status not in (408, 429):
                    raise FetchFailed(f"the manager answered {status}")
            except (OSError, ValueError, http.client.HTTPException):
                pass  # manager away: ends, and tasks that need the input, wait
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            # at random: otherwise all agents would ask a manager that returns at the same time
            self._stop.wait(random.uniform(0, pause_s))
            pause_s = min(2 * pause_s, _LONGEST_S)
        raise FetchFailed("the agent is leaving")


def _find_status(answer: HTTPResponse) -> int:
    """Return the status of an answer; 502 for an error that is not the manager's own."""
    if answer.status >= 400 and answer.headers.get(OURS) is None:
        return 502
    return int(answer.status)


def _write(file: Any, piece: bytes) -> None:
    try:
        file.write(piece)
    except OSError as error:  # an error of the disk, not of the network
        raise FetchFailed(str(error)) from None


def _resolve_inside(folder: Path, name: str) -> Path:
    """Return the path of a file in a task's folder. Raise FetchFailed for a name outside it."""
    path = Path(name)
    if not name or path.is_absolute() or ".." in path.parts:
        raise FetchFailed(f"not a valid name of a file in a task's folder: {name!r}")
    return folder / path


@contextmanager
def _open_own_file(folder: Path, name: str, account: int) -> Iterator[int]:
    """Open a file of an account in a task's folder. Raise FetchFailed for one of another account:
    this process may read more than the task."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in Path(name).parts:  # no link at any place
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            following = os.open(part, flags, dir_fd=number)
            os.close(number)
            number = following
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != account:
            raise FetchFailed("not a plain file of the task's account")
        yield number
    finally:
        os.close(number)


def is_digest(name: str) -> bool:
    """Return True for a sha256 in hexadecimal."""
    return len(name) == 64 and all(letter in "0123456789abcdef" for letter in name)
