"""Run times learned: what simulated truth is recovered, what intervals cover, what may not be
mixed."""

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vgrads_studies.runtimes import study

from tests.examples import examples
from vgrads.kernel.errors import InputError
from vgrads.kernel.streams import stream
from vgrads.runtimes.machines import Scores
from vgrads.runtimes.model import fit
from vgrads.runtimes.task_history import (
    NEWEST,
    TaskHistory,
    forget,
    from_json,
    learn,
    rename_kinds,
    to_json,
)
from vgrads.traces.task_record import TaskRecord

KINDS = {
    "align": (300.0, 0.1),
    "sort": (40.0, 0.3),
    "index": (1500.0, 0.05),
    "call": (90.0, 0.2),
    "report": (10.0, 0.4),
}


def simulated(seed, runs=6, each=4, machines=(("one", 0.0), ("two", -0.5)), run_sd=0.2):
    """Records of five kinds: level, noise, machine and run are known."""
    random = stream(seed, "runtimes")
    results = []
    for number in range(runs):
        common = random.normal(0, run_sd)
        for kind, (median, noise) in KINDS.items():
            for at in range(each):
                machine, shift = machines[(number + at) % len(machines)]
                spread = common + shift + random.normal(0, noise)
                results.append(
                    TaskRecord(
                        kind=kind,
                        seconds=median * exp(spread),
                        workflow="w",
                        run=str(number),
                        task=f"{kind}{at}",
                        machine=machine,
                        ended_at_s=float(number),
                    )
                )
    return results


def sized(random, count, law, low=1e6, high=1e8, noise=0.1, kind="k"):
    return [
        TaskRecord(
            kind=kind,
            seconds=law(size) * exp(random.normal(0, noise)),
            input_bytes=size,
            task=str(at),
        )
        for at, size in enumerate(np.exp(np.linspace(log(low), log(high), count)))
    ]


def off(message, truth):
    return abs(log(message / truth))


def test_levels_noises_machines_and_runs_are_recovered():
    model = fit(learn(TaskHistory(), simulated(1, runs=14)))
    assert model.reference == "one"
    for kind, (median, noise) in KINDS.items():
        prediction = model.predict(kind, "one")
        assert off(prediction.median_s, median) < 3 * (prediction.kind + 0.2 / 14**0.5 + 0.02)
        assert 0.5 * noise < prediction.own < 1.8 * noise + 0.02
        assert (prediction.source, prediction.observations) == ("learned", 14 * 4)
    speed, sd = model.speed("two")
    assert off(speed, exp(0.5)) < 0.1
    assert 0 < sd < 0.15
    assert model.speed("one") == (1.0, 0.0)
    assert 0.1 < model.predict("sort").workflow < 0.35


def test_a_kind_without_records_at_a_machine_is_predicted_by_others():
    records = [r for r in simulated(2) if (r.kind, r.machine) != ("call", "two")]
    prediction = fit(learn(TaskHistory(), records)).predict("call", "two")
    assert off(prediction.median_s, 90 * exp(-0.5)) < 0.35
    assert prediction.kind > 0.09


@given(st.integers(0, 50))
@settings(max_examples=examples(5), deadline=None)
def test_nothing_depends_on_the_order_or_on_portions(seed):
    records = simulated(seed % 3, runs=3)
    shuffled = list(records)
    stream(seed, "order").shuffle(shuffled)
    history = learn(TaskHistory(), records)
    cut = seed % len(records)
    assert learn(learn(TaskHistory(), shuffled[:cut]), shuffled[cut:]) == history
    assert learn(history, records) == history
    runtime_model, other = fit(history), fit(learn(TaskHistory(), shuffled))
    assert runtime_model.predict("sort", "two") == other.predict("sort", "two")


def test_the_newest_are_stored_in_whatever_portions():
    records = [
        TaskRecord(kind="k", seconds=1.0 + at, ended_at_s=float(at)) for at in range(3 * NEWEST)
    ]
    whole = learn(TaskHistory(), records)
    assert [r.ended_at_s for r in whole.records] == [
        float(at) for at in range(2 * NEWEST, 3 * NEWEST)
    ]
    parts = TaskHistory()
    for at in (2, 0, 1):
        parts = learn(parts, records[at * NEWEST : (at + 1) * NEWEST])
    assert parts == whole


def test_json_brings_back_exactly_this():
    records = [
        replace(r, memory_bytes=1e9 / 3, input_bytes=0.1 + at)
        for at, r in enumerate(simulated(4, runs=2))
    ]
    history = learn(TaskHistory(), records)
    again = from_json(to_json(history))
    assert again == history
    assert to_json(again) == to_json(history)
    assert fit(again).predict("call", "two", 7.0) == fit(history).predict("call", "two", 7.0)
    assert forget(history, "call").kinds == tuple(sorted(set(KINDS) - {"call"}))


