"""What an earlier version of vgrads kept opens, shows and goes on; what is kept now names no
class."""

import typing
import zlib
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from sqlmodel import Session

from tests.conftest import DATA
from tests.examples import examples
from tests.execmgr.test_execmgr import execution_for
from tests.planner.test_planner import slot
from tests.portal.serving import Served as Service
from tests.portal.stored import FULFILLED, KILLED, REPLANNED, SERVED, SERVED_SET, lay_out
from tests.workflows.test_workflows import dags
from vgrads.api.plans.run_setup import RunOptions, Setup
from vgrads.drivers.api import SiteAccess
from vgrads.execmgr.core.execution_plan import ExecutionPlan
from vgrads.kernel.errors import InputError
from vgrads.planner.plan import Plan
from vgrads.planner.snapshot import Snapshot
from vgrads.portal.client import Client
from vgrads.portal.records.archive import KINDS, pack, unpack
from vgrads.portal.records.migrations.pickles import as_document
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.sets import Sets
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import ArchiveRow


@pytest.fixture
def home(tmp_path, monkeypatch):
    path = lay_out(tmp_path, DATA)
    monkeypatch.setenv("VGRADS_HOME", str(path))
    return path


def test_books_and_plans_of_an_earlier_version_are_whole(home):
    with Store() as store:
        for run, count in ((FULFILLED, 1), (REPLANNED, 3), (KILLED, 1), (SERVED, 1)):
            executions = RunRecord(store.engine, run).executions()
            assert len(executions) == count
            for execution in executions:
                assert isinstance(execution, ExecutionPlan)
                assert set(execution.uses) == {use.slot.id for use in execution.plan.uses}
                for offered in execution.snapshot.slots:
                    offered.curve.check()
            executions[0].plan.check(executions[0].snapshot)
        plan, snapshot = Sets(store.engine).archived(SERVED_SET)
        plan.check(snapshot)
        assert plan.promise.probability == pytest.approx(0.986572265625)
        setup = RunRecord(store.engine, KILLED).setup()
        assert setup.options.folder == home / "runs" / KILLED
        first, second = (
            w.tasks
            for w in RunRecord(store.engine, FULFILLED)
            .executions()[0]
            .snapshot.workflow_set.workflows[:2]
        )
        assert first is second  # equal workflows still share their tasks


