"""Snakemake's jobs as tasks: what each needs, what it is called, what it asks for."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.sets import TaskDocument
from workflows.snakemake_jobs import ABOUT, task_id, tasks_of


def a_job(rule, local=False, checkpoint=False, threads=1, resources=None, **wildcards):
    """A job as an executor sees it."""
    return _Job(
        rule=SimpleNamespace(name=rule), wildcards_dict=wildcards, is_local=local, is_checkpoint=checkpoint,
        threads=threads, resources=resources or {}, is_group=lambda: False,
    )  # fmt: skip


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
    return {task["id"]: task["parents"] for task in tasks_of(dag)}


def test_local_jobs_are_left_out_and_their_edges_are_passed_through():
    one, two = a_job("one"), a_job("two")
    first, second = a_job("list", local=True), a_job("copy", local=True)
    last, end = a_job("last"), a_job("all", local=True)
    dag = a_dag({end: [last], last: [second, two], second: [first], first: [one], one: [], two: []})
    assert parents_of(dag) == {"one": [], "two": [], "last": ["one", "two"]}


def test_what_is_done_is_no_task_and_nobody_waits_for_it():
    done, last = a_job("done"), a_job("last")
    assert parents_of(a_dag({done: [], last: [done]}, done=[done])) == {"last": []}


def test_a_group_is_one_task_with_the_edges_of_all_its_jobs():
    before, after = a_job("before"), a_job("after")
    first = a_job("g1", n="1", resources={"vgrads_s": 5})
    pair = [a_job("g2", n=n, resources={"vgrads_s": s}) for n, s in (("1", 7), ("2", 9))]
    group = _Job(
        jobs=[first, *pair], toposorted=[[first], pair], is_group=lambda: True, is_local=False,
        is_checkpoint=False, threads=4, resources={"runtime": 6, "mem_mib": 100},
    )  # fmt: skip
    edges = {before: [], first: [before], pair[0]: [first], pair[1]: [first], after: pair}
    tasks = {task["id"]: task for task in tasks_of(a_dag(edges, groups=[group]))}
    assert sorted(tasks) == ["after", "before", "group.g2.n=1"]
    assert tasks["group.g2.n=1"] == {
        "id": "group.g2.n=1", "kind": "group g1+g2", "procs": 4, "memory_mib": 100.0, "parents": ["before"],
        "runtime_s": 14.0, ABOUT: {"limit_s": 360.0, "gpus": 0, "checkpoint": False},
    }  # fmt: skip
    assert tasks["after"]["parents"] == ["group.g2.n=1"]


class _Tbd(str):
    """Snakemake's ``TBDString``: a word that takes part in any reckoning."""

    def __mul__(self, _):
        return self


def test_resources_that_are_not_known_yet_are_left_open():
    unknown = _Tbd("<TBD>")
    job = a_job(
        "one", resources=dict.fromkeys(("mem_mb", "mem_mib", "runtime", "gpu", "vgrads_s"), unknown)
    )
    (task,) = tasks_of(a_dag({job: []}))
    assert task == {
        "id": "one", "kind": "one", "procs": 1, "memory_mib": 0.0, "parents": [],
        ABOUT: {"limit_s": None, "gpus": 0, "checkpoint": False},
    }  # fmt: skip


def test_resources_in_our_units():
    job = a_job("one", threads=8, checkpoint=True, resources={"mem_mb": 2097.152, "runtime": 90, "gpus": 2, "vgrads_s": 30})  # fmt: skip
    (task,) = tasks_of(a_dag({job: []}))
    assert task["procs"] == 8
    assert task["memory_mib"] == pytest.approx(2000)
    assert task["runtime_s"] == 30
    assert task[ABOUT] == {"limit_s": 5400.0, "gpus": 2, "checkpoint": True}


Values = st.text(min_size=1, max_size=40)


@given(st.lists(st.tuples(Values, Values), min_size=1, max_size=20, unique=True))
def test_ids_are_legal_and_tell_all_jobs_apart(values):
    jobs = {a_job("rule", sample=one, unit=two): [] for one, two in values}
    tasks = tasks_of(a_dag(jobs))
    assert len({task["id"] for task in tasks}) == len(jobs)
    for task in tasks:
        TaskDocument(**{name: value for name, value in task.items() if name != ABOUT})


def test_an_id_is_readable_and_the_same_at_every_start():
    assert task_id(a_job("align", sample="A-1", unit="2")) == "align.sample=A-1.unit=2"
    assert task_id(a_job("align", sample='a b"c/d')) == task_id(a_job("align", sample='a b"c/d'))
    assert task_id(a_job("align", sample='a b"c/d')).startswith("align.sample=a_b_c_d.")
    assert len(task_id(a_job("align", sample="x" * 4000))) < 200
