"""Coverage by group of jobs."""

from dataclasses import replace

import numpy as np
import pytest
from vgrads_studies.waits.coverage import group_report

from tests.logs import make_log
from vgrads.qbets.coverage_groups import FEWEST


@pytest.fixture
def log():
    plain = make_log(2000)
    wide = np.arange(2000) % 4 == 0
    return replace(
        plain,
        submit_s=np.arange(2000) * 7200.0,
        wait_s=np.full(2000, 100.0),
        procs=np.where(wide, 30, 1),
        max_procs=100,
        user=np.arange(2000) % 9,
    )


def test_a_group_that_is_not_covered_is_reported(log):
    issued_s = np.where((log.procs == 30) & (np.arange(2000) % 8 == 0), 50.0, 200.0)
    report = group_report(log, issued_s, np.ones(2000, bool))
    widths = {group.name: group for group in report.groups if group.dimension == "width"}
    assert [group.coverage for group in widths.values()] == [1.0, 0.5]
    assert [group.name for group in report.missed] == ["≥ 0.2 of the machine"]
    assert report.missed[0].jobs == 500
    assert report.weeks is None  # 84 jobs a week are too few


def test_a_burst_counts_as_one_observation(log):
    """The same misses say less where they are those of one user's burst."""
    missed = np.arange(2000) >= 1900
    issued_s = np.where(missed, 50.0, 200.0)
    together = replace(
        log,
        submit_s=np.where(missed, log.submit_s[1900] + np.arange(2000), log.submit_s),
        user=np.where(missed, 3, log.user),
    )
    apart, burst = (
        group_report(item, issued_s, np.ones(2000, bool)).groups[0] for item in (log, together)
    )
    assert burst.error > 3 * apart.error


def test_small_groups_are_left_out(log):
    scored = np.arange(2000) < 4 * FEWEST - 8
    names = {group.name for group in group_report(log, np.full(2000, 1.0), scored).groups}
    assert "≥ 0.2 of the machine" not in names
