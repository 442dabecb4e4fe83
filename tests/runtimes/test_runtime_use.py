"""Run times that nobody stated: from a file that lies about, through the database, to a plan, a run
and the next plan."""

import json
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planner.test_planner import chain, make_set
from vgrads.api.plans.pilots import pilots
from vgrads.api.plans.planning import GridSnapshot, plan_set
from vgrads.api.plans.runtimes import (
    add_run_times,
    derive_kind,
    describe_basis,
    describe_source,
    learn_run_times,
)
from vgrads.planner.make import STANDARD
from vgrads.portal.records.archive import pack, unpack
from vgrads.portal.records.runtimes import RunTimeRecords
from vgrads.portal.records.store import Store
from vgrads.runtimes.task_history import TaskHistory, learn
from vgrads.traces.task_record import TaskRecord
from vgrads.vgrid.catalog import load_catalog
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.runtimes import timed
from vgrads.workflows.spread import EXACT, RuntimeSpread
from vgrads.workflows.task import UNSTATED, Task

QUICK = replace(STANDARD, effort=0.0)
TRACE = """task_id\tprocess\tname\tstatus\texit\trealtime\tpeak_rss
1\tALIGN\tALIGN (s1)\tCOMPLETED\t0\t2m 10s\t1.5 GB
2\tALIGN\tALIGN (s2)\tCOMPLETED\t0\t1m 50s\t1.4 GB
3\tALIGN\tALIGN (s3)\tCACHED\t0\t3s\t1.4 GB
4\tCOUNT\tCOUNT (s1)\tCOMPLETED\t0\t20s\t100 MB
5\tCOUNT\tCOUNT (s2)\tCOMPLETED\t0\t24s\t100 MB
6\tCOUNT\tCOUNT (s3)\tFAILED\t1\t2s\t-
"""
SET = """
name: counts
deadline: 30m
sites: {sites}
workflows:
- name: sample
  count: 3
  tasks:
  - {{id: align, kind: ALIGN, command: "sleep 0.2; echo a > a.txt", outputs: [a.txt]}}
  - {{id: count, kind: COUNT, parents: [align], inputs: [a.txt], command: "wc a.txt > c.txt", outputs: [c.txt]}}
"""
SITES = '[[site]]\nname = "here"\nkind = "local"\nprocs = 2\ndriver = "local"\n'


@pytest.fixture
def set_file(write):
    write("sites.toml", SITES)
    return write("set.yaml", SET.format(sites="sites.toml"))


def sources(plan):
    return {entry["kind"]: (entry["source"], entry["observations"]) for entry in plan["run_times"]}


def test_a_trace_is_enough_for_a_plan_and_runs_teach_the_next(vgrads, write, set_file):
    before = vgrads("plan", set_file, "--json")
    assert sources(before.json) == {"ALIGN": ("guess", 0), "COUNT": ("guess", 0)}
    assert "no run time is known for ALIGN:" in before.err
    assert "a guess, from other uses of wc" in vgrads("plan", set_file).out
    read = vgrads("runtimes", "learn", write("trace.txt", TRACE), "--machine", "here", "--json")
    assert read.json["files"][0]["skipped"] == {"cached": 1, "failed": 1}
    assert (read.json["new"], read.json["present"]) == (4, 4)
    assert (
        vgrads("runtimes", "learn", write("trace.txt", TRACE), "--machine", "here", "--json").json[
            "new"
        ]
        == 0
    )
    plan = vgrads("plan", set_file, "--json")
    assert sources(plan.json) == {"ALIGN": ("learned", 2), "COUNT": ("learned", 2)}
    assert plan.json["promise"]["probability"] > before.json["promise"]["probability"]
    assert "no run time is known" not in plan.err
    assert "learned from 2 runs" in vgrads("plan", set_file).out
    align = next(e for e in plan.json["run_times"] if e["kind"] == "ALIGN")
    assert 90 < align["shortest_s"] < 140
    assert vgrads("run", set_file).code == 0
    kinds = {k["kind"]: k for k in vgrads("runtimes", "list", "--json").json["kinds"]}
    assert min(kinds["ALIGN"]["records"], kinds["COUNT"]["records"]) >= 5
    later = vgrads("plan", set_file, "--rerun", "--json").json
    assert min(count for _, count in sources(later).values()) >= 5
    assert (
        vgrads("plan", set_file, "--rerun", "--as-stated", "--json").json["run_times"][0]["source"]
        == "guess"
    )


