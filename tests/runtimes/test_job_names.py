"""Job names of a scheduler's accounting beside steps of workflows: neither spoils the other."""

from math import log

import numpy as np
import pytest
from vgrads_studies.runtimes.jobs import jobs_left_out

from vgrads.portal.records.runtimes import RunTimeRecords
from vgrads.runtimes.common import estimate, from_json, to_json
from vgrads.runtimes.levels import fit_levels
from vgrads.runtimes.machines import Scores
from vgrads.runtimes.model import fit
from vgrads.runtimes.task_history import TaskHistory, learn
from vgrads.traces.task_record import TaskRecord

DAY_AND_MORE = TaskRecord(kind="render", seconds=26 * 3600.0, workflow="film", run="1", machine="a")


def dump(count=2000, seed=1):
    """An accounting dump: nearly every name once, half a minute each."""
    seconds = np.exp(np.random.default_rng(seed).normal(3.3, 0.7, count))
    return [
        TaskRecord(kind=f"job-{n}", seconds=float(s), machine="cluster", ended_at_s=float(n))
        for n, s in enumerate(seconds)
    ]


@pytest.fixture(scope="module")
def poisoned():
    return fit(learn(TaskHistory(), [*dump(), DAY_AND_MORE]))


def test_a_kind_far_from_all_others_keeps_what_was_measured(poisoned):
    clean = fit(learn(TaskHistory(), [DAY_AND_MORE]))
    for model in (clean, poisoned):
        assert abs(log(model.predict("render", "a").median_s / DAY_AND_MORE.seconds)) < log(1.5)


def test_a_kind_that_was_never_seen_is_as_uncertain_as_before(poisoned):
    clean = fit(learn(TaskHistory(), [DAY_AND_MORE])).predict("never seen", "elsewhere")
    here = poisoned.predict("never seen", "elsewhere")
    for p in (0.1, 0.5, 0.9):
        assert abs(log(here.quantile(p) / clean.quantile(p))) < log(4)
    assert here.quantile(0.9) > 3600


def test_a_job_name_that_was_never_seen_is_like_the_other_jobs_of_its_machine(poisoned):
    prediction = poisoned.predict("never seen", "cluster")
    fresh = [record.seconds for record in dump(seed=2)]
    for p in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert np.mean(np.array(fresh) < prediction.quantile(p)) == pytest.approx(p, abs=0.04)


def test_names_that_cover_two_things_have_wide_intervals():
    """Four names in five always take the same; the others now and then something else."""
    random = np.random.default_rng(3)
    records, inside = [], []
    for n in range(200):
        for at in range(4):
            usual = 400.0 if n % 5 or random.random() < 0.6 else 20_000.0
            seconds = usual * float(np.exp(random.normal(0, 0.02)))
            records.append(
                TaskRecord(kind=f"j{n}", seconds=seconds, machine="c", ended_at_s=float(at))
            )
    model = fit(learn(TaskHistory(), [r for r in records if r.ended_at_s != 3]))
    for record in records:
        if record.ended_at_s == 3:
            p = model.predict(record.kind, "c")
            inside.append(p.quantile(0.05) < record.seconds <= p.quantile(0.95))
    assert np.mean(inside) > 0.8


def test_of_two_jobs_that_differ_the_newer_one_is_believed():
    old, new = 40_000.0, 300.0
    records = [
        TaskRecord(kind="j", seconds=s, machine="c", task=str(n), ended_at_s=float(n))
        for n, s in enumerate((old, new))
    ]
    assert fit(learn(TaskHistory(), records)).predict("j", "c").median_s == pytest.approx(
        new, rel=0.3
    )


def test_no_level_moves_a_kind_by_more_than_half_the_deviation_of_its_records():
    levels = fit_levels(np.full(1000, 3.0), np.full(1000, 0.1), np.full(1000, 3.0))
    for off in (-8.0, -2.0, 2.0, 8.0):
        for var in (0.01, 0.3, 4.0):
            sd = levels.spread_of(levels.mean + off, var)
            moved = abs(off) * var / (var + sd**2)
            assert moved <= 0.5 * np.sqrt(var) + 1e-9


def test_what_is_stored_predicts_as_what_is_estimated(store):
    """From the command to the question: the estimate is stored, kinds are read when needed."""
    records = RunTimeRecords(store.engine)
    assert records.learn([*dump(50), DAY_AND_MORE]) == (51, 51)
    assert records.learn([*dump(50), DAY_AND_MORE]) == (0, 51)
    common = estimate(records.history())
    assert to_json(from_json(to_json(common))) == to_json(common)
    before = records.learned().model
    for kind, machine in (("job-3", "cluster"), ("render", "a"), ("new", "cluster"), ("new", "?")):
        assert before.predict(kind, machine) == fit(records.history()).predict(kind, machine)
    records.put_score("cluster", Scores(100, 100))
    records.put_score("fast", Scores(200, 200))
    assert records.learned().model.speed("fast")[0] == pytest.approx(2.0, rel=0.3)
    assert records.forget("render") == 1
    assert records.learned().model.predict("render", "a").source == "guess"


@pytest.mark.long
def test_a_real_dump_is_covered(shared):
    row = jobs_left_out(shared / "sacct" / "xdmod-ref-phillips.sacct.gz")
    assert row.covered == pytest.approx((0.5, 0.8, 0.9), abs=0.03)
    assert row.ours <= min(row.last, row.mean)
    assert row.farthest < 3
