"""Ten thousand hosts whose manager was away: they come back evenly, by the agent's own pauses, in
virtual time."""

import random

import numpy as np
import pytest

from vgrads.agent.machine import GIVE_UP_S
from vgrads.agent.session import Pauses

AGENTS = 10_000


def returns_s(away_s):
    """When each host is back, counted from the manager's return; every try before that is
    refused."""
    back = []
    for _ in range(AGENTS):
        pauses, now = Pauses(), 0.0
        while now < away_s:
            now += pauses.next_s()
        back.append(now - away_s)
    return np.array(back)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_five_minutes_no_more_than_200_a_second_and_all_within_a_second(seed):
    random.seed(seed)
    back = returns_s(300.0)
    assert back.max() <= 60.0 < 300.0 + back.max() < GIVE_UP_S
    in_five_s = np.histogram(back, np.arange(0.0, 65.0, 5.0))[0] / 5.0
    assert in_five_s.max() <= 200.0
    assert np.histogram(back, np.arange(0.0, 61.0))[0].max() <= 230  # chance moves single seconds


def test_after_a_short_absence_hosts_are_soon_back():
    random.seed(4)
    assert returns_s(2.0).max() <= 4.0
    assert returns_s(6.0).max() <= 6.0


def test_after_a_minute_or_two_of_faults_hosts_are_back_within_a_quarter_of_a_minute():
    random.seed(6)
    assert returns_s(75.0).max() <= 15.0
    assert returns_s(100.0).max() <= 15.0


def test_what_the_manager_asks_for_and_what_it_answers_count():
    random.seed(5)
    pauses = Pauses()
    assert max(Pauses().next_s(2.0) for _ in range(200)) > 1.5
    for _ in range(40):
        pauses.next_s()
    assert pauses.next_s() > 50.0
    pauses.over()
    assert pauses.next_s() <= 1.0
