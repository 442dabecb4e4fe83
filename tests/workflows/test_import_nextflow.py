"""A finished Nextflow run as a workflow: run times of the trace, the graph of the work folders."""

import pytest

from vgrads.kernel.errors import InputError
from vgrads.workflows.formats.load import load_workflow

HEADER = "task_id\thash\tnative_id\tname\tstatus\texit\tcpus\tmemory\trealtime\n"


def a_hash(number: int) -> str:
    return f"{number:02x}/{number:030x}".replace("/0", "/a")


def a_run(write, rows, staged):
    """A trace and work folders: ``rows``: number → (name, status, realtime); ``staged``: number →
    numbers of its inputs."""
    lines = [HEADER]
    for number, (name, status, took) in rows.items():
        short = a_hash(number)[:9]
        lines.append(f"{number}\t{short}\t{100 + number}\t{name}\t{status}\t0\t2\t2 GB\t{took}\n")
    for number, inputs in staged.items():
        links = "".join(f"    ln -s /data/work/{a_hash(n)}/out.bam in{n}.bam\n" for n in inputs)
        own = f"cd /data/work/{a_hash(number)}\n# /data/work/{a_hash(1)}/not staged\n"
        write(
            f"work/{a_hash(number)}/.command.run",
            f"nxf_stage() {{\n    true\n    ln -s /data/in.fq in.fq\n{links}}}\n\n{own}",
        )
    return write("trace.txt", "".join(lines))


RUN = {
    1: ("RNA:FASTQC (s1)", "COMPLETED", "1m 30s"),
    2: ("RNA:FASTQC (s/2)", "CACHED", "2m"),
    3: ("RNA:MERGE", "FAILED", "1s"),
    4: ("RNA:MERGE", "COMPLETED", "-"),
    5: ("RNA:TWICE (x)", "COMPLETED", "3s"),
    6: ("RNA:TWICE (x)", "COMPLETED", "4s"),
}
STAGED = {1: [], 2: [], 4: [1, 2], 5: [4], 6: [4]}


def test_the_graph_is_derived_from_what_was_staged(write):
    workflow = load_workflow(a_run(write, RUN, STAGED), {"MERGE": 40})
    tasks = workflow.tasks
    assert {name: task.parents for name, task in tasks.items()} == {
        "FASTQC.s1": (),
        "FASTQC.s_2": (),
        "MERGE": ("FASTQC.s1", "FASTQC.s_2"),
        "TWICE.x.05-a00000": ("MERGE",),
        "TWICE.x.06-a00000": ("MERGE",),
    }
    first = tasks["FASTQC.s1"]
    assert (first.kind, first.runtime_s, first.procs, first.memory_mib) == ("FASTQC", 90, 2, 2048)
    assert tasks["MERGE"].runtime_s == 40
    assert workflow.notes[-1].endswith("; 1 attempt is left out, without success")


def test_a_decimal_comma_keeps_memory_and_time(write):
    trace = a_run(write, {1: ("FASTQC (s,1)", "COMPLETED", "3,5s")}, {1: []})
    trace.write_text(trace.read_text().replace("2 GB", "1,5 GB"))
    (task,) = load_workflow(trace).tasks.values()
    assert (task.memory_mib, task.runtime_s, task.id) == (1536.0, 3.5, "FASTQC.s_1")


def test_whole_hashes_are_understood_as_well(write):
    trace = a_run(write, RUN, STAGED)
    text = trace.read_text()
    for number in RUN:
        text = text.replace(a_hash(number)[:9], a_hash(number))
    agent_tasks = load_workflow(write("whole.txt", text)).tasks
    assert agent_tasks["MERGE"].parents == ("FASTQC.s1", "FASTQC.s_2")


def test_a_run_time_that_the_trace_lacks_is_left_to_be_learned(write):
    assert not load_workflow(a_run(write, RUN, STAGED)).tasks["MERGE"].stated


def test_without_work_folders_no_graph_is_guessed(write, tmp_path):
    trace = a_run(write, RUN, {1: []})
    with pytest.raises(InputError, match=r"4 of 5 work folders are missing.*--inputs"):
        load_workflow(trace)
    a_run(lambda name, text: write(f"elsewhere/{name}", text), RUN, STAGED)
    assert len(load_workflow(trace, inputs=tmp_path / "elsewhere" / "work").tasks) == 5


def test_a_stage_script_of_its_own_counts_too(write):
    trace = a_run(write, RUN, STAGED)
    write(f"work/{a_hash(2)}/.command.stage", f"ln -s /w/{a_hash(1)}/'a b.txt' x\n")
    assert load_workflow(trace).tasks["FASTQC.s_2"].parents == ("FASTQC.s1",)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (HEADER, "no task that succeeded"),
        (HEADER + "1\t\t3\tA\tCOMPLETED\t0\t1\t-\t1s\n", "line 2: has no hash"),
        (HEADER + "1\t2\n", "line 2: is a row with 2 cells instead of"),
        (
            HEADER
            + "".join(f"{n}\taa/bbbbbb\t3\tA ({n})\tCOMPLETED\t0\t1\t-\t1s\n" for n in (1, 2)),
            "line 3: has the hash",
        ),
    ],
)
def test_a_wrong_trace_names_its_line(write, text, output):
    with pytest.raises(InputError, match=output):
        load_workflow(write("trace.txt", text))


def test_a_script_is_refused_with_what_to_do(write):
    text = "nextflow.enable.dsl=2\nprocess A {\n  script:\n  'x'\n}\nworkflow {\n  A()\n}\n"
    for name in ("main.nf", "some.file"):
        with pytest.raises(InputError, match="-with-trace"):
            load_workflow(write(name, text))
