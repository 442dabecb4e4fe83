"""CWL as tasks: steps, scatters and what tools ask for, read by cwltool."""

import importlib.util
import shutil

import pytest

from vgrads.kernel.errors import InputError
from vgrads.workflows.formats.load import load_workflow

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("cwltool") is None and shutil.which("cwltool") is None,
    reason="cwltool is not here: pip install 'vgrads[cwl]'",
)
TOOL = """
cwlVersion: v1.2
class: CommandLineTool
baseCommand: [wc, -l]
requirements:
  ResourceRequirement: {coresMin: 2, ramMin: 1500}
  ToolTimeLimit: {timelimit: 600}
inputs:
  one: {type: File, inputBinding: {position: 1}}
outputs:
  out: {type: stdout}
"""
JOIN = """
cwlVersion: v1.2
class: CommandLineTool
baseCommand: cat
hints:
  ResourceRequirement: {coresMin: 4}
inputs:
  all: {type: "File[]", inputBinding: {position: 1}}
outputs:
  out: {type: stdout}
"""
FLOW = """
cwlVersion: v1.2
class: Workflow
requirements: {ScatterFeatureRequirement: {}}
inputs: {files: "File[]"}
outputs:
  out: {type: File, outputSource: join/out}
steps:
  join:
    run: join.cwl
    in: {all: again/out}
    out: [out]
  count:
    run: tool.cwl
    scatter: one
    in: {one: files}
    out: [out]
  again:
    run: tool.cwl
    scatter: one
    in: {one: count/out}
    out: [out]
"""
JOB = "files:\n" + "".join(f"- {{class: File, path: {name}.txt}}\n" for name in "abc")


@pytest.fixture
def flow(write):
    write("tool.cwl", TOOL)
    write("join.cwl", JOIN)
    write("job.yml", JOB)
    return write("flow.cwl", FLOW)


def test_scatters_are_unfolded_by_the_input_object(flow):
    tasks = load_workflow(flow, {"join": 7}, flow.with_name("job.yml")).tasks
    assert {name: task.parents for name, task in tasks.items()} == {
        "count.0": (),
        "count.1": (),
        "count.2": (),
        "again.0": ("count.0",),
        "again.1": ("count.1",),
        "again.2": ("count.2",),
        "join": ("again.0", "again.1", "again.2"),
    }
    agent_task, join = tasks["count.1"], tasks["join"]
    assert (agent_task.kind, agent_task.procs, agent_task.memory_mib) == ("tool", 2, 1500)
    assert agent_task.spread.factor(0.95) * agent_task.runtime_s == pytest.approx(600, rel=1e-3)
    assert (join.kind, join.procs, join.runtime_s) == ("join", 4, 7)


def test_a_scatter_of_unknown_width_is_refused(flow, write):
    with pytest.raises(InputError, match=r"step 'count'.*no list is given.*--inputs"):
        load_workflow(flow)
    tool = TOOL.replace("out: {type: stdout}", 'out: {type: "File[]", outputBinding: {glob: "*"}}')
    write("split.cwl", tool)
    text = FLOW.replace("scatter: one\n    in: {one: files}", "in: {one: file}", 1)
    text = text.replace("count:\n    run: tool.cwl", "count:\n    run: split.cwl")
    text = text.replace('inputs: {files: "File[]"}', "inputs: {file: File}")
    with pytest.raises(InputError, match="known only when count has run"):
        load_workflow(write("open.cwl", text))


CROSS = """
cwlVersion: v1.2
class: Workflow
requirements: {ScatterFeatureRequirement: {}, SubworkflowFeatureRequirement: {}, InlineJavascriptRequirement: {}}
inputs: {files: "File[]", others: "File[]"}
outputs:
  out: {type: Any, outputSource: cross/out}
steps:
  cross:
    scatter: [one, two]
    scatterMethod: METHOD
    in: {one: files, two: others}
    out: [out]
    run:
      class: Workflow
      requirements: {ResourceRequirement: {coresMin: 3, ramMin: $(inputs.one.size)}}
      inputs: {one: File, two: File}
      outputs:
        out: {type: File, outputSource: last/out}
      steps:
        first:
          run: bare.cwl
          in: {one: one}
          out: [out]
        last:
          run: tool.cwl
          when: $(true)
          in: {one: first/out}
          out: [out]
"""


@pytest.mark.parametrize(
    ("method", "count"), [("dotproduct", 3), ("flat_crossproduct", 9), ("nested_crossproduct", 9)]
)
def test_workflows_within_workflows_crossed(flow, write, method, count):
    bare = TOOL[: TOOL.index("requirements")] + TOOL[TOOL.index("inputs") :]
    write("bare.cwl", bare)
    job = write("two.yml", JOB + JOB.replace("files", "others"))
    workflow = load_workflow(write("cross.cwl", CROSS.replace("METHOD", method)), inputs=job)
    assert len(workflow.tasks) == 2 * count
    assert workflow.tasks["cross.1.last"].parents == ("cross.1.first",)
    assert (workflow.tasks["cross.1.first"].procs, workflow.tasks["cross.1.last"].procs) == (3, 2)
    assert [n for n in workflow.notes if "resources of bare" in n]
    assert [n for n in workflow.notes if "as if it ran" in n]


def test_what_is_required_of_a_workflow_counts_more_than_a_hint_and_less_than_a_tools_own(flow):
    text = FLOW.replace(
        "{ScatterFeatureRequirement: {}}",
        "{ScatterFeatureRequirement: {}, ResourceRequirement: {coresMin: 6}}",
    )
    flow.write_text(text)
    tasks = load_workflow(flow, inputs=flow.with_name("job.yml")).tasks
    assert (tasks["join"].procs, tasks["count.0"].procs) == (6, 2)


def test_a_single_tool_is_a_workflow_of_a_single_task(write):
    assert list(load_workflow(write("tool.cwl", TOOL)).tasks) == ["tool"]


@pytest.mark.parametrize(
    "text",
    [
        FLOW.replace("run: tool.cwl", "run: nothere.cwl"),
        TOOL.replace("CommandLineTool", "Tol"),
        "cwlVersion: v1.2\n a: [\n",
    ],
)
def test_what_cwltool_refuses_is_reported_in_its_words(write, text):
    with pytest.raises(InputError, match="cwltool reports") as caught:
        load_workflow(write("wrong.cwl", text))
    assert "Traceback" not in str(caught.value)


def test_a_set_names_the_input_object_next_to_the_workflow(flow, write, vgrads):
    required = write(
        "set.yaml",
        (
            "name: s\ndeadline: 4h\nworkflows: [{file: flow.cwl, inputs: job.yml, runtimes: "
            "{join: 60}}]\n"
        ),
    )
    answer = vgrads("plan", required, "--json")
    assert answer.code == 0, answer.err
    assert len({p["task"] for p in answer.json["placements"]}) == 7
    bare = vgrads("plan", flow, "--inputs", flow.with_name("job.yml"), "--deadline", "4h", "--json")
    assert bare.code == 0, bare.err
    wrong = vgrads("plan", required, "--inputs", flow.with_name("job.yml"))
    assert (wrong.code, "--inputs" in wrong.err) == (2, True)
