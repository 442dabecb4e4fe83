"""Workflows from one form into another and back."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import DATA
from vgrads.api.plans.convert import choose_form, convert_text, set_text
from vgrads.api.plans.set_files import SetOverrides, load_set
from vgrads.kernel.errors import InputError
from vgrads.workflows.dag import make_workflow
from vgrads.workflows.formats.load import format_of, load_workflow
from vgrads.workflows.formats.wfformat import write_wfformat
from vgrads.workflows.sets import WorkflowSet
from vgrads.workflows.spread import RuntimeSpread
from vgrads.workflows.task import UNSTATED, Task

Words = st.text(
    st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters="/"),
    min_size=1,
    max_size=20,
)
Names = Words.map(lambda name: f"n{name.strip()}")
Commands = st.one_of(
    Words, st.sampled_from(["", "a && b > c", "sh -c x", "/bin/sh -c 'x y'", "echo 'a\nb", '"'])
)


@st.composite
def workflows(draw):
    ids = draw(st.lists(Names, min_size=1, max_size=6, unique=True))
    files = draw(st.lists(Names, max_size=4, unique=True))
    tasks = [
        Task(
            id=name,
            kind=draw(Words.map(str.strip)),
            procs=draw(st.integers(1, 64)),
            runtime_s=draw(st.one_of(st.just(UNSTATED), st.just(0.0), st.floats(1e-6, 1e6))),
            command=draw(Commands).strip(),
            parents=tuple(draw(st.lists(st.sampled_from(ids[:n]), unique=True))) if n else (),
            inputs=tuple(draw(st.lists(st.sampled_from(files), unique=True))) if files else (),
            memory_mib=draw(st.integers(0, 10**6)),
            spread=draw(st.sampled_from([None, RuntimeSpread(own=0.2)])),
        )
        for n, name in enumerate(ids)
    ]
    sizes = {name: float(draw(st.integers(0, 9999))) for name in files}
    return make_workflow("flow", tasks, sizes, notes=draw(st.sampled_from([(), ("know this",)])))


def same(agent_task: Task) -> Task:
    """To be compared: what nobody states equals itself."""
    return agent_task if agent_task.stated else replace(agent_task, runtime_s=-1)


@given(workflows())
def test_there_and_back_everything_is_as_it_was(workflow):
    with tempfile.TemporaryDirectory() as folder:
        at = [Path(folder, name) for name in ("a.json", "b.yaml", "c.json", "d.yaml")]
        at[0].write_text(json.dumps(write_wfformat(workflow)))
        steps = (("set", "4h"), ("wfformat", None), ("set", "4h"))
        for (form, deadline), before, after in zip(steps, at, at[1:], strict=False):
            after.write_text(convert_text(before, form, SetOverrides(deadline=deadline))[0])
        once, twice = (path.read_text().partition("\n")[2] for path in (at[1], at[3]))
        assert once == twice
        (result,) = load_set(at[3])[0].workflows
    assert result.file_mib == workflow.file_mib
    doubtless = [same(replace(task, spread=None)) for task in workflow.tasks.values()]
    assert [same(task) for task in result.tasks.values()] == doubtless


@given(workflows())
def test_a_set_keeps_doubts_and_notes_too(workflow):
    workflow_set = WorkflowSet(
        name="s", workflows=(workflow.renamed("flow-1"),), deadline_s=60.0, needed=1
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.yaml")
        path.write_text(set_text(workflow_set))
        (result,) = load_set(path)[0].workflows
    assert result.notes == workflow.notes
    assert [*map(same, result.tasks.values())] == [*map(same, workflow.tasks.values())]


def test_a_workflow_becomes_a_set_that_is_planned(vgrads, tmp_path):
    out = tmp_path / "lead.yaml"
    answer = vgrads("convert", DATA / "lead.json", out, "--deadline", "4h")
    assert answer.code == 0, answer.err
    assert yaml.safe_load(out.read_text())["deadline"] == "4h"
    assert vgrads("plan", out).code == 0
    back = tmp_path / "back.json"
    assert vgrads("convert", out, back).code == 0
    assert load_workflow(back).tasks == load_workflow(DATA / "lead.json").tasks


def test_what_cannot_be_converted_is_reported_and_nothing_is_written(vgrads, write, tmp_path):
    lead, out = DATA / "lead.json", tmp_path / "x.yaml"
    cases = [
        ((lead, out), "--deadline 4h"),
        ((lead, tmp_path / "x.toml"), "--to wfformat"),
        ((lead, out, "--to", "xls"), "neither wfformat nor set"),
        ((DATA / "lead.yaml", tmp_path / "x.json"), "WfFormat holds one"),
        ((write("a.txt", "what is this\n"), out), "supported: WfFormat"),
        ((tmp_path / "none", out), "no such file"),
        ((lead, tmp_path / "no" / "x.json"), "cannot be written"),
    ]
    for arguments, text in cases:
        answer = vgrads("convert", *arguments)
        assert (answer.code, text in answer.err.replace("\n", " ")) == (2, True), answer.err
        assert not out.exists()
    own = write("own.json", lead.read_text())
    assert "is the input file" in vgrads("convert", own, own).err
    assert own.read_text() == lead.read_text()


LOOKS = {
    "Snakefile": (
        "rule all:\n    input: 'a'\n",
        "checkpoint a:\n  output: 'x'\n",
        "rule:\n    output: 'x'\n",
    ),
    "Makeflow": (
        "a: b\n\tcp b a\n",
        "rule: b\n\tcp b rule\n",
        "CATEGORY=x\nout/a: in\n\tcp in out/a\n",
        "a:\n@BATCH_LOCAL=1\n.MAKEFLOW CORES 2\n\ttouch a\n",
        ": b\n\tcat b\n",
    ),
    "CWL": (
        "#!/usr/bin/env cwl-runner\ncwlVersion: v1.2\nclass: Workflow\n",
        '{"cwlVersion": "v1.2"}',
    ),
    "Nextflow script": ("process A {\n}\n", "nextflow.enable.dsl=2\n", "workflow {\n}\n"),
    "Nextflow trace": ("task_id\thash\tname\trealtime\n",),
    "WfFormat": ('{"workflow": {}}', '{"cut'),
    "set": (
        "name: s\ndeadline: 1h\nworkflows:\n  - {file: a.json}\n",
        '{"workflows": []}',
        "{name: s, deadline: 1h, workflows: []}",
    ),
    "Pegasus": ("x-pegasus: {}\nname: w\n",),
    "DAGMan": ("JOB a a.sub\nJOB b b.sub\nPARENT a CHILD b\n",),
    "DAX": ("<adag/>",),
    "": ("hello\n",),
}


@pytest.mark.parametrize(
    ("form", "text"), [(form, text) for form, texts in LOOKS.items() for text in texts]
)
def test_a_file_is_identified_by_its_content(form, text):
    assert format_of(Path("some.file"), text) == form


def test_a_name_tells_only_snakefiles():
    assert format_of(Path("workflow/Snakefile"), "include: 'x'\n") == "Snakefile"
    assert format_of(Path("more.smk"), "include: 'x'\n") == "Snakefile"


def test_inputs_belong_to_formats_that_take_some():
    with pytest.raises(InputError, match="WfFormat takes no inputs"):
        load_workflow(DATA / "lead.json", inputs=DATA / "lead.yaml")


def test_a_name_that_a_set_cannot_hold_is_refused(vgrads, write, tmp_path):
    dag = write("a.dag", "JOB a/b x.sub\n")
    answer = vgrads("convert", dag, tmp_path / "o.yaml", "--deadline", "4h")
    assert (answer.code, "tasks.0.id" in answer.err) == (2, True)
    assert not (tmp_path / "o.yaml").exists()


def test_the_form_follows_the_ending():
    assert [choose_form(Path(name), None) for name in ("a.json", "a.YML")] == ["wfformat", "set"]
    assert choose_form(Path("a.txt"), "set") == "set"
