"""Promises of groups of jobs: from earlier runs of the group."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from vgrads_studies.promises.group_promises import bins_of, is_right, questions

from vgrads.api.slurm.groups import GroupPromises, split_runs, summarize
from vgrads.api.slurm.records import FIRST_ID
from vgrads.api.slurm.table import JobTable

NAMES = ("prepare", "wrf", "wrf", "wrf", "plot")
COMMON = {"user": "ann", "uid": 1, "gid": 1, "group": "g", "host": "h", "folder": "/"}
COMMON |= {"submit_folder": "/", "umask": 18, "command": "", "kind": "k"}


class Group:
    """A group whose jobs run one after another, each for a while."""

    def __init__(self):
        self.now_s = 0.0
        self.use(JobTable())

    def use(self, table):
        self.table, self.promises = table, GroupPromises(table, lambda: self.now_s)

    def apply(self, event):
        self.table.apply(event)

    def work(self, seconds):
        self.now_s += seconds

    def submit(self, name, deadline_s):
        number = self.table.next_id
        job = {"id": number, "request": str(number), "submit_s": self.now_s, "name": name}
        stated = {"comment": "vgrads:forecast", "deadline_s": deadline_s}
        self.apply({"submitted": {**COMMON, **job, **stated}})
        return number

    def change(self, number, **changes):
        self.apply({"jobs": [number], "changes": changes})

    def run(self, name, seconds, deadline_s, state="COMPLETED"):
        number = self.submit(name, deadline_s)
        self.change(number, state="RUNNING", start_s=self.now_s)
        self.work(seconds)
        self.change(number, state=state, end_s=self.now_s)

    def run_all(self, names=NAMES, seconds=100.0, deadline_s=1e6):
        for name in names:
            self.run(name, seconds, deadline_s)
        self.work(3600.0)

    @property
    def status(self):
        return self.promises.status("forecast")

    def promise(self, deadline_s):
        """Submit the first job of a run with a deadline from now; return the promise."""
        self.submit("prepare", self.now_s + deadline_s)
        return self.status.promise


def test_no_promise_is_given_until_a_group_has_run_once():
    group = Group()
    assert group.promise(1e6) is None
    assert group.status.expected is None


def test_the_more_time_the_more_probable():
    shares = []
    for deadline_s in (100.0, 400.0, 500.0, 700.0, 2000.0):
        group = Group()
        group.run_all()
        shares.append(group.promise(deadline_s))
    assert shares == sorted(shares)
    assert shares[0] < 0.05
    assert shares[2] == pytest.approx(0.5, abs=0.05)
    assert shares[-1] > 0.95
    assert group.status.expected == 5


def test_runs_that_are_alike_make_a_surer_promise():
    shares = []
    for runs in (1, 10):
        group = Group()
        for _ in range(runs):
            group.run_all()
        shares.append(group.promise(650.0))
    assert shares[0] + 0.05 < shares[1]


def test_the_promise_follows_the_progress():
    group = Group()
    group.run_all()
    due_s = group.now_s + 600.0
    shares = []
    for name in NAMES:
        group.run(name, 100.0, due_s)
        shares.append(group.status.promise)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    late = Group()
    late.run_all()
    due_s = late.now_s + 600.0
    for name in NAMES[:3]:
        late.run(name, 190.0, due_s)
    assert late.status.promise < 0.05


def test_a_job_that_runs_longer_than_all_before_may_take_longer_still():
    group = Group()
    group.run_all()
    due_s = group.now_s + 700.0
    for name in NAMES[:-1]:
        group.run(name, 100.0, due_s)
    group.change(group.submit("plot", due_s), state="RUNNING", start_s=group.now_s)
    shares = []
    for _ in range(5):
        shares.append(group.status.promise)
        group.now_s += 59.0
    assert shares[0] > 0.9
    assert shares == sorted(shares, reverse=True)
    assert 0.0 < shares[-1] < 0.5


def test_promises_of_random_groups_are_calibrated():
    rows = [row for number in range(500) for row in questions(number, seed=1)]
    assert {row.promised is None for row in rows if row.earlier == 0} == {True}
    for at in ("start", "within"):
        bins = bins_of([row for row in rows if row.at == at])
        assert len(bins) == 5
        assert [part for part in bins if not is_right(part)] == []


def test_a_job_that_failed_counts_as_one_that_comes_again():
    group = Group()
    group.run_all()
    due_s = group.now_s + 600.0
    group.run("prepare", 100.0, due_s)
    before = group.status.promise
    group.run("wrf", 100.0, due_s, state="FAILED")
    assert 0.0 < group.status.promise < before


def test_a_group_that_is_over_has_kept_its_deadline_or_not():
    group = Group()
    group.run_all()
    for name in NAMES:
        group.run(name, 100.0, group.now_s - 1.0)
    assert group.status.promise == 0.0


def whole_s(least, most):
    """Whole seconds: sums of others are rounded, and a pause may differ from what was drawn."""
    return st.integers(least, most).map(float)


@example([(413.0, 99.0), (600.0, 1.0)])
@example([(413.0, 99.0), (601.0, 1.0)])
@given(st.lists(st.tuples(whole_s(0, 2000), whole_s(1, 100)), min_size=1, max_size=30))
def test_runs_part_where_nothing_was_unfinished_for_long(jobs):
    group = Group()
    for pause_s, seconds in jobs:
        group.now_s += pause_s
        group.run("wrf", seconds, None)
    records = [record for rows in group.table.submissions.values() for record in rows]
    runs = split_runs(records)
    assert sum(map(len, runs)) == len(jobs)
    assert len(runs) == 1 + sum(pause_s > 600.0 for pause_s, _ in jobs[1:])
    assert all(summarize(run).jobs == len(run) for run in runs)
    assert records[0].id == FIRST_ID
