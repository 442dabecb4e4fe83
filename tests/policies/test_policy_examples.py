"""Every policy that GridBot's paper gives as an example, in the language as it is here, with both
outcomes."""

import pytest

from vgrads.policies.policy import SLOTS, job_ad, read_policy

FIG3 = """
[ JobRequirements = !Tail ? true : regexp("myhost", Host.Name) && Host.ErrorRate < 0.1;
  Rank = !Tail ? 1 : Host.JobsToday;
  ReplicationRequirements = NumberOfReplicas < 3 && Job.Replica1.Host.ErrorRate > 0.1;
  Concurrency = 2 * Host.NumCpus;
  Deadline = Concurrency * 2000;  // longer for larger bundles
]"""
GRIDS = """
Technion = Host.Grid == "Technion"
Grids = member(Host.Grid, {"Technion", "Madison", "OSG", "EGEE"})
Reliable = Host.ErrorRate < 0.01 && Host.RecentSuccess
"""
GOOD = {
    "Name": "is3.myhost",
    "Grid": "Technion",
    "NumCpus": 4,
    "ErrorRate": 0.005,
    "Turnaround": 900.0,
    "JobsToday": 12,
    "RecentSuccess": True,
}
BAD = GOOD | {
    "Name": "pc9.home",
    "Grid": "community",
    "ErrorRate": 0.4,
    "RecentSuccess": False,
    "JobsToday": 0,
}
TAIL, BULK = {"Tail": True}, {"Tail": False}


def replicas(*pairs):
    """A job whose copies run on these hosts for so many seconds."""
    return job_ad(
        "job1",
        "/bin/hostname",
        [
            {"Name": f"job1_{i}", "SentTime": 242525, "Age": age, "Host": agent}
            for i, (agent, age) in enumerate(pairs, 1)
        ],
    )


def test_figure_3_in_bulk_and_in_the_tail():
    policy = read_policy(FIG3, "fig3")
    assert [slot for slot in SLOTS if policy.has(slot)] == list(SLOTS[:5])
    assert policy.reads("JobRequirements") == {"Tail", "Host.Name", "Host.ErrorRate"}
    assert policy.reads("ReplicationRequirements") == {
        "Job.NumberOfReplicas",
        "Job.Replica1.Host.ErrorRate",
    }
    bulk, tail = policy.under(BULK), policy.under(TAIL)
    assert bulk.reads("JobRequirements") == bulk.reads("Rank") == ()
    assert bulk.requirements(BAD) and not tail.requirements(BAD)
    assert tail.requirements(GOOD) and not tail.requirements(GOOD | {"ErrorRate": 0.1})
    assert (bulk.rank(GOOD), tail.rank(GOOD), tail.rank(BAD)) == (1, 12, 0)
    assert tail.replication(replicas((BAD, 10))) and not tail.replication(replicas((GOOD, 10)))
    assert not tail.replication(replicas((BAD, 9), (BAD, 9), (BAD, 9)))
    assert bulk.concurrency(GOOD) == 8 and bulk.concurrency(GOOD | {"NumCpus": 1}) == 2
    assert (
        bulk.deadline(GOOD, concurrency=8) == 16_000 and bulk.deadline(GOOD, concurrency=1) == 2_000
    )
    assert policy.doubts == ()


@pytest.mark.parametrize(
    ("concurrency", "good", "bad"),
    [("10", 10, 10), ("Host.ErrorRate < 0.01 ? 10 : 1", 10, 1), ("1", 1, 1)],
    ids=["B1", "B2", "B3"],
)
def test_bundles_of_figure_8(concurrency, good, bad):
    policy = read_policy(
        {
            "Concurrency": concurrency,
            "Rank": 3,
            "ReplicationRequirements": "NumberOfReplicas < 2 && Job.Replica1.Age > Concurrency * 1000",
        },
        "B",
    )
    left = policy.under({})
    assert (left.concurrency(GOOD), left.concurrency(BAD), left.rank(GOOD)) == (good, bad, 3)
    assert left.replication(
        replicas((GOOD, good * 1000 + 1)), concurrency=good
    )  # once in Concurrency * 1000 s
    assert not left.replication(replicas((GOOD, good * 1000 - 1)), concurrency=good)


