"""Pegasus, DAX and WfFormat: sub-workflows, profiles, and edges that only files state."""

import json

import pytest

from vgrads.kernel.errors import InputError
from vgrads.workflows.formats.load import load_workflow


def graph(workflow):
    return {task.id: set(task.parents) for task in workflow.tasks.values()}


OUTER = """pegasus: 5.0.4
name: outer
replicaCatalog:
  replicas: [{{lfn: far.yml, pfns: [{{site: other, pfn: /none/far.yml}}, {{pfn: "file://{far}"}}]}}]
jobs:
- {{type: job, name: first, id: A, profiles: {{pegasus: {{cores: 3, memory: "2048"}}, \
dagman: {{retry: 2}}}}}}
- {{type: {kind}, file: {file}, id: S, uses: [{{lfn: {file}, type: input}}]}}
- {{type: job, name: last, id: B, profiles: {{condor: {{request_cpus: 2, request_memory: 1 GB}}}}}}
jobDependencies:
- {{id: A, children: [S]}}
- {{id: S, children: [B]}}
"""
INNER = (
    "pegasus: 5.0.4\nname: inner\nhooks: {}\njobs:\n- {name: x, id: X, metadata: {runtime: 7}}\n"
    "- {name: y, id: Y, uses: [{lfn: f, type: inout, size: 1048576}]}\n- {name: z, id: Z}\n"
    "jobDependencies: [{id: X, children: [Y]}]\n"
)
EDGES = {"A": set(), "S+X": {"A"}, "S+Y": {"S+X"}, "S+Z": {"A"}, "B": {"S+Y", "S+Z"}}


@pytest.mark.parametrize("file", ["inner.yml", "far.yml"])
def test_a_sub_workflow_of_pegasus_is_read_from_its_file(write, file):
    write("inner.yml", INNER)
    far = write("elsewhere/inner of it.yml", INNER)
    flow = load_workflow(
        write("outer.yml", OUTER.format(kind="pegasusWorkflow", file=file, far=far))
    )
    assert graph(flow) == EDGES
    a, b, y = (flow.tasks[name] for name in ("A", "B", "S+Y"))
    assert (a.procs, a.memory_mib, b.procs, b.memory_mib) == (3, 2048.0, 2, 1024.0)
    assert (y.inputs, y.outputs, flow.file_mib) == (("f",), ("f",), {"f": 1.0})
    assert flow.tasks["S+X"].runtime_s == 7.0
    assert flow.notes[-1] == "5 tasks, 5 edges, 1 retry; not used: hooks (line 3)"


@pytest.mark.parametrize("done", ["", " DONE"])
def test_a_dagman_file_may_be_a_job_of_pegasus(write, done):
    write("in.dag", f"JOB X x.sub{done}\nJOB Y y.sub{done}\nPARENT X CHILD Y\n")
    text = OUTER.format(kind="condorWorkflow", file="in.dag", far="")
    flow = load_workflow(write("outer.yml", text))
    ends = {"A": set(), "S": {"A"}, "B": {"S"}}
    inner = {"A": set(), "S+X": {"A"}, "S+Y": {"S+X"}, "B": {"S+Y"}}
    assert graph(flow) == (ends if done else inner)


DAX = """<adag name="d">
<invoke when="never"/>
<job id="A" name="a"><profile namespace="pegasus" key="cores">4</profile>
  <profile namespace="pegasus" key="runtime">12</profile><uses name="f" link="inout"/></job>
<{tag} id="S" file="{file}"/>
<job id="B" name="b" runtime="3"/>
<child ref="S"><parent ref="A"/></child><child ref="B"><parent ref="S"/></child>
</adag>"""


def test_a_sub_workflow_of_a_dax_is_read_from_its_file(write):
    inner = '<adag><job id="X" name="x"/><job id="Y" name="y"/><job id="Z" name="z"/>'
    write("in.dax", f'{inner}<child ref="Y"><parent ref="X"/></child></adag>')
    write("in.dag", "JOB X x.sub\nJOB Y y.sub\nJOB Z z.sub\nPARENT X CHILD Y\n")
    for tag, file in (("dax", "in.dax"), ("dag", "in.dag")):
        flow = load_workflow(write("outer.dax", DAX.format(tag=tag, file=file)), {"X": 5.0})
        assert graph(flow) == EDGES
        a = flow.tasks["A"]
        assert (a.procs, a.runtime_s, a.inputs, a.outputs) == (4, 12.0, ("f",), ("f",))
        assert flow.tasks["S+X"].runtime_s == 5.0
    assert "not used: <invoke> (line 2)" in flow.notes[-1]


