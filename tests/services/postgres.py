"""A throw-away PostgreSQL on the loopback address, in one folder, without guarantees against power cuts."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import until


def _bin() -> Path | None:
    """The folder of the newest installed server."""
    found = (
        sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if Path("/usr/lib/postgresql").is_dir()
        else []
    )
    return found[-1].parent if found else None


def missing() -> str:
    """What is not installed; empty where all is there."""
    if os.getuid() != 0:
        return "the PostgreSQL service needs root (it becomes the user postgres)"
    return "" if _bin() else "PostgreSQL is not installed (tests/services/install.sh)"


@contextmanager
def postgres_service(folder: Path) -> Iterator[str]:
    """The URL of an empty database while the block runs."""
    programs = _bin()
    assert programs
    data = folder / "data"
    data.mkdir()
    for part in [data, *data.parents]:
        if part.stat().st_uid == os.getuid() and not part.stat().st_mode & 0o001:
            part.chmod(part.stat().st_mode | 0o011)
    shutil.chown(data, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    subprocess.run(
        [*as_user, programs / "initdb", "-D", data, "-A", "trust", "-U", "vgrads"],
        check=True,
        capture_output=True,
        cwd="/",
    )
    with (folder / "postgres.log").open("wb") as log:
        server = subprocess.Popen(
            [*as_user, programs / "postgres", "-D", data, "-p", str(port), "-h", "127.0.0.1", "-c", "fsync=off",
             "-c", f"unix_socket_directories={data}"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
        )  # fmt: skip
        try:
            ready = [programs / "pg_isready", "-h", "127.0.0.1", "-p", str(port)]
            until(
                lambda: subprocess.run(ready, check=False, capture_output=True).returncode == 0,
                "PostgreSQL",
            )
            yield f"postgresql+psycopg://vgrads@127.0.0.1:{port}/postgres"
        finally:
            server.terminate()
            server.wait(20)
