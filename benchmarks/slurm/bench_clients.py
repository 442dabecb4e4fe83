"""200 jobs of 2 s through unmodified programs that call Slurm's commands, in pilots of a real,
throw-away Slurm of two nodes with four cores.

    python benchmarks/slurm/bench_clients.py [psij] [toil] [snakemake]

Prints the seconds from the first submission to the end of the last job, as its node records it, and
the ratio to the floor: the jobs' own seconds on eight cores. For programs whose job wrappers
compute (Toil, Snakemake) it is at least the wrappers' measured CPU seconds, divided by the
processors of this machine.

Needs what tests/services/install.sh installs, root, and ``make .venv/slurm-clients/ready``.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.slurm.bench_doors import (
    CORES,
    FLOOR_S,
    JOBS,
    NODES,
    RUN_S,
    SITES,
    service_cpu_s,
    timed,
)
from tests.services.fixtures import surrounded
from tests.services.slurm import slurm_service
from tests.slurm.client_programs import BIN, Clients
from tests.slurm.installed import InstalledSlurm, installed
from vgrads.api.slurm.journal import JobJournal
from vgrads.api.slurm.records import JobRecord
from vgrads.kernel.text_table import pad
from vgrads.slurm.job import JobState

PROCESSORS = len(os.sched_getaffinity(0))
MOST_S = 3600.0


def psij(clients: Clients) -> None:
    """Run the jobs through PSI/J."""
    folder = clients.slurm.folder / "psij"
    program = Path(__file__).with_name("psij_sleep.py")
    clients.run("psij", BIN / "python", program, folder, JOBS, f"{RUN_S:g}")


def toil(clients: Clients) -> None:
    """Run the jobs through Toil, after a job that creates them and before one that needs them."""
    clients.toil(JOBS, RUN_S)


def snakemake(clients: Clients) -> None:
    """Run the jobs through Snakemake's Slurm plugin, before one that needs them."""
    clients.snakemake(JOBS, RUN_S, jobs=JOBS)


PROGRAMS: dict[str, tuple[Callable[[Clients], None], int]] = {
    "psij": (psij, 0),
    "toil": (toil, 1),
    "snakemake": (snakemake, 0),
}
"""How each runs the jobs, and how many other jobs it submits before."""


def jobs_of(slurm: InstalledSlurm, before: int) -> list[JobRecord]:
    """Return the jobs that are measured. The service has ended. Raise SystemExit where one of them
    did not complete."""
    journal = JobJournal(slurm.folder / "h" / "slurm" / "journal")
    journal.close()
    records = sorted(journal.table.records.values(), key=lambda record: record.id)
    measured = records[before : before + JOBS]
    if len(measured) < JOBS or any(r.state is not JobState.COMPLETED for r in measured):
        states = Counter(record.state.value for record in measured)
        raise SystemExit(f"{JOBS} jobs were to complete, these ended: {dict(states)}")
    return measured


def busy_s() -> float:
    """Return the CPU seconds that all processes of this machine have used (proc(5), stat)."""
    user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


def bench(folder: Path, name: str) -> None:
    """Print how long the jobs take through one program."""
    run, before = PROGRAMS[name]
    load = os.getloadavg()[0]
    with installed(folder / name, sites=folder / "sites.toml") as slurm:
        clients = Clients(slurm, timeout_s=MOST_S)
        slurm.run("squeue")  # starts the service in this environment, not in the program's
        busy_before_s = busy_s()
        whole_s, program_s = timed(lambda: run(clients))
        others_s = busy_s() - busy_before_s - program_s
        service_s = service_cpu_s(slurm)
    records = jobs_of(slurm, before)
    submits = [record.submission.submit_s for record in records]
    span_s = max(record.end_s or 0.0 for record in records) - min(submits)
    wrappers_s = sum(record.cpu_s or 0.0 for record in records)
    ran_s = sum((r.end_s or 0.0) - (r.start_s or 0.0) for r in records)
    floor_s = max(FLOOR_S, wrappers_s / PROCESSORS)
    print(
        f"  {pad(name, 10)} {span_s:.1f} s  {span_s / floor_s:.2f} x {floor_s:.1f} s; "
        f"{span_s / ran_s * NODES * CORES:.2f} x the time of the jobs in their slots; submitted in "
        f"{max(submits) - min(submits):.1f} s; CPU s: wrappers "
        f"{wrappers_s:.0f}, service {service_s:.0f}, {name} {program_s:.0f}, everything else "
        f"{others_s - wrappers_s - service_s:.0f}; whole run {whole_s:.1f} s; "
        f"load before {load:.1f}, after {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def main(names: list[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=os.environ.get("TMPDIR")))
    folder.chmod(0o755)  # the database of Slurm's accounting runs as a user of its own
    (folder / "slurm").mkdir()
    (folder / "sites.toml").write_text(SITES)
    print(f"{JOBS} jobs of {RUN_S:g} s on {NODES} nodes of {CORES} cores, floor {FLOOR_S:g} s")
    try:
        with (
            slurm_service(folder / "slurm", nodes=NODES, cores=CORES) as service,
            surrounded(service.environment),
        ):
            for name in names:
                bench(folder, name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(PROGRAMS))
