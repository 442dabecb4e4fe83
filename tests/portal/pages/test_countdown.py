"""The time until a deadline is the same on the list and on the page of a set."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from vgrads.portal.web.set_display import MET, PromiseSummary
from vgrads.portal.web.sets.answer import _describe_run
from vgrads.portal.web.sets.dashboard import due_text
from vgrads.portal.web.work_entry import NewestRun, WorkEntry


def status_of(ago_s, now_s):
    """The status of a run that began so long ago, with its last event at ``now_s``."""
    due = datetime.now(UTC) + timedelta(seconds=7200.0 - ago_s)
    count = {"done": 1, "of": 2, "running": 1, "before": 0, "lost": 0, "ready": 1, "waiting": 0}
    return {
        "deadline_s": 7200.0,
        "now_s": now_s,
        "due": due.isoformat(),
        "ended": None,
        "outcome": {},
        **dict.fromkeys(("tasks", "workflows", "slots"), count),
        "spent_usd": 0.0,
        "cost_usd": 0.0,
    }


@pytest.mark.parametrize(
    ("ago_s", "now_s", "text"),
    [(3630.0, 60.0, "59m"), (10.0, 3630.0, "59m"), (9030.0, 60.0, "30m")],
    ids=["no event for an hour", "simulated, ahead", "past"],
)
def test_both_pages_count_by_the_same_clock(ago_s, now_s, text):
    status = status_of(ago_s, now_s)
    run = NewestRun("run-1", "running", datetime.now(UTC) - timedelta(seconds=ago_s))
    entry = WorkEntry(
        kind="set",
        id="set-1",
        name="s",
        owner="local",
        created_s=time.time(),
        promise=PromiseSummary(),
        run=run,
        state=MET,
        probability=0.9,
        due_s=time.time() + 7200.0 - ago_s,
        goes_on=True,
    )
    figure, words = _describe_run(status)[0]
    row = due_text(entry, status)
    assert figure.startswith(text)
    assert text in row
    assert ("past" in words) == row.endswith("late")
    if now_s < ago_s:  # before its progress is computed
        assert text in due_text(entry, None)