@pytest.mark.long
def test_a_killed_run_of_an_earlier_version_goes_on(vgrads, home, tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(home))
    (tmp_path / "go").touch()  # its second tasks wait for this
    (tmp_path / "a-ran").write_text("ran\nran\n")  # what its first tasks wrote before it was killed
    relocated(home, tmp_path)
    answer = vgrads("resume", KILLED, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["outcome"]["in_time"] == 2
    assert (tmp_path / "a-ran").read_text() == "ran\nran\n"  # what was done is not done again
    for name in ("chain-1", "chain-2"):
        assert (home / "runs" / KILLED / name / "results" / "c.txt").read_text() == "seed\nseed\n"


def relocated(home, place):
    """Commands of the book name the folder that it was written in, which paths in pickles did as
    well."""
    with Store() as store:
        tasks = (
            RunRecord(store.engine, KILLED).executions()[0].snapshot.workflow_set.workflows[0].tasks
        )
        assert str(place) in tasks["b"].command


@pytest.mark.long  # it changes no more: before a release
def test_runs_of_an_earlier_version_are_shown(home, vgrads, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(home))
    states = {row["run"]: row["state"] for row in vgrads("status", "--json").json["runs"]}
    assert states[FULFILLED] == states[REPLANNED] == "kept"
    chart = home / "chart.svg"
    assert vgrads("gantt", REPLANNED, "-o", chart).code == 0
    assert "<svg" in chart.read_text()
    assert vgrads("explain", FULFILLED, "lead-1/wrf").code == 0
    service = Service(home, "--sites", DATA / "sites.toml")
    try:
        client = Client(service.url)
        rows = {row["runs"][0]["id"]: row["id"] for row in client.list_sets() if row["runs"]}
        for run in (FULFILLED, REPLANNED):
            payload = client.gantt(rows[run])
            assert payload["placements"]
            assert client.promise(rows[run])["points"][-1]["probability"] == pytest.approx(1.0)
        handle = client.newest_run(SERVED_SET)
        assert handle.run_id == SERVED
        goes_on = client.events(handle)  # at the pace that was asked for: not waited for to its end
        assert (
            len([next(goes_on) for _ in range(3)]) == 3
        )  # the service went on with what it was killed over
        goes_on.close()
        client.cancel(SERVED_SET)
        assert client.wait(handle) == "cancelled"
    finally:
        service.end()


def test_every_value_that_is_stored_has_a_lasting_name():
    """Whatever can be reached from what is kept is known to the archive."""
    result, open_ = set(), [Setup, ExecutionPlan, Plan, Snapshot]
    while open_:
        kind = open_.pop()
        result.add(kind)
        hints = typing.get_type_hints(kind)
        for name in (f.name for f in fields(kind)):
            open_ += [c for c in classes(hints[name]) if is_dataclass(c) and c not in result]
    assert result == set(KINDS.values())


def classes(hint):
    inner = typing.get_args(hint)
    return [c for part in inner for c in classes(part)] if inner else [hint]


@settings(max_examples=examples(30))
@given(dags())
def test_what_is_stored_comes_back(workflow):
    wide = max(task.procs for task in workflow.tasks.values())
    length = 2 * sum(task.runtime_s for task in workflow.tasks.values()) + 10
    execution = execution_for([workflow], [slot("a", procs=wide, end_s=length)], deadline_s=length)
    again = unpack(pack(execution), "x")
    assert again.plan.promise == execution.plan.promise
    assert (again.order, again.replicas, again.placements) == (
        execution.order,
        execution.replicas,
        execution.placements,
    )
    assert again.snapshot.workflow_set == execution.snapshot.workflow_set
    for item, other in zip(again.snapshot.slots, execution.snapshot.slots, strict=True):
        assert np.array_equal(item.curve.times_s, other.curve.times_s)
        assert (item.id, item.end_s, item.up) == (other.id, other.end_s, other.up)
    assert pack(again) == pack(execution)


def test_options_of_a_run_come_back():
    for at in (None, 12.5, datetime(2026, 1, 2, 3, 4, tzinfo=UTC)):
        options = RunOptions(run_id="run-1", folder=Path("/a b/\u00e4"), at=at, speed=float("inf"))
        assert unpack(pack(options), "x") == options


def test_an_archive_knows_its_age_and_tells_damage():
    good = pack(SiteAccess(host="x"))
    assert unpack(good, "x") == SiteAccess(host="x")
    with pytest.raises(InputError, match="newer vgrads"):
        unpack(b"\xff\xff" + good[2:], "x")
    for body in (good[:-5], good[:2], b"", good[:2] + zlib.compress(b"\x93\x90\x90")):
        with pytest.raises(InputError, match="cannot be read"):
            unpack(body, "x")


def test_a_field_or_kind_of_a_newer_version_is_reported():
    good = zlib.decompress(pack(SiteAccess(host="x"))[2:])
    for old, new in ((b"\xa4host", b"\xa4hose"), (b"\xa6access", b"\xa6excess")):
        assert old in good
        with pytest.raises(InputError, match="newer vgrads"):
            unpack(pack(None)[:2] + zlib.compress(good.replace(old, new)), "x")


def test_a_pickle_that_names_anything_else_is_not_read(home):
    for harmful in (b"cos\nsystem\n(Vtrue\ntR.", b"cbuiltins\neval\n(V1\ntR."):
        assert as_document(b"\x00\x01" + zlib.compress(harmful)) is None
    with Store() as store:
        with Session(store.engine) as session:
            row = session.get_one(ArchiveRow, (KILLED, "setup"))
            row.body = b"\x00\x01" + zlib.compress(b"cos\nsystem\n(Vtrue\ntR.")
            session.add(row)
            session.commit()
        with pytest.raises(InputError, match="cannot be read"):
            RunRecord(store.engine, KILLED).setup()


@pytest.mark.parametrize("module", ["pathlib", "pathlib._local"])
def test_a_pickle_of_another_python_is_read(module):
    """Paths live in another module in Python 3.13 than before and after it."""
    document = as_document(
        b"\x00\x01" + zlib.compress(f"c{module}\nPosixPath\n(V/a/b\ntR.".encode())
    )
    assert unpack(document, "x") == Path("/a/b")