def test_records_are_shown_drawn_and_forgotten(vgrads, write, set_file, tmp_path):
    assert vgrads("runtimes", "show", "ALIGN").code == 2
    assert "no run times are recorded yet" in vgrads("runtimes", "list").out
    vgrads("runtimes", "learn", write('a b"c.txt', TRACE))
    shown = vgrads("runtimes", "show", "ALIGN", "--plot", tmp_path / "a.svg")
    assert "from 2 records" in shown.out
    assert "<svg" in (tmp_path / "a.svg").read_text()
    assert "ALIGN" in vgrads("runtimes", "show", "ALIGM").err
    rows = vgrads("runtimes", "predict", set_file, "--json").json["kinds"]
    assert {row["from"] for row in rows} == {"learned from 2 runs"}
    plan = vgrads("plan", set_file, "--calibrate", "--json").json
    assert {pilot["kind"] for pilot in plan["pilots"]} <= {"ALIGN", "COUNT"}
    for pilot in plan["pilots"]:
        gained = pilot["probability"] - plan["promise"]["probability"]
        assert pilot["gain"] == pytest.approx(gained, abs=1e-3)
    assert "Recommended pilot runs" in vgrads("plan", set_file, "--calibrate").out
    assert vgrads("runtimes", "forget", "ALIGN", "--json").json["forgotten"] == 2
    assert vgrads("runtimes", "forget", "ALIGN").code == 2


def test_full_and_last_names_of_processes_find_the_same_records(vgrads, write):
    full = "NFCORE_RNASEQ:RNASEQ:ALIGN"
    trace = write("trace.txt", TRACE.replace("\tALIGN\t", f"\t{full}\t"))
    assert vgrads("runtimes", "learn", trace, "--machine", "here").code == 0
    write("sites.toml", SITES)
    names = {}
    for kind in ("ALIGN", full):
        text = SET.format(sites="sites.toml").replace("kind: ALIGN", f'kind: "{kind}"')
        plan = vgrads("plan", write("set.yaml", text), "--json")
        names[kind] = sources(plan.json)
        assert vgrads("runtimes", "show", kind, "--json").json["records"]
    assert names["ALIGN"] == names[full] == {"ALIGN": ("learned", 2), "COUNT": ("learned", 2)}


def test_a_set_whose_names_match_nothing_says_so_with_the_nearest(vgrads, write):
    write("sites.toml", SITES)
    trace = write("trace.txt", TRACE)
    assert vgrads("runtimes", "learn", trace, "--machine", "here").code == 0
    text = SET.format(sites="sites.toml").replace("ALIGN", "ALIGNS").replace("COUNT", "COUNTS")
    plan = vgrads("plan", write("set.yaml", text), "--json")
    assert "none of the names in this set has learned run times" in plan.err
    assert "ALIGNS (nearest: ALIGN), COUNTS (nearest: COUNT)" in plan.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("hello\n", "understood"),
        ("task_id\tprocess\trealtime\n", "no records"),
        ("\0\1\2", "understood"),
    ],
)
def test_files_that_hold_nothing_are_refused_in_a_line(vgrads, write, text, words):
    answer = vgrads("runtimes", "learn", write("odd.txt", text))
    assert answer.code == 2
    assert "odd.txt" in answer.err
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    assert vgrads("runtimes", "list", "--json").json["kinds"] == []


def test_a_single_name_for_two_tools_is_ambiguous(vgrads, write):
    fast = (
        TRACE.replace("2m 10s", "1s")
        .replace("1m 50s", "1s")
        .replace("20s", "1s")
        .replace("24s", "1s")
    )
    rows = "".join(f"{n}\tALIGN\tALIGN (s{n})\tCOMPLETED\t0\t{{0}}\t-\n" for n in range(7, 12))
    slow = write("slow.txt", TRACE + rows.format("2m"))
    quick = write("quick.txt", fast + rows.format("1s"))
    assert vgrads("runtimes", "learn", slow, "--workflow", "one").code == 0
    refused = vgrads("runtimes", "learn", quick, "--workflow", "two")
    assert refused.code == 2
    assert "--map" in refused.err
    assert vgrads("runtimes", "list", "--json").json["kinds"][0]["records"] == 7
    assert (
        vgrads("runtimes", "learn", quick, "--workflow", "two", "--map", "two/ALIGN=ALIGN-2").code
        == 0
    )
    assert "ALIGN-2" in vgrads("runtimes", "list").out
    assert vgrads("runtimes", "learn", quick, "--map", "ALIGN").code == 2


