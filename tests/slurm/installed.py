"""Slurm's commands as a user installs them: in a folder of their own, with a home of their own."""

import os
import signal
import socket
import struct
import subprocess
import sys
from contextlib import contextmanager, suppress

from tests.waiting import runs, until


class InstalledSlurm:
    """The installed commands; the first call of one of them starts the service."""

    def __init__(self, folder, *, sites=None, environment=None):
        self.folder, self.commands = folder, folder / "bin"
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.environment = {**os.environ, **(environment or {}), "VGRADS_HOME": str(folder / "h")}
        options = ["--sites", sites] if sites else []
        self.run(*self.vgrads, "install", self.commands, *options)
        self.environment["PATH"] = f"{self.commands}:{self.environment['PATH']}"

    vgrads = (sys.executable, "-m", "vgrads", "slurm")

    def attempt(self, *words, **more):
        """Run a program with the commands before all others; return how it ended."""
        options = {"cwd": self.work, "env": self.environment, "timeout": 300, **more}
        return subprocess.run(
            [str(word) for word in words], capture_output=True, text=True, check=False, **options
        )

    def run(self, *words, **more):
        done = self.attempt(*words, **more)
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def submit(self, *words, **more):
        return self.run("sbatch", "--parsable", *words, **more).strip()

    def states(self, *jobs):
        fields = ("sacct", "-X", "-n", "-P", "-o", "State", "-j", ",".join(jobs))
        return self.run(*fields).splitlines()

    def wait(self, *jobs, seconds=120.0):
        """Wait for the ends of jobs; return their states."""

        def over():
            return not {"PENDING", "RUNNING"} & set(self.states(*jobs))

        until(over, lambda: str(self.states(*jobs)), seconds)
        return self.states(*jobs)

    @property
    def socket(self):
        return self.folder / "h" / "slurm" / "socket"

    def pid(self):
        """The process of the service; 0 where none listens."""
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.socket))
            except OSError:
                return 0
            place = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            return struct.unpack("3i", place)[0]

    def kill(self, number):
        """Send a signal to the service, and wait for its end."""
        pid = self.pid()
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        until(lambda: not runs(pid), "the service ends", 60)

    def end(self):
        """Cancel what is left, and end the service with all that it started."""
        if not self.pid():
            return
        self.attempt("scancel", "-t", "PD,R", "-p", "vgrads", "--me")
        until(lambda: not self.left(), self.left, 90)
        self.kill(signal.SIGINT)

    def left(self):
        return self.run("squeue", "-h", "-p", "vgrads", "-o", "%A %t %r")


@contextmanager
def installed(folder, **options):
    """Installed commands while the block runs."""
    slurm = InstalledSlurm(folder, **options)
    try:
        yield slurm
    finally:
        slurm.end()
