"""What an executor returns or raises is what a pool of processes would."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vgrads
from tests.examples import examples

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.complex_numbers(allow_nan=False)
    | st.dates()
    | st.decimals(allow_nan=False)
    | st.fractions(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.frozensets(st.integers(), max_size=4)
    ),
    max_leaves=10,
)
ERRORS = st.sampled_from(
    [ValueError, KeyError, OSError, ZeroDivisionError, StopIteration, KeyboardInterrupt]
)


def give(value):
    return value


def throw(kind, arguments):
    raise kind(*arguments)


@pytest.fixture
def pools(home):
    """Ours and the standard library's, in new processes: a fork would have locks that threads of
    this one hold."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as theirs, vgrads.Executor(1) as ours:
        yield ours, theirs


def outcomes(pools, function, *arguments):
    """The type and the value, or the type and the arguments of the exception, of both."""
    for future in [pool.submit(function, *arguments) for pool in pools]:
        error = future.exception()
        if error is None:
            yield type(future.result()), future.result()
        else:
            yield type(error), error.args


@pytest.mark.more
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
@given(value=VALUES)
def test_values_are_the_same(pools, value):
    ours, theirs = outcomes(pools, give, value)
    assert ours == theirs == (type(value), value)


@pytest.mark.more
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
@given(kind=ERRORS, arguments=st.lists(VALUES, max_size=3))
def test_exceptions_are_the_same(pools, kind, arguments):
    ours, theirs = outcomes(pools, throw, kind, arguments)
    assert ours == theirs
    assert ours[0] is type(kind(*arguments))


@pytest.mark.more
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(30))
@given(items=st.lists(st.integers(), max_size=50), size=st.integers(1, 20))
def test_maps_are_the_same(pools, items, size):
    ours, theirs = (list(pool.map(str, items, chunksize=size)) for pool in pools)
    assert ours == theirs == [str(item) for item in items]
