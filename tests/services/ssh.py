"""A throw-away SSH server on the loopback address, with keys of its own: a login node."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_ports
from tests.waiting import listens, until


def missing() -> str:
    """What is not installed; empty where all is there."""
    if os.getuid() != 0:
        return "the SSH service needs root"
    return (
        ""
        if shutil.which("ssh-keygen") and _sshd()
        else "sshd is not installed (tests/services/install.sh)"
    )


def _sshd() -> str | None:
    return shutil.which("sshd", path="/usr/sbin:/usr/bin")


@contextmanager
def ssh_service(
    folder: Path, environment: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(host, options of ssh) of a login node whose shells have this environment."""
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    shutil.copy(folder / "user.pub", folder / "authorized")
    port = free_ports()
    set_env = " ".join(f"{key}={value}" for key, value in environment.items())
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile "
        f"{folder}/authorized\n"
        f"PidFile {folder}/sshd.pid\nUsePAM no\nPasswordAuthentication no\nStrictModes no\n"
        "PermitRootLogin yes\n" + (f"SetEnv {set_env}\n" if set_env else "")
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    sshd = _sshd()
    assert sshd
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen(
            [sshd, "-D", "-e", "-f", str(folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            until(lambda: listens(port), "sshd")
            options = (
                "-p",
                str(port),
                "-i",
                str(folder / "user"),
                "-o",
                "StrictHostKeyChecking=accept-new",
                "-o",
                f"UserKnownHostsFile={folder}/known",
                "-o",
                "IdentitiesOnly=yes",
                "-F",
                "none",
            )
            yield f"{getpass.getuser()}@127.0.0.1", options
        finally:
            process.terminate()
            process.wait(10)
