"""CPython's own tests of its executors pass with ours, except those that are named with a reason.

The slowest, which sleep for seconds, are run by hand (`make test-long`); the rest takes a minute.
"""

import logging
import sys
import unittest
from multiprocessing import util

import pytest

from tests.executor.standard_library import DEPARTURES, NAME, VERSION, classes, installed_file, load

SLOW = {
    "Executor.test_map_timeout",
    "Wait.test_first_exception",
    "Wait.test_first_exception_one_already_failed",
    "Wait.test_timeout",
}
NUMBERS = {
    "Initializer": 1,
    "Shutdown": 3,
    "Wait": 8,
    "AsCompleted": 5,
    "Executor": 11,
    "Deadlock": 13,
    "Future": 18,
}
"""How many tests of each class apply, the slow ones among them."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    file = installed_file()
    if file is None:
        pytest.skip(
            f"no test.{NAME} of Python {VERSION}: install Debian's libpython{VERSION}-testsuite"
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        yield classes(load(file, tmp_path_factory.mktemp("suite")))


def applicable(loaded, name, slow=False):
    """Return the tests of a class that apply: those that are slow, or the others."""
    names = unittest.defaultTestLoader.getTestCaseNames(loaded[name])
    return [
        loaded[name](test)
        for test in names
        if f"{name}.{test}" not in DEPARTURES and (f"{name}.{test}" in SLOW) == slow
    ]


class Suite(unittest.TestSuite):
    """A suite whose module does not wait at its end for the server of processes of this session:
    other tests' services use it, and it ends when their last process does."""

    def _handleModuleTearDown(self, result):
        cleanups = unittest.case._module_cleanups
        cleanups[:] = [entry for entry in cleanups if entry[0] is not util._cleanup_tests]
        super()._handleModuleTearDown(result)


def run(tests):
    """Run tests; return the texts of those that failed."""
    result = unittest.TestResult()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.root, "handlers", [])  # they expect the logging of a plain program
        Suite(tests).run(result)
    assert result.testsRun == len(tests)
    return [text for _, text in [*result.failures, *result.errors]]


@pytest.mark.more
@pytest.mark.filterwarnings("default")  # of the tests themselves
@pytest.mark.parametrize("name", NUMBERS)
def test_tests_of_the_standard_library_pass(loaded, name):
    tests = applicable(loaded, name)
    assert len(tests) + len(applicable(loaded, name, slow=True)) >= NUMBERS[name]
    assert run(tests) == []


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_slow_tests_of_the_standard_library_pass(loaded):
    tests = [test for name in NUMBERS for test in applicable(loaded, name, slow=True)]
    assert len(tests) == len(SLOW)
    assert run(tests) == []


@pytest.mark.more
def test_departures_name_tests_that_exist(loaded):
    names = {
        f"{name}.{test}"
        for name, cls in loaded.items()
        for test in unittest.defaultTestLoader.getTestCaseNames(cls)
    }
    assert DEPARTURES.keys() | SLOW <= names
