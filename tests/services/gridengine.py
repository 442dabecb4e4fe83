"""A Grid Engine on this machine, with one queue and one parallel environment.

Debian's packages know one place only, so there is one such service; it is left as it is found when
it runs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import until

ROOT = Path("/var/lib/gridengine")
SLOTS = 8
ENVIRONMENT = {"SGE_ROOT": str(ROOT), "SGE_CELL": "default"}
_HOST = "localhost"
_QUEUE = {
    "qname": "batch.q",
    "hostlist": "@allhosts",
    "seq_no": "0",
    "load_thresholds": "NONE",
    "suspend_thresholds": "NONE",
    "nsuspend": "1",
    "suspend_interval": "00:05:00",
    "priority": "0",
    "min_cpu_interval": "00:05:00",
    "qtype": "BATCH INTERACTIVE",
    "processors": "UNDEFINED",
    "ckpt_list": "NONE",
    "pe_list": "smp",
    "rerun": "FALSE",
    "slots": str(SLOTS),
    "tmpdir": "/tmp",
    "shell": "/bin/sh",
    "prolog": "NONE",
    "epilog": "NONE",
    "shell_start_mode": "unix_behavior",
    "starter_method": "NONE",
    "suspend_method": "NONE",
    "resume_method": "NONE",
    "terminate_method": "NONE",
    "notify": "00:00:60",
    "owner_list": "NONE",
    "user_lists": "NONE",
    "xuser_lists": "NONE",
    "subordinate_list": "NONE",
    "complex_values": "NONE",
    "projects": "NONE",
    "xprojects": "NONE",
    "calendar": "NONE",
    "initial_state": "default",
} | {
    f"{kind}_{what}": "INFINITY"
    for kind in "sh"
    for what in ("rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem")
}
_PARALLEL = {
    "pe_name": "smp",
    "slots": "999",
    "user_lists": "NONE",
    "xuser_lists": "NONE",
    "start_proc_args": "NONE",
    "stop_proc_args": "NONE",
    "allocation_rule": "$pe_slots",
    "control_slaves": "TRUE",
    "job_is_first_task": "TRUE",
    "urgency_slots": "min",
    "accounting_summary": "FALSE",
    "qsort_args": "NONE",
}
_EXEC_HOST = {
    "hostname": _HOST,
    "load_scaling": "NONE",
    "complex_values": f"slots={SLOTS}",
    "user_lists": "NONE",
    "xuser_lists": "NONE",
    "projects": "NONE",
    "xprojects": "NONE",
    "usage_scaling": "NONE",
    "report_variables": "NONE",
}


def missing() -> str:
    """What is not installed; empty where all is there."""
    if os.getuid() != 0:
        return "the Grid Engine service needs root"
    there = shutil.which("qsub") and Path("/usr/sbin/sge_qmaster").exists()
    return "" if there else "Grid Engine is not installed (tests/services/install.sh)"


@contextmanager
def gridengine_service() -> Iterator[dict[str, str]]:
    """The environment in which Grid Engine's commands work, while the block runs; another session
    of tests on this machine waits meanwhile."""
    folder_fd = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(folder_fd, fcntl.LOCK_EX)
        with _begun():
            yield ENVIRONMENT
    finally:
        os.close(folder_fd)


@contextmanager
def _begun() -> Iterator[None]:
    """One that works already is left as it is; one that a killed session left in parts is started
    anew."""
    if _answers() and _queue_is_up():
        yield
        return
    _kill()
    common = ROOT / "default" / "common"
    (common / "host_aliases").write_text(f"{_HOST} {socket.gethostname()}\n")
    (common / "host_aliases").chmod(0o644)  # its daemons are of another user
    (common / "act_qmaster").write_text(f"{_HOST}\n")
    _init("master", "start")
    try:
        until(_answers, "the queue master")
        _configure()
        _init("exec", "start")
        until(_queue_is_up, "the execution daemon")
        _run(["qdel", "-f", "-u", "root"])  # what an earlier session left
        yield
    finally:
        _kill()


def _kill() -> None:
    for program in ("sge_execd", "sge_qmaster"):  # asked to, it would take ten seconds
        subprocess.run(["pkill", "-KILL", "-x", program], check=False)
    until(
        lambda: (
            subprocess.run(
                ["pgrep", "-x", "sge_qmaster"], check=False, capture_output=True
            ).returncode
        ),
        "the end",
    )


def kill_controller() -> None:
    """End the queue master at once; jobs go on."""
    subprocess.run(["pkill", "-KILL", "-x", "sge_qmaster"], check=False)


def start_controller() -> None:
    """Start the queue master, if it does not run; it knows its jobs again."""
    if not _answers():
        _init("master", "start")
        until(_answers, "the queue master")


def _configure() -> None:
    admin = f"SGE_ROOT={ROOT} qconf -am root"
    subprocess.run(
        ["su", "-s", "/bin/sh", "sgeadmin", "-c", admin], check=False, capture_output=True
    )
    _qconf("-as", _HOST)
    _qconf("-ah", _HOST)
    changes = {"load_report_time": "00:00:01", "min_uid": "0", "min_gid": "0"}
    _qconf_file("-Mconf", "global", _changed(_qconf("-sconf"), changes))
    changes = {
        "schedule_interval": "0:0:1",
        "flush_submit_sec": "1",
        "flush_finish_sec": "1",
        "max_reservation": "32",
        "default_duration": "0:10:0",
    }
    _qconf_file("-Msconf", "scheduler", _changed(_qconf("-ssconf"), changes))
    _either("-Ae", "-Me", _EXEC_HOST)
    _either("-Ahgrp", "-Mhgrp", {"group_name": "@allhosts", "hostlist": _HOST})
    _either("-Ap", "-Mp", _PARALLEL)
    _either("-Aq", "-Mq", _QUEUE)


def _either(add: str, modify: str, fields: dict[str, str]) -> None:
    text = "".join(f"{key} {value}\n" for key, value in fields.items())
    _qconf_file(add, "new", text)
    _qconf_file(modify, "new", text)


def _changed(text: str, changes: dict[str, str]) -> str:
    lines = [line for line in text.splitlines() if line.split(" ")[0] not in changes]
    return "\n".join([*lines, *(f"{key} {value}" for key, value in changes.items())]) + "\n"


def _qconf_file(flag: str, name: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text)
        _qconf(flag, str(path))


def _qconf(*flags: str) -> str:
    return _run(["qconf", *flags])


def _run(command: list[str]) -> str:
    done = subprocess.run(
        ["timeout", "10", *command],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def _init(which: str, verb: str) -> None:
    with Path(os.devnull).open("w") as nowhere:
        subprocess.run(
            [f"/etc/init.d/gridengine-{which}", verb],
            stdin=subprocess.DEVNULL,
            stdout=nowhere,
            stderr=nowhere,
            check=False,
        )


def _answers() -> bool:
    return "localhost" in _run(["qconf", "-sh"])


def _queue_is_up() -> bool:
    lines = [line for line in _run(["qstat", "-f"]).splitlines() if line.startswith("batch.q")]
    return bool(lines) and "-NA-" not in lines[0] and not lines[0].rstrip().endswith("u")
