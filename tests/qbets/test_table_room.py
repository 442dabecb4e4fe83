"""Tables of a queue's state have room for every event that can follow."""

import numpy as np
import pytest

from vgrads.qbets.predictor import JobArrival
from vgrads.qbets.state.queue_features import FEATURES
from vgrads.qbets.state.queue_state import QueueState
from vgrads.qbets.state.queue_tables import LEAVE, RUNNING, WAITING

WAITS_S = 100.0


@pytest.mark.more
@pytest.mark.parametrize("jobs", [3, 200, 3000])  # the loops of large histories are compiled
def test_all_waiting_jobs_of_a_copied_state_may_start_before_another_is_submitted(jobs):
    state = QueueState()
    for job in range(jobs):
        state.submit(job, float(job), JobArrival(1, 600.0, user=job % 7))
    state = state.separate()
    columns = state.columns(
        (np.arange(jobs), np.full(jobs, jobs + WAITS_S)),
        (np.ones(jobs), np.full(jobs, 600.0)),
        np.arange(jobs) % 7,
        np.zeros(jobs),
    )
    starts_s = np.full(jobs, jobs + WAITS_S)
    events = (starts_s, np.full(jobs, LEAVE), np.arange(jobs))
    features = state.replay(events, columns, np.ones(jobs, bool), (jobs, 0.0, True, True), 0)
    numbers, running = state.tables.numbers, state.tables.running
    assert features.shape == (0, len(FEATURES))
    assert (numbers[WAITING], numbers[RUNNING]) == (0, jobs)
    assert len(running) >= jobs
    assert sorted(running[:jobs, 6]) == list(range(jobs))
