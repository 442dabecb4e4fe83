"""Programs of this machine that sites and tasks need, and its clock."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgrads.portal.doctor.checks import Check, Unavailable
from vgrads.workflows.task_environment import ENGINES

OLDEST_NODE_PYTHON = (3, 8)
"""The oldest Python with which agents run on nodes."""
_CLIENTS: Mapping[str, tuple[str, ...]] = {
    "slurm": ("sbatch", "squeue", "sacct", "scancel", "sinfo"),
    "gridengine": ("qsub", "qstat", "qacct", "qdel", "qconf"),
    "pbs": ("qsub", "qselect", "qstat", "qdel"),
}
"""Commands of each driver."""
_TITLES = {"slurm": "Slurm", "gridengine": "Grid Engine", "pbs": "PBS"}
_PROGRAMS = ("ssh", "python3", *ENGINES, *dict.fromkeys(p for c in _CLIENTS.values() for p in c))
_ACCOUNT = 0x70000000  # the first of those that tasks of users get
_VERSION = re.compile(r"Python (\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedSite:
    """A site in use. ``host``: where its commands are, reached over SSH; empty: this machine."""

    name: str
    driver: str
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """Programs on the PATH; the version of ``python3``, None if unknown; whether the clock is
    synchronised, None if unknown; whether accounts of tasks may run the Python of vgrads, None
    where there are none."""

    programs: frozenset[str]
    python: tuple[int, int] | None
    synchronised: bool | None
    python_is_open: bool | None = None


def read_machine() -> MachineFacts:
    """Look for programs and call those that report a version or the state of the clock."""
    version = _VERSION.search(_check_output("python3", "--version"))
    clock = _check_output("timedatectl", "show", "--property", "NTPSynchronized", "--value").strip()
    return MachineFacts(
        programs=frozenset(name for name in _PROGRAMS if shutil.which(name)),
        python=(int(version[1]), int(version[2])) if version else None,
        synchronised={"yes": True, "no": False}.get(clock),
        python_is_open=_is_python_open() if os.geteuid() == 0 else None,
    )


def _is_python_open() -> bool:
    """Return whether an account of tasks may run the Python of vgrads."""
    # only the interpreter itself, without the packages and variables of this process
    command = [sys.executable, "-I", "-S", "-c", ""]
    try:
        done = subprocess.run(
            command,
            user=_ACCOUNT,
            group=_ACCOUNT,
            extra_groups=[],  # the groups of root would let it read more
            cwd="/",  # the account may not enter the folder of this process
            capture_output=True,
            timeout=5.0,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _check_output(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=5.0, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def judge_machine(facts: MachineFacts | Unavailable, sites: Sequence[UsedSite]) -> list[Check]:
    """Judge the commands of each kind of site, SSH, containers, the Python of agents, the clock."""
    if isinstance(facts, Unavailable):
        return [Check("programs", "unknown", facts.reason)]
    return [
        *(_judge_client(facts, driver, sites) for driver in _CLIENTS),
        _judge_ssh(facts, sites),
        _judge_containers(facts),
        _judge_python(facts, sites),
        _judge_accounts(facts),
        _judge_clock(facts),
    ]


def _judge_client(facts: MachineFacts, driver: str, sites: Sequence[UsedSite]) -> Check:
    name, title = f"{driver} commands", _TITLES[driver]
    missing = [program for program in _CLIENTS[driver] if program not in facts.programs]
    users = [site.name for site in sites if site.driver == driver and not site.host]
    if not missing:
        return Check(name, "ok", f"{', '.join(_CLIENTS[driver])} are installed")
    if not users:
        return Check(name, "ok", f"not installed, and no site here needs {title}")
    text = f"site {', '.join(users)} needs {', '.join(missing)}: not on the PATH"
    fix = f"run vgrads on a login node of {title}, or set access.host of the site to one"
    return Check(name, "wrong", text, fix)


def _judge_ssh(facts: MachineFacts, sites: Sequence[UsedSite]) -> Check:
    users = [site.name for site in sites if site.host]
    if "ssh" in facts.programs:
        return Check("ssh", "ok", "the OpenSSH client is installed")
    if not users:
        return Check("ssh", "ok", "not installed, and no site is reached over SSH")
    text = f"site {', '.join(users)} is reached over SSH: there is no ssh on the PATH"
    return Check("ssh", "wrong", text, "install the OpenSSH client")


def _judge_containers(facts: MachineFacts) -> Check:
    engines = [name for name in ENGINES if name in facts.programs]
    if engines:
        return Check("containers", "ok", f"{', '.join(engines)}")
    return Check("containers", "ok", "no container engine: tasks here cannot state a container")


def _judge_python(facts: MachineFacts, sites: Sequence[UsedSite]) -> Check:
    name, oldest = "python of nodes", ".".join(map(str, OLDEST_NODE_PYTHON))
    nodes = "; for the nodes of other sites: vgrads sites check" if sites else ""
    if facts.python is None:
        text = f"there is no python3 here; agents need {oldest} or newer{nodes}"
        return Check(name, "doubtful", text, f"install Python {oldest} or newer")
    text = f"{'.'.join(map(str, facts.python))} here; agents need {oldest} or newer{nodes}"
    if facts.python < OLDEST_NODE_PYTHON:
        return Check(name, "doubtful", text, f"install Python {oldest} or newer")
    return Check(name, "ok", text)


def _judge_accounts(facts: MachineFacts) -> Check:
    name = "python of accounts"
    if facts.python_is_open is None:
        return Check(name, "ok", "tasks here run under this account: it is not root")
    if facts.python_is_open:
        return Check(name, "ok", f"{sys.executable} runs under the accounts of users' tasks")
    text = (
        f"the accounts of users' tasks may not run {sys.executable}: with several users, inputs "
        "and outputs by URL, matrices and Python functions fail at this machine"
    )
    return Check(name, "doubtful", text, "install Python and vgrads where all accounts may read")


def _judge_clock(facts: MachineFacts) -> Check:
    if facts.synchronised is None:
        return Check("clock", "unknown", "whether it is synchronised is not known here")
    if facts.synchronised:
        return Check("clock", "ok", "it is synchronised")
    fix = "start a time service, e.g. systemd-timesyncd or chrony"
    return Check("clock", "doubtful", "it is not synchronised: deadlines are times of day", fix)
