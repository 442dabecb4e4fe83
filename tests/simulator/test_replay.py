"""The compiled replay against the cluster that is talked to step by step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.kernel.errors import InputError
from vgrads.simulator.backfill import BatchJob
from vgrads.simulator.cluster import BatchCluster
from vgrads.simulator.replay import Workload, replay_starts
from vgrads.traces.history import read_history

rows = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 12), st.integers(0, 30), st.integers(0, 30)),
    max_size=40,
).map(sorted)
placed = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20), st.integers(1, 3)), max_size=3)


def stepped(rows, placed, procs, policy):
    cluster = BatchCluster(procs, policy)
    for number, (end, over, width) in enumerate(placed):
        cluster.place(BatchJob(f"placed {number}", width, float(end + over), float(end)), 0.0)
    for number, (submit, width, request, run) in enumerate(rows):
        cluster.submit(BatchJob(str(number), width, float(request), float(run)), float(submit))
    starts = np.full(len(rows), np.inf)
    for happening in cluster.advance(np.inf):
        if happening.kind == "started":
            starts[int(happening.job)] = happening.time_s
    return starts


def columns(rows, placed):
    table = np.array(rows, dtype=float).reshape(-1, 4)
    reserved = np.array(placed, dtype=float).reshape(-1, 3)
    return Workload(
        submit_s=table[:, 0],
        procs=table[:, 1].astype(np.int64),
        request_s=table[:, 2],
        run_s=table[:, 3],
        placed_ends_s=reserved[:, 0],
        placed_limits_s=reserved[:, 0] + reserved[:, 1],
        placed_procs=reserved[:, 2].astype(np.int64),
    )


@given(rows, placed, st.sampled_from(["fcfs", "easy"]))
def test_every_start_is_that_of_the_stepped_cluster(rows, placed, policy):
    result = replay_starts(columns(rows, placed), 10, policy)
    assert result.tolist() == stepped(rows, placed, 10, policy).tolist()


@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_a_recorded_log_starts_alike(shared, policy):
    log = read_history(shared / "swf" / "SDSC-SP2-1998-4.2-cln.swf.gz")
    log = log.select(log.started & (log.run_s >= 0) & (np.arange(len(log)) < 6000))
    rows = list(zip(log.submit_s, log.procs, log.request_s, log.run_s, strict=True))
    result = replay_starts(columns(rows, []), 128, policy)
    assert result.tolist() == stepped(rows, [], 128, policy).tolist()


def test_an_unknown_policy_is_refused():
    with pytest.raises(InputError, match="one of fcfs, easy"):
        replay_starts(columns([], []), 4, "conservative")
