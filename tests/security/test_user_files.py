"""Files that users name never cost the database its locks, and no process waits for them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.portal.serving import bearer, serve_this_machine, serving
from tests.waiting import until
from vgrads.api.bags.matrices import digest_of, read_items
from vgrads.api.queues.forecast_cache import cached
from vgrads.dispatch.axes import read_table
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.storage.folder import keep_bag
from vgrads.dispatch.storage.matrix_store import MatrixStore
from vgrads.exchange.digests import FileDigests
from vgrads.execmgr.tasks.file_reader import FileReader, RunFilesReader
from vgrads.execmgr.tasks.inputs import Inputs
from vgrads.execmgr.tasks.output import read_since, read_tail, shorten
from vgrads.execmgr.tasks.provenance import link_file, sibling_files
from vgrads.kernel.errors import InputError
from vgrads.kernel.files import read_text, write_text
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.store import Store
from vgrads.traces.task_lines import open_lines

SITE = '[[site]]\nname = "here"\nkind = "local"\nprocs = 4\ndriver = "local"\n'
IDLE_LOCKS = 2
"""Locks of a process that has the database open and does nothing: on the file, and on its index."""
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root reads with other accounts")


def locks(process, database):
    """The POSIX locks of a process on the files of an SQLite database."""
    parts = (Path(f"{database}{part}") for part in ("", "-wal", "-shm"))
    numbers = {part.stat().st_ino for part in parts if part.exists()}
    words = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    rows = [row for row in words if row[1] == "POSIX" and int(row[-4]) == process]
    return sum(int(row[-3].rpartition(":")[2]) in numbers for row in rows)


@pytest.fixture
def database(store, tmp_path):
    """The database that this process has open."""
    return tmp_path / "home" / "vgrads.db"


NAMES = ("database", "link", "hard link", "log", "index")


@pytest.fixture(params=NAMES)
def named(request, database, tmp_path):
    """A name of a part of the database."""
    if request.param == "link":
        (tmp_path / "link").symlink_to(database)
        return tmp_path / "link"
    if request.param == "hard link":
        os.link(database, tmp_path / "hard")
        return tmp_path / "hard"
    parts = {"database": "", "log": "-wal", "index": "-shm"}
    return Path(f"{database}{parts[request.param]}")


def put_in_bag(path, folder):
    document = BagDocument(name="b", commands_file=path.name)
    keep_bag(folder / "dispatcher", 0, document, path.parent)


def stage(path, folder):
    inputs = Inputs(folder / "copies", path.parent, lambda _: folder / "results")
    return [file.read_bytes() for file in inputs._siblings.values()]


WAYS = {
    "printed text": lambda path, _: read_tail(path),
    "new text": lambda path, _: read_since(path, 0, True),
    "input of a bag": lambda path, _: FileDigests().of(path),
    "commands of a bag": put_in_bag,
    "table of a bag": lambda path, _: read_table(path),
    "document": lambda path, _: read_text(path),
    "items of a matrix": lambda path, _: read_items(path),
    "function of a matrix": lambda path, _: digest_of(path),
    "run times": lambda path, _: list(open_lines(path)),
    "history": lambda path, _: cached(path, "", lambda: 1),
    "siblings": lambda path, _: sibling_files(path.parent),
    "copies of siblings": stage,
    "result on another disk": lambda path, _: link_file(path, "/dev/shm/vgrads-test-copy"),
    "shortened text": lambda path, _: shorten(path.parent),
    "matrix": lambda path, _: MatrixStore(path),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_to_name_the_database_costs_its_locks(way, named, database, tmp_path):
    before = locks(os.getpid(), database)
    assert before > 0
    (tmp_path / "work").mkdir()
    try:
        WAYS[way](named, tmp_path / "work")
    except (OSError, InputError):
        pass
    finally:
        Path("/dev/shm/vgrads-test-copy").unlink(missing_ok=True)
    assert locks(os.getpid(), database) == before
    with Store() as other:  # it is whole, and nobody took it for unused
        assert other.ready()


def test_nothing_is_written_over_the_database(database):
    with pytest.raises(InputError, match="own database"):
        write_text(database, "x")
    assert database.read_bytes().startswith(b"SQLite")


@pytest.mark.parametrize("put", ["ln -s {} .out/.copy", "ln {} .out/.copy", "mkfifo .out/.copy"])
def test_a_claim_of_outputs_follows_nothing_that_its_task_left(put, database, vgrads, write):
    task = {
        "id": "a",
        "runtime_s": 1,
        "command": f"mkdir .out; {put.format(database)}; echo x >out.txt",
        "outputs": ["out.txt"],
    }
    document = {
        "name": "claim",
        "deadline": "2m",
        "sites": str(write("sites.toml", SITE)),
        "workflows": [{"name": "w", "tasks": [task]}],
    }
    answer = vgrads("run", write("set.json", json.dumps(document)), "--json")
    assert answer.code == 0, answer.err
    assert database.read_bytes().startswith(b"SQLite")


def test_a_long_printed_text_that_is_the_database_is_not_cut(database, tmp_path):
    os.link(database, tmp_path / "stdout.txt")
    size = database.stat().st_size
    shorten(tmp_path)
    assert database.stat().st_size == size


def test_a_plan_that_copies_the_database_leaves_its_manager_the_locks(
    store, database, vgrads, write
):
    """The command runs in this process, which is the manager."""
    before = locks(os.getpid(), database)
    task = {
        "id": "a",
        "runtime_s": 1,
        "command": f"cp {database} copy.db; ln {database} same.db",
        "outputs": ["copy.db", "same.db"],
    }
    reads = {
        "id": "b",
        "runtime_s": 1,
        "parents": ["a"],
        "inputs": ["copy.db", "same.db"],
        "command": "cat copy.db >out.txt",
        "outputs": ["out.txt"],
    }
    for tasks in ([task], [task, reads]):
        document = {
            "name": "backup",
            "deadline": "2m",
            "sites": str(write("sites.toml", SITE)),
            "workflows": [{"name": "w", "tasks": tasks}],
        }
        vgrads("run", write("set.json", json.dumps(document)), "--json")
        assert locks(os.getpid(), database) == before > 0


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with this machine as a site."""
    served = serve_this_machine(tmp_path_factory.mktemp("own") / "home")
    yield served
    served.leave()


