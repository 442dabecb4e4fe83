"""A test over real services may fail once; no other test may."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT

CONFTEST = """
from tests import second_try

def pytest_addoption(parser):
    second_try.add_option(parser)

def pytest_configure(config):
    second_try.begin(config)

def pytest_sessionfinish(session):
    second_try.end(session)
"""
TESTS = """
from pathlib import Path
import pytest

def attempts(name):
    file = Path(name)
    file.write_text(file.read_text() + "." if file.exists() else ".")
    return len(file.read_text())

@pytest.mark.services
def test_passes_at_attempt():
    assert attempts("services") >= {services}

def test_plain():
    assert attempts("plain") >= {plain}
"""


@pytest.mark.parametrize(
    ("services", "plain", "code", "listed", "attempts", "workers"),
    [(2, 1, 0, True, 2, 1), (3, 1, 1, False, 2, 0), (2, 2, 1, False, 1, 0)],
)
def test_only_what_needs_services_runs_once_more(
    tmp_path, services, plain, code, listed, attempts, workers
):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = services\npythonpath = .\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS.format(services=services, plain=plain))
    words = ["-m", "pytest", "-p", "no:cacheprovider", "-n", str(workers), "--second-try"]
    words += ["-p", "xdist.plugin"]
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    line = "passed at the second try: test_it.py::test_passes_at_attempt"
    assert (line in done.stdout) == listed
    assert len((tmp_path / "services").read_text()) == attempts
    assert len((tmp_path / "plain").read_text()) == 1
