"""Loops in two forms of one text: as Python runs them and compiled, equal to the last digit; which
is called when."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import DATA
from tests.examples import examples
from vgrads.kernel.compiled import Compiled, compiled
from vgrads.qbets.boosting import Growth, _walk_trees, grow
from vgrads.qbets.predictor import JobArrival
from vgrads.qbets.state.queue_features import FEATURES, features_of
from vgrads.qbets.state.queue_state import QueueState
from vgrads.qbets.state.queue_tables import copied

_FEW = st.sampled_from([1.0, 60.0, 3600.0, 7199.5, 86400.25])  # so that many are equal
_JOB = st.builds(JobArrival, st.integers(1, 12), _FEW, st.integers(-1, 3), st.integers(-1, 2))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(_JOB, _FEW, st.integers(0, 2)), max_size=90), _JOB, st.floats(0, 9e4))
def test_a_state_has_the_same_numbers_plain_and_compiled(jobs, ours, later_s):
    state, now_s = QueueState(), 0.0
    for key, (job, elapsed_s, outcome) in enumerate(jobs):
        now_s += elapsed_s
        state.submit(key, now_s - elapsed_s / 3, job)
        if outcome:
            state.start(key, now_s)
        if outcome == 2 and key % 3 == 0:
            state.end(key, now_s + elapsed_s / 7)
    question = (float(ours.procs), ours.request_s, *(int(n) for n in (ours.user, ours.queue)), 0)
    question = tuple(min(n, 0) if k in (2, 3) else n for k, n in enumerate(question))
    answers = []
    for form in (features_of.plain, features_of.fast):
        result = np.empty(len(FEATURES))
        form(copied(state.tables), now_s + later_s, 3.5 * now_s + later_s, question, result)
        answers.append(result)
    assert np.array_equal(*answers, equal_nan=True)


def test_trees_say_the_same_plain_and_compiled():
    rng = np.random.default_rng(3)
    rows = rng.random((2000, 4))
    trees = grow(
        rows,
        rows[:, 0] * rng.random(2000),
        (0.1, 0.5, 0.9),
        Growth(trees=20, leaves=8, rate=0.1, per_leaf=30),
    )
    shape = (trees.feature, trees.threshold, trees.left, trees.right)
    requested = (rows[:50], trees.roots, shape, trees.value, trees.start)
    assert np.array_equal(_walk_trees.plain(*requested), _walk_trees.fast(*requested))


@compiled
def _half(number):
    return number / 2


@compiled
def _quarter(number):
    return _half(number) / 2


def test_few_steps_are_plain_and_many_are_compiled():
    assert (_quarter.plain(8.0), _quarter.fast(8.0), _quarter(8.0)) == (2.0, 2.0, 2.0)
    fresh = Compiled(_quarter._body)
    assert fresh.after(10) is fresh.plain
    assert fresh.after(10**9) is fresh.fast
    assert fresh.after(1) is fresh.fast  # loaded once, it stays


def test_a_function_that_must_be_compiled_first_is_plain_for_longer(tmp_path, monkeypatch):
    assert _quarter.fast(8.0) == 2.0
    assert _quarter.stored
    stored = Compiled(_quarter._body)
    assert stored.after(600_000) is stored.fast
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    fresh = Compiled(_quarter._body)
    assert not fresh.stored
    assert fresh.after(600_000) is fresh.plain
    assert fresh.after(600_000) is fresh.fast  # two functions


def test_what_was_learned_answers_without_the_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("VGRADS_HOME", str(tmp_path))
    monkeypatch.delenv("VGRADS_LEARNED")
    heavy = ("numba", "scipy", "pandas", "networkx")
    code = (
        "import sys\nfrom vgrads.portal.main import main\ntry:\n main()\nexcept SystemExit: pass\n"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    requested = ["bound", str(DATA / "histories" / "mercury.swf.gz"), "--procs", "4"]
    text = [
        subprocess.run(
            [sys.executable, "-c", code, *requested], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(2)
    ]
    assert text[0][:-1] == text[1][:-1] != []
    assert "numba" in text[0][-1]
    assert text[1][-1] == "[]"


def test_what_is_stored_is_used_at_once_where_many_calls_are_coming(tmp_path):
    """And what no earlier process has compiled is not compiled."""
    (tmp_path / "sums.py").write_text(
        "from vgrads.kernel.compiled import compiled\n@compiled\ndef add(a, b):\n    return a + b\n"
    )
    code = (
        "import sums\n"
        "from vgrads.kernel.compiled import use_stored\n"
        "use_stored(sums)\n"
        "print(sums.add.after(1) is sums.add.plain)\n"
        "sums.add(1.0, 2.0)\n"
        "use_stored(sums)\n"
        "print(sums.add.after(1) is sums.add.plain)\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": "."}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "False"]


def test_a_compilation_is_announced_once_on_a_machine(tmp_path):
    (tmp_path / "sums.py").write_text(
        "from vgrads.kernel.compiled import compiled\n"
        "@compiled\ndef half(a):\n    return a / 2\n"
        "@compiled\ndef add(a, b):\n    return half(a) + half(b) + half(2) + half(4)\n"
    )
    code = (
        "import sys\nimport sums\nfrom vgrads.kernel.compile_state import announce_compilation\n"
        "with announce_compilation(print):\n    print(sums.add(1.0, 2.0))\n"
        "print(len(sums.half.part.signatures), 'scipy' in sys.modules)\n"
    )
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([".", str(DATA.parent)]),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    texts = sorted(process.communicate()[0].split() for process in processes)
    # no form for each literal argument: those of whole and of fractional numbers
    assert texts[1] == ["True", "False", "4.5", "2", "False"]
    assert texts[0][0] == "4.5"  # it waited for the other


def test_errors_of_compiled_parts_reach_the_caller():
    with pytest.raises(ZeroDivisionError):
        _inverse_of_half(0.0)
    assert _inverse_of_half(4.0) == 0.5


@compiled
def _inverse(number):
    return 1 / number


@compiled
def _inverse_of_half(number):
    return _inverse(number / 2)
