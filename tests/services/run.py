"""Start and stop the services that tests need: throw-away, as subprocesses, with their output in
files."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KEY, SECRET = "testing", "testing-secret"
"""Of the EC2-like cloud."""
NEEDED = os.environ.get("VGRADS_SERVICES") == "required"
"""Set by .ci/run: there the services are installed and nothing may skip."""


@dataclass(frozen=True)
class CloudService:
    """The EC2-like cloud: where it listens, where its instances have their folders."""

    port: int
    folder: Path

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def control(self, query: str) -> tuple[int, int]:
        """Change how it behaves; (instances alive, purchases so far)."""
        with urllib.request.urlopen(f"{self.endpoint}/_control?{query}") as answer:
            alive, purchases = answer.read().split()
        return int(alive), int(purchases)


@contextmanager
def cloud_service(folder: Path, boot_s: float = 0.5, capacity: int = 60) -> Iterator[CloudService]:
    """An EC2-like cloud while the block runs."""
    pytest.importorskip("moto", reason="the EC2-like cloud needs moto (the dev extra has it)")
    command = [
        sys.executable,
        "-m",
        "tests.services.ec2_like",
        str(folder),
        "--boot",
        str(boot_s),
        "--capacity",
        str(capacity),
    ]
    with (folder / "cloud.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=HERE.parent.parent,
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            assert first.strip().isdigit(), (folder / "cloud.log").read_text()
            yield CloudService(int(first), folder)
        finally:
            process.terminate()
            process.wait(20)
            process.stdout.close()
