"""Bags of tasks: distributions, the model, extraction, fits, predictors, policies against a plain
reference."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.regression.linear_model import yule_walker
from vgrads_studies.bags.predictors import PREDICTORS, autoregressive, inaccuracies, series_of
from vgrads_studies.bags.study import (
    SimulationCase,
    StudyJob,
    answer,
    averaged,
    plan_jobs,
    predictor_rows,
    tables,
)

from tests.examples import examples
from tests.logs import read_gwf
from tests.workloads.bag_reference import Manager, earliest_completion
from vgrads.kernel.errors import InputError
from vgrads.simulator.cluster import BatchCluster
from vgrads.simulator.load import load_background
from vgrads.traces.gwf import write_gwf
from vgrads.traces.swf import read_swf, write_swf
from vgrads.workloads.architectures import Algorithm, most_at_once, simulate
from vgrads.workloads.distributions import FAMILIES, Distribution, fit
from vgrads.workloads.extract import extract_bags
from vgrads.workloads.fit import characteristics, fit_all, fit_bags, fit_users, ks_distance
from vgrads.workloads.metrics import by_size, figures, lengths, makespans
from vgrads.workloads.model import DAY_S, LONGEST_S, MODELS, Target, draw_bags
from vgrads.workloads.scheduling import SCHEDULINGS, scheduling_named
from vgrads.workloads.selection import SELECTIONS
from vgrads.workloads.system import System, paper_system
from vgrads.workloads.workload import BagColumns, size_class

pytestmark = pytest.mark.more

AVERAGE = MODELS["average"]
SMALL = System(procs=np.array([2, 1, 3]), speed=np.array([1.0, 1.75, 1.25]))


def workload(rows, home=None):
    """(submit, user, run times) of each bag."""
    sizes = [len(r[2]) for r in rows]
    return BagColumns(
        submit_s=np.array([r[0] for r in rows], dtype=float),
        user=np.array([r[1] for r in rows]),
        home=np.array(home if home is not None else [0] * len(rows)),
        first=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        runtime_s=np.concatenate([np.array(r[2], dtype=float) for r in rows]),
    )


bag_rows = st.lists(
    st.tuples(
        st.integers(0, 40), st.integers(0, 3), st.lists(st.integers(1, 30), min_size=1, max_size=6)
    ),
    min_size=1,
    max_size=9,
).map(lambda rows: sorted(rows, key=lambda r: r[0]))


# distributions and fits


@pytest.mark.parametrize(
    "distribution",
    [
        Distribution("Weibull", (1.76, 2.11)),
        Distribution("gamma", (2.62, 0.13)),
        Distribution("normal", (2.73, 6.1)),
        Distribution("log-normal", (1.82, 0.34)),
        Distribution("exponential", (0.3,)),
        Distribution("hyper-exponential", (0.3, 5.0, 0.2)),
    ],
    ids=str,
)
def test_what_was_drawn_is_recovered_and_fits_best(distribution):
    values = distribution.sample(np.random.default_rng(3), 40_000)
    result = fit(distribution.family, values)
    assert result.parameters == pytest.approx(distribution.parameters, rel=0.06)
    assert ks_distance(distribution, values) < 0.01
    fitted = fit_all(values)
    assert fitted.best.d < 0.01
    assert {f.distribution.family for f in fitted.fits} | set(fitted.refused) == set(FAMILIES)
    assert distribution.median() == pytest.approx(float(np.median(values)), rel=0.05)
    step = np.array([1.0, 1.0 + 1e-5])
    slope = float(np.diff(distribution.cdf(step))[0]) / 1e-5
    assert slope == pytest.approx(float(distribution.pdf(step[:1])[0]), rel=0.01)


@pytest.mark.parametrize(
    ("family", "values", "message"),
    [
        ("normal", [1.0] * 50, "equal"),
        ("gamma", [-1.0] * 25 + [2.0] * 25, "below 0"),
        ("Weibull", [1.0, 2.0], "few"),
        ("Weibull", [np.nan] * 50, "numbers"),
        ("Cauchy", list(range(50)), "unknown family"),
    ],
)
def test_distributions_that_cannot_be_fitted(family, values, message):
    with pytest.raises(InputError, match=message):
        fit(family, np.array(values))


def test_the_order_of_parameters_makes_sense_of_the_table():
    """Sizes between 3 and 50 on average (the paper: 5 and 50), run times of seconds to days, peaks
    by day."""
    for name, model in MODELS.items():
        draws = np.random.default_rng(0)
        sizes = np.maximum(2, np.rint(2.0 ** model.size.sample(draws, 20_000)))
        assert 3 < sizes.mean() < 50, name
        medians = 2.0 ** model.runtime.median()
        assert 5 < medians < 1000, name
        top = 2.0 ** np.quantile(model.runtime.sample(draws, 20_000), 0.95)
        assert 60 < top < 10 * DAY_S, name
        half_hours = np.arange(48) + 0.5
        assert (
            12 < half_hours[np.argmax(model.daily_cycle.pdf(half_hours))] < 40
            or name == "Grid'5000"
        ), name
        assert 30 < 2.0 ** model.inter_arrival.median() < 1000, name


# the model


@pytest.mark.parametrize("arrivals", ["cycle", "even", "at once"])
def test_a_workload_has_the_load_it_was_drawn_for(arrivals):
    target = Target(load=0.4, capacity=300.0, clusters=3, days=2.0, arrivals=arrivals)
    bags = draw_bags(AVERAGE, target, seed=5)
    bags.check()
    share = bags.runtime_s.sum() / (300.0 * 2 * DAY_S)
    assert 0.4 <= share < 0.4 + bags.work_s.max() / (300.0 * 2 * DAY_S)
    assert bags.submit_s.min() >= 0
    assert bags.submit_s.max() <= 2 * DAY_S
    assert (bags.sizes >= 2).all()
    assert set(bags.home.tolist()) == {0, 1, 2}
    again, other = draw_bags(AVERAGE, target, seed=5), draw_bags(AVERAGE, target, seed=6)
    assert again.runtime_s.tolist() == bags.runtime_s.tolist()
    assert other.runtime_s.tolist() != bags.runtime_s.tolist()


def test_more_bags_come_by_day_than_by_night():
    bags = draw_bags(AVERAGE, Target(load=0.5, capacity=2000.0, days=4.0), seed=1)
    hours = bags.submit_s % DAY_S / 3600
    by_day = ((hours >= 8) & (hours < 17)).sum() / 9
    by_night = ((hours < 3) | (hours >= 23)).sum() / 4
    assert by_day > 2 * by_night


def test_sizes_and_run_times_can_be_moved():
    plain = draw_bags(AVERAGE, Target(load=0.5, capacity=1000.0), seed=1)
    large = draw_bags(AVERAGE, Target(load=0.5, capacity=1000.0, median_size=40.0), seed=1)
    long = draw_bags(AVERAGE, Target(load=0.5, capacity=1000.0, mean_runtime_s=3600.0), seed=1)
    assert np.median(large.sizes) == pytest.approx(40, rel=0.1)
    assert np.median(plain.sizes) < 10
    assert long.runtime_s.mean() > 4 * plain.runtime_s.mean()


def test_parameters_survive_the_way_through_a_log():
    """Drawn from the model, written, read, taken apart and fitted: the model's parameters come
    back."""
    bags = draw_bags(AVERAGE, Target(load=0.9, capacity=250.0, days=6.0), seed=2)
    log = read_swf(write_swf(bags.as_log("drawn")), "drawn")
    result = extract_bags(log, gap_s=0.0)
    assert abs(len(result) - len(bags)) < 0.15 * len(bags)
    assert result.runtime_s.sum() == pytest.approx(np.ceil(bags.runtime_s).sum())
    fits = fit_bags(bags)
    assert fits["run time"].fits[0].distribution.family in ("normal", "Weibull", "gamma")
    exponent, count = fit_users(bags)
    assert exponent == pytest.approx(1.31, abs=0.1)
    assert count <= 368
    normal = fit("normal", characteristics(bags)["run time"])
    assert normal.parameters[1] == pytest.approx(6.1, rel=0.1)


def test_logs_of_bags_can_be_read_again():
    log = draw_bags(AVERAGE, Target(load=0.2, capacity=50.0, days=0.5), seed=0).as_log("x")
    for text, read in ((write_swf(log), read_swf), (write_gwf(log), read_gwf)):
        back = read(text, "x")
        assert len(back) == len(log)
        assert back.run_s == pytest.approx(log.run_s)
        assert len(np.unique(back.user)) == len(np.unique(log.user))
        assert back.unix_start_s + back.submit_s == pytest.approx(log.submit_s, abs=1.0)


def test_a_drawn_workload_keeps_a_simulated_site_as_busy_as_it_was_drawn_for():
    """The source of background load for `vgrads.simulator.load`: what a plan competes with on a
    site without a history."""
    bags = draw_bags(AVERAGE, Target(load=0.5, capacity=100.0, days=2.0, arrivals="even"), seed=3)
    cluster = BatchCluster(100)
    load_background(cluster, bags.as_log("bags"), 0.0, 2 * DAY_S)
    busy = []
    for hour in range(4, 44):
        cluster.advance(3600.0 * hour)
        cluster.check()
        busy.append(sum(job.procs for job, _ in cluster.running))
    assert 30 < np.mean(busy) < 70


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"load": 0.0}, "load"),
        ({"load": 1.2}, "load"),
        ({"median_size": 0.5}, "median_size"),
        ({"capacity": 0.0}, "capacity"),
        ({"arrivals": "never"}, "arrivals"),
        ({"mean_runtime_s": -1.0}, "mean_runtime_s"),
        ({"days": np.inf}, "days"),
        ({"days": np.nan}, "days"),
        ({"days": 1e9}, "days"),
        ({"capacity": np.inf}, "capacity"),
        ({"capacity": 1e9}, "processors"),
        ({"load": np.nan}, "load"),
        ({"median_size": np.nan}, "median_size"),
        ({"mean_runtime_s": np.inf}, "mean_runtime_s"),
    ],
)
def test_targets_that_cannot_be(change, field):
    with pytest.raises(InputError) as refused:
        draw_bags(AVERAGE, replace(Target(load=0.5, capacity=100.0), **change), 0)
    assert field in refused.value.where


# extraction


def test_jobs_of_a_single_user_that_come_together_are_a_bag():
    rows = [(0, 1), (50, 1), (60, 2), (100, 1), (400, 1), (410, 2)]  # gaps of 120 s end a bag
    lines = [
        f"{i} {t} 0 10 1 -1 -1 1 20 -1 1 {u} 1 1 1 1 -1 -1" for i, (t, u) in enumerate(rows, 1)
    ]
    bags = extract_bags(read_swf("\n".join(lines), "x"))
    assert bags.sizes.tolist() == [3, 1, 1, 1]
    assert bags.submit_s.tolist() == [0, 60, 400, 410]
    assert bags.user[[0, 2]].tolist() == [bags.user[0]] * 2
    assert sorted(set(bags.user.tolist())) == [0, 1]
    assert extract_bags(read_swf("\n".join(lines), "x"), gap_s=1000).sizes.tolist() == [4, 2]
    nobody = read_swf("\n".join(lines), "x")
    with pytest.raises(InputError, match="does not name users"):
        extract_bags(replace(nobody, user=np.full(len(nobody), -1)))
    with pytest.raises(InputError, match="ran"):
        extract_bags(nobody.select(np.zeros(len(nobody), dtype=bool)))


def test_size_classes_are_the_papers():
    sizes = np.array([1, 2, 4, 5, 9, 10, 19, 20, 999, 1000, 5000])
    assert size_class(sizes).tolist() == [-1, 0, 0, 1, 1, 2, 2, 3, 7, 8, 8]


# predictors


@settings(max_examples=examples(40))
@given(st.lists(st.floats(1, 1e5), min_size=2, max_size=60))
def test_predictors_say_what_their_definitions_say(values):
    series = np.array(values)
    text = {name: predict(series) for name, predict in PREDICTORS.items()}
    for i in range(1, len(series)):
        assert text["LastValue"][i] == series[i - 1]
        assert text["Mean"][i] == pytest.approx(series[:i].mean())
        assert text["Mean(10)"][i] == pytest.approx(series[max(0, i - 10) : i].mean())
    level = series[0]
    for i in range(1, len(series)):
        assert text["ExpSmooth"][i] == pytest.approx(level)
        level = 0.5 * series[i] + 0.5 * level
    for name, result in text.items():
        assert np.isnan(result[0]), name
        assert (result[1:] >= 0).all(), name
        assert result[1:].max() <= series.max() * (1 + 1e-9) or name == "AutoRegress"


@pytest.mark.filterwarnings("ignore:yule_walker:FutureWarning")
def test_the_autoregression_is_statsmodels_own():
    draws = np.random.default_rng(1)
    series = np.abs(np.cumsum(draws.standard_normal(200)) + 50)
    text = autoregressive(series)
    for i in (50, 120, 199):
        existing = series[:i]
        weights, _ = yule_walker(existing, order=5, method="mle", demean=True)
        recent = existing[::-1][:5] - existing.mean()
        assert text[i] == pytest.approx(existing.mean() + float(weights @ recent), rel=1e-6)


def test_adaptive_smoothing_follows_a_step_faster_than_a_mean():
    series = np.concatenate([np.full(30, 10.0), np.full(15, 100.0)])
    assert PREDICTORS["AdpExpSmooth"](series)[-1] > 95
    assert PREDICTORS["Mean"](series)[-1] < 50


def test_series_are_of_batches_or_of_users():
    bags = workload([(0, 0, [1, 2]), (1, 1, [3]), (2, 0, [4, 5])])
    assert [s.tolist() for s in series_of(bags, "batch")] == [[1, 2], [3], [4, 5]]
    assert [s.tolist() for s in series_of(bags, "user")] == [[1, 2, 4, 5], [3]]
    assert inaccuracies(bags, "LastValue", "batch").tolist() == pytest.approx([50.0, 20.0])
    with pytest.raises(InputError, match="choose batch or user"):
        list(series_of(bags, "site"))
    with pytest.raises(InputError, match="LastValue"):
        inaccuracies(bags, "Oracle", "batch")


# policies


@pytest.mark.parametrize(
    ("selection", "scheduling"),
    [
        *product(SELECTIONS, ["FPLT"]),
        *product(["S-T", "S-U-RR"], ["FPF", "RR", "WQR-4", "DFPLT", "STFR"]),
    ],
)
@settings(max_examples=examples(40))
@given(rows=bag_rows)
def test_every_start_is_that_of_the_plain_reference(selection, scheduling, rows):
    bags = workload(rows)
    outcome = simulate(bags, SMALL, Algorithm(selection=selection, scheduling=scheduling))
    plain = Manager(bags, SMALL, selection, scheduling_named(scheduling)).simulate()
    outcome.check()
    assert outcome.began_s.tolist() == plain.began
    assert outcome.end_s.tolist() == plain.ended
    assert outcome.cluster.tolist() == plain.where
    assert outcome.replicas == plain.extra


@pytest.mark.parametrize(
    "how",
    [
        *(Algorithm(scheduling=s) for s in SCHEDULINGS),
        *(Algorithm(selection=s) for s in SELECTIONS),
        Algorithm(architecture="sep-c"),
        Algorithm(architecture="sep-c", selection="S-BoT", scheduling="RR"),
        Algorithm(architecture="fcondor"),
    ],
    ids=lambda a: f"{a.selection} {a.scheduling} {a.architecture}",
)
@settings(max_examples=examples(30))
@given(rows=bag_rows, seed=st.integers(0, 9))
def test_what_comes_out_is_possible(how, rows, seed):
    home = np.random.default_rng(seed).integers(0, 3, len(rows))
    bags = workload(rows, home)
    outcome = simulate(bags, SMALL, how)
    outcome.check()
    assert (
        makespans(outcome) >= np.maximum.reduceat(bags.runtime_s, bags.first[:-1]) / 1.75 - 1e-9
    ).all()
    assert lengths(outcome) == pytest.approx(makespans(outcome) / bags.work_s)
    result = figures(outcome)
    assert outcome.spent_s >= result.goodput_s - 1e-6
    assert 0 <= result.finished <= 1
    if how.architecture == "sep-c":
        assert outcome.cluster.tolist() == home[bags.bag_of].tolist()
    again = simulate(bags, SMALL, how)
    assert again.end_s.tolist() == outcome.end_s.tolist()


def test_the_check_finds_what_is_impossible():
    bags = workload([(0, 0, [4, 4, 4, 4, 4, 4, 4])])
    good = simulate(bags, SMALL, Algorithm())
    good.check()
    for change, text in (
        ({"end_s": good.end_s + 1}, "its run time"),
        ({"began_s": good.began_s - 5}, "before it was submitted"),
        ({"end_s": np.full(7, np.nan)}, "did not end"),
        (
            {
                "cluster": np.zeros(7, np.int64),
                "start_s": np.zeros(7),
                "end_s": np.full(7, 4.0),
                "began_s": np.zeros(7),
            },
            "more tasks",
        ),
    ):
        with pytest.raises(InputError, match=text):
            replace(good, **change).check()
    assert most_at_once(np.array([0.0, 1.0, 2.0]), np.array([2.0, 3.0, 4.0])) == 2


def test_replicas_end_with_the_first_of_them():
    """One long task on a slow processor, a fast one falls free: the copy there ends first, both are
    given back."""
    system = System(procs=np.array([1, 1]), speed=np.array([1.0, 2.0]))
    bags = workload(
        [(0, 0, [100, 10])]
    )  # in turn: 100 to the slow one, 10 to the fast one, free at 5
    outcome = simulate(bags, system, Algorithm(scheduling="RR"))
    assert outcome.end_s.tolist() == [55.0, 5.0]
    assert outcome.start_s.tolist() == [5.0, 0.0]
    assert outcome.began_s.tolist() == [0.0, 0.0]
    assert outcome.spent_s == 55 + 50 + 5  # the long one twice, the short one once


def test_flocking_users_wander_when_they_must_wait():
    system = System(procs=np.array([1, 1]), speed=np.array([1.0, 1.0]))
    outcome = simulate(workload([(0, 0, [10, 10, 10])]), system, Algorithm(architecture="fcondor"))
    assert outcome.cluster.tolist() == [
        0,
        0,
        1,
    ]  # at once; queues there; the user has turned to the next
    assert outcome.began_s.tolist() == [0.0, 10.0, 0.0]


def test_stated_run_times_matter_to_policies_that_use_them():
    bags = workload([(0, 0, [1, 9, 5])])
    system = System(procs=np.array([1]), speed=np.array([1.0]))
    outcome = simulate(bags, system, Algorithm(estimate_s=np.array([9.0, 1.0, 5.0])))
    assert np.argsort(outcome.began_s).tolist() == [0, 2, 1]


@settings(max_examples=examples(60))
@given(rows=bag_rows, off=st.floats(0.1, 10.0))
def test_ect_is_a_single_algorithm_whoever_tells_it_run_times(rows, off):
    """Told what is so, it starts what it starts without being told: by the plain chart. Told
    wrongly, nothing is lost."""
    bags = workload(rows)
    outcome = simulate(bags, SMALL, Algorithm(scheduling="ECT"))
    message = simulate(bags, SMALL, Algorithm(scheduling="ECT", estimate_s=bags.runtime_s))
    began, where = earliest_completion(bags, SMALL)
    assert message.began_s.tolist() == outcome.began_s.tolist() == began
    assert message.cluster.tolist() == outcome.cluster.tolist() == where
    wrong = np.where(np.arange(len(bags.runtime_s)) % 2, bags.runtime_s * off, bags.runtime_s / off)
    simulate(bags, SMALL, Algorithm(scheduling="ECT", estimate_s=wrong)).check()


def test_ect_does_not_queue_behind_what_outlasts_its_guess():
    """A fast processor whose task should long have ended is not thought to be free for ever."""
    system = System(procs=np.array([1, 1]), speed=np.array([2.0, 1.0]))
    bags = workload([(0, 0, [10_000]), (1000, 0, [200])])
    guesses = np.array([10.0, 200.0])
    outcome = simulate(bags, system, Algorithm(scheduling="ECT", estimate_s=guesses))
    assert outcome.cluster.tolist() == [0, 1]
    assert outcome.began_s.tolist() == [0.0, 1000.0]


def test_who_submits_most_is_not_therefore_the_most_important():
    """Priorities are drawn by lot, for drawn workloads and for recorded ones, and one seed gives
    one order."""
    firsts = []
    for seed in range(20):
        drawn = draw_bags(AVERAGE, Target(load=0.5, capacity=100.0), seed)
        result = extract_bags(drawn.as_log("drawn"), seed=seed)
        again = extract_bags(drawn.as_log("drawn"), seed=seed)
        assert result.user.tolist() == again.user.tolist()
        for bags in (drawn, result):
            counts = np.bincount(bags.user)
            firsts.append(counts.argmax() / len(counts))
    assert 0.3 < np.mean(firsts) < 0.7  # where the busiest stands among all, 0 the most important
    assert min(firsts) < 0.3
    assert max(firsts) > 0.7


def test_no_task_outlasts_the_cap_however_run_times_are_moved():
    target = Target(load=0.9, capacity=3000.0, days=3.0, mean_runtime_s=7200.0)
    longest = [draw_bags(AVERAGE, target, seed).runtime_s for seed in range(8)]
    assert max(run.max() for run in longest) <= LONGEST_S
    assert np.mean([run.mean() for run in longest]) == pytest.approx(7200.0, rel=0.05)
    with pytest.raises(InputError, match="mean of"):
        draw_bags(AVERAGE, replace(target, mean_runtime_s=1e9), 0)


@pytest.mark.parametrize(
    ("how", "existing"),
    [
        (Algorithm(selection="S-X"), "S-BoT"),
        (Algorithm(scheduling="WQR-0"), "FPLT"),
        (Algorithm(scheduling="x"), "STFR"),
        (Algorithm(architecture="grid"), "fcondor"),
        (Algorithm(architecture="fcondor", scheduling="RR"), "FPLT"),
    ],
)
def test_unknown_policies_list_the_choices(how, existing):
    with pytest.raises(InputError) as refused:
        simulate(workload([(0, 0, [1])]), SMALL, how)
    assert existing in refused.value.fix


def test_workloads_that_contradict_themselves():
    good = workload([(0, 0, [1, 2]), (1, 0, [3])])
    for change, text in (
        ({"first": np.array([0, 2])}, "fit"),
        ({"first": np.array([0, 3, 3])}, "at least one task"),
        ({"submit_s": np.array([1.0, 0.0])}, "order"),
        ({"runtime_s": np.array([1.0, 0.0, 1.0])}, "must take time"),
    ):
        with pytest.raises(InputError, match=text):
            replace(good, **change).check()
    with pytest.raises(InputError, match="no bag"):
        good.only(np.array([False, False])).check()
    with pytest.raises(InputError, match="processor"):
        simulate(good, System(procs=np.array([0]), speed=np.array([1.0])), Algorithm())
    with pytest.raises(InputError, match="streams"):
        simulate(replace(good, home=np.array([0, 9])), SMALL, Algorithm(architecture="sep-c"))


def test_the_system_is_as_large_as_the_papers():
    system = paper_system()
    assert len(system.procs) == 20
    assert 3500 < system.procs.sum() < 3600
    assert (system.speed.min(), system.speed.max()) == (1.0, 1.75)


def test_by_size_classes_cover_all_bags():
    bags = draw_bags(AVERAGE, Target(load=0.3, capacity=100.0), seed=0)
    outcome = simulate(bags, System(procs=np.array([100]), speed=np.array([1.0])), Algorithm())
    rows = by_size(outcome)
    assert [row.low for row in rows] == sorted(row.low for row in rows)
    assert rows[0].low == 2
    for low, high in ((row.low, row.high or 10**6) for row in rows):
        mine = (bags.sizes >= low) & (bags.sizes <= high)
        assert makespans(outcome)[mine].mean() == pytest.approx(
            next(row.makespan_s for row in rows if row.low == low)
        )


# the study and the commands


@pytest.mark.long
def test_the_study_asks_over_a_thousand_questions_and_tells_the_answers():
    jobs = plan_jobs(5)
    assert sum(len(job.questions) for job in jobs) >= 1200
    target = Target(load=0.9, capacity=paper_system().capacity, clusters=20, days=0.02)
    questions = [
        *jobs[0].questions,
        SimulationCase(
            experiment="wrong estimates", x=100, series="FPLT", how=Algorithm(), wrong=100.0
        ),
    ]
    rows = answer(StudyJob(target=target, seed=0, questions=tuple(questions)))
    cells = averaged(rows)
    assert cells["selection", "S-T", 0.2]["length"] == cells["scheduling", "FPLT", 0.2]["length"]
    text = tables(rows, predictor_rows([]))
    assert "| S-BoT |" in text
    assert "LastValue, batch" in text
    assert "| tasks (20,000–175,000) |" in text
    assert "| utilisation (S-T) |" in text


def test_the_study_plays_as_many_tasks_as_the_paper():
    """§4.2: between 20,000 and 175,000; a natural day, of shorter tasks, stands beside it."""
    jobs = [job for job in plan_jobs(1) if job.questions[0].experiment == "selection"]
    for job in (jobs[0], jobs[-1]):
        assert 20_000 < len(draw_bags(AVERAGE, job.target, job.seed).runtime_s) < 175_000
    natural = [job for job in plan_jobs(1) if job.questions[0].experiment.startswith("natural day")]
    assert len(natural) == len(jobs)
    assert {(job.target.days, job.target.mean_runtime_s) for job in natural} == {(1.0, None)}


def test_commands_fit_generate_play_and_list(vgrads, tmp_path):
    out = tmp_path / "bags.swf"
    created = vgrads(
        "bags", "generate", "--load", ".5", "--procs", 200, "--days", 1, "-o", out, "--json"
    ).json
    assert created["tasks"] > 1000
    result = vgrads(
        "bags", "fit", out, "--gap", "0s", "--report", tmp_path / "r.html", "--json"
    ).json
    assert result["tasks"] == created["tasks"]
    assert set(result["characteristics"]) == {
        "inter-arrival",
        "daily cycle",
        "size",
        "run time",
        "variability",
    }
    assert "Kolmogorov" in (tmp_path / "r.html").read_text()
    assert "run time" in vgrads("bags", "fit", out).out
    simulated = vgrads(
        "bags", "simulate", "--load", ".2", "--days", ".1", "--selection", "S-BoT", "--json"
    ).json
    assert simulated["finished"] > 0.5
    assert "makespan" in vgrads("bags", "simulate", "--load", ".2", "--days", ".05").out
    assert "S-U-GRR" in vgrads("bags", "policies").out
    assert vgrads("bags", "generate", "-o", tmp_path / "b.gwf", "--procs", 20, "--json").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("simulate", "--load", "1.5"), "load"),
        (("simulate", "--selection", "x"), "S-BoT"),
        (("simulate", "--scheduling", "x"), "FPLT"),
        (("simulate", "--model", "x"), "DAS-2"),
        (("simulate", "--architecture", "x"), "csp"),
        (("fit", "none.swf"), "no such file"),
        (("generate", "-o", "x.swf", "--days", "inf"), "days"),
        (("generate", "-o", "x.swf", "--days", "nan"), "days"),
        (("generate", "-o", "x.txt"), ".swf"),
        (("generate", "-o", "x.swf", "--load", "0"), "load"),
    ],
)
def test_bad_input_names_what_is_wrong(vgrads, arguments, message):
    answer = vgrads("bags", *arguments)
    assert answer.code == 2
    assert message in answer.err


def test_a_history_without_users_or_with_too_few_bags(vgrads, write):
    lines = "\n".join(
        f"{i} {600 * i} 0 10 1 -1 -1 1 20 -1 1 -1 1 1 1 1 -1 -1" for i in range(1, 40)
    )
    nobody = vgrads("bags", "fit", write("a.swf", lines))
    assert (nobody.code, "users" in nobody.err) == (2, True)
    few = vgrads(
        "bags", "fit", write("b.swf", lines.replace("1 -1 1 1 1 1 -1 -1", "1 7 1 1 1 1 -1 -1"))
    )
    assert few.code == 2
    assert "b.swf" in few.err
