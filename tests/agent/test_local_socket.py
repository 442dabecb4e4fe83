"""Agents on this machine reach their dispatcher through a socket in its folder: no port, no
certificate, and nobody but the folder's owner."""

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import vgrads
from tests.conftest import ROOT
from vgrads.agent.link import ManagerAddress, contacts_of
from vgrads.agent.tcp import connect_here
from vgrads.bags.bag import BagSpec
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.state import State
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.parameters import GrowingCommands
from vgrads.dispatch.server.manager import PhaseChange
from vgrads.exchange.keys import find_socket, name_socket, open_keys


@pytest.fixture
def short():
    """A folder whose path leaves room for a socket's, wherever the tests' folders are."""
    with tempfile.TemporaryDirectory(prefix='my "run" ü', dir="/tmp") as folder:
        yield Path(folder)


def call_in(home, monkeypatch):
    """The files of an executor's folder, while its call's agent is there."""
    monkeypatch.setenv("VGRADS_HOME", str(home))
    with vgrads.Executor(1) as executor:
        assert executor.submit(pow, 2, 10).result(60) == 1024
        (folder,) = (home / "executor-runs").iterdir()
        return {path.name: path.stat().st_mode for path in folder.iterdir()}


def test_an_executor_of_this_machine_needs_no_port(short, monkeypatch):
    files = call_in(short, monkeypatch)
    assert stat.S_ISSOCK(files["socket"]) and stat.S_IMODE(files["socket"]) == 0o600
    assert not files.keys() & {"port", "cert.pem", "key.pem"}


def test_where_the_path_is_too_long_there_is_a_port_with_tls(tmp_path, monkeypatch):
    home = tmp_path / ("long" * 30)
    files = call_in(home, monkeypatch)
    assert find_socket(home) is None
    assert files.keys() >= {"port", "cert.pem", "key.pem"} and "socket" not in files
    assert stat.S_IMODE(files["key.pem"]) == 0o600


def test_a_certificate_is_made_once_and_only_where_it_is_needed(tmp_path):
    keys = open_keys(tmp_path / "manager")
    assert [path.name for path in keys.folder.iterdir()] == ["secret"]
    first = keys.certificate
    (keys.folder / "key.pem").unlink()  # a crash between the two files
    second = keys.certificate
    assert first != second == open_keys(keys.folder).certificate
    keys.context()  # the two belong together


@pytest.mark.parametrize("name", ["socket", "a b", 'q"u%o?t#e', "ü"])
def test_any_path_can_be_a_contact(tmp_path, name):
    variables = name_socket(tmp_path / name)
    (contact,) = contacts_of(variables)
    with pytest.raises(OSError, match="no socket") as caught:
        ManagerAddress([contact], "key", "", "", False).connect()
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize("contact", ["unix://", "unix:", "tls://host", "/a/socket"])
def test_what_is_no_contact_is_refused(contact):
    with pytest.raises(ValueError, match="no contact"):
        contacts_of({"VGRADS_CONTACT": contact})


def test_a_socket_that_is_gone_counts_as_one_where_nobody_listens(tmp_path):
    with pytest.raises(ConnectionRefusedError):
        connect_here(str(tmp_path / "socket"), 1.0)


def test_the_first_task_of_an_open_bag_needs_agents_at_once(tmp_path):
    core = Core(State(), Rules(), lambda _: None, lambda *_: None)
    (tmp_path / "commands").touch()
    bag = BagSpec(name="open", commands=GrowingCommands(tmp_path / "commands"))
    core.add(0, bag, 0.0, open_=True)

    async def wait():
        phase = PhaseChange()
        phase.compare(core)
        assert await phase.wait(0.0)
        phase.compare(core)
        assert not await phase.wait(0.0)
        core.add_tasks(0, 1)
        phase.compare(core)
        return await phase.wait(0.0)

    assert asyncio.run(wait())


def test_a_dispatcher_that_has_ended_leaves_no_socket(short):
    (short / "bag.yaml").write_text("name: one\ncommand: 'true'\n")
    subprocess.run(
        [sys.executable, "-m", "vgrads", "bags", "run", short / "bag.yaml"],
        env={**os.environ, "VGRADS_HOME": str(short / "home")},
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (folder,) = (short / "home" / "dispatchers").iterdir()
    names = {path.name for path in folder.iterdir()}
    assert "journal" in names and not names & {"socket", "port", "cert.pem", "key.pem"}
