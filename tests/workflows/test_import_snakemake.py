"""Snakemake's jobs as tasks: what each needs, what it is called, what it asks for."""

import gzip
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import DATA
from vgrads.api.plans.set_files import load_set
from vgrads.kernel.errors import InputError, NothingToDo
from vgrads.workflows.formats.load import load_workflow
from vgrads.workflows.formats.snakefile import INTERPRETER, SnakemakeOptions
from vgrads.workflows.formats.snakemake_jobs import ABOUT, derive_task_id, make_tasks
from vgrads.workflows.sets import TaskDocument


def a_job(rule, local=False, checkpoint=False, threads=1, resources=None, **wildcards):
    """A job as an executor sees it."""
    return _Job(
        rule=SimpleNamespace(name=rule),
        wildcards_dict=wildcards,
        is_local=local,
        is_checkpoint=checkpoint,
        threads=threads,
        resources=resources or {},
        is_group=lambda: False,
    )


class _Job(SimpleNamespace):
    __hash__ = object.__hash__


def a_dag(edges, done=(), groups=()):
    """``edges``: job → jobs that it needs."""
    member_of = {job: group for group in groups for job in group.jobs}
    return SimpleNamespace(
        needrun_jobs=lambda: iter([job for job in edges if job not in done]),
        dependencies={job: dict.fromkeys(needed, ()) for job, needed in edges.items()},
        get_job_group=member_of.get,
    )


def parents_of(dag):
    return {task["id"]: task["parents"] for task in make_tasks(dag)}


def test_local_jobs_are_left_out_and_their_edges_are_passed_through():
    job, two = a_job("one"), a_job("two")
    first, second = a_job("list", local=True), a_job("copy", local=True)
    last, end = a_job("last"), a_job("all", local=True)
    dag = a_dag({end: [last], last: [second, two], second: [first], first: [job], job: [], two: []})
    assert parents_of(dag) == {"one": [], "two": [], "last": ["one", "two"]}


def test_what_is_done_is_no_task_and_nobody_waits_for_it():
    done, last = a_job("done"), a_job("last")
    assert parents_of(a_dag({done: [], last: [done]}, done=[done])) == {"last": []}


def test_a_group_is_a_single_task_with_the_edges_of_all_its_jobs():
    before, after = a_job("before"), a_job("after")
    first = a_job("g1", n="1", resources={"vgrads_s": 5})
    pair = [a_job("g2", n=n, resources={"vgrads_s": s}) for n, s in (("1", 7), ("2", 9))]
    group = _Job(
        jobs=[first, *pair],
        toposorted=[[first], pair],
        is_group=lambda: True,
        is_local=False,
        is_checkpoint=False,
        threads=4,
        resources={"runtime": 6, "mem_mib": 100},
    )
    edges = {before: [], first: [before], pair[0]: [first], pair[1]: [first], after: pair}
    tasks = {task["id"]: task for task in make_tasks(a_dag(edges, groups=[group]))}
    assert sorted(tasks) == ["after", "before", "group.g2.n=1"]
    assert tasks["group.g2.n=1"] == {
        "id": "group.g2.n=1",
        "kind": "group g1+g2",
        "procs": 4,
        "memory_mib": 100.0,
        "parents": ["before"],
        "runtime_s": 14.0,
        ABOUT: {"limit_s": 360.0, "gpus": 0, "checkpoint": False},
    }
    assert tasks["after"]["parents"] == ["group.g2.n=1"]


class _Tbd(str):
    """Snakemake's ``TBDString``: a word that takes part in any reckoning."""

    def __mul__(self, _):
        return self


def test_resources_that_are_not_resolved_yet_are_left_open():
    unknown = _Tbd("<TBD>")
    job = a_job(
        "one", resources=dict.fromkeys(("mem_mb", "mem_mib", "runtime", "gpu", "vgrads_s"), unknown)
    )
    (task,) = make_tasks(a_dag({job: []}))
    assert task == {
        "id": "one",
        "kind": "one",
        "procs": 1,
        "memory_mib": 0.0,
        "parents": [],
        ABOUT: {"limit_s": None, "gpus": 0, "checkpoint": False},
    }


