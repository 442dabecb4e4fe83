"""Queues that share nodes, from node lists as ``sinfo`` prints them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.drivers.api import QueueLimits
from vgrads.drivers.machines import describe_shared_nodes, expand_hosts, find_machines
from vgrads.drivers.slurm import Slurm

# printed by Slurm 22.05: sinfo --noheader --format="%R|%a|%l|%C|%N"; the last two lines by hand
SINFO = """\
batch|up|1-00:00:00|374/10/0/384|n[1-24]
debug|up|30:00|16/0/0/16|n1
gpu|up|infinite|0/64/0/64|gpu[001-003,007]
empty|up|infinite|0/0/0/0|
"""


def listed():
    return {queue.name: queue for queue in Slurm().listed(SINFO)}


def test_partitions_of_slurm_list_their_nodes():
    queues = listed()
    assert len(queues["batch"].nodes) == 24
    assert queues["debug"].nodes == {"n1"}
    assert queues["gpu"].nodes == {"gpu001", "gpu002", "gpu003", "gpu007"}
    assert queues["empty"].nodes == frozenset()
    assert queues["batch"].max_procs == 384
    assert queues["gpu"].max_walltime_s is None


def test_partitions_that_share_nodes_are_one_machine():
    queues = listed().values()
    groups = find_machines(queues)
    assert groups["batch"] == groups["debug"] == {"batch", "debug"}
    assert groups["gpu"] == {"gpu"}
    assert groups["empty"] == {"empty"}
    assert (
        describe_shared_nodes(listed()["debug"], queues)
        == "queue 'debug' shares 1 node with 'batch'"
    )
    assert not describe_shared_nodes(listed()["gpu"], queues)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", set()),
        ("(null)", set()),
        ("a", {"a"}),
        ("a,b-1", {"a", "b-1"}),
        ("n[9-11]", {"n9", "n10", "n11"}),
        ("n[09-11]-ib", {"n09-ib", "n10-ib", "n11-ib"}),
        ("r[1-2]c[01,03],x", {"r1c01", "r1c03", "r2c01", "r2c03", "x"}),
    ],
)
def test_host_lists_are_expanded(text, names):
    assert expand_hosts(text) == names


@given(st.lists(st.frozensets(st.integers(0, 12).map(str), max_size=4), max_size=8))
def test_machines_divide_the_queues_and_share_no_nodes(node_sets):
    queues = [QueueLimits(name=f"q{n}", nodes=nodes) for n, nodes in enumerate(node_sets)]
    groups = find_machines(queues)
    assert groups.keys() == {queue.name for queue in queues}
    for queue in queues:
        assert queue.name in groups[queue.name]
        for other in queues:
            same = other.name in groups[queue.name]
            assert same == (groups[other.name] == groups[queue.name])
            assert same or not other.nodes & queue.nodes
