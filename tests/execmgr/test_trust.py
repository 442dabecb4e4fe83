"""Two managers, two copies, one result; what ends a run for ever, or a service: with real processes
and the real record."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.conftest import DATA, ROOT
from tests.execmgr.test_resume import local_set, start_run
from tests.waiting import runs, until
from vgrads.agent.processes import marked
from vgrads.execmgr.core.lease_errors import LeaseLost
from vgrads.execmgr.core.states import Cancelled
from vgrads.execmgr.engines.agents import AgentEngine
from vgrads.execmgr.engines.processes import ProcessEngine
from vgrads.execmgr.tasks.commit import commit, is_committed
from vgrads.execmgr.tasks.folder import AWAY, TaskFolder, file_name
from vgrads.execmgr.tasks.order import TaskOrder
from vgrads.kernel.clock import WallClock
from vgrads.kernel.documents import parse_mapping
from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.records.heartbeat import LEASE_S, Heartbeat, Watch, is_dead, new_owner
from vgrads.portal.records.migrate import HEAD, current, move
from vgrads.portal.records.run_lease import RunLease
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import Store
from vgrads.workflows.task_environment import TaskEnvironment


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path / 'test.db'}") as opened:
        yield opened


def new_run(store):
    return store.add_run(store.add_set("s", {}, {}, {}))


# two managers


def of_the_dead():
    """The name of an owner of this machine whose process is gone."""
    machine, _, began, nonce = new_owner().split(":")
    return f"{machine}:999999999:{began}:{nonce}"


def set_lease(store, run_id, **values):
    with store.engine.begin() as connection:
        assigned = ", ".join(f"{name} = :{name}" for name in values)
        connection.exec_driver_sql(
            f"UPDATE run_lease SET {assigned} WHERE run_id = :run", values | {"run": run_id}
        )


def test_of_many_who_take_a_run_at_once_a_single_becomes_its_manager(store):
    for _ in range(20):
        run_id = new_run(store)
        RunLease(store.engine, run_id).take()
        set_lease(store, run_id, owner=of_the_dead())
        start, won, lost = threading.Barrier(4), [], []

        def take(run_id=run_id, start=start, won=won, lost=lost):
            lease = RunLease(store.engine, run_id)
            start.wait()
            try:
                lease.take()
                won.append(lease.number)
            except InputError:
                lost.append(lease)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert (won, len(lost)) == ([2], 3)


def test_what_a_manager_writes_that_was_followed_by_another_is_refused(store):
    run_id = new_run(store)
    first, second = RunRecord(store.engine, run_id), RunRecord(store.engine, run_id)
    first.lease.take()
    first.append([Cancelled(at_s=1.0, reason="kept")])
    set_lease(
        store, run_id, heartbeat_s=time.monotonic() - LEASE_S - 1
    )  # it was silent for a lease
    second.lease.take()
    assert (first.lease.number, second.lease.number) == (1, 2)
    for write in (
        lambda: first.append([Cancelled(at_s=2.0, reason="late")]),
        lambda: first.store_execution(0, None),
        first.begin_again,
        first.lease.confirm_now,
    ):
        with pytest.raises(LeaseLost):
            write()
    assert [event.reason for event in second.events()] == ["kept"]
    first.lease.leave()  # is not the other's to leave
    second.append([Cancelled(at_s=3.0, reason="goes on")])


def test_no_wall_clock_decides_who_lives():
    now = time.monotonic()
    assert is_dead(Heartbeat(new_owner(), 1, now)) is False
    assert is_dead(Heartbeat(new_owner(), 1, now - LEASE_S - 1)) is True
    assert is_dead(Heartbeat(of_the_dead(), 1, now)) is True
    machine, pid, began, nonce = new_owner().split(":")
    assert (
        is_dead(Heartbeat(f"{machine}:{pid}:{int(began) + 1}:{nonce}", 1, now)) is True
    )  # its number is another's now


def test_another_machine_is_watched_for_a_lease_of_our_own_time():
    clock = [100.0]
    watch = Watch(lambda: clock[0])
    there = "another-boot.1:77:5:x"
    assert watch.judge(Heartbeat(there, 5, 0.0)) is None
    clock[0] += LEASE_S - 1
    assert watch.judge(Heartbeat(there, 5, 0.0)) is None
    clock[0] += 2
    assert watch.judge(Heartbeat(there, 5, 0.0)) is True
    assert watch.judge(Heartbeat(there, 6, 0.0)) is False
    assert (
        is_dead(Heartbeat(there, 1, 0.0, age_s=LEASE_S + 1)) is True
    )  # by the clock of its database
    assert is_dead(Heartbeat(there, 1, 0.0, age_s=1.0)) is False


TWO_STEPS = """\
  - name: w
    tasks:
      - {{id: a, runtime_s: 1, command: "echo a >> {0}/ran; echo one > a.txt", outputs: [a.txt]}}
      - {{id: b, runtime_s: 20, parents: [a], command: "echo b >> {0}/ran; echo $$ > {0}/pid; while [ ! -e {0}/go ]; do sleep .1; done; cat a.txt > b.txt", inputs: [a.txt], outputs: [b.txt]}}
      - {{id: c, runtime_s: 1, parents: [b], command: "echo c >> {0}/ran; cat b.txt > c.txt", inputs: [b.txt], outputs: [c.txt]}}