def test_reliable_hosts_of_b4():
    left = read_policy(GRIDS + "JobRequirements = Grids && Reliable", "B4").under(BULK)
    assert left.requirements(GOOD) and left.requirements(GOOD | {"Grid": "EGEE"})
    for worse in (
        {"Grid": "community"},
        {"ErrorRate": 0.02},
        {"RecentSuccess": False},
        {"ErrorRate": None},
    ):
        assert not left.requirements(GOOD | worse)


def test_a_cluster_reserved_for_the_tail_of_b5():
    policy = read_policy(GRIDS + "JobRequirements = Tail ? Technion : Grids", "B5")
    elsewhere = GOOD | {"Grid": "Madison"}
    assert policy.under(BULK).requirements(elsewhere) and not policy.under(TAIL).requirements(
        elsewhere
    )
    assert policy.under(TAIL).requirements(GOOD) and not policy.under(BULK).requirements(BAD)


REPLICATION = {
    "against Condor": "Job.Replica1.Host.ErrorRate > 0.1",
    "restrictive": """NumberOfReplicas < 5 && (anyCompare(">", Job.Replicas.Host.ErrorRate, 0.01)
        && member(false, Job.Replicas.Host.RecentSuccess) || max(Job.Replicas.Age) > 30 * 60)""",
    "permissive": "NumberOfReplicas < 5",
    "R3": 'min(Job.Replicas.Age) > 15 * 60 && anyCompare(">", Job.Replicas.Host.ErrorRate, 0.1)',
    "R4": (
        'JobsLeft < 2000 && min(Job.Replicas.Age) > 900 && anyCompare(">", '
        "Job.Replicas.Host.ErrorRate, 0.1)"
    ),
}


@pytest.mark.parametrize(
    ("name", "yes", "no"),
    [
        ("against Condor", [(BAD, 1)], [(GOOD, 9999)]),
        ("restrictive", [(GOOD, 5), (BAD, 5)], [(GOOD, 5), (GOOD, 1799)]),
        ("restrictive", [(GOOD, 1801)], [(BAD, 5)] * 5),
        ("permissive", [(GOOD, 1)] * 4, [(GOOD, 1)] * 5),
        ("R3", [(GOOD, 901), (BAD, 1000)], [(GOOD, 901), (BAD, 899)]),
        ("R4", [(BAD, 901)], [(GOOD, 901)]),
    ],
)
def test_when_a_copy_is_created(name, yes, no):
    policy = read_policy({"ReplicationRequirements": REPLICATION[name]}, name)
    few, many = policy.under({"JobsLeft": 1999}), policy.under({"JobsLeft": 2000})
    assert few.replication(replicas(*yes)) and not few.replication(replicas(*no))
    assert many.replication(replicas(*yes)) is (name != "R4")


def test_no_two_copies_in_a_single_grid():
    left = read_policy({"JobRequirements": "!member(Host.Grid, Job.Grids)"}, "b").under(TAIL)
    job = replicas((BAD, 10), (GOOD | {"Grid": "OSG"}, 4))
    assert left.requirements(GOOD, job) and not left.requirements(BAD, job)
    assert left.requirements(GOOD, replicas())
    same = read_policy(
        {"JobRequirements": "!member(Host.Grid, Job.Replicas.Host.Grid)"}, "b"
    ).under(TAIL)
    assert same.requirements(GOOD, job) and not same.requirements(BAD, job)


def test_a_grid_is_chosen():
    left = read_policy(
        {"GridPolicy": 'Grid.Name != "community" && Grid.Free > 10 * BOTsInQueue'}, "b"
    ).under({})
    grid = {"Name": "OSG", "Free": 100}
    assert left.grid(grid, {"BOTsInQueue": 9}) and not left.grid(grid, {"BOTsInQueue": 10})
    assert not left.grid(grid | {"Name": "community"}, {"BOTsInQueue": 1})


def test_slots_not_written_harm_nobody():
    left = read_policy("", "empty").under(TAIL)
    assert (
        left.requirements(BAD) is True
        and left.grid({}) is True
        and left.replication(replicas((BAD, 9))) is False
    )
    assert (left.rank(BAD), left.concurrency(BAD), left.deadline(BAD)) == (0, 1, None)
