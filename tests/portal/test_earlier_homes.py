"""Homes, databases and folders of versions that were never published: no command opens them, and
nothing in them changes."""

import hashlib
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tests.conftest import DATA
from tests.portal.migrating import write_earlier
from vgrads.api.config import home
from vgrads.dispatch.core.snapshot import pack_snapshot
from vgrads.dispatch.storage.journal import DispatchJournal, read_state
from vgrads.kernel.errors import InputError
from vgrads.portal.records.store import Store

HISTORY = DATA / "histories" / "mayhem.swf.gz"
COMMANDS = [
    ("status",),
    ("status", "--json"),
    ("logs", "run-0123456789"),
    ("plan", DATA / "lead.yaml"),
    ("run", DATA / "lead.yaml"),
    ("resume", "run-0123456789"),
    ("bags", "run", DATA / "bag.yaml"),
    ("bound", HISTORY, "--procs", "4", "--walltime", "1h"),
    ("sites", "list"),
    ("token", "create", "ann"),
    ("db", "upgrade"),
    ("db", "upgrade", "base", "--lose-data"),
    ("db", "backup", "copy.db"),
    ("db", "prune"),
    ("serve", "--port", "0"),
    ("slurm", "up", "--background"),
]
_KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA journal_mode=WAL")
connection.execute("CREATE TABLE workflow_set (id)")
connection.execute("CREATE TABLE alembic_version (version_num)")
connection.execute("INSERT INTO alembic_version VALUES ('0008')")
connection.commit()
os.kill(os.getpid(), 9)
"""


def contents(folder):
    """Path → mode, time of change and digest of all files."""
    return {
        path: (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b"",
        )
        for path in [folder, *folder.rglob("*")]
    }


@pytest.fixture
def earlier(tmp_path):
    """A home that an earlier version wrote, open to others, as versions once left it."""
    folder = tmp_path / "home"
    (folder / "runs" / "run-0123456789").mkdir(parents=True)
    write_earlier(f"sqlite:///{folder / 'vgrads.db'}", "0016")
    (folder / "vgrads.db").chmod(0o644)
    return folder


def check_refused(vgrads, folder, version, commands=COMMANDS):
    before = contents(folder)
    for command in commands:
        answer = vgrads(*command)
        assert answer.code == 2, (command, answer)
        (line,) = answer.err.splitlines()
        assert f"{folder}: was written by vgrads {version}, which this version" in line
        assert "(set VGRADS_HOME to a new folder, or move the old one away)" in line
        assert contents(folder) == before, command


def test_no_command_opens_an_earlier_home_or_changes_it(vgrads, earlier):
    check_refused(vgrads, earlier, "0.3.0.dev0")


def test_a_home_whose_process_was_killed_before_its_first_checkpoint_is_recognised(
    vgrads, tmp_path
):
    folder = tmp_path / "home"
    folder.mkdir()
    command = [sys.executable, "-c", _KILLED, str(folder / "vgrads.db")]
    assert subprocess.run(command, check=False).returncode == -9
    assert (folder / "vgrads.db-wal").stat().st_size > 0
    check_refused(vgrads, folder, "0.2", COMMANDS[:3])


def test_a_home_begins_anew_in_the_same_process_once_the_old_one_is_moved(vgrads, earlier):
    with pytest.raises(InputError, match="was written by"):
        home()
    earlier.rename(earlier.with_name("old"))
    assert vgrads("status", "--json").json["runs"] == []
    assert home() == earlier


def test_an_earlier_database_elsewhere_is_refused(vgrads, earlier, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    shutil.move(earlier, elsewhere)
    url = f"sqlite:///{elsewhere / 'vgrads.db'}"
    before = contents(elsewhere)
    monkeypatch.setenv("VGRADS_DB", url)
    for command in (("status",), ("token", "list"), ("serve", "--port", "0"), ("db", "upgrade")):
        answer = vgrads(*command)
        assert answer.code == 2
        assert "set VGRADS_DB to a new database, and VGRADS_HOME to a new folder" in answer.err
    monkeypatch.delenv("VGRADS_DB")
    assert vgrads("db", "upgrade", "--db", url).code == 2
    assert contents(elsewhere) == before


def test_a_dispatchers_folder_of_an_earlier_form_is_refused_and_not_cut_off(tmp_path):
    folder = tmp_path / "journal"
    DispatchJournal(folder).close()
    (segment,) = folder.glob("seg-*.log")
    for magic in (b"vgj1", b"vgj2"):
        segment.write_bytes(magic + bytes(60))
        with pytest.raises(InputError, match=r"was written by vgrads 0\.3\.0\.dev0 or before"):
            read_state(folder)
        with pytest.raises(InputError, match="other contents"):
            DispatchJournal(folder)
        assert segment.stat().st_size == 64
    segment.write_bytes(b"")
    (folder / "image-000001.bin").write_bytes(pack_snapshot({"version": 2}))
    with pytest.raises(InputError, match=r"was written by vgrads 0\.3\.0\.dev0 or before"):
        read_state(folder)


def test_another_database_is_not_taken_for_an_earlier_one(tmp_path):
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE notes (id)")
        connection.commit()
    with Store(f"sqlite:///{tmp_path / 'other.db'}") as store:
        assert store.count_runs() == {}
