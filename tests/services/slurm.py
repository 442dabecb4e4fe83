"""A throw-away Slurm on this machine: four pretended nodes, its database, everything in one
folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests import leftovers
from tests.ports import free_ports
from tests.waiting import listens, until
from vgrads.agent.processes import name_of

NODES, CORES = 4, 8
_PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd")

_SLURM = """\
ClusterName=toy
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=50000,bf_interval=1,bf_resolution=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
EnforcePartLimits=ALL
KillWait=2
MinJobAge={min_job_age}
FirstJobId={first_id}
SlurmdTimeout=10
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd_port}
AccountingStoragePass={folder}/munge.sock
AccountingStoreFlags=job_comment
NodeName=DEFAULT CPUs={cores} Boards=1 SocketsPerBoard=1 CoresPerSocket={cores} ThreadsPerCore=1 RealMemory=4000
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}]
PartitionName=batch Nodes=n[1-{nodes}] Default=YES MaxTime=1-00:00:00 DefaultTime=10:00 State=UP
PartitionName=debug Nodes=n1 MaxTime=30:00 DefaultTime=5:00 State=UP
"""
_DBD = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={dbd_port}
SlurmUser=root
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=toy
StorageLoc=slurm_acct
"""


def missing() -> str:
    """What is not installed; empty where all is there."""
    gone = [name for name in _PROGRAMS if not _program(name)]
    if os.getuid() != 0:
        return "the Slurm service needs root"
    return f"not installed: {', '.join(gone)} (tests/services/install.sh)" if gone else ""


@dataclass
class SlurmService:
    """A running Slurm; ``daemons`` by name, so that a test can stop one."""

    folder: Path
    stack: ExitStack
    nodes: int = NODES
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}


@contextmanager
def slurm_service(
    folder: Path,
    min_job_age: int = 300,
    nodes: int = NODES,
    cores: int = CORES,
    first_id: int = 1,
) -> Iterator[SlurmService]:
    """Slurm while the block runs; processors and memory of its nodes are pretended."""
    port, dbd_port, first = free_ports(), free_ports(), free_ports(nodes)
    host = socket.gethostname().partition(".")[0]
    values = {
        "folder": folder,
        "host": host,
        "port": port,
        "dbd_port": dbd_port,
        "nodes": nodes,
        "cores": cores,
        "first": first,
        "last": first + nodes - 1,
        "min_job_age": min_job_age,
        "first_id": first_id,
    }
    for name in ("state", "spool", "db"):
        (folder / name).mkdir()
    folder.chmod(0o755)
    (folder / "slurm.conf").write_text(_SLURM.format(**values))
    (folder / "slurmdbd.conf").write_text(_DBD.format(**values))
    (folder / "slurmdbd.conf").chmod(0o600)
    with ExitStack() as stack:
        service = SlurmService(folder, stack, nodes)
        # its daemons find processes by their parents, and miss some of a job that begins just now
        stack.callback(leftovers.end_with, f"SLURM_CONF={folder / 'slurm.conf'}")
        _start_munge(service)
        _start_database(service)
        _start_slurm(service, dbd_port)
        yield service


def _start_munge(service: SlurmService) -> None:
    folder = service.folder
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    _daemon(
        service,
        "munged",
        "--foreground",
        f"--key-file={key}",
        f"--socket={folder}/munge.sock",
        "--force",
        f"--pid-file={folder}/munged.pid",
        f"--log-file={folder}/munged.log",
        f"--seed-file={folder}/munged.seed",
    )
    until((folder / "munge.sock").exists, "munged")


def _start_database(service: SlurmService) -> None:
    data = service.folder / "db"
    _open_to_mysql(service.folder)
    shutil.chown(data, "mysql")
    subprocess.run(
        [
            "mariadb-install-db",
            "--user=mysql",
            f"--datadir={data}/data",
            "--auth-root-authentication-method=socket",
            "--skip-test-db",
        ],
        check=True,
        capture_output=True,
    )
    _daemon(
        service,
        "mariadbd",
        "--no-defaults",
        "--user=mysql",
        f"--datadir={data}/data",
        f"--socket={data}/sock",
        "--skip-networking",
        f"--pid-file={data}/pid",
        "--innodb-buffer-pool-size=64M",
        "--innodb-flush-log-at-trx-commit=0",
    )
    client = ["mariadb", "--no-defaults", "-S", f"{data}/sock"]
    until(lambda: _quiet([*client, "-e", "select 1"]), "mariadbd")
    statements = (
        "create database slurm_acct; create user slurm@localhost identified by 'toy'; "
        "grant all on slurm_acct.* to slurm@localhost"
    )
    subprocess.run([*client, "-e", statements], check=True, capture_output=True)