def submit(service, *commands):
    """Submit a bag and return the seconds that the answer took."""
    body = json.dumps({"name": "names", "commands": commands}).encode()
    request = urllib.request.Request(
        f"{service.url}/v1/bags", body, {"Content-Type": "application/json"}
    )
    began_s = time.monotonic()
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status == 201
    return time.monotonic() - began_s


def home_of(service):
    return service.log.parent


def test_a_task_that_names_the_database_costs_a_service_no_lock(service, tmp_path):
    database = home_of(service) / "vgrads.db"
    os.link(database, tmp_path / "hard.db")
    (tmp_path / "link.db").symlink_to(database)
    until(lambda: locks(service.process.pid, database) == IDLE_LOCKS, "the service is idle")
    names = [f"{database}{part}" for part in ("", "-wal", "-shm")]
    submit(service, *(f"true {n}" for n in (*names, tmp_path / "hard.db", tmp_path / "link.db")))
    until(lambda: locks(service.process.pid, database) == IDLE_LOCKS, "it has its locks")
    assert "cannot be compared later (is a file of vgrads' own database)" in service.log.read_text()


def test_a_service_waits_for_no_file(service, tmp_path):
    """Neither for those that never end, nor for those of the kernel."""
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(tmp_path / "socket"))
        names = ("/proc/kmsg", "/dev/zero", tmp_path / "fifo", tmp_path / "socket", "/proc/1/mem")
        for _ in range(3):  # two that hang would hold both turns of a user
            assert submit(service, *(f"true {name}" for name in names)) < 15.0


def test_a_reading_that_takes_too_long_is_ended_and_counted(tmp_path):
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 2**30)
    (tmp_path / "small").write_text("x")
    large, small = str(tmp_path / "large"), str(tmp_path / "small")
    with FileReader(limit_s=0.3) as files:
        began_s = time.monotonic()
        assert files.read([large])[large] == "does not answer in time"
        assert time.monotonic() - began_s < 5.0
        assert files.read([large, small])[small][0] == 1  # the next question goes on
        assert large in files.note()
    assert not child_of_this_process()


def child_of_this_process():
    """Processes that read files."""
    readers = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes()
            parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"user_files.py" in words and int(parent) == os.getpid():
            readers.append(path)
    return readers


