"""What exists once stays the only one: exponential backoff, bills of nodes, files of records."""

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


def is_append(node):
    """``open("ab")``, as a function or a method, and ``O_APPEND``."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
        "open",
        "fdopen",
    ):
        values = [*node.args, *(word.value for word in node.keywords if word.arg == "mode")]
        texts = [value.value for value in values if isinstance(value, ast.Constant)]
        return any(text in APPENDING for text in texts if isinstance(text, str))
    return isinstance(node, ast.Attribute) and node.attr == "O_APPEND"


APPENDING = {letters + more for letters in ("a", "ab", "at") for more in ("", "+")} | {"a+b", "a+t"}
APPENDED = {
    "vgrads/kernel/record_file.py": "records",
    "vgrads/agent/streams.py": "what tasks print",
    "execmgr/tasks/agent_results.py": "what tasks print",
    "vgrads/slurm/job_program.py": "what jobs print",
    "vgrads/slurm/program.py": "nothing: it reads a log that may not exist yet",
    "vgrads/slurm/step_program.py": "what steps print; their number is the size of a file",
    "vgrads/portal/cli/slurm/service.py": "what a service prints",
    "vgrads/dispatch/storage/status.py": "nothing: the file is a lock",
}
"""Modules that append to files, and what."""


def is_sync(node):
    return isinstance(node, ast.Attribute) and node.attr in {"fsync", "fdatasync"}


SYNCED = {
    "vgrads/kernel/record_file.py": "records",
    "vgrads/kernel/files.py": "whole files, names of a folder",
    "vgrads/exchange/incoming.py": "whole files",
    "vgrads/portal/web/bags/parts.py": "whole files",
    "vgrads/agent/programs/machine_score.py": "measures the disk of a node",
}
"""Modules that wait for a disk, and for what."""


@pytest.mark.parametrize(("is_use", "homes"), [(is_append, APPENDED), (is_sync, SYNCED)])
def test_records_are_appended_by_a_single_module(is_use, homes):
    """A file that grows by records, or that a crash may tear, is a RecordFile."""
    places = {shown(path) for path in SOURCES if any(is_use(node) for node in nodes_of(path))}
    assert places == set(homes)


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
        (is_append, 'with path.open("ab", buffering=0) as file: pass'),
        (is_append, "file = open(path, mode='a')"),
        (is_append, "file = os.open(path, os.O_WRONLY | os.O_APPEND)"),
        (is_sync, "os.fsync(file.fileno())"),
        (is_bill, "usd = nodes * billed_s(used_s, unit_s) / 3600.0 * price"),
    ],
)
def test_a_copy_is_recognised(is_copy, text):
    assert any(is_copy(node) for node in ast.walk(ast.parse(text)))
