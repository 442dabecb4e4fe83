"""A test over real services that fails runs once more, alone: a service of the system may be slow
for a reason outside. It is listed, so that nobody overlooks it; other tests are never repeated."""

from __future__ import annotations

import subprocess
import sys

import pytest

OPTION = "--second-try"
_FAILED = pytest.StashKey[dict[str, bool]]()
"""Of each test that failed: whether it is marked as one over real services."""
_MOST = 5
"""More failures than this are no accident."""


def add_option(parser: pytest.Parser) -> None:
    """The option with which such tests run once more."""
    parser.addoption(
        OPTION, action="store_true", help="run tests marked services that fail once more, alone"
    )


class Failures:
    """Collects the failed tests of a session, of all its workers."""

    def __init__(self) -> None:
        self.of_services: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure, of the test or of what it needs."""
        if report.failed:
            self.of_services[report.nodeid] = "services" in report.keywords


def begin(config: pytest.Config) -> None:
    """Collect failures where they are to be tried again."""
    if config.getoption(OPTION) and not hasattr(config, "workerinput"):
        failures = Failures()
        config.stash[_FAILED] = failures.of_services
        config.pluginmanager.register(failures)


def end(session: pytest.Session) -> None:
    """Run the failed tests over services once more, if nothing else failed; the session has passed
    if they pass now."""
    failed = session.config.stash.get(_FAILED, {})
    if not failed or not all(failed.values()) or len(failed) > _MOST:
        return
    if session.exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    for test in failed:
        words = [sys.executable, "-m", "pytest", test]
        done = subprocess.run(words, cwd=session.config.rootpath, check=False)
        if done.returncode != pytest.ExitCode.OK:
            return
        print(f"passed at the second try: {test}", flush=True)
    session.exitstatus = pytest.ExitCode.OK