def test_a_power_of_the_size_over_a_floor_is_detected():
    random = stream(5, "floor")

    def law(size):
        return 20 + 30 * (size / 1e7) ** 1.0

    model = fit(learn(TaskHistory(), sized(random, 24, law, noise=0.05)))
    for size in (1e5, 3e6, 5e7, 1e9):
        prediction = model.predict("k", input_bytes=size)
        assert off(prediction.median_s, law(size)) < max(3 * prediction.kind, 0.25)
    far, near = model.predict("k", input_bytes=1e10), model.predict("k", input_bytes=3e7)
    assert far.kind > 2 * near.kind


def test_a_size_that_does_not_matter_does_not():
    random = stream(6, "flat")
    model = fit(learn(TaskHistory(), sized(random, 20, lambda size: 100.0)))
    assert off(model.predict("k", input_bytes=1e9).median_s, 100) < 0.25


def test_a_constant_part_of_the_size_is_recognised():
    """A reference of 3 GB is read beside what varies: time goes with the latter alone."""
    random, reference = stream(7, "offset"), 3e9
    records = [
        replace(r, input_bytes=r.input_bytes + reference)
        for r in sized(random, 16, lambda s: 5 + s / 1e6, high=6e7, noise=0.05)
    ]
    prediction = fit(learn(TaskHistory(), records)).predict("k", input_bytes=reference + 1e9)
    assert off(prediction.median_s, 1005) < 0.4


def censored(records, limit):
    """As a limit of wall time leaves them."""
    return [replace(r, seconds=limit, finished=False) if r.seconds > limit else r for r in records]


def test_censored_records_are_used_and_not_taken_for_times():
    random = stream(8, "censored")
    times = 100 * np.exp(random.normal(0, 0.6, 60))
    cut = censored(
        [TaskRecord(kind="k", seconds=s, task=str(n)) for n, s in enumerate(times)], 110.0
    )
    ours = fit(learn(TaskHistory(), cut)).predict("k")
    ignored = fit(learn(TaskHistory(), [r for r in cut if r.finished])).predict("k")
    taken = fit(learn(TaskHistory(), [replace(r, finished=True) for r in cut])).predict("k")
    assert off(ignored.median_s, 100) > 0.2
    assert off(taken.median_s, float(np.median(times))) > 0.08
    assert off(ours.median_s, float(np.median(times))) < 0.12
    assert ours.own > 1.3 * taken.own


def test_only_censored_records_say_longer():
    cut = [TaskRecord(kind="k", seconds=5000.0 + n, finished=False) for n in range(3)]
    prediction = fit(learn(TaskHistory(), cut)).predict("k")
    assert prediction.median_s > 5000
    assert prediction.sd > 0.5


@pytest.mark.more
@pytest.mark.parametrize(
    "count",
    [1, pytest.param(2, marks=pytest.mark.long), 4, pytest.param(8, marks=pytest.mark.long)],
)
def test_intervals_of_few_observations_cover(count):
    """Truth drawn anew 200 times: kinds of which so few records are known, beside kinds known
    well."""
    random = stream(count, "cover")
    inside = {0.5: [], 0.9: []}
    for turn in range(20):
        kinds = {
            f"k{n}": (random.normal(5, 1.5), float(random.choice([0.1, 0.2, 0.4])))
            for n in range(10)
        }
        records = [
            TaskRecord(kind=kind, seconds=exp(random.normal(*law)), task=f"{turn}.{n}")
            for kind, law in kinds.items()
            for n in range(count)
        ]
        model = fit(learn(TaskHistory(), records))
        for kind, law in kinds.items():
            prediction, came = model.predict(kind), exp(random.normal(*law))
            for share, hits in inside.items():
                hits.append(
                    prediction.quantile(0.5 - share / 2)
                    < came
                    < prediction.quantile(0.5 + share / 2)
                )
    assert abs(np.mean(inside[0.5]) - 0.5) < (
        0.25 if count == 1 else 0.12
    )  # one record says nothing of noise
    assert abs(np.mean(inside[0.9]) - 0.9) < 0.09


def test_scores_tell_of_a_machine_that_was_never_used():
    scores = {"one": Scores(400, 400), "three": Scores(800, 800), "two": Scores(400, 400)}
    model = fit(learn(TaskHistory(), [r for r in simulated(9) if r.machine == "one"]), scores)
    speed, sd = model.speed("three")
    assert off(speed, 2.0) < 0.01
    assert model.speed("unheard of")[1] > sd > 0
    assert model.predict("call", "three").machine == sd


