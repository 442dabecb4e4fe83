"""Batch clusters and clouds in virtual time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.logs import make_log
from vgrads.kernel.errors import InputError
from vgrads.kernel.profile import running_profile
from vgrads.simulator.backfill import BatchJob, Conservative, easy, fcfs, find_reservation
from vgrads.simulator.cloud import CloudRegion
from vgrads.simulator.cluster import BatchCluster, Happening, Outage
from vgrads.simulator.load import load_background

jobs = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 10), st.integers(1, 30), st.integers(0, 30)),
    min_size=1,
    max_size=25,
)


def simulate(rows, policy, procs=10):
    """Start times by job; the cluster is checked after every step."""
    cluster = BatchCluster(procs, policy)
    for number, (submit, width, request, run) in enumerate(rows):
        cluster.submit(
            BatchJob(str(number), width, float(request), float(min(run, request))), float(submit)
        )
    starts, used, peak = {}, 0, 0
    while cluster.next_time() < math.inf:
        for happening in cluster.advance(cluster.next_time()):
            width = rows[int(happening.job)][1]
            used += width if happening.kind == "started" else -width
            peak = max(peak, used)
            if happening.kind == "started":
                starts[int(happening.job)] = happening.time_s
        cluster.check()
    assert used == 0
    assert peak <= procs
    return starts


@given(jobs, st.sampled_from(["fcfs", "easy", "conservative"]))
def test_every_job_runs_and_processors_are_conserved(rows, policy):
    starts = simulate(rows, policy)
    assert len(starts) == len(rows)
    assert all(starts[n] >= row[0] for n, row in enumerate(rows))


@given(jobs)
def test_fcfs_never_overtakes(rows):
    rows = sorted(rows)
    starts = simulate(rows, "fcfs")
    order = sorted(range(len(rows)), key=lambda n: (rows[n][0], n))
    assert [starts[n] for n in order] == sorted(starts.values())


queues = st.lists(st.tuples(st.integers(1, 10), st.integers(1, 30)), min_size=1, max_size=12)
runnings = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 5)), max_size=4)


@given(queues, runnings)
def test_easy_does_not_delay_the_head(waiting, running):
    """The head's reservation after the choice is not later than before it."""
    running = sorted((float(end), width) for end, width in running)
    used = sum(width for _, width in running)
    free = max(0, 10 - used)
    if used > 10:
        return
    queue = [
        BatchJob(str(n), width, float(request), float(request))
        for n, (width, request) in enumerate(waiting)
    ]
    head_start = len(fcfs(queue, free, running, 0.0))
    chosen = easy(queue, free, running, 0.0)
    assert sum(job.procs for job in chosen) <= free
    assert chosen[:head_start] == queue[:head_start]
    if head_start == len(queue):
        return
    in_order = [(job.request_s, job.procs) for job in queue[:head_start]]
    left = free - sum(width for _, width in in_order)
    before, _ = find_reservation(queue[head_start].procs, left, sorted(running + in_order))
    everything = [(job.request_s, job.procs) for job in chosen]
    left = free - sum(width for _, width in everything)
    after, _ = find_reservation(queue[head_start].procs, left, sorted(running + everything))
    assert after <= before


def test_easy_backfills_what_does_no_harm():
    rows = [(0, 6, 10, 10), (1, 8, 10, 10), (2, 4, 8, 8), (3, 4, 20, 20)]
    starts = simulate(rows, "easy")
    assert starts == {0: 0, 1: 10, 2: 2, 3: 20}
    assert simulate(rows, "fcfs") == {0: 0, 1: 10, 2: 20, 3: 20}


@given(jobs)
def test_conservative_starts_no_job_later_than_first_announced(rows):
    """Requests are upper limits here, as in any system that kills what runs over."""
    rows = sorted(rows)
    policy, payload, starts = Conservative(), {}, {}
    cluster = BatchCluster(10)

    def watched(queue, free, running, now_s):
        chosen = policy(queue, free, running, now_s)
        for job in queue:
            latest_s = policy._starts.get(job.id, float("inf"))
            assert latest_s <= payload.setdefault(job.id, latest_s)
        starts.update((job.id, now_s) for job in chosen)
        return chosen

    cluster._choose = watched
    for number, (submit, width, request, run) in enumerate(rows):
        cluster.submit(BatchJob(str(number), width, request, min(run, request)), float(submit))
    cluster.advance(math.inf)
    assert len(starts) == len(rows)
    assert all(starts[name] <= payload[name] for name in starts)


def test_conservative_does_not_let_small_jobs_delay_the_second_in_line():
    """EASY protects the head only: job 3 may delay job 2; conservative keeps it from that."""
    rows = [(0, 6, 10, 10), (1, 8, 10, 10), (2, 10, 10, 10), (3, 2, 30, 30)]
    assert simulate(rows, "easy")[3] == 3
    assert simulate(rows, "easy")[2] == 33
    assert simulate(rows, "conservative") == {0: 0, 1: 10, 2: 20, 3: 30}


takes = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 20), st.integers(0, 40)), max_size=15)


@given(takes, runnings, st.integers(1, 10), st.integers(1, 20))
def test_room_in_a_profile_is_located_first_and_is_room(required, running, procs, length):
    ends = sorted((float(end), width) for end, width in running)
    profile = running_profile(0.0, 20 - sum(width for _, width in ends), ends)
    for width, time_s, after_s in required:
        value = profile.earliest_fit(after_s, time_s, width)
        profile.add(value, value + time_s, width)
        profile.check()
    start = profile.earliest_fit(0.0, length, procs)
    instants, free = zip(*profile.free, strict=True)

    def room(at):
        steps = zip(instants, [*instants[1:], math.inf], free, strict=True)
        return all(free >= procs for a, b, free in steps if a < at + length and b > at)

    assert room(start)
    assert not any(room(at) for at in instants if at < start)