def _open_to_mysql(folder: Path) -> None:
    """The database's user must reach its folder through those above, which pytest closes to
    others."""
    for part in [folder, *folder.parents]:
        mode = part.stat().st_mode
        if not mode & 0o001 and part.stat().st_uid == os.getuid():
            part.chmod(mode | 0o011)


def _start_slurm(service: SlurmService, dbd_port: int) -> None:
    folder = service.folder
    extra = {
        "MYSQL_UNIX_PORT": f"{folder}/db/sock",
        "SLURM_CONF": f"{folder}/slurm.conf",
    }
    _daemon(service, "slurmdbd", "-D", environment=extra)
    until(lambda: listens(dbd_port), "slurmdbd")
    subprocess.run(
        ["sacctmgr", "-i", "-Q", "add", "cluster", "toy"],
        env=os.environ | extra,
        check=False,
        capture_output=True,
    )
    start_controller(service, "-c")
    for number in range(1, service.nodes + 1):
        (folder / "spool" / f"n{number}").mkdir()
    start_nodes(service)


def start_nodes(service: SlurmService) -> None:
    """The node daemons that do not run, and wait until all nodes take jobs."""
    for name in (f"n{number}" for number in range(1, service.nodes + 1)):
        if name not in service.daemons or service.daemons[name].poll() is not None:
            _daemon(service, "slurmd", "-D", "-N", name, name=name, environment=service.environment)
    until(
        lambda: _takes_jobs(service), lambda: f"Slurm's nodes idle, now {_nodes(service)},", 120.0
    )


def kill_nodes(service: SlurmService) -> None:
    """Kill the daemons of all nodes, and the steps of their jobs. Those of another Slurm beside
    this one go on: steps overwrite their environment, so they are known by their sockets, which
    lie in the folders of their nodes."""
    for number in range(1, service.nodes + 1):
        service.daemons[f"n{number}"].kill()
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    ours = f"{service.folder}/spool/"
    sockets = {f"socket:[{line[6]}]" for line in lines if line[7:] and line[7].startswith(ours)}
    steps = [n for n in leftovers.running() if name_of(n) == "slurmstepd"]
    for number in steps:
        if not sockets.isdisjoint(leftovers.opened_by(number)):
            os.kill(number, signal.SIGKILL)


def wait_until_empty() -> None:
    """Return when no job is left in the queue; ended ones stay there for a moment."""

    def queued() -> bytes:
        return subprocess.run(["squeue", "-h"], check=True, capture_output=True).stdout

    until(lambda: not queued(), "an empty queue", 60)


def _takes_jobs(service: SlurmService) -> bool:
    """All nodes idle; one that Slurm drained because it could not end a step there, its daemon
    killed, is taken back."""
    states = _nodes(service)
    if any(word in state for state in states for word in ("drain", "down")):
        command = [
            "timeout",
            "3",
            "scontrol",
            "update",
            f"NodeName=n[1-{service.nodes}]",
            "State=RESUME",
        ]
        subprocess.run(
            command, env=os.environ | service.environment, check=False, capture_output=True
        )
    return states.count("idle") >= service.nodes


def start_controller(service: SlurmService, *flags: str) -> None:
    """The controller; without ``-c`` it goes on where it was stopped."""
    _daemon(service, "slurmctld", "-D", *flags, environment=service.environment)


def kill_controller(service: SlurmService) -> None:
    """Kill the controller once it has written down what it knows, which it does some seconds after
    a change."""
    now = time.time()
    process = subprocess.run(
        ["sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true"],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | service.environment,
    )
    subprocess.run(
        ["scancel", process.stdout.strip()], check=True, env=os.environ | service.environment
    )
    until(lambda: _saved_s(service) > now, "the saved state")
    service.daemons["slurmctld"].kill()
    service.daemons["slurmctld"].wait()


def _saved_s(service: SlurmService) -> float:
    """When the controller wrote its state (s since 1970); 0 while it exchanges the file."""
    try:
        return (service.folder / "state" / "job_state").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _nodes(service: SlurmService) -> list[str]:
    """The state of each node, as Slurm words it."""
    done = subprocess.run(
        ["timeout", "3", "sinfo", "-h", "-N", "-p", "batch", "-o", "%T"],
        env=os.environ | service.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split()


def _daemon(
    service: SlurmService,
    program: str,
    *flags: str,
    name: str = "",
    environment: dict[str, str] | None = None,
) -> None:
    log = service.stack.enter_context((service.folder / f"{name or program}.out").open("ab"))
    path = _program(program)
    assert path, program
    process = subprocess.Popen(
        [path, *flags],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=os.environ | (environment or {}),
    )
    service.daemons[name or program] = process
    service.stack.callback(_stop, process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _quiet(command: list[str]) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