def test_a_job_of_a_dax_that_states_no_size_replaces_none(write):
    uses = ('<uses name="f" link="output" size="1048576"/>', '<uses name="f" link="input"/>')
    jobs = [f'<job id="{n}" name="{n}">{use}</job>' for n, use in enumerate(uses)]
    flow = load_workflow(write("d.dax", f'<adag name="d">{"".join(jobs)}</adag>'))
    assert flow.file_mib == {"f": 1.0}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("o.dax", DAX.format(tag="dax", file="no.dax"), "job 'S': names .*no.dax, which does not"),
        ("o.dax", DAX.format(tag="dag", file=""), "job 'S': is a sub-workflow that names no file"),
        ("o.dax", DAX.format(tag="dax", file="o.dax"), "job 'S': names a file that contains"),
        (
            "o.yml",
            OUTER.format(kind="pegasusWorkflow", file="no.yml", far=""),
            "job 'S': names .*no.yml, which does not exist",
        ),
        (
            "o.yml",
            OUTER.format(kind="pegasusWorkflow", file="o.yml", far=""),
            "job 'S': names a file that contains this line: .*o.yml → .*o.yml",
        ),
        (
            "o.yml",
            OUTER.format(kind="pegasusWorkflow", file="empty.yml", far=""),
            "job 'S': its sub-workflow has no jobs",
        ),
        ("o.yml", "pegasus: 5\njobs: [{id: S, uses: [x]}]\n", "job 'S': is not a valid job"),
        ("o.yml", OUTER.format(kind="service", file="o.yml", far=""), "job 'S': is a service"),
    ],
)
def test_a_sub_workflow_that_cannot_be_read_is_refused_by_name(write, name, text, message):
    write("empty.yml", "jobs: []\n")
    with pytest.raises(InputError, match=message):
        load_workflow(write(name, text))


def test_jobs_without_any_stated_dependency_have_those_of_their_files(write):
    links = '<uses name="x" link="output"/></job><job id="B" name="b"><uses name="x" link="input"/>'
    dax = write("x.dax", f'<adag><job id="A" name="a">{links}</job></adag>')
    jobs = "jobs: [{id: A, name: a, uses: [{lfn: x, type: output}]},"
    yml = write(
        "x.yml", f"pegasus: 5\n{jobs} {{id: B, name: b, uses: [{{lfn: x, type: input}}]}}]\n"
    )
    for path in (dax, yml):
        flow = load_workflow(path)
        assert graph(flow) == {"A": set(), "B": {"A"}}
        assert "1 edge is derived from files" in flow.notes[-1]


def wfformat(tasks, machines=()):
    body = {"specification": {"tasks": tasks}, "execution": {"tasks": [], "machines": machines}}
    return json.dumps({"name": "w", "schemaVersion": "1.5", "workflow": body})


def test_wfformat_without_parents_has_the_edges_of_its_files(write):
    files = {"a": ([], ["x", "y"]), "b": (["x"], ["z"]), "c": (["y", "z"], [])}
    tasks = [
        {"id": name, "name": name, "inputFiles": reads, "outputFiles": writes}
        for name, (reads, writes) in files.items()
    ]
    edges = {"a": set(), "b": {"a"}, "c": {"a", "b"}}
    machines = [{"nodeName": n, "cpu": {"speedInMHz": mhz}} for n, mhz in (("m", 2e3), ("n", 3e3))]
    for own in ({}, {"parents": [], "children": []}):
        text = wfformat([task | own for task in tasks], machines)
        flow = load_workflow(write("w.json", text))
        assert graph(flow) == edges
        assert flow.notes[-1] == (
            "3 tasks, 3 edges; 3 edges are derived from files; "
            "run times as recorded on 2 machines of 2,000 to 3,000 MHz"
        )
    stated = [task | {"parents": ["a"] if task["id"] == "b" else []} for task in tasks]
    assert graph(load_workflow(write("w.json", wfformat(stated)))) == edges | {"c": set()}
    children = [{"id": "a", "children": ["b"]}, {"id": "b", "parents": []}]
    assert graph(load_workflow(write("w.json", wfformat(children)))) == {"a": set(), "b": {"a"}}


def test_older_wfformat_without_parents_has_the_edges_of_its_files(write):
    tasks = [
        {"name": "a", "id": "1", "files": [{"name": "x", "link": "output"}]},
        {"name": "b", "id": "2", "files": [{"name": "x", "link": "input"}]},
        {"name": "c", "id": "3", "children": ["a"]},
    ]
    text = json.dumps({"name": "w", "schemaVersion": "1.3", "workflow": {"tasks": tasks}})
    assert graph(load_workflow(write("w.json", text))) == {"1": {"3"}, "2": {"1"}, "3": set()}
