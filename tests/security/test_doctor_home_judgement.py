"""Each check of a home by `vgrads doctor`: the state that it gives to facts."""

from pathlib import Path

import pytest

from vgrads.portal.doctor.checks import Unavailable
from vgrads.portal.doctor.database import BackupFacts, DatabaseFacts, judge_backup, judge_database
from vgrads.portal.doctor.files import (
    WRITABLE,
    FileFacts,
    judge_files,
    judge_home,
    judge_space,
)
from vgrads.portal.doctor.machine import UsedSite
from vgrads.portal.doctor.settings import (
    SettingsFacts,
    SitesFacts,
    judge_extras,
    judge_python,
    judge_settings,
    judge_sites,
    required_extras,
)
from vgrads.portal.records.reader import HEAD

FILE, ME, OTHER, DAY = Path("/h/vgrads.db"), 1000, 1001, 86400.0
NOTHING = Unavailable("no result within 5 s")


def facts(mode, owner=ME, **more):
    return FileFacts(path=FILE, kind="database", mode=mode, owner=owner, **more)


@pytest.mark.parametrize(
    ("place", "state"),
    [
        (facts(0o700), "ok"),
        (facts(0o2700), "ok"),
        (facts(0o750), "wrong"),
        (facts(0o701), "wrong"),
        (facts(0o600), "wrong"),
        (facts(0o700, OTHER), "wrong"),
        (None, "doubtful"),
        (NOTHING, "wrong"),
    ],
)
def test_the_home(place, state):
    check = judge_home(Path("/h"), place, ME)
    assert check.state == state
    assert bool(check.fix) == (state != "ok")


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ([], "ok"),
        ([facts(0o600), facts(0o400)], "ok"),
        ([facts(0o600), facts(0o640)], "wrong"),
        ([facts(0o602)], "wrong"),
        ([facts(0o600, OTHER)], "wrong"),
        ([facts(0o644, forbidden=WRITABLE)], "ok"),
        ([facts(0o664, forbidden=WRITABLE)], "wrong"),
        ([facts(0o600, 0)], "wrong"),
        ([facts(0o600, 0, of_system=True)], "ok"),
        (NOTHING, "unknown"),
    ],
)
def test_private_files(files, state):
    assert judge_files(files, ME).state == state


def test_many_files_are_counted_and_three_are_named():
    check = judge_files([facts(0o644)] * 5, ME)
    assert (check.message.count(str(FILE)), "and 2 more" in check.message) == (3, True)
    assert check.fix.startswith("chmod go-rwx /h/vgrads.db")


@pytest.mark.parametrize(
    ("free", "state"),
    [(2**40, "ok"), (2**29, "doubtful"), (2**20, "wrong"), (NOTHING, "unknown")],
)
def test_disk_space(free, state):
    assert judge_space(free).state == state


def stored(**more):
    return DatabaseFacts(**{"where": "db", "version": HEAD, "integrity": ("ok",), **more})


@pytest.mark.parametrize(
    ("database", "states"),
    [
        (stored(), "ok ok ok"),
        (stored(version="0300"), "ok doubtful ok"),
        (stored(version="0016", earlier="0.3.0.dev0"), "ok wrong ok"),
        (stored(version=None), "ok doubtful ok"),
        (stored(version="0999"), "ok wrong ok"),
        (stored(version=None, empty=True), "ok doubtful ok"),
        (stored(integrity=("row 3 missing from index",)), "ok ok wrong"),
        (stored(integrity=()), "ok ok unknown"),
        (stored(exists=False), "doubtful unknown unknown"),
        (stored(error="file is not a database"), "wrong unknown unknown"),
        (NOTHING, "wrong unknown unknown"),
    ],
)
def test_the_database(database, states):
    assert [check.state for check in judge_database(database)] == states.split()


@pytest.mark.parametrize(
    ("file", "exists", "backup", "state"),
    [
        (FILE, True, BackupFacts(path=FILE, changed_s=9 * DAY), "ok"),
        (FILE, True, BackupFacts(path=FILE, changed_s=2 * DAY), "doubtful"),
        (FILE, True, BackupFacts(path=FILE, changed_s=9 * DAY, error="no database"), "wrong"),
        (FILE, True, None, "doubtful"),
        (FILE, False, None, "unknown"),
        (FILE, True, NOTHING, "unknown"),
        (None, False, None, "unknown"),
    ],
)
def test_the_backup(file, exists, backup, state):
    check = judge_backup(file, exists, backup, 10 * DAY)
    assert check.state == state
    if state in ("doubtful", "wrong"):
        assert check.fix == "vgrads db backup /h/vgrads-1970-01-11.db"


def test_settings_sites_extras_and_versions():
    assert judge_settings(SettingsFacts()).state == "ok"
    assert judge_settings(SettingsFacts(file=FILE)).state == "ok"
    assert judge_settings(SettingsFacts(file=FILE, error="line 1")).state == "wrong"
    lent = SitesFacts(
        source="s.toml",
        used=(UsedSite(name="a", driver="slurm"), UsedSite(name="b", driver="dask")),
    )
    assert judge_sites(lent).message == "2 of s.toml: a, b"
    assert judge_sites(NOTHING).state == "wrong"
    postgres = SettingsFacts(
        file=FILE, values={"db": "postgresql+psycopg://u@h/n", "oidc": {"a": 1}}
    )
    required = required_extras(postgres, lent)
    assert [extra for extra, _ in required] == ["dask", "postgres", "oidc"]
    assert required_extras(SettingsFacts(), NOTHING) == []
    assert judge_extras(required, frozenset({"dask", "postgres", "oidc"})).state == "ok"
    missing = judge_extras(required, frozenset({"oidc"}))
    assert (missing.state, missing.fix) == ("wrong", "pip install 'vgrads[dask,postgres]'")
    assert "site 'b' (driver 'dask')" in missing.message
    assert judge_python((3, 11, 0), "0.3").state == "ok"
    assert judge_python((3, 10, 9), "0.3").state == "wrong"


@pytest.mark.parametrize(
    ("values", "secret"),
    [
        ({}, False),
        ({"db": "postgresql+psycopg://@/vgrads"}, False),
        ({"db": "postgresql+psycopg://u:p@h/vgrads"}, True),
        ({"oidc": {"client_id": "v"}}, False),
        ({"oidc": {"client_secret": "s"}}, True),
    ],
)
def test_settings_with_a_secret(values, secret):
    assert SettingsFacts(file=FILE, values=values).secret is secret