def test_a_run_teaches_what_it_can_where_a_single_name_means_two_things(tmp_path):
    store = Store(f"sqlite:///{tmp_path / 'x.db'}")
    run_time_records = RunTimeRecords(store.engine)
    run_time_records.learn(records(1.0, 1.1, 1.2, kind="python", workflow="a"))
    result = {
        "python": records(900.0, 950.0, 910.0, kind="python", workflow="b"),
        "sort": records(3.0, kind="sort", workflow="b"),
    }
    refused = run_time_records.learn_by_kind(result)
    assert ["python" in str(input_error) for input_error in refused] == [True]
    assert run_time_records.history().kinds == ("python", "sort")
    assert len(run_time_records.history().of("python")) == 3
    assert run_time_records.learn_by_kind(result | {"python": []}) == []
    store.close()


def records(*seconds, kind="k", machine="m", **more):
    return [
        TaskRecord(kind=kind, seconds=s, machine=machine, run=f"r{n}", **more)
        for n, s in enumerate(seconds)
    ]


def of_kind(kind, **more):
    return make_workflow(
        "w", [Task(id="t", runtime_s=more.pop("runtime_s", UNSTATED), kind=kind, **more)]
    )


@pytest.fixture
def catalog(write):
    return load_catalog(write("here.toml", SITES.replace("here", "m")))


def test_what_is_stated_weighs_as_so_many_observations(catalog):
    run_times = learn_run_times(learn(TaskHistory(), records(*[100.0, 101.0, 99.0] * 10)))
    few = learn_run_times(learn(TaskHistory(), records(100.0)))
    for many, low, high in ((run_times, 100, 150), (few, 300, 1000)):
        workflow_set, basis = add_run_times(
            make_set([of_kind("k", runtime_s=1000.0)]), many, catalog
        )
        task = workflow_set.workflows[0].tasks["t"]
        assert low < task.runtime_s < high
        assert basis["k"]["source"] == "learned"
    unnamed = make_workflow("w", [Task(id="t", runtime_s=1000.0, command="k x")])
    assert add_run_times(make_set([unnamed]), run_times, catalog)[0].workflows[0] is unnamed


def test_nothing_learned_changes_nothing_that_is_stated(catalog):
    workflow_set = make_set([chain("a", 1.0, 2.0), chain("b", 3.0)])
    result, basis = add_run_times(workflow_set, learn_run_times(), catalog)
    assert result.workflows == workflow_set.workflows
    assert [entry["source"] for entry in basis.values()] == ["stated"]
    assert describe_basis(basis.values()) == []


def test_a_wide_guess_never_asks_for_more_memory_than_there_is(write):
    node = '[[site.node]]\ntype = "n"\ncores = 2\nmemory_mib = 1000\n'
    run_times = learn_run_times(learn(TaskHistory(), records(10.0, memory_bytes=900.0 * 2**20)))
    for text, most in ((SITES, float("inf")), (SITES + node, 1000.0)):
        workflow_set, _ = add_run_times(
            make_set([of_kind("k")]), run_times, load_catalog(write("x.toml", text))
        )
        assert 900 < workflow_set.workflows[0].tasks["t"].memory_mib <= most


HUNGRY = """
name: hungry
deadline: 10m
workflows:
  - name: w
    tasks:
      - id: t
        kind: HUNGRY
        procs: 1
        command: >-
          echo x >>{count}; {python} -c 'b = bytearray(300_000_000); import time; time.sleep(2)'
        outputs: []
"""


def test_a_task_that_needs_more_than_was_learned_gets_more(vgrads, write, tmp_path):
    """From the trace to the run: stopped at what was requested, started again with twice as
    much."""
    head = "name\tprocess\tstatus\trealtime\tpeak_rss\n"
    rows = "".join(f"HUNGRY ({n})\tHUNGRY\tCOMPLETED\t2s\t40 MB\n" for n in range(6))
    vgrads("runtimes", "learn", write("trace.txt", head + rows), "--workflow", "h")
    count = tmp_path / "count"
    sites = write("sites.toml", SITES.replace("procs = 2", "procs = 2\nmemory_mib = 8000"))
    ran = vgrads(
        "run",
        write("set.yaml", HUNGRY.format(count=count, python=sys.executable)),
        "--sites",
        sites,
    )
    assert ran.code == 0, ran.err
    assert 2 <= len(count.read_text().splitlines()) <= 4