def test_resources_in_our_units():
    job = a_job(
        "one",
        threads=8,
        checkpoint=True,
        resources={"mem_mb": 2097.152, "runtime": 90, "gpus": 2, "vgrads_s": 30},
    )
    (task,) = make_tasks(a_dag({job: []}))
    assert task["procs"] == 8
    assert task["memory_mib"] == pytest.approx(2000)
    assert task["runtime_s"] == 30
    assert task[ABOUT] == {"limit_s": 5400.0, "gpus": 2, "checkpoint": True}


Values = st.text(min_size=1, max_size=40)


@given(st.lists(st.tuples(Values, Values), min_size=1, max_size=20, unique=True))
def test_ids_are_legal_and_tell_all_jobs_apart(values):
    jobs = {a_job("rule", sample=item, unit=two): [] for item, two in values}
    tasks = make_tasks(a_dag(jobs))
    assert len({task["id"] for task in tasks}) == len(jobs)
    for task in tasks:
        TaskDocument(**{name: value for name, value in task.items() if name != ABOUT})


def test_an_id_is_readable_and_the_same_at_every_start():
    assert derive_task_id(a_job("align", sample="A-1", unit="2")) == "align.sample=A-1.unit=2"
    assert derive_task_id(a_job("align", sample='a b"c/d')) == derive_task_id(
        a_job("align", sample='a b"c/d')
    )
    assert derive_task_id(a_job("align", sample='a b"c/d')).startswith("align.sample=a_b_c_d.")
    assert len(derive_task_id(a_job("align", sample="x" * 4000))) < 200


SITES = '[[site]]\nname = "here"\nkind = "local"\nprocs = 8\ndriver = "local"\n'
FAN = """
SAMPLES = ["a", "b", "odd name(1)"]
print("whatever a Snakefile prints")
localrules: listing
rule all:
    input: "sum.txt"
rule align:
    input: "in.txt"
    output: "al/{sample}.bam"
    threads: 4
    resources: mem_mb=2000, runtime="2h"
    shell: "echo ran > ran; touch {output}"
rule listing:
    input: expand("al/{sample}.bam", sample=SAMPLES)
    output: "list.txt"
    shell: "touch {output}"
rule sum:
    input: "list.txt"
    output: "sum.txt"
    resources: vgrads_s=90
    shell: "touch {output}"
"""


@pytest.fixture
def snakemake(monkeypatch):
    """The Python that has Snakemake."""
    overrides = Path(sys.prefix, "snakemake", "bin", "python")
    text = os.environ.get(INTERPRETER) or (str(overrides) if overrides.exists() else None)
    if text is None and shutil.which("snakemake") is None:
        pytest.skip("Snakemake is not here; make snakemake")
    if text is not None:
        monkeypatch.setenv(INTERPRETER, text)


def test_a_snakefile_is_read_and_nothing_of_it_is_run(snakemake, write):
    write("in.txt", "x")
    path = write("Snakefile", FAN)
    workflow = load_workflow(path, {"sum": 50})
    assert workflow.notes == ("4 tasks, 3 edges",)
    assert len(workflow.tasks) == 4
    task, last = workflow.tasks["align.sample=a"], workflow.tasks["sum"]
    assert (task.kind, task.procs, task.parents) == ("align", 4, ())
    assert task.memory_mib == pytest.approx(2000 * 1e6 / 2**20, abs=1)
    assert task.spread.factor(0.95) * task.runtime_s == pytest.approx(7200, rel=1e-3)
    assert len(last.parents) == 3
    assert last.runtime_s == 50
    assert load_workflow(path).tasks["sum"].runtime_s == 90
    assert not (path.parent / "ran").exists()


