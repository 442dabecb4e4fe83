"""A home that vgrads 0.2 wrote when its code had many import names, laid out anew, with what stands
round it: files of sets and bags, the jobs of a PBS stand-in.

In it: runs by real processes that were killed with their manager: ``KILLED`` here, all first tasks
committed; ``QUEUED`` while its slot waited at a PBS site; ``RUNNING`` while its slot ran there, one
task committed. Bags, killed likewise: ``HALF`` of one is done; the host of ``WAITING`` is queued at
the PBS site; ``MATRIX`` is a wavefront; ``LEASED`` has hosts of a pool; ``SERVED_BAG`` is a
service's. Of the service also a set that is only planned, one with its run ``SERVED``, and a token.
``DONE`` ended, and its run times were learned. The second tasks of all of them wait for a file,
``go``. It was written under ``/vgrads-fixture-02``, on a machine whose boot has the number
``BOOT``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests import leftovers
from tests.conftest import ROOT
from tests.ports import free_ports
from tests.services import pbs_like
from vgrads.agent.machine import NodeIdentity
from vgrads.portal.records.heartbeat import new_owner

DONE, KILLED = "run-8949f1ed9e", "run-949050dd2d"
RUNNING, QUEUED = "run-127fe9a9f6", "run-fea05c1257"
PLANNED_SET, RUN_SET, SERVED = "set-6d4c5b59eb", "set-8cd78a367e", "run-b8aaf7e595"
HALF, WAITING, MATRIX = "bag-102338f876", "bag-7ce66636de", "bag-a6d060239e"
LEASED, SERVED_BAG = "bag-16da2aa3a2", "bag-26360633db"
FIXTURE = Path(__file__).parents[1] / "fixtures" / "home-0.2.tar.xz"
_WRITTEN = "/vgrads-fixture-02"
BOOT = "00000000-0000-4000-8000-000000000002"
_LONG_AGO_S = 1e9
_FRAME, _PACKED = struct.Struct("<4sII"), b"vgj2"
"""Of a group of a bag's journal: its kind, its length, its checksum."""
_HOST = re.compile(
    rb'"id": "([0-9a-f]{32})", "at_s": ([0-9.]+), "slot": "([^"]+)", "node": ([0-9]+)'
)
_CONTACT = re.compile(rb"(?:^|\0)VGRADS_CONTACT=tls://127\.0\.0\.1:([0-9]+)\0")
_PATH = 4
"""The number of a path's extension type in a document."""


def lay_out(folder: Path) -> Path:
    """The home as if it had been written in ``folder`` a minute ago, on this machine."""
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(folder, filter=_moved_link)
    home = folder / "home"
    with closing(sqlite3.connect(home / "vgrads.db")) as database:
        _move_rows(database, str(folder))
        database.commit()
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix not in (".db", ".txt", ".bin"):
            _move_file(path, str(folder))
    _move_ports(folder)
    for journal in home.glob("*/*/journal"):
        _move_hosts(journal)
    pbs_like.install(folder / "pbs")
    for path in (folder / "pbs").glob("*.job"):  # no process of this machine is theirs
        path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": None}))
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return home


def _moved_link(member: tarfile.TarInfo, place: str) -> tarfile.TarInfo | None:
    """A link within what was written leads to the same file where it is now."""
    if member.issym() and member.linkname.startswith(_WRITTEN):
        target = member.linkname.removeprefix(f"{_WRITTEN}/")
        near = os.path.relpath(target, Path(member.name).parent)
        member = member.replace(linkname=near, deep=False)
    return tarfile.data_filter(member, place)


def _move_rows(database: sqlite3.Connection, place: str) -> None:
    for table in ("run_archive", "plan_archive"):
        for row, body in database.execute(f"SELECT rowid, body FROM {table}").fetchall():
            moved = _moved_document(body, place)
            database.execute(f"UPDATE {table} SET body = ? WHERE rowid = ?", (moved, row))
    words = "UPDATE workflow_set SET document = replace(document, ?, ?)"
    database.execute(words, (_WRITTEN, place))
    here = new_owner().partition(":")[0]
    for table in ("run_lease", "work"):  # by dead processes of this machine
        for row, owner in database.execute(f"SELECT rowid, owner FROM {table}").fetchall():
            if owner.startswith(BOOT):
                mine = f"{here}:{owner.partition(':')[2]}"
                database.execute(f"UPDATE {table} SET owner = ? WHERE rowid = ?", (mine, row))
    for table in ("pool", "manager"):
        database.execute(f"UPDATE {table} SET at_s = ?", (time.time(),))


def _moved_document(body: bytes, place: str) -> bytes:
    kinds, parts, root = msgpack.unpackb(zlib.decompress(body[2:]), strict_map_key=False)
    moved = [msgpack.packb(_moved(_read(part), place)) for part in parts]
    return body[:2] + zlib.compress(msgpack.packb([kinds, moved, root]))


def _read(part: bytes) -> Any:
    return msgpack.unpackb(part, strict_map_key=False, use_list=False)


