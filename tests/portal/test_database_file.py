"""The file of the database: deleted or replaced under a service, or emptied."""

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import ROOT
from tests.portal.serving import serve_this_machine
from tests.waiting import until
from vgrads.kernel.errors import SiteError
from vgrads.portal.records.backup import back_up
from vgrads.portal.records.store import Store


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with this machine as a site."""
    served = serve_this_machine(tmp_path_factory.mktemp("file") / "home")
    yield served
    served.leave()


def answer(service, path, document=None):
    """Status and body of an answer."""
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(
        f"{service.url}{path}", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


BAG = {"name": "b", "commands": ["true"]}


def check_refused(service, reason):
    """It takes no work, and says why."""
    status, text = answer(service, "/readyz")
    assert status == 503 and reason in text, text
    status, text = answer(service, "/v1/bags", BAG)
    assert status == 503 and reason in text, text
    until(lambda: reason in service.log.read_text(), "the log says it")


def test_a_service_takes_no_work_when_its_database_was_deleted_or_replaced(service):
    """It does so again when the file is back."""
    file = service.log.parent / "vgrads.db"
    aside = file.with_name("aside")
    assert answer(service, "/readyz")[0] == 200
    file.rename(aside)
    check_refused(service, "vgrads.db was deleted")
    shutil.copyfile(aside, file)
    check_refused(service, "vgrads.db was replaced")
    aside.rename(file)
    until(service.ready, "it takes work again")
    assert answer(service, "/v1/bags", BAG)[0] == 201
    file.with_name("vgrads.db-wal").unlink()
    status, text = answer(service, "/readyz")
    assert status == 503 and "the log of" in text, text
    assert answer(service, "/v1/bags", BAG)[0] == 503


def test_a_backup_that_cannot_be_written_names_the_file_that_was_given(vgrads, tmp_path):
    with Store():
        pass
    vgrads("token", "create", "me")
    (tmp_path / "file").write_text("")
    for file, why in (
        (tmp_path / "missing" / "x.db", "No such file or directory"),
        (tmp_path / "file" / "x.db", "Not a directory"),
        (tmp_path / ("x" * 250), "File name too long"),
    ):
        answer = vgrads("db", "backup", file)
        assert (answer.code, answer.err) == (2, f"vgrads: {file}: cannot be written: {why}\n")


def test_an_empty_database_is_damaged_and_not_new(vgrads, tmp_path):
    assert vgrads("sites", "list").code == 0
    with Store():
        pass
    file = tmp_path / "home" / "vgrads.db"
    copy = tmp_path / "home" / "vgrads-copy.db"
    back_up(None, copy)
    os.truncate(file, 0)
    for command in (["status"], ["bags", "status"], ["db", "backup", tmp_path / "x.db"]):
        message = vgrads(*command)
        assert message.code == 4, message
        assert f"{file} is damaged: it is empty (0 bytes)" in message.err
        assert str(copy) in message.err and message.err.count("\n") == 1
    assert file.stat().st_size == 0 and not (tmp_path / "x.db").exists()
    assert "is empty (0 bytes)" in vgrads("doctor").out
    shutil.copyfile(copy, file)
    assert vgrads("status").code == 0


@pytest.mark.more
def test_a_new_database_may_be_begun_by_many_at_once(tmp_path):
    def begin(_):
        program = "from vgrads.portal.records.store import Store\nwith Store() as s: s.ready()"
        environment = {**os.environ, "VGRADS_HOME": str(tmp_path / "home")}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=environment, capture_output=True, check=False)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(begin, range(4)))
    assert [done.returncode for done in results] == [0] * 4, results


def test_a_new_database_that_could_not_be_written_is_not_there(vgrads, tmp_path):
    """A full disk, when a home is begun, is not its damage for ever."""
    home = {**os.environ, "VGRADS_HOME": str(tmp_path / "home")}
    command = ["sh", "-c", 'ulimit -f 0; exec "$@"', "-", sys.executable, "-m", "vgrads", "status"]
    done = subprocess.run(command, env=home, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 4 and done.stderr.count("\n") == 1, done
    assert not [path.name for path in (tmp_path / "home").iterdir()]
    assert vgrads("status").code == 0


def test_what_is_stored_after_the_file_was_deleted_is_not_acknowledged(store, tmp_path):
    store.add_grid("a", {}, {})
    (tmp_path / "home" / "vgrads.db").unlink()
    with pytest.raises(SiteError, match="was deleted"):
        store.add_grid("b", {}, {})
