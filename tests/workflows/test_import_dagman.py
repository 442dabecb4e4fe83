"""DAGMan: what each command does to the graph, files that are followed, and what is refused."""

import os
import time

import pytest

from vgrads.kernel.errors import InputError, NothingToDo
from vgrads.workflows.formats.load import load_workflow


def graph(workflow):
    return {task.id: set(task.parents) for task in workflow.tasks.values()}


@pytest.fixture
def read(write):
    """Write a DAG, and the files that it names; return its workflow."""

    def load(text, runtimes=None, **files):
        for name, content in files.items():
            write(name.replace("_", "."), content)
        return load_workflow(write("outer.dag", text), runtimes)

    return load


def test_a_final_node_follows_all_others(read):
    flow = read("JOB A a.sub\nJOB B b.sub\nJOB X x.sub\nFINAL C c.sub\nPARENT A CHILD B\n")
    assert graph(flow) == {"A": set(), "B": {"A"}, "X": set(), "C": {"B", "X"}}
    assert "run last, and not after a failure: C" in flow.notes[-1]
    assert graph(read("FINAL C c.sub\n")) == {"C": set()}


def test_noop_takes_no_time_and_completed_nodes_are_left_out(read):
    text = "JOB A a.sub NOOP\nJOB B b.sub DONE\nJOB C c.sub\nJOB D d.sub\nDONE D\n"
    flow = read(f"{text}PARENT A CHILD B\nPARENT B CHILD C\nPARENT D CHILD C\n", {"*": 60.0})
    assert graph(flow) == {"A": set(), "C": set()}
    assert (flow.tasks["A"].runtime_s, flow.tasks["C"].runtime_s) == (0.0, 60.0)
    assert "2 nodes are done and left out" in flow.notes[-1]
    with pytest.raises(NothingToDo, match="all nodes are done"):
        read("JOB A a.sub DONE\n")


def test_inline_descriptions_give_processors_memory_and_arguments(read):
    flow = read(
        """SUBMIT-DESCRIPTION common {
  executable = /bin/sleep
  # a comment
  arguments = $(seconds) "$(JOB)"
  request_cpus = 4
  request_memory = 2 GB
}
job A common
JOB B @=end
  Executable = /bin/date
  arguments = "-d 'two words' +""%s"" -u"
@end DIR sub
VARS A seconds="60"
parent A child B
"""
    )
    a, b = flow.tasks["A"], flow.tasks["B"]
    assert (a.kind, a.procs, a.memory_mib) == ("sleep", 4, 2048.0)
    assert (a.command, b.command) == (
        "/bin/sleep 60 '\"A\"'",
        "/bin/date -d 'two words' '+\"%s\"' -u",
    )
    assert (b.kind, b.parents) == ("date", ("A",))


def test_submit_files_are_found_and_missing_ones_are_counted(read, write):
    write("sub/b.sub", "executable = tool.sh\narguments = $(n) $(Process)\nqueue 2\n")
    write("a.sub", "request_cpus=$(cpus:2)\nrequest_memory = ifThenElse(1, 2, 3)\nqueue\n")
    flow = read(
        "JOB A a.sub\nJOB B b.sub DIR sub\nJOB C c.sub\nPARENT A CHILD B\nPARENT B CHILD C\n"
        'VARS B APPEND n = "x y"\nVARS A cpus="3"\n'
    )
    assert graph(flow) == {"A": set(), "B.0": {"A"}, "B.1": {"A"}, "C": {"B.0", "B.1"}}
    assert (flow.tasks["A"].procs, flow.tasks["B.1"].command) == (3, "./tool.sh x y 1")
    assert "1 submit file is missing" in flow.notes[-1]
    assert "expressions are not evaluated: request_memory" in flow.notes[-1]


def test_macros_that_multiply_give_no_command(read):
    many = "$(a)" * 1000
    flow = read(f"JOB A {{\nexecutable = /bin/x\narguments = $(a)\na = {many}\n}}\n")
    assert flow.tasks["A"].command == ""


def test_lines_are_continued_and_keywords_are_in_any_case(read):
    flow = read("# x\n  Job A \\\n # in between\n   a.sub\nJOB B 'b 1.sub'\nPaReNt A \\\n Child B")
    assert graph(flow) == {"A": set(), "B": {"A"}}
    assert flow.tasks["B"].kind == "b 1"


