"""A data folder of its own for each test, the shipped log, a set and its sites."""

import pytest

from tests.conftest import DATA

LOG = DATA / "histories" / "mayhem.swf.gz"
LOCAL_SITE = {"site": [{"name": "here", "kind": "local", "procs": 2}]}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nothing of a test goes to the user's own data folder."""
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def plan_result():
    """A plan at the embedded sites; planning takes seconds."""
    from vgrads import plan  # noqa: PLC0415 after the data folder is chosen

    return plan(DATA / "lead.yaml")


def commands(*texts, deadline="1m"):
    """A set of one chain of commands."""
    tasks = [
        {"id": f"t{n}", "runtime_s": 1, "command": text, "parents": [f"t{n - 1}"] if n else []}
        for n, text in enumerate(texts)
    ]
    return {"name": "s", "deadline": deadline, "workflows": [{"name": "w", "tasks": tasks}]}
