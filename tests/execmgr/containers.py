"""A podman of the tests' own: storage in one folder, an image made on the spot from one static
program."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tarfile
from pathlib import Path

IMAGE = "localhost/vgrads-test:1"
_PROGRAMS = ("sh", "cat", "echo", "id", "ls", "sleep", "env", "true", "false", "pwd", "wc", "test")
NEEDED = os.environ.get("VGRADS_SERVICES") == "required"


def missing() -> str:
    """What is not installed; empty where all is there."""
    for program in ("podman", "runc", "busybox"):
        if shutil.which(program) is None:
            return f"{program} is not installed (tests/services/install.sh)"
    return "" if os.getuid() == 0 else "podman with storage of its own is tried as root"


def settings(folder: Path) -> dict[str, str]:
    """The environment in which podman keeps everything in a folder, and asks for nothing that a
    sandbox refuses.

    runc, since crun takes no mixed versions of control groups; limits as they are, since raising
    them needs more rights.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    limits = [f'"{name}={most}:{most}"' for name, most in (("nofile", files), ("nproc", 1000))]
    (folder / "containers.conf").write_text(
        f"[containers]\ndefault_ulimits = [{', '.join(limits)}]\n[engine]\nruntime = "
        '"runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    )
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/root"\nrunroot = "{folder}/run"\n'
    )
    return {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }


def make_image(folder: Path) -> str:
    """Import the image; what podman complained of, empty where it runs containers."""
    tar = folder / "image.tar"
    busybox = shutil.which("busybox")
    assert busybox
    with tarfile.open(tar, "w") as archive:
        archive.add(busybox, "bin/busybox")
        for name in _PROGRAMS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        for name in ("tmp", "etc", "dev", "proc", "sys"):
            tar_info = tarfile.TarInfo(name)
            tar_info.type, tar_info.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(tar_info)
    for words in (
        ["import", str(tar), IMAGE],
        ["run", "--rm", "--network", "host", IMAGE, "/bin/true"],
    ):
        done = subprocess.run(["podman", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr.strip()
    return ""


def running() -> list[str]:
    """The names of all containers, whatever they do."""
    process = subprocess.run(
        ["podman", "ps", "--all", "--format", "{{.Names}}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return process.stdout.split()
