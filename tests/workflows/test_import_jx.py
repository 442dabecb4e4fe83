"""Makeflows in JX: expressions, categories, files; what is wrong is one error."""

import json

import pytest

from vgrads.kernel.errors import InputError
from vgrads.workflows.formats.load import format_of, load_workflow

FLOW = """# parts, then all of them
{
  "define": {"letters": ["a", "b", "c"], "count": len(letters), "numbers": range(count)},
  "default_category": "small",
  "categories": {"big": {"resources": {"cores": 4, "memory": 1000, "wall-time": 90}}},
  "rules": [
    {
      "command": format("./make_part %d > part.%s", n + 1, letters[n]),
      "outputs": ["part." + letters[n]],
      "category": "big"
    } for n in numbers if n != 1 or true
  ] + [
    {
      "command": template("cat {what} > all", {"what": join(["part." + c for c in letters])}),
      "inputs": ["part." + c for c in letters],
      "outputs": [{"dag_name": "all", "task_name": "all.txt"}],
      "resources": {"cores": 1 + 6 / 4}
    }
  ]
}
"""


def test_rules_of_a_makeflow_in_jx(write):
    flow = load_workflow(write("parts.jx", FLOW), {"small": 7.0})
    assert list(flow.order) == ["rule1", "rule2", "rule3", "rule4"]
    first, last = flow.tasks["rule1"], flow.tasks["rule4"]
    assert (first.command, first.kind, first.procs) == ("./make_part 1 > part.a", "big", 4)
    assert (round(first.memory_mib), first.runtime_s) == (954, 30.0)
    assert (last.command, last.procs, last.runtime_s) == ("cat part.a part.b part.c > all", 2, 7.0)
    assert (last.parents, last.outputs) == (("rule1", "rule2", "rule3"), ("all",))


def test_a_makeflow_that_is_plain_json(write, tmp_path):
    rules = [{"command": "true", "inputs": ["x"], "outputs": ["y"]}]
    text = json.dumps({"rules": rules})
    assert list(load_workflow(write("flow.json", text)).tasks) == ["rule1"]
    path, text = tmp_path / "other.json", FLOW.partition("\n")[2]  # without the first comment
    assert format_of(path, text) == "Makeflow in JX"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"rules": []}', "has no list of rules"),
        ('{"rules": [{"inputs": []}]}', "rule 1: has no command"),
        ('{"rules": [{"workflow": "x.jx"}]}', "x.jx, which does not exist"),
        ('{"rules": [\n{"command": what}]}', "line 2: 'what' is not defined"),
        ('{"rules": [\n{"command": open("x")}]}', "line 2: 'open' is not a function of JX"),
        ('{"rules": [\n{"command": "".join([])}]}', "line 2: '' is not a function of JX"),
        ('{"rules": [\n{"command": (lambda: 1)}]}', "line 2: is not an expression of JX"),
        ('{"rules": [\n{"command": "x" * 9}]}', "line 2: cannot be evaluated"),
        ('{"rules": [\n{"command": "x" + [9]}]}', "line 2: cannot be evaluated"),
        ('{"rules": [\n{"command": 1 / 0}]}', "line 2: cannot be evaluated"),
        ('{"rules": [\n{"command": format("%9999d", 1)}]}', "more than three digits"),
        ('{"rules": [{"command": "x"} for i in range(99999999)]}', "describes more than"),
        ('{"rules": [\n{"command": "x",,}]}', "line 2: is not valid JX"),
        ('{"rules": [{"command": "x", "inputs": "y"}]}', "rule 1: inputs and outputs must be"),
        ('{"rules": [{"command": "x", "inputs": [1]}]}', "rule 1: 1 is not a file"),
        ('{"rules": [{"command": "x", "resources": 1}]}', "rule 1: must be an object"),
        (
            '{"rules": [{"command": "x", "resources": {"cores": "many"}}]}',
            "rule 1: 'cores' is not a number",
        ),
        ('{"define": 3, "rules": [{"command": "x"}]}', "line 1: must be an object"),
        ("{" * 300, "is not valid JX"),
    ],
)
def test_what_is_wrong_in_jx_is_one_error(write, text, message):
    path = write("flow.jx", text)
    with pytest.raises(InputError) as caught:
        load_workflow(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
