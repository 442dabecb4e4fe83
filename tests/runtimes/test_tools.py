"""What is expected of kinds without records."""

import json
from dataclasses import replace
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from vgrads_studies.runtimes.unseen import unseen

from vgrads.kernel.errors import InputError
from vgrads.portal.records.runtimes import RunTimeRecords
from vgrads.runtimes.model import fit
from vgrads.runtimes.task_history import TaskHistory, learn
from vgrads.runtimes.tools import (
    from_json,
    joined,
    level_of,
    list_names,
    load_shipped,
    of_kinds,
    sums_of,
    to_json,
    without,
)
from vgrads.traces.task_record import TaskRecord

NOTHING = fit(TaskHistory())
LEVELS = st.lists(st.tuples(st.sampled_from("abc"), st.floats(-8, 8)), max_size=6)


def step(kind, seconds, **more):
    return TaskRecord(kind=kind, seconds=seconds, workflow="w", run="r", machine="m", **more)


@pytest.mark.parametrize(
    ("kind", "command", "name"),
    [
        ("NFCORE_X:QC:FASTQC", "", "fastqc"),
        ("align", "set -e; cd x && /opt/bwa mem -t 4 r.fa", "bwa mem"),
        ("say", "echo hello", "/echo"),
        ("GATK4_MARKDUPLICATES", "", "gatk4 markduplicates"),
    ],
)
def test_a_tool_is_recognised_by_name_or_command(kind, command, name):
    assert name in list_names(kind, command) and name in load_shipped()


def test_a_utility_before_another_program_says_nothing():
    alone = NOTHING.predict("t", command="echo a")
    together = NOTHING.predict("t", command="echo a; ./simulate --years 100")
    assert alone.tool == "echo" and alone.quantile(0.9) < 20
    assert together == NOTHING.predict("t", command="./simulate --years 100")
    assert together.tool == "" and together.quantile(0.9) > 60


def test_larger_inputs_and_more_processors_take_longer():
    small, large = NOTHING.predict("t", "", 1e6), NOTHING.predict("t", "", 1e9)
    assert small.median_s * 3 < large.median_s
    assert NOTHING.predict("t", "", 1e6, 16).median_s > 2 * small.median_s


def test_records_of_other_kinds_with_the_tool_count_and_its_own_count_more():
    records = [step(f"FROBNICATE_{word}", 3000.0) for word in ("ONE", "TWO", "THREE", "FOUR")]
    model = fit(learn(TaskHistory(), records))
    guess = model.predict("FROBNICATE_FIVE", "m")
    assert guess.source == "guess" and guess.tool == "frobnicate"
    assert 1000 < guess.median_s < 6000
    model = fit(learn(TaskHistory(), [*records, step("FROBNICATE_FIVE", 5.0)]))
    assert model.predict("FROBNICATE_FIVE", "m").median_s < 12


def test_jobs_of_an_accounting_dump_change_no_tool():
    dump = [TaskRecord(kind=f"fastqc {n}", seconds=30000.0 + n, machine="c") for n in range(50)]
    model = fit(learn(TaskHistory(), dump))
    before, after = (m.predict("FASTQC", "elsewhere").median_s for m in (NOTHING, model))
    assert after == pytest.approx(before, rel=0.1)


def test_a_stated_time_counts_and_not_the_guess_of_its_family():
    stated = NOTHING.predict("FASTQC", stated_s=400.0)
    assert stated.tool == "" and stated.median_s == pytest.approx(400.0)
    assert stated.workflow < 0.2


@given(LEVELS, LEVELS)
def test_kinds_together_are_as_if_seen_at_once(some, more):
    def named(levels):
        return of_kinds(([name], level) for name, level in levels)

    apart, whole = joined(named(some), named(more)), named(some + more)
    assert set(apart) == set(whole)
    for name, level in whole.items():
        assert apart[name] == pytest.approx(level, abs=1e-6)


@given(st.lists(LEVELS, min_size=1, max_size=6))
def test_only_what_three_others_have_run_serves_an_owner(owners):
    each = [of_kinds(([name], level) for name, level in levels) for levels in owners]
    others = without(sums_of(each), each[0])
    for name in "abc":
        means = [tools[name].mean for tools in each[1:] if name in tools]
        assert (name in others) == (len(means) >= 3)
        if len(means) >= 3:
            assert others[name].kinds == len(means)
            assert others[name].mean == pytest.approx(sum(means) / len(means), abs=1e-6)


def test_distributions_are_stored_as_they_are():
    tools = of_kinds([(list_names("STAR_ALIGN"), 1.5), (list_names("STAR_INDEX"), -2.0)])
    assert from_json(json.loads(json.dumps(to_json(tools)))) == {
        name: pytest.approx(level, abs=1e-3) for name, level in tools.items()
    }
    assert level_of([step("x", 1e-9)]) == level_of([step("x", 0.0)])
    assert level_of([step("x", 80.0)]) == pytest.approx(log(10.0))


def test_half_of_the_recorded_workflows_are_predicted_within_a_factor_four(shared):
    rows = unseen(shared, load_shipped())
    assert sum(1 / 4 <= row.factor <= 4 for row in rows) >= len(rows) / 2
    assert sum(0.1 <= row.below <= 0.9 for row in rows) >= 0.7 * len(rows)


def test_owners_share_distributions_of_tools_and_nothing_else(store):
    """What crosses owners: a tool that three others have run; no kind, no record, no name."""

    def learned(owner):
        return RunTimeRecords(store.engine, owner).learned()

    for at, owner in enumerate(("ann", "bob", "cem")):
        records = [step("GROMACS_RUN", 5000.0 + at), step(f"{owner}only", 9.0)]
        RunTimeRecords(store.engine, owner).learn(records)
        tool = learned("dan").model.predict("GROMACS_RUN").tool
        assert tool == ("gromacs run" if at == 2 else "")
    fresh = learned("dan")
    assert fresh.history.kinds == () and fresh.model.predict("GROMACS_RUN").source == "guess"
    assert 1000 < fresh.model.predict("GROMACS_RUN").median_s < 10_000
    assert not any("only" in name for name in fresh.model.tools)
    mine = learned("ann").model  # the other two are too few
    assert mine.predict("GROMACS_RUN").source == "learned"
    assert mine.tools["gromacs run"].kinds == 1
    with store.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM task_record")).scalar() == 6


def test_what_the_operator_learned_serves_everybody_and_breaks_nobody(store):
    mine, operators = RunTimeRecords(store.engine, "ann"), RunTimeRecords(store.engine)
    mine.learn([step("RENDER", 10.0, tool="blender")])
    assert mine.learned().model.predict("RENDER").observations == 1
    other = [step("RENDER", 9e4 + n, tool="povray") for n in (1, 2)]
    operators.learn([step("ALIGN", 50.0), *(replace(record, workflow="film") for record in other)])
    assert mine.learned().model.predict("ALIGN").source == "learned"
    assert mine.learned().model.predict("RENDER").median_s < 20  # another tool of this name
    assert operators.learned().model.predict("RENDER").median_s > 4e4
    assert operators.learned().history.kinds == ("ALIGN", "RENDER")
    with pytest.raises(InputError):
        mine.forget("ALIGN")