def test_retries_become_rules_of_the_task(read):
    flow = read("JOB A a.sub\nJOB B b.sub\nRETRY ALL_NODES 2\nRETRY B 3 UNLESS-EXIT 7\n")
    a, b = (flow.tasks[name].environment for name in "AB")
    assert [rule.retries for rule in a.errors] == [2]
    assert (b.rule_for(7, 7).retries, b.rule_for(1, 1).retries) == (0, 3)
    assert flow.notes[-1].startswith("2 tasks, 0 edges, 2 retries; ")


SPLICED = "JOB X x.sub\nJOB Y y.sub\nJOB Z z.sub DONE\nPARENT X CHILD Y\nPARENT Z CHILD X\n"


def test_a_splice_is_a_part_of_the_graph(read):
    flow = read(
        "JOB A a.sub\nSPLICE S1 inner.dag\nSPLICE S2 inner.dag\nJOB B b.sub\n"
        "PARENT A CHILD S1\nPARENT S1 CHILD S2 B\nPARENT S2+Y CHILD B\n",
        {"S1+X": 5.0, "X": 6.0},
        inner_dag=SPLICED,
    )
    # A precedes Z alone, the only node of the splice without parents; Z is done
    edges = {"A": set(), "S1+X": set(), "S1+Y": {"S1+X"}, "S2+X": set(), "S2+Y": {"S2+X"}}
    assert graph(flow) == edges | {"B": {"S1+Y", "S2+Y"}}
    assert (flow.tasks["S1+X"].runtime_s, flow.tasks["S2+X"].runtime_s) == (5.0, 6.0)


def test_a_sub_dag_ends_before_its_children_begin(read):
    flow = read(
        "JOB A a.sub\nSUBDAG EXTERNAL S inner.dag\nJOB B b.sub\nSUBDAG EXTERNAL E done.dag\n"
        "PARENT A CHILD S\nPARENT S CHILD B E\nPARENT E CHILD C\nJOB C c.sub\nRETRY S 2\n",
        inner_dag=f"{SPLICED}FINAL F f.sub\n",
        done_dag="JOB A a.sub DONE\n",
    )
    edges = {"A": set(), "S+X": {"A"}, "S+Y": {"S+X"}, "S+F": {"S+Y"}, "B": {"S+F"}}
    assert graph(flow) == edges | {"E": {"S+F"}, "C": {"E"}}
    assert "not honoured: RETRY of S" in flow.notes[-1]


def test_a_submit_file_that_dagman_made_for_a_dag_stands_for_it(read):
    text = "JOB A in.dag.condor.sub\nFINAL F in.dag.condor.sub NOOP\n"
    assert graph(read(text, in_dag="JOB X x.sub\n")) == {"A+X": set(), "F": {"A+X"}}


def test_pins_connect_splices(read):
    flow = read(
        "SPLICE A a.dag\nSPLICE B b.dag\nCONNECT A B\n",
        a_dag="JOB 1 x\nJOB 2 x\nPIN_OUT 1 1\nPIN_OUT 2 2\n",
        b_dag="JOB 1 x\nJOB 2 x\nJOB 3 x\nPIN_IN 1 1\nPIN_IN 2 1\nPIN_IN 3 2\n",
    )
    edges = {"B+1": {"A+1"}, "B+2": {"A+1"}, "B+3": {"A+2"}}
    assert graph(flow) == edges | {"A+1": set(), "A+2": set()}


def test_an_included_file_is_read_in_place_and_folders_count_from_the_working_one(read, write):
    write("sub/deep/in.dag", "JOB Q q.sub\n")
    flow = read(
        "PARENT A CHILD B\nINCLUDE nodes.inc\nSPLICE S in.dag DIR sub\n",
        nodes_inc="JOB A a.sub\nJOB B b.sub\n",
        **{"sub/in_dag": "SPLICE D in.dag DIR deep\n"},
    )
    assert graph(flow) == {"A": set(), "B": {"A"}, "S+D+Q": set()}


def test_what_has_no_meaning_here_is_listed_once(read):
    flow = read(
        "CONFIG c\nJOB A a.sub\nSCRIPT PRE A it's 1\nSCRIPT POST ALL_NODES b\nSERVICE S s.sub\n"
        "PROVISIONER P p.sub\nPRIORITY A 3\nCATEGORY A c\nMAXJOBS c 1\nMAXJOBS d 1\nDOT d.dot\n"
        "ABORT-DAG-ON A 1 RETURN 0\nPRE-SKIP A 1\nSET_JOB_ATTR a = 1\nJOB B b.sub\n"
        "WEAK PARENT A CHILD B\nENV GET X\nSAVE_POINT_FILE A\nNODE_STATUS_FILE n\nJOBSTATE_LOG j"
    )
    assert flow.notes[-1] == (
        "2 tasks, 1 edge; 1 service node is not run; 1 provisioner node is not run; 2 scripts are "
        "not run; 1 weak dependency is read as ordinary ones; 2 submit files are missing; not used:"
        " CONFIG, DOT, SET_JOB_ATTR, ENV, SAVE_POINT_FILE, NODE_STATUS_FILE, JOBSTATE_LOG; not "
        "honoured: PRIORITY, CATEGORY, MAXJOBS, ABORT-DAG-ON, PRE_SKIP"
    )


