"""CPython's own tests of ``concurrent.futures``, loaded from where they are installed.

Nothing of them is part of this project: they are in the ``test`` package of a Python that was built
with its tests, or in Debian's package ``libpython3.11-testsuite``.
"""

import importlib
import pickle
import sys
from pathlib import Path

import test

from vgrads import Executor, TaskFailed
from vgrads.executor.results import CallFuture

NAME = "test_concurrent_futures"
VERSION = "{}.{}".format(*sys.version_info[:2])
FOLDERS = (*test.__path__, f"/usr/lib/python{VERSION}/test")

PRIVATE = "looks at private attributes of a pool of processes"
DEPARTURES = {
    "FailingInitializer.test_initializer": (
        "no executor is broken for good: each call raises what the initializer raised"
    ),
    "Shutdown.test_processes_terminate": PRIVATE,
    "Shutdown.test_context_manager_shutdown": PRIVATE,
    "Shutdown.test_del_shutdown": PRIVATE,
    "Shutdown.test_shutdown_no_wait": PRIVATE,
    "Shutdown.test_interpreter_shutdown": "what a call prints is in `future.stdout`",
    "Shutdown.test_hang_gh83386": "what a call prints is in `future.stdout`",
    "Shutdown.test_cancel_futures": "right after their submission, all calls can be cancelled",
    "Executor.test_killed_child": PRIVATE,
    "Executor.test_saturation": PRIVATE,
    "Executor.test_idle_process_reuse_one": PRIVATE,
    "Executor.test_idle_process_reuse_multiple": PRIVATE,
    "Executor.test_max_tasks_per_child": "there is no `max_tasks_per_child`",
    "Executor.test_max_tasks_per_child_defaults_to_spawn_context": (
        "there is no `max_tasks_per_child`"
    ),
    "Executor.test_max_tasks_early_shutdown": "there is no `max_tasks_per_child`",
    "Executor.test_traceback": "the cause is of a private class of the standard library",
    "Executor.test_ressources_gced_in_workers": (
        "proxies of `multiprocessing` authenticate its own children alone"
    ),
    "Deadlock.test_shutdown_deadlock_pickle": PRIVATE,
    "Future.test_multiple_set_exception": "the text names the class `Future`",
    "Future.test_multiple_set_result": "the text names the class `Future`",
}
"""Tests that do not apply, with the reason."""


def installed_file():
    """Return the file of the tests; None where this machine has none for this Python."""
    files = (Path(folder) / f"{NAME}.py" for folder in FOLDERS)
    return next((file for file in files if file.is_file()), None)


def load(file, folder):
    """Import the tests, unmodified, under a name that the interpreters of calls can import too."""
    (folder / f"{NAME}.py").symlink_to(file)
    sys.path.append(str(folder))
    suite = importlib.import_module(NAME)
    suite.Future = CallFuture  # the tests of futures create theirs by this name
    # where a pool of processes is broken, ours fails the call alone: with what its pickle raised,
    # or, where the process ended, with TaskFailed
    suite.BrokenProcessPool = (TaskFailed, SystemExit, pickle.UnpicklingError)
    start = suite.assert_python_ok

    def assert_python_ok(option, program, **environment):
        """Run a program of the tests: it imports the executor by the name of its class."""
        program = program.replace("concurrent.futures import", "vgrads import")
        program = program.replace(f"from test.{NAME} import", f"from {NAME} import")
        return start(option, program, PYTHONPATH=":".join(sys.path), **environment)

    suite.assert_python_ok = assert_python_ok
    return suite


class WithoutContext(Executor):
    """Ours has no `mp_context`: its interpreters are always new processes."""

    def __init__(self, *arguments, mp_context=None, **named):
        super().__init__(*arguments, **named)


WithoutContext.__name__ = Executor.__name__  # programs of the tests import it by name


def classes(suite):
    """Return the classes of tests that fit, for our executor: name → class."""

    def get_context(_):
        return suite.mp.get_context("spawn")

    ours, case = suite.ExecutorMixin, suite.BaseTestCase
    bases = {
        "Initializer": (suite.InitializerMixin, case),
        "FailingInitializer": (suite.FailingInitializerMixin, case),
        "Shutdown": (ours, suite.ProcessPoolShutdownTest, case),
        "Wait": (ours, suite.WaitTests, case),
        "AsCompleted": (ours, suite.AsCompletedTests, case),
        "Executor": (ours, suite.ProcessPoolExecutorTest, case),
        "Deadlock": (ours, suite.ExecutorDeadlockTest, case),
    }
    own = {"executor_type": WithoutContext, "get_context": get_context}
    loaded = {name: type(name, parents, own) for name, parents in bases.items()}
    return loaded | {"Future": suite.FutureTests}
