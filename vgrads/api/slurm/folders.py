"""The folder of a submission: script, environment, and what its jobs report.

The environment is in ``job.json``, readable by its owner alone; it is in no database, journal or
log, and the folder is removed when no job of the submission can be requeued any more.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgrads.kernel.files import replace_file, write_whole
from vgrads.kernel.record_file import LINES, RecordFile
from vgrads.slurm import job_program

_PROGRAM = "job_program.py"


class JobFolders:
    """The folders of all submissions, below one that all nodes reach."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        text, program = Path(job_program.__file__).read_bytes(), root / _PROGRAM
        if not program.exists() or program.read_bytes() != text:
            with replace_file(program) as file:
                file.write(text)

    def folder(self, submission: int) -> Path:
        """Return the folder of a submission."""
        return self._root / f"{submission // 1000}" / str(submission)

    def create(self, submission: int, script: str, spec: Mapping[str, Any]) -> None:
        """Write script and environment. Raise OSError; then nothing is left."""
        folder = self.folder(submission)
        shutil.rmtree(folder, ignore_errors=True)  # of a submission that was never stored
        folder.mkdir(mode=0o700, parents=True)
        try:
            _write(folder / "script", script.encode("utf-8", "surrogateescape"), 0o700)
            _write(folder / "job.json", json.dumps(spec).encode(), 0o600)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def change(self, submission: int, changes: Mapping[str, Any]) -> None:
        """Change what jobs read at their start. Raise OSError."""
        path = self.folder(submission) / "job.json"
        spec = {**json.loads(path.read_bytes()), **changes}
        write_whole(path, json.dumps(spec).encode(), 0o600)

    def remove(self, submission: int) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder(submission), ignore_errors=True)

    def exists(self, submission: int) -> bool:
        """Return True while its jobs can run."""
        return (self.folder(submission) / "job.json").exists()

    def script(self, submission: int) -> str:
        """Return the text of the script. OSError where it was removed."""
        body = (self.folder(submission) / "script").read_bytes()
        return body.decode("utf-8", "surrogateescape")

    def command(self, submission: int, position: int, generation: int) -> str:
        """Return the command that runs a job on its node."""
        python, program = shlex.quote(sys.executable), shlex.quote(str(self._root / _PROGRAM))
        folder = shlex.quote(str(self.folder(submission)))
        return (
            # a node may have no Python where this machine has it
            f'P={python}; [ -x "$P" ] || P=python3; '
            f'exec "$P" -IS {program} {folder} {position} {generation}'
        )

    def started(self, submission: int, position: int, generation: int) -> dict[str, Any]:
        """Return node and time of the start of a job; empty before."""
        path = self.folder(submission) / f"started-{position}-{generation}"
        try:
            return dict(json.loads(path.read_bytes()))
        except (OSError, ValueError):
            return {}

    def outcome(self, submission: int, position: int, generation: int) -> dict[str, Any]:
        """Return what became of a job, as it has stored it; empty before."""
        path = self.folder(submission) / f"ended-{position}-{generation}"
        try:
            return dict(json.loads(path.read_bytes()))
        except (OSError, ValueError):
            return {}

    def send(self, submission: int, position: int, generation: int, kind: str, *words: str) -> None:
        """Send a request to a job that runs, or will: ``signal``, ``cancel``, ``requeue``,
        ``limit``. Raise
        OSError."""
        path = self.folder(submission) / f"signals-{position}"
        with RecordFile(path, LINES, durable=False) as file:
            file.append((" ".join((kind, str(generation), *words)) + "\n").encode())


def _write(path: Path, body: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, mode), "wb") as file:
        file.write(body)
