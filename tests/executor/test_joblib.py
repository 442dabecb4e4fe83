"""joblib, and scikit-learn through it, on the backend `vgrads`: joblib's own tests that apply."""

import os
import subprocess
import sys

import joblib
import numpy as np
import pytest

import vgrads
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def registered():
    vgrads.register_joblib()
    yield
    joblib.parallel.BACKENDS.pop("vgrads", None)


def square(number):
    return number * number


def fail(number):
    if number == 7:
        raise ValueError("seven", number)
    return number


@pytest.mark.more
def test_results_are_in_order_whatever_the_size_of_batches():
    with joblib.parallel_config(backend="vgrads", n_jobs=2):
        results = joblib.Parallel()(joblib.delayed(square)(n) for n in range(500))
        generated = joblib.Parallel(return_as="generator")(
            joblib.delayed(square)(n) for n in range(20)
        )
        assert list(generated) == results[:20]
    assert results == [n * n for n in range(500)]


@pytest.mark.more
def test_an_exception_reaches_the_caller():
    with (
        joblib.parallel_config(backend="vgrads", n_jobs=2),
        pytest.raises(ValueError, match="seven") as caught,
    ):
        joblib.Parallel()(joblib.delayed(fail)(n) for n in range(100))
    assert caught.value.args == ("seven", 7)


def outer(number):
    return joblib.Parallel(n_jobs=2)(joblib.delayed(square)(n) for n in range(number))


@pytest.mark.more
def test_parallel_calls_inside_calls_run_one_by_one():
    with joblib.parallel_config(backend="vgrads", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(outer)(n) for n in (1, 3)) == [[0], [0, 1, 4]]


def test_an_executor_that_is_passed_is_used_and_left_open(executor):
    with joblib.parallel_config(backend="vgrads", n_jobs=2, executor=executor):
        assert joblib.Parallel()(joblib.delayed(square)(n) for n in range(9))[-1] == 64
    assert executor.submit(square, 3).result() == 9


@pytest.mark.more
def test_a_grid_search_has_the_scores_of_another_backend():
    from sklearn.datasets import load_iris  # noqa: PLC0415 half a second
    from sklearn.model_selection import GridSearchCV  # noqa: PLC0415
    from sklearn.svm import SVC  # noqa: PLC0415

    x, y = load_iris(return_X_y=True)
    scores = {}
    for backend in ("vgrads", "threading"):
        with joblib.parallel_config(backend=backend, n_jobs=2):
            search = GridSearchCV(SVC(), {"C": [0.1, 1, 10], "gamma": [0.1, 1]}).fit(x, y)
        scores[backend] = search.cv_results_["mean_test_score"], search.best_params_
    assert np.array_equal(scores["vgrads"][0], scores["threading"][0])
    assert scores["vgrads"][1] == scores["threading"][1]


@pytest.mark.parametrize("count", [0])
def test_a_number_of_jobs_that_is_none_is_refused(count):
    with (
        joblib.parallel_config(backend="vgrads"),
        pytest.raises(ValueError, match="n_jobs == 0"),
    ):
        joblib.Parallel(n_jobs=count)([])


def test_without_joblib_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    monkeypatch.setitem(sys.modules, "joblib._parallel_backends", None)
    monkeypatch.delitem(sys.modules, "vgrads.executor.joblib_backend", raising=False)
    with pytest.raises(vgrads.InputError, match="needs joblib") as caught:
        vgrads.register_joblib()
    assert caught.value.fix == "pip install joblib"


@pytest.mark.long
def test_joblib_s_own_tests_pass_on_the_backend(tmp_path):
    """Except nested loops whose inner backend is named where it is not registered: in a process."""
    apart = "not (nested_loop and (loky-vgrads or vgrads-vgrads or back_compat_backend-vgrads))"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", "-q"),
            *("--rootdir", str(tmp_path), "-p", "tests.executor.joblib_plugin"),
            *("--pyargs", "joblib.test.test_parallel", "-k", f"vgrads and {apart}"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.splitlines()[-1]
    assert done.returncode == 0, done.stdout
    assert int(last.split(" passed")[0].split()[-1]) >= 70