def _moved(value: Any, place: str) -> Any:
    if isinstance(value, str):
        return "" if value == BOOT else value.replace(_WRITTEN, place)
    if isinstance(value, msgpack.ExtType) and value.code == _PATH:
        return msgpack.ExtType(_PATH, value.data.replace(_WRITTEN.encode(), place.encode()))
    if isinstance(value, float) and value > _LONG_AGO_S:  # when it began
        return time.time() - 60.0
    if isinstance(value, dict):
        return {_moved(k, place): _moved(v, place) for k, v in value.items()}
    if isinstance(value, tuple) and not isinstance(value, msgpack.ExtType):
        return tuple(_moved(item, place) for item in value)
    return value


def _move_file(path: Path, place: str) -> None:
    if path.name == "began":
        path.write_text(repr(time.time() - 60.0))
        return
    body, written = path.read_bytes(), _WRITTEN.encode()
    if written in body:
        path.write_bytes(body.replace(written, place.encode()))


def _move_ports(folder: Path) -> None:
    """Managers listen where their hosts look for them: on other ports than in the fixture."""
    for path in [*folder.glob("home/*/*/port"), *folder.glob("home/*/port")]:
        before, after = path.read_text().strip(), str(free_ports())
        path.write_text(after)
        for script in folder.glob("pbs/*.sh"):
            text = script.read_text()
            script.write_text(text.replace(f"127.0.0.1:{before}", f"127.0.0.1:{after}"))
    for path in folder.glob("home/runs/*/contact.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"port": free_ports()}))


def _move_hosts(journal: Path) -> None:
    """Hosts of a journal are known again when their agents come back: on this machine."""
    run, stored_path = journal.parent.name, journal.parent / "run"
    run = stored_path.read_text() if stored_path.exists() else run
    for path in journal.glob("seg-*.log"):
        body, moved = path.read_bytes(), b""
        while body:
            magic, length, _ = _FRAME.unpack_from(body)
            group, body = body[_FRAME.size :][:length], body[_FRAME.size + length :]
            packed = magic == _PACKED
            group = _HOST.sub(
                lambda host: _local_name(host, run), zlib.decompress(group) if packed else group
            )
            group = zlib.compress(group, 1) if packed else group
            moved += _FRAME.pack(magic, len(group), zlib.crc32(group)) + group
        path.write_bytes(moved)


def _local_name(host: re.Match[bytes], run: str) -> bytes:
    payload = {"VGRADS_SLOT": f"{run}.{host[3].decode()}", "VGRADS_NODE": host[4].decode()}
    return host[0].replace(host[1], NodeIdentity.from_environment(payload).host.encode())


def end_all_of(home: Path) -> None:
    """Kill commands that work with this home, and agents that look for its managers: they go on
    without them. What they had in the temporary directory goes too."""
    temporary = Path(tempfile.gettempdir())
    while counts := _working_with(home):
        for number in counts:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.02)
    for path in leftovers.files(temporary):
        shutil.rmtree(path, ignore_errors=True)


def _working_with(home: Path) -> list[int]:
    ports = {path.read_bytes().strip() for path in home.glob("*/*/port")}
    command, numbers = f"VGRADS_HOME={home}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            message = (process / "environ").read_bytes()
            match = _CONTACT.search(message)
            if command in message.split(b"\0") or (match and match[1] in ports):
                numbers.append(int(process.name))
    return [number for number in numbers if number != os.getpid()]


@pytest.fixture
def home(tmp_path, monkeypatch):
    path = lay_out(tmp_path)
    monkeypatch.setenv("VGRADS_HOME", str(path))
    monkeypatch.setenv("PBS_LIKE", str(tmp_path / "pbs"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'pbs' / 'bin'}:{os.environ['PATH']}")
    yield path
    for job in reversed(jobs(tmp_path)):  # one that ends lets the next one begin
        subprocess.run(["qdel", job["id"]], check=False, capture_output=True)
    end_all_of(path)


@pytest.fixture
def call(home, vgrads, monkeypatch):
    """The command line with that home."""
    monkeypatch.setenv("VGRADS_HOME", str(home))
    return vgrads


def jobs(folder):
    """The jobs of the batch system."""
    return [json.loads(path.read_text()) for path in sorted((folder / "pbs").glob("*.job"))]


def ran(folder, name):
    """How often each task has run."""
    path = folder / f"{name}.ran"
    return Counter(path.read_text().split()) if path.exists() else Counter()


def start(folder, name, *arguments):
    """A command in a process of its own; what it says is in ``folder/NAME.said``."""
    with (folder / f"{name}.said").open("ab") as text:
        return subprocess.Popen(
            [sys.executable, "-m", "vgrads", *map(str, arguments)],
            cwd=ROOT,
            stdout=text,
            stderr=text,
        )


def printed(folder, name):
    """What a command has said so far, as one line."""
    return " ".join((folder / f"{name}.said").read_text().split())