def test_powers_of_the_scores_are_learned_from_several_machines():
    """What is measured here goes with the I/O score alone."""
    random = stream(10, "powers")
    scores = {
        f"m{n}": Scores(100 * exp(random.normal(0, 0.7)), 100 * exp(random.normal(0, 0.7)))
        for n in range(12)
    }
    records = [
        TaskRecord(
            kind=f"k{k}",
            seconds=1e4 / scores[m].io * exp(random.normal(0, 0.05)),
            machine=m,
            task=str(n),
        )
        for k in range(4)
        for m in list(scores)[:10]
        for n in range(2)
    ]
    history = learn(TaskHistory(), records)
    for name in ("m10", "m11"):
        truth = scores[name].io / scores[fit(history, scores).reference].io
        assert off(fit(history, scores).speed(name)[0], truth) < 0.3


def test_what_a_person_states_weighs_as_four_observations():
    records = [TaskRecord(kind="k", seconds=100.0 + n) for n in range(4)]
    model = fit(learn(TaskHistory(), records))
    plain, prediction = model.predict("k"), model.predict("k", stated_s=400.0)
    assert off(prediction.median_s, (plain.median_s * 400) ** 0.5) < 1e-9
    stated = model.predict("new", stated_s=400.0)
    assert (stated.source, stated.observations) == ("stated", 0)
    assert off(stated.median_s, 400) < 1e-9


def test_no_history_is_a_wide_guess():
    prediction = fit(TaskHistory()).predict("anything", "anywhere", 1e6, 4)
    assert prediction.source == "guess"
    assert prediction.quantile(0.05) < 1 < prediction.median_s < 60 < prediction.quantile(0.95)
    existing = fit(
        learn(TaskHistory(), [TaskRecord(kind=f"k{n}", seconds=20.0 + n) for n in range(30)])
    ).predict("other")
    assert off(existing.median_s, 35) < 0.6
    assert existing.sd < prediction.sd


def test_processors_count_where_several_numbers_were_observed():
    random = stream(11, "procs")
    records = [
        TaskRecord(
            kind="k", seconds=800 / n**0.9 * exp(random.normal(0, 0.05)), procs=n, task=str(at)
        )
        for n in (1, 2, 4, 8)
        for at in range(3)
    ]
    model = fit(learn(TaskHistory(), records))
    assert off(model.predict("k", procs=16).median_s, 800 / 16**0.9) < 0.2
    alone = fit(learn(TaskHistory(), [r for r in records if r.procs == 4]))
    assert alone.predict("k", procs=16) == alone.predict("k", procs=4)


def test_peak_memory_is_learned_with_those_that_hit_the_limit():
    random = stream(12, "memory")
    full = [
        TaskRecord(
            kind="k", seconds=60.0, task=str(n), memory_bytes=1e9 * exp(random.normal(0, 0.5))
        )
        for n in range(40)
    ]
    cut = [
        replace(r, memory_bytes=1.1e9, memory_full=True, finished=False)
        if r.memory_bytes > 1.1e9
        else r
        for r in full
    ]
    prediction = fit(learn(TaskHistory(), cut)).predict("k")
    assert off(prediction.memory_bytes, 1e9) < 0.25
    assert prediction.memory_quantile(0.95) > 1.5e9
    assert (
        fit(learn(TaskHistory(), [replace(r, memory_bytes=None) for r in full]))
        .predict("k")
        .memory_bytes
        is None
    )


def flow(workflow, seconds, tool="", count=4, size=None):
    return [
        TaskRecord(
            kind="ALIGN",
            seconds=seconds * (1 + n / 20),
            workflow=workflow,
            tool=tool,
            input_bytes=size,
            task=str(n),
        )
        for n in range(count)
    ]


def test_two_tools_by_a_single_name_are_not_mixed():
    mixed = [*flow("dna", 50, "bwa"), *flow("rna", 60, "star")]
    with pytest.raises(InputError, match="--map") as caught:
        learn(TaskHistory(), mixed)
    assert {"dna", "rna", "ALIGN"} <= set(
        str(caught.value).replace(":", " ").replace("/", " ").split()
    )
    apart = learn(TaskHistory(), rename_kinds(mixed, {"rna/ALIGN": "STAR"}))
    assert apart.kinds == ("ALIGN", "STAR")
    assert learn(TaskHistory(), [*flow("dna", 50, "bwa"), *flow("rna", 60, "bwa")]).kinds == (
        "ALIGN",
    )


