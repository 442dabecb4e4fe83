"""A real site for tests without daemons: a history that ends now, and commands of Slurm that print
a queue from a file and count their calls."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.logs import queued_log
from tests.portal.forecasts.slurm_commands import HEADER

SITES = """
[[site]]
name = "cluster"
kind = "batch"
procs = 64
driver = "slurm"
[site.access]
timeout = "60s"
[[site.queue]]
name = "batch"
history = "batch.txt"
max_walltime = "24h"
[[site]]
name = "simulated"
kind = "batch"
procs = 64
[[site.queue]]
name = "batch"
history = "batch.txt"
max_walltime = "24h"
"""
COMMANDS = {
    "squeue": "echo squeue >> {calls}\n[ -e {silent} ] && exec sleep 60\n[ -e {failing} ] && "
    '{{ echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }}\n'
    "cat {queue}",
    "sinfo": 'echo sinfo >> {calls}\ncase "$*" in\n*--Node*) for n in 1 2 3 4; do '
    'echo "n$n|batch|16"; done ;;\n*) echo "batch|up|1-00:00:00|64/0/0/64|n[1-4]" ;;\nesac',
    "scontrol": 'echo scontrol >> {calls}\ncase "$*" in\n*reservation*) cat {reservations} ;;\n'
    "*) cat {config} ;;\nesac",
    "sbatch": "exit 1",
}


@dataclass(frozen=True)
class ListedSite:
    """The folder of the site; what its commands print are files there."""

    folder: Path

    def put_queue(self, waiting: int, running: int = 4, user: str = "ann") -> None:
        """Let this many jobs of 16 processors and an hour wait, submitted a minute ago."""
        submitted = int(time.time()) - 60
        lines = [f"batch|{user}|RUNNING|16|4:00:00|3:30:00|{submitted}|None"] * running
        lines += [f"batch|{user}|PENDING|16|1:00:00|1:00:00|{submitted}|Resources"] * waiting
        (self.folder / "queue").write_text("".join(f"{line}\n" for line in lines))

    def announce(self, begin_in_s: float, length_s: float, nodes: str = "n[1-4]") -> None:
        """Announce a maintenance of these nodes."""
        begin = int(time.time() + begin_in_s)
        (self.folder / "reservations").write_text(
            f"ReservationName=upgrade StartTime={begin} EndTime={begin + int(length_s)} "
            f"Duration=1-00:00:00 Nodes={nodes} NodeCnt=4 CoreCnt=64 Features=(null) "
            "PartitionName=(null) Flags=MAINT,SPEC_NODES TRES=cpu=64 Users=root Groups=(null) "
            "Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a\n"
        )

    def calls(self, command: str = "squeue") -> int:
        """How often a command was called."""
        file = self.folder / "calls"
        return file.read_text().split().count(command) if file.exists() else 0

    @property
    def sites(self) -> Path:
        """The file of the sites."""
        return self.folder / "sites.toml"


@cache
def _history(jobs: int) -> tuple[Sequence[tuple[int, int, int, int, int]], int]:
    """Submission, start, end, processors and minutes of each job, and the newest start."""
    log = queued_log(jobs, jump=1.7)  # a busy machine
    columns = (log.submit_s, log.start_s, log.start_s + log.run_s, log.procs, log.request_s / 60)
    rows = [tuple(round(float(value)) for value in row) for row in zip(*columns, strict=True)]
    return rows, int(log.start_s.max())


def write_history(file: Path, jobs: int) -> None:
    """Write a history of the queue ``batch``, as ``sacct`` prints it, that ends now."""
    rows, newest = _history(jobs)
    shift = int(time.time()) - newest
    lines = [HEADER]
    for n, (submit, start, end, procs, minutes) in enumerate(rows):
        times = f"{submit + shift}|{submit + shift}|{start + shift}|"
        state = f"{end + shift}|COMPLETED" if end <= newest else "Unknown|RUNNING"
        limit = f"{max(1, minutes) // 60:02d}:{max(1, minutes) % 60:02d}:00"
        lines.append(f"{n}|u|a|batch|{times}{state}|{limit}|1|{procs}|{procs}")
    file.write_text("\n".join(lines) + "\n")


def listed_site(folder: Path, monkeypatch, jobs: int = 1200) -> ListedSite:
    """A site whose commands come first on the search path; its history ends now."""
    write_history(folder / "batch.txt", jobs)
    (folder / "sites.toml").write_text(SITES)
    (folder / "config").write_text("PrivateData             = none\n")
    (folder / "reservations").write_text("No reservations in the system\n")
    names = ("calls", "silent", "failing", "queue", "config", "reservations")
    files = {name: shlex.quote(f"{folder}/{name}") for name in names}
    (folder / "bin").mkdir()
    for name, text in COMMANDS.items():
        (folder / "bin" / name).write_text("#!/bin/sh\n" + text.format(**files) + "\n")
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    site = ListedSite(folder)
    site.put_queue(waiting=40)
    return site
