"""What ends tell of a manager's capacity: time in which links were busy, new hosts, mixed bags."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgrads.dispatch.fleet.meter import Covered, TaskMeter
from vgrads.dispatch.storage.bag_files import InputFile
from vgrads.exchange.values import AttemptEnd

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), min_size=1, max_size=40)


@given(SPANS)
def test_what_is_covered_is_the_union_in_whatever_order(spans):
    covered, total, seconds = Covered(), 0.0, set()
    for begin, lasts in spans:
        more = covered.add(float(begin), float(begin + lasts))
        new = set(range(begin, begin + lasts)) - seconds
        assert more == len(new)
        seconds |= new
        total += more
    assert total == len(seconds)
    assert covered.begins == sorted(covered.begins)
    assert all(e < b for e, b in zip(covered.ends, covered.begins[1:], strict=False))


def test_what_is_long_ago_is_forgotten_and_memory_stays_small():
    covered = Covered()
    total = sum(covered.add(float(n), n + 0.5) for n in range(20_000))
    assert total == pytest.approx(10_000)
    assert len(covered.begins) < 2_000


class Link:
    """One link that many hosts fetch over: all transfers share it equally (processor sharing)."""

    def __init__(self, mib_s):
        self.mib_s, self.now_s, self.left = mib_s, 0.0, {}

    def next_s(self):
        if not self.left:
            return float("inf")
        return self.now_s + min(self.left.values()) * len(self.left) / self.mib_s

    def to(self, at_s):
        """Let time pass; what has come until then."""
        each = (at_s - self.now_s) * self.mib_s / len(self.left) if self.left else 0.0
        self.left = {who: mib - each for who, mib in self.left.items()}
        self.now_s = at_s
        over = [who for who, mib in self.left.items() if mib < 1e-9]
        for who in over:
            del self.left[who]
        return over


class Stream:
    """Hosts that fetch what they have not, work, and tell their ends; each looks for the next task
    then."""

    def __init__(self, mib_s, run_s, reads_of, out_s=0.0):
        self.meter, self.link = TaskMeter(), Link(mib_s)
        self.run_s, self.reads_of, self.draw = run_s, reads_of, random.Random(1)
        self.cache, self.began_s, self.ready_s, self.ends, self.tasks, self.agents = (
            {},
            {},
            {},
            [],
            0,
            0,
        )
        self.samples, self.task, self.out_s = [], {}, out_s

    def join(self, count):
        for agent in range(self.agents, self.agents + count):
            self.cache[agent] = set()
            self._next(agent)
        self.agents += count

    def _next(self, agent):
        self.task[agent] = self.tasks
        self.tasks += 1
        self.began_s[agent] = self.link.now_s
        missing = [r for r in self.reads_of(self.task[agent]) if r.digest not in self.cache[agent]]
        self.cache[agent].update(r.digest for r in missing)
        if missing:
            self.link.left[agent] = sum(r.mib for r in missing)
        else:
            self._run(agent)

    def _run(self, agent):
        self.ready_s[agent] = self.link.now_s
        runs_s = self.run_s(self.task[agent]) * self.draw.uniform(0.9, 1.1)
        self.ends.append((self.link.now_s + runs_s + self.out_s, agent, runs_s))

    def run(self, until_s):
        while self.link.now_s < until_s:
            self.ends.sort()
            end_s = self.ends[0][0] if self.ends else float("inf")
            if self.link.next_s() < end_s:
                for agent in self.link.to(self.link.next_s()):
                    self._run(agent)
                continue
            _, agent, runs_s = self.ends.pop(0)
            for other in self.link.to(end_s):
                self._run(other)
            fetched_s = self.ready_s[agent] - self.began_s[agent]
            task = self.task[agent]
            category = str(task % 2)
            end = AttemptEnd(
                task, agent, end_s, 0, 1, ran_s=runs_s, fetched_s=fetched_s, sent_s=self.out_s
            )
            self.meter.add(1, end, category, self.reads_of(task))
            self._next(agent)
            if end_s > (self.samples[-1][0] if self.samples else 0.0) + 3.0:
                self.meter.look(0.001, self.agents)
                result = self.meter.capacity_json()
                self.samples.append((end_s, result and result["value"]))


@pytest.mark.parametrize("agents", [4, 12, 30, 60])
@pytest.mark.parametrize("in_s", [0.1, 0.5])
def test_the_capacity_of_a_link_is_reported_however_many_hosts_there_are(agents, in_s):
    stream = Stream(1.0, lambda _: 5.0, lambda task: [InputFile(str(task), in_s, common=False)])
    stream.join(agents)
    stream.run(800.0)
    result = stream.meter.capacity_json()
    message = [
        value for at_s, value in stream.samples if at_s > 400.0
    ]  # hosts go in step: it sways
    assert statistics.median(message) == pytest.approx(1 + 5.0 / in_s, rel=0.05)
    assert result["bottleneck"] == "up-link"
    assert result["low"] <= result["value"] <= result["high"]


@pytest.mark.parametrize("common", [True, False])
def test_hosts_that_join_do_not_look_like_a_fall_of_the_capacity(common):
    """Yu 2013, Fig 4.7: 1 GB that all tasks share, 5 s, 1 MB out; 1 worker, then 10 more. The file
    counts as shared by what its name says, or because others had it before the hosts came."""
    stream = Stream(
        100.0, lambda _: 5.0, lambda _: [InputFile("all", 1000.0, common=common)], out_s=0.05
    )
    stream.join(1)
    stream.run(2000.0)
    before = stream.samples[-1][1]
    assert before == pytest.approx(101, rel=0.1)
    stream.join(10)
    stream.run(2600.0)
    after = [value for at_s, value in stream.samples if at_s > 2000.0]
    assert len(after) > 100
    assert min(after) >= 0.9 * before


def test_a_mixed_bag_is_described_by_its_means_not_by_the_mean_of_ratios():
    stream = Stream(
        1.0,
        lambda task: (2.0, 20.0)[task % 2],
        lambda task: [InputFile(str(task), (0.4, 0.1)[task % 2], common=False)],
    )
    stream.join(20)
    stream.run(3000.0)
    assert stream.meter.capacity_json()["value"] == pytest.approx(1 + 11.0 / 0.25, rel=0.15)


def test_results_are_the_down_link_and_processors_are_counted():
    meter = TaskMeter()
    for n in range(200):
        meter.add(4, AttemptEnd(n, n % 10, n * 0.5 + 20.0, 0, 1, ran_s=6.0, sent_s=0.5), "a")
    meter.look(0.0, 40)
    result = meter.capacity_json()
    assert result["bottleneck"] == "down-link"
    assert result["value"] == pytest.approx(4 * 13.0)


def test_failures_tell_nothing_of_times():
    meter = TaskMeter()
    meter.add(1, AttemptEnd(0, 0, 10.0, 1, 1, ran_s=5.0, fetched_s=1.0), "a")
    assert meter.failing
    assert meter.capacity_json() is None
    meter.add(1, AttemptEnd(1, 0, 20.0, 0, 1, ran_s=5.0, fetched_s=1.0), "a")
    meter.look(0.0, 1)
    assert not meter.failing
    assert meter.capacity_json()["value"] == pytest.approx(6.0)
