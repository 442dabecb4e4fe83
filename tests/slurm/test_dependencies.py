"""Dependencies: read, judged, and printed as Slurm prints what remains."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.slurm.jobs import NOW_S, job
from vgrads.slurm.dependencies import (
    KINDS,
    Dependency,
    DependencyTarget,
    DependencyView,
    Outcome,
    dependency_status,
    format_dependency,
    parse_dependency,
)
from vgrads.slurm.errors import SlurmError
from vgrads.slurm.job import JobState

TARGETS = st.builds(
    DependencyTarget,
    st.sampled_from(KINDS),
    st.integers(1, 10**8),
    st.none() | st.integers(0, 5000),
    st.integers(0, 600),
)
DEPENDENCIES = st.builds(
    Dependency,
    st.lists(TARGETS | st.just(DependencyTarget("singleton")), min_size=2).map(tuple),
    st.booleans(),
)


def view(*jobs, earlier=()):
    def tasks_of(number):
        return [row for row in jobs if number in (row.array_job_id, row.id)]

    return DependencyView(tasks_of, NOW_S, earlier)


def status(text, *jobs, of=None, earlier=()):
    return dependency_status(parse_dependency(text), of or job(99), view(*jobs, earlier=earlier))


@given(DEPENDENCIES)
def test_a_dependency_that_is_printed_is_read_again(dependency):
    assert parse_dependency(format_dependency(dependency)) == dependency


def test_one_kind_with_several_jobs():
    assert parse_dependency("afterok:1:2_3,after:4+5") == Dependency(
        (
            DependencyTarget("afterok", 1),
            DependencyTarget("afterok", 2, 3),
            DependencyTarget("after", 4, None, 5),
        )
    )
    assert parse_dependency("AFTEROK:1?afterany:2").any_of
    assert parse_dependency("12").targets == (DependencyTarget("afterany", 12),)
    assert parse_dependency("") == Dependency()


@pytest.mark.parametrize(
    "text",
    [
        "foo",
        "afterok",
        "afterok:",
        "afterok:1,",
        "afterok=1",
        "afterok:x",
        "afterok:0",
        "afterok:1_x",
        "after:1+x",
        "afterok:1 2",
        " afterok:1",
        "expand:1",
        "singleton:1",
    ],
)
def test_what_is_no_dependency(text):
    with pytest.raises(SlurmError) as caught:
        parse_dependency(text)
    words = "sbatch: error: Batch job submission failed: Job dependency problem\n"
    assert (caught.value.reply.err, caught.value.exit_code) == (words, 1)


S, W, N = Outcome.SATISFIED, Outcome.WAITING, Outcome.NEVER
BY_STATE = {
    "after": {"PENDING": W, "RUNNING": S, "COMPLETED": S, "FAILED": S, "CANCELLED": S},
    "afterany": {"PENDING": W, "RUNNING": W, "COMPLETED": S, "FAILED": S, "CANCELLED": S},
    "afterok": {"PENDING": W, "RUNNING": W, "COMPLETED": S, "FAILED": N, "CANCELLED": N},
    "afternotok": {"PENDING": W, "RUNNING": W, "COMPLETED": N, "FAILED": S, "CANCELLED": S},
    "aftercorr": {"PENDING": W, "RUNNING": W, "COMPLETED": S, "FAILED": N, "CANCELLED": N},
}


@pytest.mark.parametrize("kind", BY_STATE)
@pytest.mark.parametrize("state", BY_STATE["after"])
def test_each_kind_in_each_state(kind, state):
    result = status(f"{kind}:1", job(1, JobState[state]))
    assert result.outcome is BY_STATE[kind][state]
    words = {S: "", W: f"{kind}:1(unfulfilled)", N: f"{kind}:1(failed)"}
    assert result.text == words[result.outcome]


@pytest.mark.parametrize("state", ["TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "DEADLINE"])
def test_every_bad_end_is_a_failure(state):
    assert status("afterok:1", job(1, JobState[state])).outcome is N
    assert status("afternotok:1", job(1, JobState[state])).outcome is S


def test_unknown_jobs_satisfy_everything():
    assert status("afterok:7,afternotok:8,afterany:9,after:10,aftercorr:11").outcome is S


def test_minutes_after_the_start():
    started = job(1, JobState.RUNNING)  # 60 s ago
    assert status("after:1+1", started).outcome is S
    assert status("after:1+2", started) == status("after:1+2", started)
    assert status("after:1+2", started).text == "after:1+2(unfulfilled)"


def array(*states, pending=""):
    rows = [job(20 + n, state, array_id=10, array_index=n) for n, state in enumerate(states)]
    return [*rows, job(10, array_id=10, pending_indices=pending)] if pending else rows


OK, BAD, RUN = JobState.COMPLETED, JobState.FAILED, JobState.RUNNING


def test_a_whole_array():
    assert status("afterok:10", *array(OK, OK)).outcome is S
    assert status("afterok:10", *array(OK, BAD)).text == "afterok:10_*(failed)"
    assert status("afterok:10", *array(BAD, RUN)).text == "afterok:10_*(unfulfilled)"
    assert status("afterok:10", *array(OK, OK, pending="2-9%2")).outcome is W
    assert status("afternotok:10", *array(OK, BAD)).outcome is S
    assert status("after:10", *array(RUN, OK)).outcome is S
    assert status("after:10", *array(RUN, pending="1-3")).text == "after:10_*(unfulfilled)"


def test_one_task_of_an_array():
    rows = array(OK, BAD, RUN, pending="3-4")
    outcomes = [status(f"afterok:10_{n}", *rows).outcome for n in range(4)]
    assert outcomes == [S, N, W, W]
    assert status("afterok:10_1", *rows).text == "afterok:10_1(failed)"


def test_aftercorr_pairs_equal_indices():
    rows = array(OK, BAD, RUN)
    outcomes = [
        status("aftercorr:10", *rows, of=job(30, array_id=30, array_index=n)).outcome
        for n in range(3)
    ]
    assert outcomes == [S, N, W]


def test_singleton_waits_for_earlier_jobs_of_its_name():
    assert status("singleton", earlier=[job(5)]).text == "singleton(unfulfilled)"
    assert status("singleton").outcome is S


def test_all_or_any():
    done, bad, running = job(1, OK), job(2, BAD), job(3, RUN)
    both = status("afterok:1,afterok:3", done, running)
    assert (both.outcome, both.text) == (W, "afterok:3(unfulfilled)")
    assert status("afterok:2,afterok:3", bad, running).text == (
        "afterok:2(failed),afterok:3(unfulfilled)"
    )
    assert status("afterok:2,afterok:3", bad, running).outcome is N
    assert status("afterok:2?afterok:3", bad, running).outcome is W
    assert status("afterok:2?afterok:1", bad, done).outcome is S
    assert status("afterok:2?afternotok:1", bad, done).outcome is N


@given(st.lists(st.sampled_from([OK, BAD, RUN, JobState.PENDING]), min_size=1, max_size=4))
def test_any_is_at_least_as_easy_as_all(states):
    jobs = [job(n, state) for n, state in enumerate(states, 1)]
    words = [f"afterok:{row.id}" for row in jobs]
    rank = [N, W, S]
    every = status(",".join(words), *jobs).outcome
    some = status("?".join(words), *jobs).outcome
    assert rank.index(some) >= rank.index(every)