def test_a_pilot_is_chosen_by_the_probability_that_it_adds(catalog):
    """Of two kinds that are as uncertain, that with most of the work decides the deadline; the
    other would add nothing that a user can see."""
    uncertain = RuntimeSpread(own=0.05, kind=0.8)
    tasks = [
        Task(id=f"{kind}{n}", runtime_s=seconds, kind=kind, spread=uncertain)
        for kind, seconds in (("long", 100.0), ("short", 2.0))
        for n in range(12)
    ]
    workflow_set = make_set([make_workflow("w", tasks)], deadline_s=1500.0)
    grid = GridSnapshot(catalog=catalog, logs={}, instants={}, forecasts={})
    planned = plan_set(workflow_set, grid, options=QUICK)
    (pilot,) = pilots(planned, options=QUICK)
    assert pilot["kind"] == "long"
    assert pilot["gain"] > 0.05
    assert pilot["pilot_s"] <= 0.05 * 1224
    assert pilots(plan_set(make_set([chain("a", 1.0)]), grid)) == []


def test_a_limit_is_called_one_and_gives_way_to_records(catalog):
    limited = of_kind("k", **timed({}, ("t",), None, 3600.0))
    _, basis = add_run_times(make_set([limited]), learn_run_times(), catalog)
    assert describe_source(basis["k"]) == "a third of the limit"
    measured = learn_run_times(learn(TaskHistory(), records(100.0, 110.0)))
    timed_set, basis = add_run_times(make_set([limited]), measured, catalog)
    assert basis["k"]["source"] == "learned"
    assert timed_set.workflows[0].tasks["t"].runtime_s == pytest.approx(105, rel=0.3)


def test_slots_get_the_speed_that_was_observed(write):
    two = load_catalog(write("two.toml", SITES + SITES.replace('"here"', '"slow"')))
    task_records = [*records(*[10.0] * 8, machine="here"), *records(*[30.0] * 8, machine="slow")]
    grid = GridSnapshot(
        catalog=two,
        logs={},
        instants={},
        forecasts={},
        run_times=learn_run_times(learn(TaskHistory(), task_records)),
    )
    planned = plan_set(make_set([of_kind("k", command="true")], deadline_s=300.0), grid)
    speeds = {slot.site: slot.speed for slot in planned.snapshot.slots}
    assert 2.3 < speeds["here"] / speeds["slow"] < 3.5


@given(
    st.sampled_from(["", "python3 a/solve.py 1", "A=1 ./solve x", "bash -c run", "'b c'"]),
    st.text("ab1_", min_size=1),
)
def test_every_task_has_a_kind(command, name):
    assert derive_kind(Task(id=name, runtime_s=1.0, command=command))
    assert derive_kind(Task(id=name, runtime_s=1.0, kind="mine", command=command)) == "mine"


def test_kinds_of_tasks_are_programs():
    kinds = {
        "python3 a/solve.py 1": "solve.py",
        "A=1 ./solve x": "solve",
        "srun -n 4 wrf.exe": "4",
        "": "split",
    }
    result = {
        command: derive_kind(Task(id="split_12", runtime_s=1.0, command=command))
        for command in kinds
    }
    assert {c: k for c, k in result.items() if "srun" not in c} == {
        c: k for c, k in kinds.items() if "srun" not in c
    }


def test_spreads_are_stored_with_plans_and_written_in_sets(vgrads, write):
    flow = make_workflow(
        "w", [Task(id="t", runtime_s=1.0, kind="k", spread=RuntimeSpread(own=0.2, site=0.1))]
    )
    assert unpack(pack(flow), "x").tasks == flow.tasks
    text = (
        "name: s\ndeadline: 1h\nworkflows:\n- {name: w, tasks: [{id: a, runtime_s: 60, spread: "
        "{own: 0.2, kind: 0.3}}]}\n"
    )
    promise = vgrads("plan", write("s.yaml", text), "--json").json
    assert promise["feasible"]
    wrong = vgrads("plan", write("s.yaml", text.replace("own: 0.2", "own: -1")))
    assert (wrong.code, "spread.own" in wrong.err) == (2, True)
    assert EXACT.factor(0.99) == 1.0
    assert json.dumps(promise["run_times"])
