"""Tasks of several users of one service, whose agents run as root: each user's tasks run under an
account of their own, and reach nothing of the others'."""

import os
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

import vgrads
from tests.portal.serving import bearer, serving
from tests.waiting import until
from vgrads.portal.records.access import LOCAL, AccessControl, account_number
from vgrads.portal.records.store import Store

SITE = '[[site]]\nname = "here"\nkind = "local"\nprocs = 4\ndriver = "local"\n'
ANN, BOB = account_number("ann"), account_number("bob")
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts tasks of other accounts")


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    """A service that asks for tokens, with a site open to ann and bob: a client of each. Files
    that it creates are closed to others unless it opens them."""
    home = tmp_path_factory.mktemp("accounts")
    (home / "sites.toml").write_text(SITE)
    with Store(f"sqlite:///{home / 'vgrads.db'}") as store:
        for user in ("ann", "bob"):
            AccessControl(store.engine).grant("here", user)
        headers = {user: bearer(store, user) for user in ("ann", "bob")}
    served = serving(home, "--sites", home / "sites.toml", umask=0o077)
    with served as service, ExitStack() as stack:
        yield {
            user: stack.enter_context(httpx2.Client(base_url=service.url, headers=head, timeout=30))
            for user, head in headers.items()
        }


@pytest.fixture
def meeting():
    """A folder in which every account may write."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def submit(user, command, **more):
    document = {"name": "looks", "commands": [command], "retries": 0, **more}
    answer = user.post("/v1/bags", json=document)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def end_of(user, bag):
    """The end of the only task of a bag."""
    over = ("done", "failed")
    until(lambda: user.get(f"/v1/bags/{bag}").json()["state"] in over, bag, 60)
    return user.get(f"/v1/work/{bag}/logs").json()


@root
def test_each_user_has_an_account_with_a_folder_and_streams(users):
    command = "id -u; id -G; pwd; mktemp; echo to stderr >/dev/stderr; touch mine"
    for user, number in (("ann", ANN), ("bob", BOB)):
        end = end_of(users[user], submit(users[user], command))
        uid, groups, folder, temporary, _ = end["out"].split("\n")
        assert (uid, groups, end["code"]) == (str(number), str(number), 0)
        assert folder.endswith(str(number)) and temporary.startswith(f"{folder}/")
        assert end["err"] == "to stderr\n"


@root
def test_no_program_leads_a_task_back_to_root(users):
    """Also none with the set-user-ID bit."""
    command = "sed -n s/NoNewPrivs://p /proc/self/status; su --version >/dev/null; id -u"
    end = end_of(users["ann"], submit(users["ann"], command))
    assert end["out"].split() == ["1", str(ANN)]


@root
def test_functions_run_under_the_account_of_their_user(users, meeting):
    """With a Python that every account may run."""
    (meeting / "bin").mkdir()
    (meeting / "bin" / "python").symlink_to("/usr/bin/python3")

    def look():
        (Path.cwd() / "mine").write_text("x")
        return os.getuid(), os.getgid(), str(Path.cwd()), bytes(100_000)

    for user, number in (("ann", ANN), ("bob", BOB)):
        token = users[user].headers["authorization"].removeprefix("Bearer ")
        where = {"sites": str(users[user].base_url).rstrip("/"), "token": token}
        with vgrads.Executor(**where, environment=str(meeting)) as executor:
            uid, group, folder, large = executor.submit(look).result(60)
        assert (uid, group, len(large)) == (number, number, 100_000)
        assert folder.endswith(str(number))


@root
def test_a_task_reaches_nothing_of_another_users_tasks(users, meeting):
    """Its environment, files, memory, signals, the agent above both and the agent's key."""
    anns = (
        f"echo of ann >private; echo $$ $PPID $PWD >{meeting}/ann; chmod 644 {meeting}/ann; "
        f"until [ -e {meeting}/over ]; do sleep .05; done; cat private"
    )
    waits = (
        f"until [ -r {meeting}/ann ] && [ -s {meeting}/ann ]; do sleep .05; done; "
        f"read -r pid agent folder <{meeting}/ann"
    )
    tries = "; ".join(
        f"if {what} >/dev/null 2>&1; then echo could {what}; fi"
        for what in (
            "cat /proc/$pid/environ",
            "ls /proc/$pid/fd",
            "ls -l /proc/$pid/cwd/",
            "cat $folder/private",
            "touch $folder/other",
            "kill -0 $pid",
            "kill -9 $pid",
            "kill -0 $agent",
            "cat /proc/$agent/environ",
            "head -c 1 /proc/$agent/mem",
            "ls $folder/..",
            "ls -d $folder/../cache/*",
            "setpriv --reuid=0 true",
        )
    )
    first = submit(users["ann"], anns, env={"PRIVATE": "of ann"})
    second = submit(users["bob"], f"{waits}; {tries}; ls -d /proc/$pid; touch {meeting}/over")
    attacker, victim = end_of(users["bob"], second), end_of(users["ann"], first)
    (pid, _, _) = (meeting / "ann").read_text().split()
    assert attacker["out"] == f"/proc/{pid}\n", attacker
    assert (victim["code"], victim["out"]) == (0, "of ann\n")


