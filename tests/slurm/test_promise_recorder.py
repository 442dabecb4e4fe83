"""The promise of a group over time: what is recorded, and how it is drawn."""

import math
import re
from itertools import pairwise

import pytest

from tests.slurm.test_groups import NAMES, Group
from vgrads.api.slurm.journal import JobJournal
from vgrads.api.slurm.promise_recorder import PromiseRecorder
from vgrads.portal.charts.promise_chart import promise_chart


class Recorded(Group):
    """A group whose promises are recorded twice a second while its jobs run."""

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.begin()

    def begin(self):
        self.journal = JobJournal(self.path)
        self.use(self.journal.table)
        self.recorder = PromiseRecorder(self.journal, lambda: self.now_s)

    def apply(self, event):
        self.journal.write(event, durable=False)

    def work(self, seconds):
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.recorder.look()
            self.now_s += 0.5

    @property
    def points(self):
        return self.table.promises.get("forecast", [])


@pytest.fixture
def group(tmp_path):
    recorded = Recorded(tmp_path / "journal")
    yield recorded
    recorded.journal.close()


def test_the_first_run_of_a_group_records_that_no_promise_can_be_given(group):
    group.run_all(seconds=100.0)
    assert [share for _, share in group.points] == [None]


def test_promises_follow_the_run_to_its_end_and_survive_a_restart(group):
    group.run_all()
    began_s = group.now_s
    group.run_all(seconds=110.0, deadline_s=began_s + 560.0)
    times, shares = zip(*group.points, strict=True)
    assert min(times) == began_s
    assert list(times) == sorted(times)
    assert 0.5 < shares[0] < 0.9
    assert shares[-1] == 1.0
    assert all(b - a >= 5.0 for a, b in pairwise(times))
    before = list(group.points)
    group.journal.close()
    group.begin()
    assert group.points == before
    table = type(group.table)()
    for event in group.table.snapshot():
        table.apply(event)
    assert table.promises["forecast"] == before


def test_a_run_that_ended_between_two_looks_is_recorded(group):
    group.work(1.0)
    number = group.submit("wrf", group.now_s + 60.0)
    group.change(number, state="COMPLETED", start_s=group.now_s, end_s=group.now_s + 1.0)
    group.work(6.0)
    assert [share for _, share in group.points] == [None]


def test_a_missed_deadline_is_recorded_and_the_next_run_begins_anew(group):
    group.run_all()
    began_s = group.now_s
    group.run_all(seconds=200.0, deadline_s=began_s + 600.0)
    assert group.points[-1][1] == 0.0
    again_s = group.now_s
    group.run("prepare", 10.0, group.now_s + 600.0)
    assert min(at_s for at_s, _ in group.points) == again_s


def test_a_run_with_fewer_jobs_than_before_is_over_after_a_while(group):
    group.run_all()
    due_s = group.now_s + 700.0
    for name in NAMES[:3]:
        group.run(name, 100.0, due_s)
    assert group.points[-1][1] < 1.0
    group.work(700.0)
    assert group.points[-1][1] == 1.0


def test_long_runs_have_few_points(group):
    group.run_all(seconds=20_000.0)
    began_s = group.now_s
    group.run_all(seconds=21_000.0, deadline_s=began_s + 115_000.0)
    assert len(group.points) < 60 + 50 * math.log(105_000.0 / 250.0)
    assert len(group.points) > 5


def test_the_chart_shows_each_promise_and_the_deadline():
    points = [(0.0, None), (10.0, 0.5), (60.0, 0.25), (100.0, 1.0)]
    svg = str(promise_chart(points, 120.0, 130.0))
    (line,) = re.findall('<polyline points="([^"]+)"', svg)
    xs, ys = zip(*(map(float, pair.split(",")) for pair in line.split()), strict=True)
    assert list(xs) == sorted(xs)
    assert len(xs) == 4
    assert ys[1] > ys[0] > ys[2] == ys[3]
    assert "deadline 2m 10s" in svg
    assert "beyond" not in svg
    assert "beyond" in promise_chart(points, 120.0, 1300.0)


def test_the_page_states_that_no_promise_can_be_given_yet():
    assert "No promise can be given" in promise_chart([(0.0, None)], 10.0, 60.0)
    assert "No promise can be given" in promise_chart([], 10.0, 60.0)