"""


SINGLE_TASK = """\
  - name: w
    tasks:
      - {id: a, runtime_s: 1, command: 'echo 1 > a.txt', outputs: [a.txt]}
"""


def database(tmp_path):
    return tmp_path / "home" / "vgrads.db"


def only_run(tmp_path):
    with closing(sqlite3.connect(database(tmp_path))) as connection:
        return connection.execute("SELECT id FROM run").fetchone()[0]


def begun(tmp_path):
    return (tmp_path / "ran").read_text().split() if (tmp_path / "ran").exists() else []


@pytest.mark.more
def test_a_manager_that_slept_through_its_lease_takes_nothing_from_the_next(write, tmp_path):
    """SIGSTOP, a second manager, SIGCONT: the first lets go; nothing is killed, begun again or
    lost."""
    path = local_set(write, tmp_path, TWO_STEPS.format(tmp_path), "10m")
    with (tmp_path / "first.log").open("wb") as log:
        first = subprocess.Popen(
            [sys.executable, "-m", "vgrads", "run", path],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            env={**os.environ, "VGRADS_HOME": str(tmp_path / "home")},
        )
    until(lambda: begun(tmp_path) == ["a", "b"], "the second task")
    first.send_signal(signal.SIGSTOP)
    run_id = only_run(tmp_path)
    with closing(sqlite3.connect(database(tmp_path))) as connection:
        connection.execute("UPDATE run_lease SET heartbeat_s = heartbeat_s - 1000")
        connection.commit()
    second = subprocess.Popen(
        [sys.executable, "-m", "vgrads", "resume", run_id],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "VGRADS_HOME": str(tmp_path / "home")},
    )

    def taken_over():
        with closing(sqlite3.connect(database(tmp_path))) as connection:
            return connection.execute("SELECT number FROM run_lease").fetchone()[0] == 2

    until(taken_over, "the second manager", 60)
    first.send_signal(signal.SIGCONT)
    assert first.wait(60) == 130
    assert "has been taken over" in (tmp_path / "first.log").read_text()
    assert runs(int((tmp_path / "pid").read_text()))  # what it had begun goes on
    (tmp_path / "go").touch()
    assert second.wait(60) == 0
    assert begun(tmp_path) == ["a", "b", "c"]
    assert (
        tmp_path / "home" / "runs" / run_id / "w-1" / "results" / "c.txt"
    ).read_text() == "one\n"


# two copies


def folder_of(tmp_path, name="run", own=True):
    (tmp_path / "set").mkdir(exist_ok=True)
    return TaskFolder(tmp_path / name, tmp_path / "set", own=own)


def order_of(task="t", replica=0, command="true", **fields):
    fields = {"site": "here", "slot": "s", "procs": 1, "runtime_s": 1.0} | fields
    return TaskOrder(key=("w", task, replica), command=command, **fields)


def test_of_two_copies_that_end_together_a_single_commits_all_its_files(tmp_path):
    names = tuple(f"{n}.txt" for n in range(20))
    for trial in range(30):
        folder = folder_of(tmp_path, f"run{trial}")
        pair = [order_of(replica=replica, outputs=names) for replica in (0, 1)]
        for order in pair:
            path = folder.place(order)
            path.mkdir(parents=True)
            for name in names:
                (path / name).write_text(str(order.key[2]))
        start, payload = threading.Barrier(2), {}

        def work(order, folder=folder, start=start, message=payload):
            start.wait()
            message[order.key[2]] = commit(folder, [order])[0]

        threads = [threading.Thread(target=work, args=(order,)) for order in pair]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        winner = next(replica for replica, reason in payload.items() if not reason)
        assert payload[1 - winner] == "another replica was first"
        assert {(folder.results("w") / name).read_text() for name in names} == {str(winner)}
        assert commit(folder, [pair[winner]]) == [""]  # asked for again after a manager was killed


def test_a_copy_that_cannot_commit_leaves_anothers_claim_alone(tmp_path):
    folder = folder_of(tmp_path)
    first, second = (order_of(replica=replica, outputs=("a.txt",)) for replica in (0, 1))
    folder.place(first).mkdir(parents=True)
    (folder.place(first) / "a.txt").write_text("a")
    assert commit(folder, [first]) == [""]
    claim = tmp_path / "run" / "w" / ".committed" / "t"
    (folder.results("w") / "a.txt").rename(claim / "a.txt")  # killed before it was moved
    folder.place(second).touch()  # a disk that does not take its folder
    assert commit(folder, [second]) == ["another replica was first"]
    assert commit(folder, [first]) == [""]
    assert (folder.results("w") / "a.txt").read_text() == "a"


def test_a_commit_that_was_cut_off_is_finished_by_the_next_manager(tmp_path):
    folder, order = folder_of(tmp_path), order_of(outputs=("a.txt", "sub/b.txt"))
    path = folder.place(order)
    (path / "sub").mkdir(parents=True)
    (path / "a.txt").write_text("a")
    (path / "sub" / "b.txt").write_text("b")
    assert commit(folder, [order]) == [""]
    claim = tmp_path / "run" / "w" / ".committed" / "t"
    (claim / "sub").mkdir(exist_ok=True)
    (folder.results("w") / "sub" / "b.txt").rename(
        claim / "sub" / "b.txt"
    )  # as if it had been killed there
    assert is_committed(folder, order)
    assert (folder.results("w") / "sub" / "b.txt").read_text() == "b"


class Engine:
    """Processes of this machine, driven as the core does."""

    def __init__(self, folder):
        self.folder, self.engine = folder, ProcessEngine(WallClock(), folder)

    def run(self, *orders):
        """Ends by task, committed."""
        existing = {order.key: order for order in orders}
        self.engine.start(orders)
        ends = {}

        def all_ended():
            for event in self.engine.poll():
                if event.ok and not event.committed:
                    self.engine.commit([existing[event.key]])
                else:
                    ends[event.key[1]] = event
            return len(ends) == len(existing)

        until(all_ended, "the ends")
        return ends

    def ours(self):
        return marked(lambda mark: mark.startswith(self.folder.marks))


@pytest.fixture
def local(tmp_path):
    engine = Engine(folder_of(tmp_path))
    yield engine
    engine.engine.close()
    assert not engine.ours()


def test_no_task_changes_what_another_has_written_or_what_belongs_to_the_user(local, tmp_path):
    mine = tmp_path / "set" / "mine.txt"
    mine.write_text("mine\n")
    assert local.run(order_of("a", command="echo one > a.txt", outputs=("a.txt",)))["a"].ok
    harm = "echo x >> a.txt; echo x >> mine.txt; cat a.txt > b.txt; exit {}"
    local.run(
        order_of("b", command=harm.format(1), inputs=("a.txt",), outputs=("a.txt", "b.txt")),
        order_of("c", command=harm.format(0), inputs=("a.txt", "mine.txt"), outputs=("b.txt",)),
    )
    assert (local.folder.results("w") / "a.txt").read_text() == "one\n"
    assert (local.folder.results("w") / "b.txt").read_text() == "one\nx\n"
    assert mine.read_text() == "mine\n"
    both = order_of("d", command="echo two >> a.txt", inputs=("a.txt",), outputs=("a.txt",))
    assert local.run(both)["d"].ok
    assert (local.folder.results("w") / "a.txt").read_text() == "one\ntwo\n"


def test_a_task_whose_shell_was_killed_is_reported_when_all_of_it_is_dead(local, tmp_path):
    order = order_of("a", command=f"echo $$ > {tmp_path}/shell; sleep 60 & wait")
    local.engine.start([order])
    until(lambda: (tmp_path / "shell").exists() and (tmp_path / "shell").read_text())
    until(lambda: len(local.ours()) >= 2)
    outer = int((local.folder.place(order) / ".task").read_text().split()[0])
    os.kill(outer, signal.SIGKILL)
    until(lambda: (ended := local.engine.poll()) and not ended[0].ok)
    assert not local.ours()


def test_what_a_task_leaves_behind_ends_with_it(local):
    leaves = "sleep 300 & setsid sleep 300 & (setsid sleep 300 &) ; exit 0"
    assert local.run(order_of("a", command=leaves))["a"].ok
    assert not local.ours()
    daemon = (
        f"{sys.executable} -c 'import os,time; os.fork() and os._exit(0); os.setsid(); "
        "os.closerange(0, 256); time.sleep(300)'; sleep .6"
    )
    assert local.run(order_of("b", command=daemon))["b"].ok
    assert not local.ours()


def test_deaf_tasks_are_cancelled_without_being_waited_for_and_are_gone_in_the_end(local, tmp_path):
    deaf = [
        order_of(
            f"t{n}", command=f"trap '' TERM; touch {tmp_path}/up{n}; while true; do sleep 1; done"
        )
        for n in range(6)
    ]
    local.engine.start(deaf)
    until(lambda: len(list(tmp_path.glob("up*"))) == 6)
    for order in deaf:
        local.engine.cancel(order.key)
    assert len(local.ours()) >= 6  # asked, and not waited for
    local.engine.close()
    assert not local.ours()
    assert not local.engine.poll()


# environment and names


def test_a_task_sees_its_owners_environment_and_no_keys(tmp_path, monkeypatch):
    for name, value in (
        ("MY_OWN", "mine"),
        ("AWS_SECRET_ACCESS_KEY", "k"),
        ("VGRADS_WEBHOOK_SECRET", "k"),
        ("PGPASSWORD", "k"),
    ):
        monkeypatch.setenv(name, value)
    observed = {}
    for own in (True, False):
        local = Engine(folder_of(tmp_path, f"run-{own}", own=own))
        order = order_of(
            "a",
            command="env > env.txt",
            outputs=("env.txt",),
            environment=TaskEnvironment(env=(("GIVEN", "yes"),)),
        )
        assert local.run(order)["a"].ok
        local.engine.close()
        lines = (local.folder.results("w") / "env.txt").read_text().splitlines()
        observed[own] = dict(line.split("=", 1) for line in lines if "=" in line)
    for own, result in observed.items():
        assert result["GIVEN"] == "yes"
        assert result["VGRADS_TASK"] == "a"
        assert "PATH" in result
        assert not {"AWS_SECRET_ACCESS_KEY", "VGRADS_WEBHOOK_SECRET", "PGPASSWORD"} & set(result)
        assert ("MY_OWN" in result) == own


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("outputs", "../../../../x"),
        ("outputs", "/abs/x"),
        ("inputs", "a/../../x"),
        ("outputs", "."),
        ("outputs", ""),
        ("inputs", "a\0b"),
        ("outputs", ".task"),
        ("inputs", "x" * 300),
    ],
)
def test_names_that_lead_out_of_a_tasks_folder_are_refused_when_the_set_is_read(
    vgrads, write, field, value
):
    task = {"id": "a", "runtime_s": 1, "command": "true", field: [value]}
    path = write(
        "s.json",
        json.dumps({"name": "s", "deadline": "1m", "workflows": [{"name": "w", "tasks": [task]}]}),
    )
    answer = vgrads("plan", path)
    assert (answer.code, field in answer.err, "Traceback" in answer.err) == (2, True, False)


def test_orders_that_no_system_takes_are_refused_when_the_set_is_read(vgrads, write):
    for command in ("echo \0", "echo \ud800", "x" * 200_000):
        task = {"id": "a", "runtime_s": 1, "command": command}
        document = {"name": "s", "deadline": "1m", "workflows": [{"name": "w", "tasks": [task]}]}
        answer = vgrads("plan", write("s.json", json.dumps(document)))
        assert (answer.code, "command" in answer.err, "Traceback" in answer.err) == (2, True, False)


def test_any_id_makes_a_folder_of_its_own_below_the_run():
    ids = [
        "a",
        "a/b",
        "..",
        ".",
        ".hidden",
        'a b"c',
        "é",
        "x" * 300,
        "x" * 301,
        "%2F",
        "a%2Fb",
        "~",
    ]
    names = [file_name(name) for name in ids]
    assert len(set(names)) == len(ids)
    for name in names:
        assert "/" not in name
        assert not name.startswith(".")
        assert len(name.encode()) < 200
    assert file_name("prep-1_x.y") == "prep-1_x.y"


# documents


@pytest.mark.parametrize(
    "line",
    [
        "deadline: 2026-02-30",
        "deadline: !!int abc",
        f"deadline: {'9' * 5000}",
        "? [a]\n: b",
        "deadline: !!python/name:os.system x",
        "? {a: b}\n: c",
        "a: &a [*a]",
        "deadline: !!timestamp x",
        "b: \x07",
    ],
)
def test_values_that_cannot_be_created_are_input_errors(vgrads, write, line):
    answer = vgrads("plan", write("s.yaml", f"name: s\n{line}\n"))
    assert (answer.code, "Traceback" in answer.err) == (2, False), answer.err


def test_aliases_that_stand_for_far_more_than_is_written_are_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(InputError, match="repeats too much"):
        parse_mapping("\n".join(lines), "text")
    shared = "base: &b {procs: 2}\ntasks:\n" + "".join(
        f"  - {{<<: *b, id: t{n}}}\n" for n in range(500)
    )
    assert parse_mapping(shared, "text")["tasks"][499]["procs"] == 2  # aliases as people use them


# the record


def test_a_damaged_journal_is_reported_and_can_be_gone_on_from(vgrads, write, tmp_path):
    manager = start_run(local_set(write, tmp_path, TWO_STEPS.format(tmp_path), "10m"), tmp_path)
    until(lambda: begun(tmp_path) == ["a", "b"], "the second task")
    manager.kill()
    manager.wait()
    run_id = only_run(tmp_path)
    with closing(sqlite3.connect(database(tmp_path))) as connection:
        events = connection.execute(
            "SELECT position, body FROM run_event ORDER BY position"
        ).fetchall()
        last = events[-1][0]
        for body in (
            '{"kind": "copy',
            '{"kind": "copx", "at_s": 1.0}',
            '{"kind": "copy", "at_s": 1, "key": ["w", "zz", 0], "ok": true}',
        ):
            connection.execute("UPDATE run_event SET body = ? WHERE position = ?", (body, last))
            connection.commit()
            answer = vgrads("resume", run_id)
            assert (answer.code, "Traceback" in answer.err) == (2, False)
            assert f"event {last}" in answer.err
            assert f"--from {last}" in answer.err
        connection.execute("DELETE FROM run_event WHERE position = ?", (last - 1,))
        connection.commit()
    assert f"event {last - 1} is missing" in vgrads("resume", run_id).err
    (tmp_path / "go").touch()
    answer = vgrads("resume", run_id, "--from", 1, "--json")
    assert answer.code == 0, answer.err
    results = tmp_path / "home" / "runs" / run_id / "w-1" / "results"
    assert (results / "c.txt").read_text() == "one\n"
    assert begun(tmp_path).count("a") == 1  # it was committed: what is whole is not made again
    assert vgrads("resume", run_id, "--from", 1).code == 2  # it is over


def test_going_down_does_not_lose_data_without_a_message(vgrads, tmp_path):
    assert vgrads("token", "create", "ann").code == 0
    refused = vgrads("db", "upgrade", "base")
    assert (refused.code, "would lose" in refused.err, "all data" in refused.err) == (2, True, True)
    assert len(vgrads("token", "list", "--json").json["tokens"]) == 1
    done = vgrads("db", "upgrade", "base", "--lose-data")
    assert done.code == 0, done.err
    replicas = list((tmp_path / "home").glob("vgrads.db.before-base-*"))
    assert len(replicas) == 1
    assert replicas[0].stat().st_mode & 0o077 == 0
    assert vgrads("token", "list", "--json").json["tokens"] == []  # a database of nothing opens
    with Store(f"sqlite:///{replicas[0]}") as store:
        assert current(store.engine) == HEAD
        with pytest.raises(InputError, match="would lose"):
            move(store.engine, "base")


def test_what_is_pruned_leaves_no_folder_and_the_database_shrinks(vgrads, write, tmp_path):
    path = local_set(write, tmp_path, SINGLE_TASK)
    for _ in range(2):
        assert vgrads("run", path).code == 0
    folder = tmp_path / "home" / "runs"
    assert len(list(folder.iterdir())) == 2
    with closing(sqlite3.connect(database(tmp_path))) as connection:
        connection.execute(
            "UPDATE workflow_set SET created = '2020-01-01', gantt = ?", ("x" * 2_000_000,)
        )
        connection.execute("UPDATE run SET started = '2020-01-01'")
        connection.commit()
    before = database(tmp_path).stat().st_size
    assert "removed 2 sets" in vgrads("db", "prune", "--keep", "1d").out
    assert list(folder.iterdir()) == []
    assert database(tmp_path).stat().st_size < before / 2


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of a few megabytes, in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "vgrads-test", place]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no right to mount a file system")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(folder: Path) -> Path:
    hog = folder / "hog"
    with hog.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return hog


def test_a_full_disk_is_reported_in_a_line_and_nothing_is_lost(
    vgrads, write, small_disk, tmp_path, monkeypatch
):
    monkeypatch.setenv("VGRADS_HOME", str(small_disk / "home"))
    path = local_set(write, tmp_path, SINGLE_TASK)
    assert vgrads("run", path).code == 0
    hog = fill(small_disk)
    for command in (("run", path), ("token", "create", "ann")):
        answer = vgrads(*command)
        assert (answer.code, "Traceback" in answer.err) == (4, False), answer.err
        assert len(answer.err.strip().splitlines()[-1]) < 300
    hog.unlink()
    assert vgrads("run", path).code == 0
    assert {row["state"] for row in vgrads("status", "--json").json["runs"]} <= {
        "kept",
        "interrupted",
        "running",
    }


def test_where_agents_find_their_manager_is_reported_when_there_is_room(small_disk, tmp_path):
    """A run whose disk is full asks for its slots later; one that is resumed there needs no room
    for it."""
    (tmp_path / "set").mkdir(exist_ok=True)
    place = TaskFolder(small_disk / "run", tmp_path / "set", AWAY)
    hog = fill(small_disk)
    engine = AgentEngine("run", WallClock(), place)
    with pytest.raises(SiteError, match="No space left") as full:
        engine.environment("here")
    assert full.value.transient
    hog.unlink()
    before = engine.environment("here")
    engine.detach()
    fill(small_disk)
    second = AgentEngine("run", WallClock(), place)
    assert second.environment("here") == before
    second.close()


@pytest.mark.more
def test_what_the_system_refuses_is_reported_in_its_words_and_in_a_line(
    vgrads, small_disk, tmp_path
):
    assert vgrads("run", DATA / "lead.yaml", "--as-stated").code == 0
    (row,) = vgrads("status", "--json").json["runs"]
    fill(small_disk)
    for place in (small_disk / "run.html", tmp_path / "nowhere" / "run.html"):
        answer = vgrads("gantt", row["run"], "-o", place)
        assert answer.code in (2, 4), answer.err
        assert str(place) in answer.err or "No space left on device" in answer.err
        assert len(answer.err.strip().splitlines()) == 1


def test_a_task_that_fills_the_disk_fails_and_others_go_on(small_disk, tmp_path):
    (tmp_path / "set").mkdir(exist_ok=True)
    local = Engine(TaskFolder(small_disk / "run", tmp_path / "set", own=True))
    loud = order_of("loud", command="head -c 20000000 /dev/zero > big.bin", outputs=("big.bin",))
    ended = local.run(loud)["loud"]
    assert not ended.ok
    (local.folder.place(loud) / "big.bin").unlink()
    assert local.run(order_of("small", command="echo 1 > a.txt", outputs=("a.txt",)))["small"].ok
    local.engine.close()


def test_the_end_of_a_long_complaint_is_reported_and_no_more_of_it_is_read(local):
    shout = (
        f'{sys.executable} -c \'import sys; sys.stderr.write("x" * 30_000_000 + "\\nthe last '
        "word\\n\"); sys.exit(3)'"
    )
    assert local.run(order_of("a", command=shout))["a"].reason == "exit code 3: the last word"
