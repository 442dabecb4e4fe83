"""Makeflow, in both languages: what belongs to a rule, nested workflows, and what is refused."""

import pytest

from vgrads.kernel.errors import InputError
from vgrads.workflows.formats.load import load_workflow


def graph(workflow):
    return {task.id: set(task.parents) for task in workflow.tasks.values()}


def mib(megabytes):
    return pytest.approx(megabytes * 1e6 / 2**20)


def test_directives_say_what_a_rule_needs(write):
    text = (
        ".MAKEFLOW CATEGORY big\n.MAKEFLOW CORES 4\n.MAKEFLOW MEMORY 2000\n.MAKEFLOW DISK 100\n"
        ".MAKEFLOW WALL_TIME 90\n.SIZE a.out 3M\na.out: a.in\n\t./big a.in > a.out\n"
        '.MAKEFLOW CATEGORY small\nCORES="1"\nMEMORY=50\nb.out: a.out\n@CORES=2\n\tLOCAL ./small\n'
        "c.out: b.out\n\tcp b.out c.out\n"
    )
    flow = load_workflow(write("cores.mf", text))
    a, b, c = flow.tasks.values()
    assert [t.procs for t in (a, b, c)] == [4, 2, 1]
    assert (a.memory_mib, b.memory_mib, c.memory_mib) == (mib(2000), mib(50), mib(50))
    assert (a.runtime_s, b.command, flow.transfer_mib("rule1", "rule2")) == (30.0, "./small", 3.0)
    assert flow.notes[-1] == (
        "3 tasks, 2 edges; 1 LOCAL rule is placed as any other; not honoured: disk"
    )


def test_variables_between_a_rule_and_its_command_are_its_own(write):
    text = (
        'out.a:\nBATCH_OPTIONS="requirements = Group == "x""\n\tuname -a > out.a # a comment\n\n'
        "out.b: out.a\nBATCH_LOCAL=TRUE\n\tcat out.a > out.b\n\n"
        'COMMAND0="uname"\nexport WHERE=here\nout.c: out.b\nCOMMAND0+=-a\n'
        "\t$COMMAND0 '$COMMAND0' \\$HOME $(COMMAND0) > out.c\n"
        "out.d: out.c\n\t${COMMAND0} $UNKNOWN > out.d\n"
    )
    flow = load_workflow(write("options.mf", text))
    assert graph(flow) == {"rule1": set()} | {f"rule{n}": {f"rule{n - 1}"} for n in (2, 3, 4)}
    commands = [task.command for task in flow.tasks.values()]
    assert commands[0] == "uname -a > out.a"
    assert commands[2:] == [
        '"uname" -a \'$COMMAND0\' $HOME "uname" -a > out.c',
        '"uname" $UNKNOWN > out.d',
    ]
    assert dict(flow.tasks["rule4"].environment.env) == {"WHERE": "here"}
    assert flow.notes[-1].endswith("not honoured: BATCH_OPTIONS")


def test_names_are_quoted_renamed_and_held_by_variables(write):
    text = (
        'BOTH="H I" J\nCD=C D\n$(BOTH) x-$(CD):\n\ttouch "H I" J\n'
        '"$(CD)" \'$(CD)\': J "H I"->in /usr/bin/convert a\\:b -x\n\ttrue\n: "C D" x-C\n\ttrue\n'
    )
    flow = load_workflow(write("names.mf", text))
    first, second, last = flow.tasks.values()
    assert first.outputs == ("H I", "J", "x-C", "D")
    assert second.outputs == ("C D", "$(CD)")
    assert second.inputs == ("J", "H I", "a:b", "-x")  # convert is a program of the node
    assert (last.outputs, set(last.parents)) == ((), {"rule1", "rule2"})
    assert "1 file is not renamed for the task" in flow.notes[-1]
    assert "taken to be on every node: /usr/bin/convert" in flow.notes[-1]