def test_unnamed_tools_are_distinguished_by_their_times():
    with pytest.raises(InputError, match="do not belong together"):
        learn(learn(TaskHistory(), flow("dna", 50)), flow("rna", 5000))
    assert learn(TaskHistory(), [*flow("dna", 50), *flow("rna", 200)]).kinds == ("ALIGN",)
    larger = [*flow("dna", 50, size=1e6), *flow("rna", 5000, size=1e8)]
    assert len(learn(TaskHistory(), larger).records) == 8  # the size says why


def test_a_mapping_renames():
    task_records = rename_kinds(
        flow("dna", 50, count=1) + flow("rna", 50, count=1), {"ALIGN": "map", "rna/ALIGN": "star"}
    )
    assert [r.kind for r in task_records] == ["map", "star"]


@pytest.mark.parametrize(
    "field",
    [
        {"seconds": float("nan")},
        {"seconds": -1.0},
        {"procs": 0},
        {"input_bytes": -5.0},
        {"kind": ""},
        {"memory_bytes": float("inf")},
    ],
)
def test_impossible_records_are_named(field):
    with pytest.raises(InputError):
        learn(TaskHistory(), [replace(TaskRecord(kind="k", seconds=1.0), **field)])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 1, "records": [{"kind": "k"}]}',
        '{"version": 1, "records": [{"kind": "k", "seconds": [1]}]}',
    ],
)
def test_broken_documents_are_refused(text):
    with pytest.raises(InputError):
        from_json(text)


def test_questions_that_make_no_sense_are_refused():
    model = fit(learn(TaskHistory(), simulated(1, runs=1)))
    for wrong in ({"stated_s": 0.0}, {"input_bytes": -1.0}, {"procs": 0}):
        with pytest.raises(InputError):
            model.predict("call", **wrong)
    with pytest.raises(InputError):
        model.predict("call").quantile(1.0)
    with pytest.raises(InputError):
        fit(TaskHistory(), {"m": Scores(0, 1)})
    with pytest.raises(InputError):
        forget(TaskHistory(), "call")


def test_zero_seconds_and_zero_bytes_are_records_too():
    prediction = fit(
        learn(TaskHistory(), [TaskRecord(kind="k", seconds=0.0, input_bytes=0.0)])
    ).predict("k", input_bytes=0.0)
    assert 0 < prediction.median_s < 60


def test_sizes_beyond_all_reason_are_answered():
    random = stream(13, "far")
    for law in (lambda size: 5 + size / 1e6, lambda size: 7.0):
        model = fit(learn(TaskHistory(), sized(random, 6, law)))
        for size in (1e-9, 1.0, 1e15, 1e300):
            prediction = model.predict("k", input_bytes=size)
            assert prediction.median_s > 0
            assert prediction.kind > 0


def test_sizes_that_hardly_differ_say_nothing_of_a_law():
    """Twice the size is not a million times the time because sizes differed by a byte."""
    random = stream(14, "same")
    records = [
        TaskRecord(
            kind="k",
            seconds=3 * exp(random.normal(0, 0.2)),
            input_bytes=377488.0 + n % 2,
            task=str(n),
        )
        for n in range(20)
    ]
    prediction = fit(learn(TaskHistory(), records)).predict("k", input_bytes=3.8e6)
    assert 1 < prediction.median_s < 60


@pytest.mark.shared
def test_lotarus_protocol_is_beaten_by_ours_with_intervals_that_cover(shared):
    *_, whole = study.accuracy(shared / "nextflow", "first")
    assert whole.workflow == "all"
    assert whole.ours < whole.plain
    assert whole.ours < 0.19
    assert all(
        abs(share - level) < 0.08 for share, level in zip(whole.covered, study.LEVELS, strict=True)
    )


def test_who_keeps_many_processors_busy_gains_less_by_a_faster_core():
    task_records = [
        TaskRecord(
            kind=kind,
            seconds=100.0 + n,
            cpu_seconds=busy and busy * (100.0 + n),
            machine="a",
            run=str(n),
        )
        for kind, busy in (("one", 1.0), ("many", 8.0), ("untold", None))
        for n in range(6)
    ]
    model = fit(learn(TaskHistory(), task_records), {"a": Scores(100, 100), "b": Scores(200, 100)})
    gains = {
        k: model.predict(k, "a").median_s / model.predict(k, "b").median_s
        for k in ("one", "many", "untold")
    }
    assert 1.05 < gains["many"] < 0.9 * gains["one"]
    assert gains["one"] == pytest.approx(gains["untold"])
    assert model.predict("many").median_s == pytest.approx(model.predict("one").median_s, rel=0.01)
