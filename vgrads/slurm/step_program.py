"""``srun`` inside a job: starts the processes of a step on the node of the job.

Run as ``python3 -IS step_program.py [OPTIONS] COMMAND``: no service is needed, since a node may
not reach one. Plain processes: no MPI library is started.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # without site: only this package

from vgrads.slurm.environment import exported
from vgrads.slurm.errors import SlurmError
from vgrads.slurm.patterns import PatternValues, output_path
from vgrads.slurm.srun import SrunRequest, parse_srun

_CANNOT_RUN = 2
STEPS = "VGRADS_SLURM_STEPS"
"""Variable with the file that counts the steps of the job (:mod:`vgrads.slurm.job_program`)."""
_LOOK_S = 0.02


class Step:
    """The processes of one step."""

    def __init__(self, request: SrunRequest) -> None:
        self._request = request
        self._processes: list[subprocess.Popen[bytes]] = []
        self._copies: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._folder = request.folder or str(Path.cwd())
        self._number = str(_find_next_step())

    def run(self) -> int:
        """Run the step to its end; return the largest exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._pass_on)
        try:
            for process in range(self._request.tasks):
                self._start(process)
        except OSError as error:
            self._pass_on(signal.SIGKILL)
            place = error.filename or self._request.command[0]
            message = f"error: execve(): {place}: {error.strerror}"
            _report(f"slurmstepd: {message}\nsrun: error: task 0: Exited with exit code 2\n")
            return _CANNOT_RUN
        return self._wait()

    def _start(self, process: int) -> None:
        request = self._request
        environment = {
            **_make_environment(request),
            "SLURM_PROCID": str(process),
            "SLURM_LOCALID": str(process),
            "SLURM_NTASKS": str(request.tasks),
            "SLURM_NPROCS": str(request.tasks),
            "SLURM_STEP_NUM_TASKS": str(request.tasks),
            "SLURM_CPUS_PER_TASK": str(request.cpus_per_task),
            "SLURM_STEP_ID": self._number,
            "SLURM_STEPID": self._number,
        }
        out = self._opened(request.stdout, process, "ab")
        err = self._opened(request.stderr, process, "ab") or out
        stdin = self._opened(request.stdin, process, "rb")
        pipe = subprocess.PIPE if request.label else None
        started = subprocess.Popen(
            request.command,
            env=environment,
            cwd=self._folder,
            stdin=stdin or (subprocess.DEVNULL if process else None),
            stdout=out or pipe,
            stderr=err or pipe,
        )
        self._processes.append(started)
        for file in (out, err, stdin):
            if file is not None:
                file.close()
        for source, target in ((started.stdout, 1), (started.stderr, 2)):
            if source is not None:
                copy = threading.Thread(target=self._label, args=(source, target, process))
                copy.start()
                self._copies.append(copy)

    def _opened(self, pattern: str | None, process: int, mode: str) -> IO[bytes] | None:
        if pattern is None or pattern in ("all", "none") or pattern.isdigit():
            return None
        values = PatternValues(
            job=self._request.job,
            name=os.environ.get("SLURM_JOB_NAME", ""),
            user=os.environ.get("SLURM_JOB_USER", ""),
            node=os.environ.get("SLURMD_NODENAME", ""),
            array_id=_read_number("SLURM_ARRAY_JOB_ID"),
            array_index=_read_number("SLURM_ARRAY_TASK_ID"),
            task=process,
            step=self._number,
        )
        return Path(output_path(pattern, self._folder, values)).open(mode)

    def _label(self, source: IO[bytes], target: int, process: int) -> None:
        width = len(str(self._request.tasks - 1))
        # where nothing can be written, the process must not wait for its reader: its pipe closes
        with source, suppress(OSError):
            for line in source:
                with self._lock:
                    os.write(target, f"{process:>{width}}: ".encode() + line)

    def _pass_on(self, number: int, _: object = None) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(number)

    def _wait(self) -> int:
        left, ended_badly = set(range(len(self._processes))), False
        while left:
            for process in [n for n in left if self._processes[n].poll() is not None]:
                left.discard(process)
                code = self._processes[process].returncode
                if code and self._request.kill_on_bad_exit and not ended_badly:
                    ended_badly = True
                    self._pass_on(signal.SIGTERM)
                if code and not self._request.quiet:
                    _report(_describe_end(process, code))
            if left:
                time.sleep(_LOOK_S if len(self._processes) > 1 else 0)
                if len(self._processes) == 1:
                    self._processes[0].wait()
        for copy in self._copies:
            copy.join()
        codes = [process.returncode for process in self._processes]
        return max(code if code >= 0 else 128 - code for code in codes)


def _read_number(name: str) -> int | None:
    """Return the number that a variable has; None where it has none."""
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else None


def _find_next_step() -> int:
    """Return the number of a new step of this job; 0 where nobody counts them."""
    try:
        with Path(os.environ[STEPS]).open("ab") as file:
            # the file has one byte for each step, and several steps may start at once
            fcntl.flock(file, fcntl.LOCK_EX)
            number = file.seek(0, os.SEEK_END)
            file.write(b".")
    except (KeyError, OSError):
        return 0
    return number


def _make_environment(request: SrunRequest) -> dict[str, str]:
    """Return the environment of the step: that of the job, with what ``--export`` states."""
    inner = {name: v for name, v in os.environ.items() if name.startswith(("SLURM", "VGRADS_"))}
    return {**exported(os.environ, request.export), **inner, **dict(request.export.values)}


def _report(text: str) -> None:
    """Write on stderr where that is possible: on a full disk the step still ends as it should."""
    with suppress(OSError, ValueError):
        sys.stderr.write(text)


def _describe_end(process: int, code: int) -> str:
    node = os.environ.get("SLURMD_NODENAME", "")
    how = f"Exited with exit code {code}" if code > 0 else signal.strsignal(-code) or "Killed"
    return f"srun: error: {node}: task {process}: {how}\n"


def main(arguments: list[str]) -> int:
    """Run a step; return its exit status."""
    try:
        request = parse_srun(arguments, os.environ)
    except SlurmError as error:
        _report(f"{error.what}\n")
        return error.exit_code
    if request.reply is not None:
        sys.stdout.write(request.reply.out)
        return request.reply.code
    return Step(request).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
