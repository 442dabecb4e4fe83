"""The vgrads service that a run talks to: somebody's, or one of its own."""

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
    """A service; ``log``: where one of its own writes."""

    def __init__(self, url: str, token: str, sites: str, log: Path) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._log = log
        if not url:
            url, token = self._begin(sites)
        elif sites:
            raise WorkflowError(
                "--vgrads-sites is for a service that is started here; the one at "
                "--vgrads-url has its own"
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
            found = json.loads(line)
            return str(found["url"]), str(found["token"])
        except (ValueError, KeyError) as error:
            self.close()
            told = self._log.read_text().strip().splitlines()[-3:]
            raise WorkflowError(
                "vgrads did not start: " + (" ".join(told) or f"see {self._log}")
            ) from error

    @property
    def gone(self) -> bool:
        """True where a service of one's own has ended."""
        return self._process is not None and self._process.poll() is not None

    def close(self) -> None:
        """End a service of one's own; what it was doing stands in its database."""
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
    """The command beside this Python, else the one that is found, else the module."""
    beside = Path(sys.executable).with_name("vgrads")
    found = str(beside) if beside.is_file() else shutil.which("vgrads")
    return [found] if found else [sys.executable, "-P", "-m", "vgrads"]


def asked(call: object, *arguments: object, **named: object) -> object:
    """What the service answers; its errors as Snakemake tells errors of a workflow."""
    try:
        return call(*arguments, **named)  # type: ignore[operator]
    except VgradsError as error:
        raise WorkflowError(f"vgrads: {error}") from error