def test_an_outage_kills_what_runs_there_and_holds_the_processors_until_repaired():
    cluster = BatchCluster(8)
    for name in ("a", "b", "c"):
        cluster.submit(BatchJob(name, 4, 100.0, 100.0), 0.0)
    cluster.break_down(Outage(at_s=10.0, procs=2, length_s=50.0, position=0.0))
    assert cluster.advance(10.0)[-1] == Happening(10.0, "killed", "a")
    cluster.check()
    assert [job.id for job in cluster.waiting] == ["c"]
    assert cluster.advance(60.0) == [Happening(60.0, "started", "c")]
    assert [h.job for h in cluster.advance(math.inf)] == ["b", "c"]
    cluster.check()


@given(
    jobs,
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 10), st.floats(0, 0.99)), max_size=5),
)
def test_every_job_ends_or_is_killed_once_whatever_breaks(rows, breaks):
    cluster = BatchCluster(10)
    for number, (submit, width, request, run) in enumerate(rows):
        cluster.submit(BatchJob(str(number), width, float(request), float(run)), float(submit))
    for at, procs, position in breaks:
        cluster.break_down(Outage(at_s=float(at), procs=procs, length_s=20.0, position=position))
    ended = []
    while cluster.next_time() < math.inf:
        happened = cluster.advance(cluster.next_time())
        ended += [h.job for h in happened if h.kind != "started"]
        cluster.check()
    assert sorted(ended, key=int) == [str(n) for n in range(len(rows))]


def test_withdrawn_jobs_leave_waiting_or_running():
    cluster = BatchCluster(4)
    for name in ("a", "b"):
        cluster.submit(BatchJob(name, 4, 100.0, 100.0), 0.0)
    cluster.advance(1.0)
    assert [job.id for job in cluster.waiting] == ["b"]
    assert cluster.cancel("a")
    cluster.check()
    assert cluster.next_time() == 1.0
    assert cluster.advance(1.0) == [Happening(1.0, "started", "b")]
    assert cluster.waiting == ()
    assert cluster.cancel("b")
    assert not cluster.cancel("b")


cycled = st.floats(0.5, 90.0), st.floats(0.0, 100.0)


@given(jobs, *cycled)
def test_jobs_start_only_in_cycles_and_all_of_them_do(rows, cycle_s, phase_s):
    cluster = BatchCluster(10, cycle_s=cycle_s, cycle_phase_s=phase_s)
    for number, (submit, width, request, run) in enumerate(rows):
        cluster.submit(BatchJob(str(number), width, float(request), float(run)), float(submit))
    started = {}
    while cluster.next_time() < math.inf:
        happened = cluster.advance(cluster.next_time())
        started |= {h.job: h.time_s for h in happened if h.kind == "started"}
        cluster.check()
    assert sorted(started, key=int) == [str(n) for n in range(len(rows))]
    for at in started.values():
        cycles = (at - phase_s) / cycle_s
        assert cycles == pytest.approx(round(cycles), abs=1e-6)


def test_a_job_waits_for_the_next_cycle_and_no_longer():
    cluster = BatchCluster(4, cycle_s=60.0, cycle_phase_s=10.0)
    for name, at in (("a", 5.0), ("b", 10.0), ("c", 11.0)):
        cluster.submit(BatchJob(name, 1, 100.0, 100.0), at)
    starts = {h.job: h.time_s for h in cluster.advance(1000.0) if h.kind == "started"}
    assert starts == {"a": 10.0, "b": 10.0, "c": 70.0}
    assert cluster.next_time() == math.inf


def test_the_queue_moves_up_when_its_head_is_withdrawn():
    cluster = BatchCluster(4)
    for name, procs, time_s in (("a", 2, 100.0), ("head", 4, 100.0), ("next", 2, 200.0)):
        cluster.submit(BatchJob(name, procs, time_s, time_s), 0.0)
    cluster.advance(0.0)
    assert cluster.cancel("head")
    assert [h.job for h in cluster.advance(0.0)] == ["next"]


def test_background_replays_the_state_of_the_log_and_repeats_its_last_week():
    log = make_log(3000, seed=2)
    at = float(log.submit_s[2000])
    cluster = BatchCluster(64)
    load_background(cluster, log, at, 3600.0)
    happened = cluster.advance(3600.0)
    later = ((log.submit_s > at) & (log.submit_s <= at + 3600)).sum()
    assert sum(h.job.startswith("a0:") for h in happened if h.kind == "started") <= later
    beyond = BatchCluster(64)
    load_background(beyond, log, log.end_s + 10 * 86400.0, 86400.0)
    assert any(h.job.startswith("a") for h in beyond.advance(86400.0))
    beyond.check()


def test_a_cloud_refuses_what_it_has_not():
    region = CloudRegion(10)
    assert region.acquire("a", 6)
    assert region.acquire("a", 6)
    assert not region.acquire("b", 6)
    region.release("a")
    assert region.acquire("b", 6)
    region.check()


def test_an_unknown_policy_is_refused():
    with pytest.raises(InputError, match="one of fcfs, easy, conservative"):
        BatchCluster(4, "random")
