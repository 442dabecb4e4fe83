"""A throw-away PostgreSQL on the loopback address, in one folder, without guarantees against power
cuts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_ports
from tests.waiting import until

_AS_USER = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


def _bin() -> Path | None:
    """The folder of the newest installed server."""
    paths = (
        sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if Path("/usr/lib/postgresql").is_dir()
        else []
    )
    return paths[-1].parent if paths else None


def missing() -> str:
    """What is not installed; empty where all is there."""
    if os.getuid() != 0:
        return "the PostgreSQL service needs root (it becomes the user postgres)"
    return "" if _bin() else "PostgreSQL is not installed (tests/services/install.sh)"


class Server:
    """An empty database in a folder; started at once."""

    def __init__(self, folder: Path) -> None:
        programs = _bin()
        assert programs
        self._programs, self._data, self._log = programs, folder / "data", folder / "postgres.log"
        self._data.mkdir()
        for part in [self._data, *self._data.parents]:
            if part.stat().st_uid == os.getuid() and not part.stat().st_mode & 0o001:
                part.chmod(part.stat().st_mode | 0o011)
        shutil.chown(self._data, "postgres")
        self.port = free_ports()
        self.url = f"postgresql+psycopg://vgrads@127.0.0.1:{self.port}/postgres"
        subprocess.run(
            [*_AS_USER, programs / "initdb", "-D", self._data, "-A", "trust", "-U", "vgrads"],
            check=True,
            capture_output=True,
            cwd="/",
        )
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *_AS_USER,
                    self._programs / "postgres",
                    "-D",
                    self._data,
                    "-p",
                    str(self.port),
                    "-h",
                    "127.0.0.1",
                    "-c",
                    "fsync=off",
                    "-c",
                    f"unix_socket_directories={self._data}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )
        ready = [self._programs / "pg_isready", "-h", "127.0.0.1", "-p", str(self.port)]
        until(
            lambda: subprocess.run(ready, check=False, capture_output=True).returncode == 0,
            "PostgreSQL",
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop it as ``pg_ctl stop -m`` does: fast breaks connections off, immediate is a crash."""
        numbers = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
        self._process.send_signal(numbers[mode])
        self._process.wait(20)


@contextmanager
def postgres_server(folder: Path) -> Iterator[Server]:
    """A server that ends with the block."""
    server = Server(folder)
    try:
        yield server
    finally:
        server.stop("immediate")


@contextmanager
def postgres_service(folder: Path) -> Iterator[str]:
    """The URL of an empty database while the block runs."""
    with postgres_server(folder) as server:
        yield server.url
