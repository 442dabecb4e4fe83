"""Bags whose policy or site needs an extra that is not installed: they wait, nothing is failed for
it, and they go on once it is."""

import pickle
import sys
import time

import classad2
import pytest

from tests.dispatch.test_bag_virtual import SITES
from tests.services.dask import dask_cluster
from vgrads.api.bags import virtual
from vgrads.api.bags.execution import BagWork, ControlRequests, submit_bag
from vgrads.api.bags.virtual import VirtualBagWork, simulated_part
from vgrads.api.config import dispatcher_folder
from vgrads.api.queues.sites import this_machine
from vgrads.dispatch.document import load_bag
from vgrads.dispatch.storage.folder import open_bag
from vgrads.dispatch.storage.status import read_status
from vgrads.kernel.extras import MissingExtraError
from vgrads.policies.policy import Policy
from vgrads.portal.jobs.bags import Crew, submit
from vgrads.portal.records.bags import BagStore
from vgrads.vgrid.catalog import load_catalog

STRICT = "name: strict\ncommands: ['echo a', 'echo b']\npolicy: {Rank: Host.Memory}\n"
PLAIN = "name: plain\ncommands: ['echo c']\n"
TIMED = "runtime_s: 60\nhosts: {least: 0, most: 4}\n"


def without_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "classad2", None)


def by_name(status):
    return {bag["name"]: bag for bag in status["bags"]}


@pytest.fixture
def rows(store, write):
    """Two bags of a dispatcher, of which one has a policy."""
    return [
        submit(store, "bag-0", load_bag(write(name, text))[0], write(name, text).parent, HERE)[0]
        for name, text in (("strict.yaml", STRICT), ("plain.yaml", PLAIN))
    ]


HERE = this_machine()


def test_a_stored_bag_waits_with_the_reason_and_goes_on_once_the_extra_is_there(
    store, rows, monkeypatch
):
    without_library(monkeypatch)
    reports = []

    def watch(status):
        bags = by_name(status)
        if "strict" in bags and bags.get("plain", {}).get("state") == "done":
            reports.append(bags["strict"])
            if len(reports) == 3:  # it goes on waiting
                monkeypatch.setitem(sys.modules, "classad2", classad2)

    stopped = Crew(store, "bag-0", HERE, watch=watch, own=True).carry_out()
    assert stopped == ""
    for bag in reports[:3]:
        assert (bag["state"], bag["waiting"], bag["failed"]) == ("waiting", 2, 0)
        assert bag["problem"] == (
            "policy: a policy needs the extra 'policies', which is not installed "
            "(pip install 'vgrads[policies]')"
        )
    status = by_name(read_status(dispatcher_folder("bag-0")))
    assert [status[name]["state"] for name in ("strict", "plain")] == ["done", "done"]
    assert not status["strict"]["problem"]
    assert [BagStore(store.engine).get(row.id).state for row in rows] == ["done", "done"]


def test_it_waits_over_a_restart_and_can_be_cancelled(store, rows, vgrads, monkeypatch):
    without_library(monkeypatch)
    begun_s = time.monotonic()

    def watch(status):
        if by_name(status).get("plain", {}).get("state") == "done":
            crew.end()

    for _ in range(2):
        crew = Crew(store, "bag-0", HERE, watch=watch, own=True)
        assert crew.carry_out() == "interrupted"
        assert BagStore(store.engine).get(rows[0].id).state == "interrupted"
    assert time.monotonic() - begun_s < 60
    assert "extra 'policies'" in vgrads("bags", "explain", rows[0].id, 0).out
    assert vgrads("bags", "cancel", rows[0].id).code == 0
    assert BagStore(store.engine).get(rows[0].id).state == "cancelled"


def test_nothing_is_stored_of_a_new_bag_whose_policy_cannot_be_read(store, write, monkeypatch):
    path = write("strict.yaml", STRICT)
    document, _ = load_bag(path)
    without_library(monkeypatch)
    with pytest.raises(MissingExtraError, match="policies"):
        load_bag(path)
    with pytest.raises(MissingExtraError, match="policies"):
        submit(store, "bag-1", document, path.parent, HERE)
    assert [path.name for path in dispatcher_folder("bag-1").rglob("*")] == ["numbers"]  # empty
    assert BagStore(store.engine).newest() == []


