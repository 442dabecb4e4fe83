"""What tests leave behind: processes that they began, and files of vgrads.

Each session, and each of its workers, has a temporary directory of its own, and whatever a test
begins inherits its name. So a process that belongs to a session is known by its environment,
however it was begun and whoever its parent is now.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

_VARIABLE = "TMPDIR"
_GRACE_S = 15.0  # what has been told to end may take that long, where the machine is loaded
_SESSION = pytest.StashKey[Path]()
_HELPERS = (b"multiprocessing.forkserver", b"multiprocessing.resource_tracker")
"""Of this process, whom multiprocessing begins once and which end with it."""
_RELEASED = ".given-back"
"""A mark that a slot on this machine was given back: it stays ten minutes, for a pilot that begins
late (vgrads/agent/programs/dask_pilot.py)."""


def begin(config: pytest.Config) -> None:
    """Give the session, or this worker of it, its temporary directory."""
    if hasattr(config, "workerinput"):
        folder = Path(os.environ[_VARIABLE]).parent / config.workerinput["workerid"]
    else:
        _remove_old(Path(tempfile.gettempdir()))
        session = Path(tempfile.mkdtemp(prefix="vgt-")).resolve()
        session.chmod(0o711)  # databases run as users of their own
        config.stash[_SESSION] = session
        if config.option.basetemp is None:
            config.option.basetemp = session / "t"
        folder = session / "main"
    folder.mkdir()
    folder.chmod(0o1777)
    # what one test has learned from a log is learned; its name is a digest of the log
    os.environ["VGRADS_LEARNED"] = str(folder.parent / "learned")
    # the home of tests that state none: never that of the user
    os.environ["VGRADS_HOME"] = str(folder.with_name(f"{folder.name}-home"))
    os.environ[_VARIABLE] = str(folder)
    tempfile.tempdir = None  # asked for anew


def _remove_old(folder: Path) -> None:
    """Remove what failed sessions left there more than a day ago: it fills the disk."""
    for old in folder.glob("vgt-*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > 86400.0:
                shutil.rmtree(old, ignore_errors=True)


def end(session: pytest.Session) -> None:
    """Fail a session that leaves processes; remove its directory where all went well, with what
    killed jobs of real services left there."""
    folder = session.config.stash.get(_SESSION, None)
    if folder is None:
        return
    texts = _settled(lambda: processes(folder))
    if texts:
        print("\nthe tests left behind:", *texts, sep="\n  ")
        end_all(folder)
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
    if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"\nthe tests' files: {folder}")


def end_all(folder: Path) -> None:
    """Kill the processes whose temporary directory is in a folder: what outlives its manager on
    purpose, as the hosts of a service do."""
    _kill(lambda: _numbers(folder))


def end_with(variable: str) -> None:
    """Kill the processes that have this variable (``NAME=VALUE``) in their environment, but for
    helpers of this one, which later tests need."""
    entry = variable.encode()
    _kill(
        lambda: [
            n for n, around in _environments() if entry in around.split(b"\0") and not _helps(n)
        ]
    )


def _kill(look: Callable[[], list[int]]) -> None:
    while counts := look():
        for number in counts:
            with suppress(OSError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.02)


def processes(folder: Path, apart: Container[int] = ()) -> list[str]:
    """The processes whose temporary directory is in a folder, but for this one, its helpers and
    those ``apart``."""
    return [f"process {number}: {_command(number)}" for number in _numbers(folder, apart)]


def running() -> set[int]:
    """The numbers of all processes of the machine."""
    return {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()}


def opened_by(number: int) -> list[str]:
    """The files and sockets that a process has open, as the system names them."""
    names: list[str] = []
    with suppress(OSError):  # the process, or the file, is closed meanwhile
        names.extend(str(path.readlink()) for path in Path(f"/proc/{number}/fd").iterdir())
    return names


def files(folder: Path) -> list[str]:
    """What vgrads has left in a temporary directory."""
    return [str(path) for path in sorted(folder.glob("vgrads-*")) if path.suffix != _RELEASED]


def _numbers(folder: Path, apart: Container[int] = ()) -> list[int]:
    start = f"{_VARIABLE}={folder}".encode()
    return [
        number
        for number, around in _environments(apart)
        if start in around and _belongs(around, start) and not _helps(number)
    ]


def _environments(apart: Container[int] = ()) -> Iterator[tuple[int, bytes]]:
    """Every process but this one and those apart: its number, and its environment where this user
    may read it."""
    for number in running() - {os.getpid()}:
        if number not in apart:
            with suppress(OSError):
                yield number, Path(f"/proc/{number}/environ").read_bytes()


def _belongs(around: bytes, start: bytes) -> bool:
    """A variable begins like that, and the folder's name ends there."""
    return any(entry == start or entry.startswith(start + b"/") for entry in around.split(b"\0"))


def _helps(number: int) -> bool:
    with suppress(OSError):
        command = Path(f"/proc/{number}/cmdline").read_bytes()
        parent = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1]
        return int(parent) == os.getpid() and any(item in command for item in _HELPERS)
    return True  # it has ended


def _command(number: int) -> str:
    """What a process runs, and in which test it was begun."""
    with suppress(OSError):
        words = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        around = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
        test = [entry.decode() for entry in around if entry.startswith(b"PYTEST_CURRENT_TEST=")]
        return f"{words[:200]} {' '.join(test)}"
    return "ended"


def _settled(look: Callable[[], list[str]]) -> list[str]:
    """What is still there after those that are about to end have ended."""
    end_s = time.monotonic() + _GRACE_S
    while (texts := look()) and time.monotonic() < end_s:
        time.sleep(0.05)
    return texts


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest):
    """Fail a test that leaves a process or a file of vgrads in the temporary directory. Processes
    that real services hold for a module's tests are looked for when the session ends."""
    folder = Path(os.environ[_VARIABLE])
    if request.node.get_closest_marker("services"):
        yield
        return
    before, there = running(), {*files(folder)}
    yield
    left = _settled(
        lambda: [
            *processes(folder, before),
            *(name for name in files(folder) if name not in there),
        ]
    )
    if left:
        pytest.fail("left behind: " + "; ".join(left), pytrace=False)
