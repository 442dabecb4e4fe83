"""Futures of a queue, and what to do about a reservation because of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vgrads_studies.waits.lookahead import Lookahead, QueueSnapshot, remember, surprise

from vgrads.simulator.backfill import BatchJob
from vgrads.simulator.cluster import BatchCluster
from vgrads.vgrid.varq import Reservation, move
from vgrads.vgrid.varq_record import adapt

FREE = QueueSnapshot(
    running_procs=np.empty(0, dtype=np.int64),
    running_request_s=np.empty(0),
    running_elapsed_s=np.empty(0),
    waiting_procs=np.empty(0, dtype=np.int64),
    waiting_request_s=np.empty(0),
)
NOTHING = remember(([], []), ([], [], []))


def state(running, waiting):
    reserved = np.array(running, dtype=float).reshape(-1, 3)
    queue = np.array(waiting, dtype=float).reshape(-1, 2)
    return QueueSnapshot(
        running_procs=reserved[:, 0].astype(np.int64),
        running_request_s=reserved[:, 1],
        running_elapsed_s=reserved[:, 2],
        waiting_procs=queue[:, 0].astype(np.int64),
        waiting_request_s=queue[:, 1],
    )


@pytest.mark.more
def test_a_job_starts_at_once_where_nothing_is_before_it():
    ahead = Lookahead(procs=8, state=FREE, memory=NOTHING, scenarios=20)
    assert ahead.starts(8, 3600.0, 0.0, 7200.0).tolist() == [0.0] * 20
    assert ahead.starts(99, 3600.0, 600.0, 7200.0).tolist() == [600.0] * 20
    assert ahead.chance(8, 3600.0, 0.0, 7200.0) == pytest.approx(20 / 21)


def test_run_times_are_those_of_like_jobs_that_ran_as_long():
    """All jobs that asked for an hour ran 600 or 3000 s; this one has run 1000 s."""
    memory = remember(([3600.0] * 100, [600.0, 3000.0] * 50), ([], [], []))
    ahead = Lookahead(procs=4, state=state([(4, 3600, 1000)], []), memory=memory, scenarios=50)
    assert set(ahead.starts(4, 60.0, 0.0, 9000.0)) == {2000.0}
    fresh = Lookahead(procs=4, state=state([(4, 3600, 0)], []), memory=memory, scenarios=200)
    starts = fresh.starts(4, 60.0, 0.0, 9000.0)
    assert set(starts) == {600.0, 3000.0}
    assert 0.35 < np.mean(starts == 600.0) < 0.65


def test_those_who_come_are_those_of_an_earlier_day_at_this_hour():
    """Every day at this hour + 10 min somebody takes the whole machine for an hour."""
    days = np.arange(1, 15) * 86_400.0
    memory = remember(
        ([3600.0] * 60, [3600.0] * 60), (days - 600.0, np.full(14, 4), np.full(14, 3600.0))
    )
    ahead = Lookahead(procs=4, state=FREE, memory=memory, scenarios=30)
    assert set(ahead.starts(4, 600.0, 0.0, 40_000.0)) == {0.0}
    assert set(ahead.starts(4, 600.0, 900.0, 40_000.0)) == {600.0 + 3600.0}
    assert np.isinf(ahead.starts(4, 600.0, 900.0, 4000.0)).all()


widths = st.lists(st.integers(1, 4), max_size=6)


@pytest.mark.more
@given(widths, widths, st.integers(1, 8), st.integers(60, 4000))
def test_with_exact_run_times_the_future_is_what_the_cluster_does(running, waiting, procs, time_s):
    """Every job asks for the same time and uses it: all scenarios are alike, and right."""
    running = [width for n, width in enumerate(running) if sum(running[: n + 1]) <= 8]
    cluster = BatchCluster(8)
    for n, width in enumerate(running):
        cluster.place(BatchJob(f"r{n}", width, float(time_s), float(time_s)), 0.0)
    for n, width in enumerate([*waiting, procs]):
        cluster.submit(BatchJob(str(n), width, float(time_s), float(time_s)), 0.0)
    starts = {h.job: h.time_s for h in cluster.advance(np.inf) if h.kind == "started"}
    now = state([(width, time_s, 0) for width in running], [(width, time_s) for width in waiting])
    memory = remember(([time_s] * 100, [time_s] * 100), ([], [], []))
    ahead = Lookahead(procs=8, state=now, memory=memory, scenarios=3)
    assert ahead.starts(procs, time_s, 0.0, 1e6).tolist() == [starts[str(len(waiting))]] * 3


def test_futures_are_a_function_of_the_seed():
    memory = remember((np.full(100, 3600.0), np.linspace(60, 3600, 100)), ([], [], []))

    def simulate(seed):
        return Lookahead(procs=4, state=state([(4, 3600, 0)], []), memory=memory, seed=seed).starts(
            4, 60.0, 0.0, 9e3
        )

    assert simulate(1).tolist() == simulate(1).tolist()
    assert simulate(1).tolist() != simulate(2).tolist()


def record(surprises, procs=4):
    mixed = np.random.default_rng(0).permutation(surprises)
    return np.column_stack([np.full(len(mixed), procs), mixed])


def test_the_record_corrects_what_is_believed():
    memory = remember((np.full(100, 3600.0), np.linspace(60, 3600, 100)), ([], [], []))
    base = {"procs": 4, "state": state([(4, 3600, 0)], []), "memory": memory}
    plain = Lookahead(**base).chance(4, 60.0, 0.0, 2500.0)
    healthy = Lookahead(**base, record=record(np.linspace(0, 1, 300))).chance(4, 60.0, 0.0, 2500.0)
    optimist = Lookahead(**base, record=record(np.linspace(0, 1, 300) ** 0.25)).chance(
        4, 60.0, 0.0, 2500.0
    )
    wide = np.concatenate([record(np.linspace(0, 1, 300)), record(np.ones(300), procs=512)])
    assert Lookahead(**base, record=wide).chance(4, 60.0, 0.0, 2500.0) == pytest.approx(
        plain, abs=0.1
    )
    assert 0.5 < plain < 0.9
    assert healthy == pytest.approx(plain, abs=0.08)
    assert optimist < plain - 0.2
    assert surprise(np.array([1.0, 2.0, 3.0, np.inf]), 2.5) == 0.5


class Falling:
    """A queue whose chance falls from 1 to 0 over an hour before T."""

    def chance(self, procs, walltime_s, submit_in_s, by_s):
        return min(1.0, max(0.0, (by_s - submit_in_s) / 3600.0))


def reservation(start_by_s, **more):
    return Reservation(procs=1, walltime_s=600.0, start_by_s=start_by_s, probability=0.8, **more)


def test_a_reservation_waits_while_later_is_sure_enough_and_then_goes():
    far = move(Falling(), reservation(20_000.0))
    assert not far.submit
    level = 0.8 + 0.35 * 0.2
    assert far.latest_s == pytest.approx(20_000 - level * 3600, abs=61)
    assert far.again_in_s == pytest.approx(far.latest_s / 3)
    near = move(Falling(), reservation(3600 * level + 20))
    assert near.submit
    lost = move(Falling(), reservation(1800.0))
    assert (lost.submit, lost.latest_s, lost.probability) == (True, None, 0.5)


def test_a_wall_time_limit_holds_the_submission_back():
    reserved = move(Falling(), reservation(20_000.0, max_walltime_s=10_600.0))
    assert not reserved.submit
    assert reserved.again_in_s >= 10_000
    never = move(Falling(), reservation(20_000.0, max_walltime_s=500.0))
    assert never.latest_s is None


@given(st.lists(st.booleans(), max_size=200), st.sampled_from([0.5, 0.75, 0.9, 0.95]))
def test_what_is_allowed_stays_between_nothing_and_what_was_promised(retained, probability):
    allowed = 1.0 - probability
    for item in retained:
        after = adapt(allowed, probability, item)
        assert (after >= allowed) == item or after == allowed
        allowed = after
        assert (1.0 - probability) / 10 <= allowed <= 1.0 - probability
