"""A service for tests: as an application in this process, or as the command in one of its own."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from tests import leftovers
from tests.conftest import ROOT
from tests.ports import free_ports
from tests.waiting import until
from vgrads.portal.client import Client
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.store import Store

LEAD = {
    "name": "lead",
    "deadline": "2h",
    "at_least": 1,
    "probability": 0.99,
    "workflows": [{"file": "lead.json", "count": 8}],
}
SMALL = {
    "name": "small",
    "deadline": "1h",
    "workflows": [{"name": "w", "tasks": [{"id": "a", "runtime_s": 60}]}],
}


def bearer(store: Store, user: str = "ann", *scopes: str) -> dict[str, str]:
    """Headers of a request with a new token; its scope is ``submit`` unless stated."""
    secret, _ = AccessControl(store.engine).create(user, scopes or ["submit"], 3600.0)
    return {"Authorization": f"Bearer {secret}"}


class Served:
    """``vgrads serve`` in a process of its own."""

    def __init__(
        self,
        home: Path,
        *options: object,
        port: int = 0,
        folder: Path | None = None,
        umask: int = -1,
    ) -> None:
        self.port = port or free_ports()
        self.url = f"http://127.0.0.1:{self.port}"
        self._home, self._options, self._folder = home, [str(o) for o in options], folder
        self._umask = umask
        # beside that of the tests: a service may live longer than one of them
        parent = Path(tempfile.gettempdir()).parent
        self._temporary = Path(tempfile.mkdtemp(prefix="served-", dir=parent))
        self._temporary.chmod(0o711)  # accounts of tasks have folders in it
        self.log = home / "serve.log"
        self.begin()

    def begin(self) -> None:
        """Start it, and wait until it takes work."""
        command = [
            Path(sys.executable).with_name("vgrads"),
            "serve",
            "--port",
            str(self.port),
            *self._options,
        ]
        environment = {
            **os.environ,
            "VGRADS_HOME": str(self._home),
            "TMPDIR": str(self._temporary),
        }
        environment.pop("VGRADS_DB", None)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stderr=log,
                stdout=log,
                cwd=self._folder,
                umask=self._umask,
            )
        until(self.ready, f"the service ({self.log})", 60)

    def ready(self) -> bool:
        """True where it answers that it takes work."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, http.client.HTTPException):
            return False

    def kill(self) -> None:
        """As a machine that loses power."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def end(self) -> int:
        """Ask it to end; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def left_behind(self) -> list[str]:
        """Its processes; after its end, its hosts."""
        return leftovers.processes(self._temporary)

    def leave(self) -> None:
        """End it, and then its hosts, which stay for the service that comes after it."""
        if self.process.poll() is None:
            self.end()
        leftovers.end_all(self._temporary)
        shutil.rmtree(self._temporary, ignore_errors=True)

    def client(self, token: str = "") -> Client:
        """A client of it."""
        return Client(self.url, token=token)


def serve_this_machine(home: Path, *options: object) -> Served:
    """A service with this machine as a site, which is open to everybody here."""
    environment = {**os.environ, "VGRADS_HOME": str(home)}
    for words in (
        ["sites", "add", str(ROOT / "data/local/local.toml")],
        ["sites", "open", "here", "local"],
    ):
        subprocess.run(
            [sys.executable, "-m", "vgrads", *words],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
        )
    return Served(home, *options)


@contextmanager
def serving(home: Path, *options: object, folder: Path | None = None, umask: int = -1):
    """A service that ends with the block; ``folder``: where it stands; ``umask``: −1: of this
    process."""
    served = Served(home, *options, folder=folder, umask=umask)
    try:
        yield served
    finally:
        served.leave()