def test_a_reader_ends_with_the_process_that_asked():
    program = (
        "import os, signal\n"
        "from vgrads.execmgr.tasks.file_reader import FileReader\n"
        "files = FileReader()\n"
        "files.read(['/etc/passwd'])\n"
        "print(files._child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    until(lambda: not Path(f"/proc/{int(done.stdout)}/fd").exists(), "the reader has ended", 10)


def test_a_killed_reader_is_replaced(tmp_path):
    (tmp_path / "a").write_text("a")
    name = str(tmp_path / "a")
    with FileReader() as files:
        first = files.read([name])[name]
        os.kill(files._child.pid, signal.SIGKILL)
        files.read([name])
        assert files.read([str(tmp_path / "b"), "/etc/passwd"])["/etc/passwd"][2]
    assert first[0] == 1


def test_names_of_every_kind_are_read(tmp_path):
    folder = tmp_path / 'my "project" ü'
    folder.mkdir()
    odd = [folder / "a\nb", folder / os.fsdecode(b"\xff\xfe"), folder / "-x"]
    for path in odd:
        path.write_text("x")
    os.mkfifo(folder / "fifo")
    (folder / "nowhere").symlink_to("nothing")
    (folder / "circle").symlink_to("circle")
    names = [str(path) for path in odd]
    missing = [str(folder / name) for name in ("fifo", "nowhere", "circle", "y" * 300, ".")]
    with FileReader() as files:
        answers = files.read([*names, *missing, "/a\0b"])
    assert {answers[name][:1] for name in names} == {(1,)}
    assert {answers[name] for name in (*missing, "/a\0b")} == {None}


def test_a_folder_with_a_pipe_in_it_is_not_waited_for(tmp_path):
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "pipe")
    name = str(tmp_path / "out")
    with FileReader() as files:
        assert files.read([name], folders=True)[name] == "is not a regular file"


@root
def test_files_are_read_with_the_account_of_the_tasks():
    account = 0x70000001
    with FileReader(account) as files:
        answers = files.read(["/etc/shadow", "/etc/passwd"])
        uids = Path(f"/proc/{files._child.pid}/status").read_text()
    assert answers["/etc/shadow"] == "Permission denied"
    assert answers["/etc/passwd"][2]
    assert f"Uid:\t{account}\t{account}\t{account}" in uids and "Groups:\t \n" in uids


@root
def test_files_of_a_run_are_read_by_its_manager_and_others_with_the_account(tmp_path):
    tmp_path.chmod(0o700)
    (tmp_path / "result").write_text("x")
    name = str(tmp_path / "result")
    with RunFilesReader(0x70000001, [tmp_path]) as files:
        answers = files.read([name, "/etc/shadow"])
    assert answers[name][2] and answers["/etc/shadow"] == "Permission denied"


@root
def test_a_service_with_accounts_reads_nothing_that_its_user_may_not(tmp_path):
    home = tmp_path / "home"
    (tmp_path / "secret").write_text("of root")
    (tmp_path / "secret").chmod(0o600)
    home.mkdir()
    (home / "sites.toml").write_text(SITE)
    with Store(f"sqlite:///{home / 'vgrads.db'}") as store:
        AccessControl(store.engine).grant("here", "ann")
        head, _ = [bearer(store, user) for user in ("ann", "bob")]
    with serving(home, "--sites", home / "sites.toml") as served:
        body = json.dumps({"name": "looks", "commands": [f"true {tmp_path / 'secret'}"]}).encode()
        request = urllib.request.Request(
            f"{served.url}/v1/bags", body, head | {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 201
    (record,) = home.glob("dispatchers/*/bags/0000/provenance.json")
    assert json.loads(record.read_text())["reads"] == {str(tmp_path / "secret"): None}


def test_a_task_that_names_what_cannot_be_read_is_done_again(vgrads, write, caplog):
    """And the other task of the bag is not."""
    commands = ["true /proc/cpuinfo", "true"]
    document = write("bag.json", json.dumps({"name": "b", "commands": commands}))
    assert vgrads("bags", "run", document, "--json").json["bags"][0]["reused"] == 0
    answer = vgrads("bags", "run", document, "--json")
    assert (answer.code, answer.json["bags"][0]["reused"]) == (0, 1)
    assert "/proc/cpuinfo cannot be compared later" in caplog.text
