"""What exists once stays the only one: exponential backoff, and bills of nodes."""

import ast

import pytest

from tests.house.test_house import SOURCES, nodes_of, shown

# programs that are sent to nodes, or installed, as one file: they import nothing of ours
ALONE = ("vgrads/slurm/program.py", "vgrads/agent/programs/staging.py", "vgrads/agent/store.py")


def names_in(node):
    return {entry.id for entry in ast.walk(node) if isinstance(entry, ast.Name)} | {
        entry.attr for entry in ast.walk(node) if isinstance(entry, ast.Attribute)
    }


def is_growing_pause(node):
    """``min(most, 2 * pause_s)`` in any order and spelling."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "min"
        and any(
            isinstance(part, ast.BinOp)
            and isinstance(part.op, ast.Mult | ast.Pow)
            and any(w in name.lower() for name in names_in(part) for w in ("pause", "backoff"))
            for argument in node.args
            for part in ast.walk(argument)
        )
    )


def is_bill(node):
    """``billed_s(…) / 3600 * price``: the dollars of a time."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult | ast.Div)
        and "billed_s" in names_in(node)
        and any(isinstance(part, ast.Constant) and part.value == 3600.0 for part in ast.walk(node))
    )


@pytest.mark.parametrize(
    ("is_copy", "home"),
    [(is_growing_pause, "vgrads/kernel/backoff.py"), (is_bill, "vgrads/kernel/units.py")],
)
def test_a_mechanism_stands_in_its_own_module_alone(is_copy, home):
    places = {shown(path) for path in SOURCES if any(is_copy(node) for node in nodes_of(path))}
    assert places - {home, *ALONE} == set()


@pytest.mark.parametrize(
    ("is_copy", "text"),
    [
        (is_growing_pause, "pause_s = min(60.0, pause_s * 2)"),
        (is_growing_pause, "wait = min(LONGEST, FIRST_PAUSE * 2.0 ** count)"),
        (is_growing_pause, "self.backoff_s = min(2 * self.backoff_s, most)"),
        (is_bill, "usd = nodes * billed_s(used_s, unit_s) / 3600.0 * price"),
    ],
)
def test_a_copy_is_recognised(is_copy, text):
    assert any(is_copy(node) for node in ast.walk(ast.parse(text)))
