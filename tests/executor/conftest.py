"""A data folder of its own for each test, and one executor for those that need no other."""

import pytest

import vgrads


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nothing of a test goes to the user's own data folder."""
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def executor(home):
    with vgrads.Executor(2) as started:
        yield started