def test_a_rescue_file_is_named_that_dagman_would_start_from(read, write):
    for number in (1, 2):
        write(f"outer.dag.rescue00{number}", "DONE A\n")
    assert "not used: outer.dag.rescue002" in read("JOB A a.sub\n").notes[-1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("JOB A a\nSUBDAG EXTERNAL B b.dag\n", "line 2: names .*b.dag, which does not exist"),
        ("SPLICE B outer.dag\n", "line 1: names a file that contains this line: .* → "),
        ("SPLICE B other.dag\n", "other.dag: line 1: names a file that contains this line: .* → "),
        ("INCLUDE outer.dag\n", "line 1: names a file that contains this line"),
        ("JOB A a\nPARENT A CHILD B\n", "line 2: 'B' is the name of no node"),
        ("JOB A a\nPARENT A B\n", "line 2: write PARENT"),
        ("JOB A a\nREJECT\n", "line 2: is marked with REJECT"),
        ("JOB A a\nDATA B b\n", "line 2: 'DATA' is not a known command"),
        ("JOB A a\nJOB A b\n", "line 2: 'A' is defined already"),
        ("JOB A {\nexecutable = x\n", "line 1: the description has no end '}'"),
        ("JOB A a WHEN\n", "line 1: 'WHEN' is not an option of JOB"),
        ("SUBDAG B b.dag\n", "line 1: write SUBDAG EXTERNAL"),
        ("JOB A a\nRETRY A many\n", "line 2: 'many' is not a number"),
        ("JOB A a\nVARS A x\n", "line 2: write VARS"),
        ("JOB A a\nFINAL F f\nPARENT A CHILD F\n", "line 3: 'F' is a FINAL, SERVICE"),
        ("SPLICE S with_final.dag\n", "line 1: the spliced file with_final.dag has a FINAL node"),
        ("SPLICE S empty.dag\nSPLICE T empty.dag\nCONNECT S T\n", "line 3: the pins of 'S'"),
        ("JOB A {\nqueue x matching *.txt\n}\n", "the number of jobs of .* is not in"),
        ("JOB A {\nqueue 100000000\n}\n", "line 1: describes more than 1,000,000 tasks"),
        ("SPLICE A pipe.dag\n", "line 1: names .*pipe.dag, which cannot be read: is not a regular"),
        ("one: two\n", "line 1: 'ONE:' is not a known command of DAGMan"),
    ],
)
def test_what_cannot_be_represented_is_refused_with_its_line(read, tmp_path, text, message):
    os.mkfifo(tmp_path / "pipe.dag")
    files = {"other_dag": "SPLICE C outer.dag\n", "empty_dag": "JOB A a\n"}
    (tmp_path / "with_final.dag").write_text("FINAL F f\n")
    with pytest.raises(InputError, match=message):
        read(text, **files)


def test_a_million_nodes_are_refused_before_they_are_read(write, vgrads):
    path = write("many.dag", "".join(f"JOB n{n} a.sub\n" for n in range(200_001)))
    answer = vgrads("plan", path, "--deadline", "4h")
    assert (answer.code, "line 200001: describes more than 200,000 tasks" in answer.err) == (
        2,
        True,
    )


def test_files_that_multiply_are_refused_at_once(read):
    chain = {f"s{n}_dag": f"SPLICE A s{n + 1}.dag\nSPLICE B s{n + 1}.dag\n" for n in range(40)}
    begin = time.monotonic()
    with pytest.raises(InputError, match=r"more than 1,000,000|or more than 50,000 of them"):
        read("SPLICE S s0.dag\n", **chain, s40_dag="JOB A a\n")
    with pytest.raises(
        InputError, match="line 1: describes more than 1,000,000 tasks or 10,000,000"
    ):
        read("SPLICE A w.dag\nSPLICE B w.dag\nPARENT A CHILD B\n", w_dag="JOB A {\nqueue 4000\n}\n")
    assert time.monotonic() - begin < 60