def test_a_bag_at_simulated_sites_waits_too(write, tmp_path, monkeypatch):
    monkeypatch.setattr(virtual, "_LOOK_S", 0.05)
    folder, whole = tmp_path / "dispatcher", load_catalog(SITES)
    for number, text in enumerate((STRICT, PLAIN)):
        path = write(f"{number}.yaml", text + TIMED)
        submit_bag(folder, number, load_bag(path)[0], tmp_path, whole)
    without_library(monkeypatch)
    waited = []

    def watch(status):
        bags = by_name(status)
        if bags["plain"]["state"] == "done" and bags["strict"]["problem"]:
            waited.append(bags["strict"]["state"])
            if len(waited) == 3:
                monkeypatch.setitem(sys.modules, "classad2", classad2)

    requests = ControlRequests(new=[0, 1])
    work = VirtualBagWork(folder, simulated_part(whole, folder), "bag-x", lambda: requests, watch)
    assert not work.carry_out().ended_early
    assert waited[:3] == ["waiting"] * 3
    assert [b["state"] for b in by_name(read_status(folder)).values()] == ["done", "done"]


def test_a_policy_that_waits_accepts_no_node_and_survives_pickling(store, rows, monkeypatch):
    without_library(monkeypatch)
    policy = open_bag(dispatcher_folder("bag-0"), 0).bag.policy
    assert isinstance(policy, Policy)
    for one in (policy, pickle.loads(pickle.dumps(policy))):
        residual = one.under({"Tail": True})
        assert not residual.requirements({"Memory": 1}) and not residual.grid({"Name": "a"})
        assert (residual.rank({}), residual.deadline({}), residual.replication({})) == (0, None, 0)
        assert "extra 'policies'" in one.explain("JobRequirements", {}).expression


LENT = """
[[site]]
name = "lent"
kind = "dedicated"
procs = 1
driver = "dask"
[site.access]
endpoint = "{}"
contact = "127.0.0.1"
poll = "1s"
[[site]]
name = "own"
kind = "dedicated"
procs = 1
driver = "local"
"""


def test_a_site_that_needs_an_extra_waits_and_other_bags_go_on(store, write, monkeypatch):
    bags = {"away": "lent", "here": "own"}
    messages = []
    with dask_cluster(1) as of:
        sites = load_catalog(write("sites.toml", LENT.format(of.scheduler_address)))
        for name, site in bags.items():
            text = f"name: {name}\ncommand: 'true'\nsites: [{site}]\nhosts: {{idle: 1s}}\n"
            path = write(f"{name}.yaml", text)
            submit(store, "bag-0", load_bag(path)[0], path.parent, sites)
        installed = sys.modules["distributed"]
        monkeypatch.setitem(sys.modules, "distributed", None)

        def watch(status):
            if by_name(status).get("here", {}).get("state") == "done":
                assert by_name(status)["away"]["failed"] == 0
                messages.append(status["problem"])
                monkeypatch.setitem(sys.modules, "distributed", installed)

        assert Crew(store, "bag-0", sites, watch=watch, own=True).carry_out() == ""
        status = read_status(dispatcher_folder("bag-0"))
    assert messages[0] == (
        "site lent: the driver 'dask' needs the extra 'dask', which is not installed "
        "(pip install 'vgrads[dask]')"
    )
    assert {bag["state"] for bag in status["bags"]} == {"done"}
    assert not status["problem"]


@pytest.mark.parametrize("request_", [BagWork.end, BagWork.leave])
def test_a_dispatcher_that_is_interrupted_before_it_begins_requests_nothing(
    tmp_path, write, request_
):
    document, _ = load_bag(write("bag.yaml", "name: b\ncommand: 'true'\n"))
    submit_bag(tmp_path / "d", 0, document, tmp_path, HERE)
    work = BagWork(tmp_path / "d", HERE, "bag-x", lambda: ControlRequests(new=[0]), own=True)
    request_(work)
    ended = work.carry_out()
    assert ended.ended_early and not ended.manager.state.slots