def test_a_nested_makeflow_takes_the_place_of_its_rule(write):
    write("in.mf", "p: a\n\tcp a p\nq: p\n\tcp p q\nr: a\n\tcp a r\n")
    text = "a:\n\ttouch a\nq r: in.mf a\n\tLOCAL MAKEFLOW in.mf .\nend: q\n\tcp q end\n"
    flow = load_workflow(write("top.makeflow", text))
    nested = {"rule2+rule1": {"rule1"}, "rule2+rule2": {"rule2+rule1"}, "rule2+rule3": {"rule1"}}
    end = {"rule1": set(), "rule3": {"rule2+rule2", "rule2+rule3"}}
    assert graph(flow) == nested | end


def test_nested_workflows_in_jx_take_arguments(write):
    write("in.jx", '{"rules": [{"command": "touch o." + n, "outputs": ["o." + n]}]}')
    outer = """{"rules": [
      {"workflow": "in.jx", "args": {"n": i}, "outputs": ["o." + i]} for i in range(2),
      {"command": "cat", "inputs": ["o." + i for i in range(2), "x" + 0.5], "local_job": true},
      {"command": "e", "inputs": [i + j for i in ["a", "b"] for j in [1, 2] if i != "b"], "odd": 1}
    ]}"""
    flow = load_workflow(write("top.jx", outer))
    inner = {"rule1+rule1": set(), "rule2+rule1": set(), "rule4": set()}
    assert graph(flow) == inner | {"rule3": {"rule1+rule1", "rule2+rule1"}}
    assert flow.tasks["rule3"].inputs == ("o.0", "o.1", "x0.5")
    assert flow.tasks["rule4"].inputs == ("a1", "a2")
    assert flow.notes[-1] == (
        "4 tasks, 2 edges; 1 local rule is placed as any other; not known: 'odd' of rule 4"
    )


def test_names_of_a_jx_file_may_be_defined_in_another(write):
    flow = write("a.jx", '{"rules": [{"command": P + " x", "environment": {"A": 1}}]}')
    names = write("args.jx", '{"P": "/bin/echo",}')
    (task,) = load_workflow(flow, inputs=names).tasks.values()
    assert (task.command, task.environment.env) == ("/bin/echo x", (("A", "1"),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: y\n\tcp y x\nz: x\n", "line 3: the rule has no command"),
        ("x: y\n@A=b\nz: x\n\tcp x z\n", "line 1: the rule has no command"),
        ("\tcp y x\n", "line 1: a command does not belong to a rule"),
        ("x y\n", "line 1: is neither a rule"),
        ("=bad\n", "line 1: is neither a rule"),
        ("x # y: z\n", "line 1: is neither a rule"),
        ("x: $(Y)\n\tcp y x\n", "line 1: the variable 'Y' is not defined"),
        ("Y=\\$Y\nx: $Y\n\tcp y x\n", "line 2: the variable 'Y' is not defined, or by itself"),
        ('x: "y\n\tcp y x\n', 'line 1: has no closing "'),
        (".MAKEFLOW CORES many\n", "line 1: CORES 'many' is not a number"),
        (".MAKEFLOW COLOUR red\n", "line 1: '.MAKEFLOW COLOUR' is not a known directive"),
        (".SIZE x much\n", "line 1: 'much' is not a size"),
        ("x:\n\ta\nx:\n\tb\n", "line 3: 'x' is written by rule1 too"),
        ("x: ../y\n\tcp ../y x\n", r"'\.\./y' is outside the task's folder"),
        ("x:\n\tMAKEFLOW none.mf\n", "line 2: names .*none.mf, which does not exist"),
        ("x:\n\tMAKEFLOW flow.mf\n", "line 2: names a file that contains this line"),
        ("x:\n\tMAKEFLOW in.mf sub\n", "line 2: runs in.mf in another folder: 'sub'"),
        ("x: x\n\tcp x x\n", "the tasks form a cycle"),
        ("MZ\0\x01", "line 1: is neither a rule"),
    ],
)
def test_what_is_wrong_in_a_makeflow_is_one_error(write, text, message):
    path = write("flow.mf", text)
    with pytest.raises(InputError, match=message):
        load_workflow(path)