def test_what_is_done_already_is_left_out(snakemake, write):
    path = write("workflow/Snakefile", FAN)
    write("in.txt", "x")
    for name in ("al/a.bam", "al/b.bam"):
        write(name, "done")
    workflow = load_workflow(path)
    assert len(workflow.tasks) == 2
    for name in ("al/odd name(1).bam", "list.txt", "sum.txt"):
        write(name, "done")
    with pytest.raises(NothingToDo, match="nothing to do"):
        load_workflow(path)


CHOICE = """
rule all:
    input: "wide.txt"
rule wide:
    output: "wide.txt"
    threads: 64
    resources: mem_mib=config.get("memory", 10)
    shell: "echo {threads} > {output}"
rule other:
    output: "other.txt"
    shell: "touch {output}"
"""


def test_targets_configuration_and_a_limit_of_threads_are_passed_on(snakemake, write):
    path = write("Snakefile", CHOICE)
    options = SnakemakeOptions(config=("memory=1000",), cores=2)
    (task,) = load_workflow(path, options=options).tasks.values()
    assert (task.id, task.procs, task.memory_mib) == ("wide", 2, 1000.0)
    (task,) = load_workflow(path, options=SnakemakeOptions(targets=("other.txt",))).tasks.values()
    assert task.id == "other"
    with pytest.raises(InputError, match="name=value"):
        load_workflow(path, options=SnakemakeOptions(config=("memory",)))


def test_a_plan_of_what_is_done_is_no_failure(snakemake, write, vgrads):
    path = write("Snakefile", CHOICE)
    answer = vgrads("plan", path, "--deadline", "1h", "--sites", "here", "--target", "other.txt")
    assert (answer.code, "other" in answer.out) == (0, True), answer.err
    write("other.txt", "done")
    answer = vgrads("plan", path, "--deadline", "1h", "--sites", "here", "--target", "other.txt")
    assert (answer.code, answer.out, "nothing to do" in answer.err) == (0, "", True)


GROUPS = """
configfile: "config.yaml"
rule all:
    input: expand("{n}.c", n=range(config["count"]))
rule one:
    output: pipe("{n}.a")
    shell: "echo > {output}"
rule two:
    input: "{n}.a"
    output: "{n}.b"
    shell: "cat {input} > {output}"
rule three:
    input: "{n}.b"
    output: "{n}.c"
    group: "late"
    threads: 2
    shell: "touch {output}"
"""


def test_a_converted_snakefile_plans_as_itself(snakemake, write, vgrads, tmp_path):
    path, out = write("Snakefile", CHECKPOINT), tmp_path / "set.yaml"
    answer = vgrads("convert", path, out, "--deadline", "4h")
    assert (answer.code, "checkpoint split" in answer.err) == (0, True), answer.err
    (workflow,) = load_set(out)[0].workflows
    assert workflow.notes == load_workflow(path).notes
    assert set(workflow.tasks) == set(load_workflow(path).tasks)


def test_groups_pipes_and_configuration(snakemake, write):
    write("config.yaml", "count: 3\n")
    path = write("Snakefile", GROUPS)
    tasks = load_workflow(path).tasks
    assert len(tasks) == 6
    assert tasks["group.three.n=1"].parents == ("group.one.n=1",)
    assert tasks["group.one.n=1"].kind == "group one+two"
    other = write("other.yaml", "count: 5\n")
    assert len(load_workflow(path, inputs=other).tasks) == 10


CHECKPOINT = """
rule all:
    input: "final.txt"
checkpoint split:
    output: directory("parts")
    shell: "mkdir parts; touch parts/1"
def parts(wildcards):
    folder = checkpoints.split.get().output[0]
    return expand("work/{i}", i=glob_wildcards(folder + "/{i}").i)
rule work:
    input: "parts/{i}"
    output: "work/{i}"
    shell: "touch {output}"
rule gather:
    input: parts
    output: "final.txt"
    shell: "touch {output}"
"""


