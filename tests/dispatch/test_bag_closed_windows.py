"""Bags at sites with closed windows: nodes are requested for the time before or after, and the
window is named."""

import json
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgrads.api.bags.execution import ControlRequests, submit_bag
from vgrads.api.bags.sites import find_places
from vgrads.api.bags.virtual import VirtualBagWork, find_simulated_part
from vgrads.dispatch.document import load_bag
from vgrads.dispatch.storage.journal import read_state
from vgrads.kernel.closures import Closure
from vgrads.kernel.units import format_instant
from vgrads.vgrid.catalog import Catalog, NodeType, Queue, Site
from vgrads.vgrid.closures import find_closures

HOUR_S = 3600.0


def run_bag(folder, sites, tasks=200, runtime_s=60.0):
    """Run a bag at simulated sites in virtual time; return its state, the zero of the clock, and
    the reasons of the fleet."""
    document = {
        "name": "squares",
        "command": "echo {x}",
        "parameters": {"x": {"range": [tasks]}},
        "runtime_s": runtime_s,
        "hosts": {"most": 2, "longest": "2h"},
    }
    path = folder / "bag.yaml"
    path.write_text(json.dumps(document))
    whole = Catalog(sites=tuple(sites), links={})
    submit_bag(folder, 0, load_bag(path)[0], folder, whole)
    work = VirtualBagWork(
        folder, find_simulated_part(whole, folder), "bag-x", lambda: ControlRequests(new=[0])
    )
    work.carry_out()
    return read_state(folder / "journal"), work._zero_s, work._fleet.reasons


def window(begin_h, length_h):
    return f"{format_instant(round(time.time() + begin_h * HOUR_S))}/{length_h * HOUR_S:.0f}s"


def cluster(closed):
    queue = Queue(
        name="q", history=None, log_queue=None, max_procs=8, max_walltime_s=9e5, max_jobs=4
    )
    return Site(name="cluster", kind="batch", procs=8, queues=(queue,), closed=tuple(closed))


def cloud(closed):
    return Site(
        name="cloud", kind="cloud", procs=2, nodes=(NodeType(name="m"),), closed=tuple(closed)
    )


def test_nodes_are_requested_until_a_window_and_again_after_it(tmp_path):
    site = cloud([window(0.9, 30)])
    state, zero_s, reasons = run_bag(tmp_path, [site])
    assert state.bags[0].tasks.counts[2] == 200
    (closure,) = find_closures(site, zero_s)
    slots = [slot for slot in state.slots.values() if slot.site and slot.ready_s is not None]
    before = [slot for slot in slots if zero_s + slot.ready_s < closure.begin_s]
    after = [slot for slot in slots if zero_s + slot.ready_s >= closure.end_s]
    assert before
    assert after
    assert len(before) + len(after) == len(slots)
    for slot in before:
        assert 0 < slot.length_s <= HOUR_S
        assert zero_s + slot.requested_s + slot.length_s <= closure.begin_s
    texts = [reason for _, name, reason in reasons if name == "cloud"]
    assert any("nodes stay " in reason and "closed from" in reason for reason in texts)
    assert any(reason.startswith("no nodes are requested: closed from") for reason in texts)


def test_nodes_stay_until_a_closure_that_the_site_reported(tmp_path):
    path = tmp_path / "bag.yaml"
    path.write_text(json.dumps({"name": "a", "command": "true", "hosts": {"longest": "2h"}}))
    now_s = time.time()
    closure = Closure(begin_s=now_s + HOUR_S, end_s=now_s + 5 * HOUR_S, reported=True)
    catalog = Catalog(sites=(cluster(()),), links={})
    documents = [load_bag(path)[0]]
    (free,) = find_places(catalog, documents, now_s)
    (limited,) = find_places(catalog, documents, now_s, {"cluster": (closure,)})
    assert free.longest_stay(0.0, 600.0).length_s == 2 * HOUR_S
    assert limited.longest_stay(0.0, 600.0).length_s == HOUR_S - 600
    assert limited.longest_stay(HOUR_S - 60, 0.0).length_s == 0
    assert limited.longest_stay(HOUR_S - 60, 0.0).opens_s == pytest.approx(5 * HOUR_S)
    assert limited.longest_stay(5 * HOUR_S, 600.0).length_s == 2 * HOUR_S


windows = st.lists(
    st.tuples(st.floats(-1, 4), st.floats(0.2, 30)).map(lambda w: window(*w)), max_size=2
)


@settings(max_examples=examples(80), deadline=None)
@given(at_cluster=windows, at_cloud=windows, runtime=st.sampled_from([20.0, 60.0, 200.0]))
def test_no_nodes_are_held_across_a_window(at_cluster, at_cloud, runtime):
    sites = [cluster(at_cluster), cloud(at_cloud)]
    with tempfile.TemporaryDirectory() as folder:
        state, zero_s, _ = run_bag(Path(folder), sites, 100, runtime)
    assert state.bags[0].tasks.counts[2] == 100
    by_name = {site.name: site for site in sites}
    for slot in state.slots.values():
        if slot.ready_s is None or not slot.site:
            continue
        for closure in find_closures(by_name[slot.site], zero_s):
            start_s, end_s = zero_s + slot.ready_s, zero_s + (slot.ended_s or slot.ready_s)
            assert end_s <= closure.begin_s + 1.0 or start_s >= closure.end_s - 1.0
