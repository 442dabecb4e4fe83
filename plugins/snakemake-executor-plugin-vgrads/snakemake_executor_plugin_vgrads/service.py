"""The vgrads service of a run: an existing one, or one that the run starts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from snakemake_interface_common.exceptions import WorkflowError

from vgrads.kernel.errors import VgradsError
from vgrads.portal.client import Client

_PATIENCE_S = 60.0


class Served:
    """A service; ``log``: the log file of a service started by the run."""

    def __init__(self, url: str, token: str, sites: str, log: Path) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._log = log
        if not url:
            url, token = self._begin(sites)
        elif sites:
            raise WorkflowError(
                "--vgrads-sites applies only to a service that is started here; the service at "
                "--vgrads-url has its own sites"
            )
        self.url = url
        self.client = Client(url, token=token)

    def _begin(self, sites: str) -> tuple[str, str]:
        command = [
            *_vgrads(),
            "serve",
            "--own",
            "--port",
            "0",
            *(["--sites", str(Path(sites).resolve())] if sites else []),
        ]
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            result = json.loads(line)
            return str(result["url"]), str(result["token"])
        except (ValueError, KeyError) as error:
            self.close()
            lines = self._log.read_text().strip().splitlines()[-3:]
            raise WorkflowError(
                "vgrads did not start: " + (" ".join(lines) or f"see {self._log}")
            ) from error

    @property
    def gone(self) -> bool:
        """Return True where a service started by the run has terminated."""
        return self._process is not None and self._process.poll() is not None

    def close(self) -> None:
        """Shut down a service started by the run; its state stays in its database."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _vgrads() -> list[str]:
    """Return the command in this Python's folder, else the one on the path, else the module."""
    program = Path(sys.executable).with_name("vgrads")
    command = str(program) if program.is_file() else shutil.which("vgrads")
    return [command] if command else [sys.executable, "-P", "-m", "vgrads"]


def call_service(call: object, *arguments: object, **named: object) -> object:
    """Call the service and return its answer; its errors are raised as Snakemake's workflow
    errors."""
    try:
        return call(*arguments, **named)  # type: ignore[operator]
    except VgradsError as error:
        raise WorkflowError(f"vgrads: {error}") from error