def test_a_plan_says_that_it_ends_at_a_checkpoint(snakemake, write, vgrads):
    path = write("Snakefile", CHECKPOINT)
    answer = vgrads("plan", path, "--deadline", "10h", "--json")
    assert answer.code == 0, answer.err
    note, closing, guessed = answer.json["notes"]
    assert guessed.startswith("no stated run time is used for 2 of 2 tasks")
    assert closing == f"{path.parent.name}-1: 2 tasks, 1 edge"
    assert "only the jobs known before checkpoint split" in note
    assert note in answer.err.replace("\n", " ")
    assert {p["task"] for p in answer.json["placements"]} == {"split", "gather"}


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ('rule a:\n    output: "x"\n    shell: foo(\n', "line 2"),
        ('a = 1\n\nb = c\nrule a:\n    output: "x"\n', r"NameError in file .*line 3"),
        ('rule a:\n    input: "none"\n    output: "x"\n    shell: "y"\n', "MissingInputException"),
    ],
)
def test_a_wrong_snakefile_is_reported_in_the_words_of_snakemake(snakemake, write, text, output):
    with pytest.raises(InputError, match=output) as caught:
        load_workflow(write("Snakefile", text))
    assert "Traceback" not in str(caught.value)


def test_a_snakefile_that_ends_the_process_or_writes_where_the_answer_goes(snakemake, write):
    for ends in ("os._exit(3)", "sys.exit(3)"):
        with pytest.raises(InputError, match="exit code 3"):
            load_workflow(write("Snakefile", f"import os, sys\n{ends}\n"))
    noise = 'import os, sys\nsys.__stdout__.write("{junk")\nos.write(1, b"}")\n'
    path = write('odd "folder/a b".smk', noise + 'rule a:\n    output: "x"\n    shell: "y"\n')
    assert list(load_workflow(path).tasks) == ["a"]


def test_what_is_wrong_next_to_the_snakefile_is_reported_in_a_line(snakemake, write, tmp_path):
    path = write("Snakefile", CHECKPOINT)
    cases = {"gone.yaml": None, "list.yaml": "- 1\n", "broken.yaml": "a: [\n"}
    for name, text in cases.items():
        config = tmp_path / name if text is None else write(name, text)
        with pytest.raises(InputError) as caught:
            load_workflow(path, inputs=config)
        assert "Traceback" not in str(caught.value)
    packed = write("Snakefile.gz", gzip.compress(CHECKPOINT.encode()))
    with pytest.raises(InputError, match="unpack it"):
        load_workflow(packed)
    with pytest.raises(NothingToDo, match="nothing to do"):
        load_workflow(write("none.smk", "# no rules\n"))


def test_a_snakefile_is_run_by_snakemake_alone(snakemake, write, vgrads):
    write("in.txt", "x")
    path = write("Snakefile", FAN)
    sites = write("sites.toml", SITES)
    answer = vgrads("run", path, "--deadline", "10h", "--sites", sites)
    assert answer.code == 2
    assert "snakemake --executor vgrads" in answer.err.replace("\n", " ")


def test_without_snakemake_a_message_says_how_to_get_it(write, monkeypatch):
    monkeypatch.delenv(INTERPRETER, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    path = write("Snakefile", FAN)
    with pytest.raises(InputError, match=f"install it in a separate environment.*{INTERPRETER}"):
        load_workflow(path)
    monkeypatch.setenv(INTERPRETER, sys.executable)  # vgrads and Snakemake never share one
    with pytest.raises(InputError, match="has no snakemake"):
        load_workflow(path)


def test_a_bare_workflow_needs_a_deadline(vgrads, write):
    assert "--deadline 4h" in vgrads("plan", DATA / "lead.json").err
    assert "not a duration" in vgrads("plan", write("Snakefile", FAN), "--deadline", "soon").err
    answer = vgrads("plan", DATA / "lead.json", "--deadline", "4h", "--json")
    assert answer.code == 0, answer.err
    assert (answer.json["deadline_s"], answer.json["needed"]) == (14400, 1)
    assert (
        vgrads("plan", DATA / "lead.yaml", "--deadline", "3h", "--json").json["deadline_s"] == 10800
    )
    assert vgrads("size", DATA / "lead.json").code == 0
