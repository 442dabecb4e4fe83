"""Bags whose site needs an extra that is not installed: they wait, nothing is failed for it, and
they go on once it is."""

import sys

import pytest

from tests.services.dask import dask_cluster
from vgrads.api.bags.execution import BagWork, ControlRequests, submit_bag
from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.document import load_bag
from vgrads.dispatch.storage.status import read_status
from vgrads.portal.jobs.bags import Crew, submit
from vgrads.vgrid.catalog import describe_this_machine, load_catalog

HERE = describe_this_machine()


def by_name(status):
    return {bag["name"]: bag for bag in status["bags"]}


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
    assert ended.unfinished == "interrupted" and not ended.manager.state.slots