def submit_set(user, tasks):
    document = {
        "name": "files",
        "deadline": "1h",
        "fraction": 1,
        "workflows": [{"name": "w", "tasks": tasks}],
    }
    answer = user.post("/v1/workflow-sets", json=document)
    assert answer.status_code == 201, answer.text
    answer = user.post(f"/v1/workflow-sets/{answer.json()['id']}/run")
    assert answer.status_code == 202, answer.text
    run = answer.json()["run"]
    until(lambda: user.get(f"/v1/work/{run}").json()["state"] != "running", run, 90)
    return run, user.get(f"/v1/work/{run}").json()


@root
def test_planned_runs_have_the_account_too_and_pass_files_on(users):
    tasks = [
        {"id": "a", "runtime_s": 1, "command": "id -u >who.txt", "outputs": ["who.txt"]},
        {
            "id": "b",
            "runtime_s": 1,
            "parents": ["a"],
            "inputs": ["who.txt"],
            "outputs": ["twice.txt"],
            "command": "cat who.txt who.txt >twice.txt; cat twice.txt; id -u",
        },
    ]
    run, status = submit_set(users["bob"], tasks)
    assert status["state"] == "kept", status
    logs = users["bob"].get(f"/v1/work/{run}/logs", params={"task": "b"}).text
    assert logs.count(str(BOB)) >= 3, logs


@root
def test_no_link_leads_the_agent_to_files_that_the_task_cannot_read(users):
    for command in (
        "ln -s /etc/shadow got.txt",
        "mkdir d; ln -s /etc d/e; ln -s d/e/shadow got.txt",
    ):
        tasks = [{"id": "a", "runtime_s": 1, "command": command, "outputs": ["got.txt"]}]
        _, status = submit_set(users["ann"], tasks)
        assert status["state"] == "broken", status


def test_a_service_with_one_user_runs_tasks_as_before(store):
    access = AccessControl(store.engine)
    assert access.account_of(LOCAL) == 0
    bearer(store, "ann")
    assert access.account_of("ann") == 0
    bearer(store, "bob")
    assert (access.account_of("ann"), access.account_of("bob")) == (ANN, BOB)
    assert access.account_of(LOCAL) == 0 and access.account_of("") == 0
    assert ANN != BOB and min(ANN, BOB) >= 0x70000000


COLLIDING = ("user11822@example.org", "user28540@example.org")


def test_two_users_never_have_the_same_account(store):
    """Also if a part of the digests of their names is the same; each keeps the first."""
    access = AccessControl(store.engine)
    assert account_number(COLLIDING[0]) == account_number(COLLIDING[1])
    for user in COLLIDING:
        bearer(store, user)
    numbers = [access.account_of(user) for user in COLLIDING]
    assert numbers[0] == account_number(COLLIDING[0]) != numbers[1] >= 0x70000000
    for user in reversed(COLLIDING):  # in another order, from another service
        with Store() as other:
            again = AccessControl(other.engine)
            assert again.account_of(user) == numbers[COLLIDING.index(user)]


def check_services_agree(url):
    """Services on one database, that see the users for the first time at the same time."""
    with Store(url) as store:
        users = [*COLLIDING, *(f"user{number}" for number in range(6))]
        for user in users:
            bearer(store, user)
    with ExitStack() as stack:
        stores = [stack.enter_context(Store(url)) for _ in range(4)]
        start = threading.Barrier(len(stores))

        def ask(store):
            start.wait()
            return [AccessControl(store.engine).account_of(user) for user in users]

        with ThreadPoolExecutor(len(stores)) as pool:
            first, *others = pool.map(ask, stores)
    assert others == [first] * len(others)
    assert len(set(first)) == len(users)


def test_services_on_one_database_agree_about_accounts(tmp_path):
    check_services_agree(f"sqlite:///{tmp_path / 'x.db'}")
