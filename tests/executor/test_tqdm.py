"""tqdm's hook for executors runs with ours, unmodified."""

import io

import pytest
from tqdm import tqdm
from tqdm.contrib.concurrent import _executor_map

import vgrads


def add(first, second):
    return first + second


@pytest.mark.more
@pytest.mark.parametrize("lock_name", ["", "mp_lock"])
def test_a_bar_counts_the_items_of_a_map(lock_name):
    file = io.StringIO()
    results = _executor_map(
        vgrads.Executor,
        add,
        range(12),
        range(12),
        max_workers=2,
        lock_name=lock_name,
        file=file,
    )
    assert results == [2 * n for n in range(12)]
    assert "12/12" in file.getvalue()


def test_an_initializer_of_the_user_is_called_as_before(tmp_path):
    class Bar(tqdm):
        @classmethod
        def set_lock(cls, lock):
            (tmp_path / "called").touch()

    with vgrads.Executor(1, initializer=Bar.set_lock, initargs=(None,)) as executor:
        assert executor.submit(abs, -2).result() == 2
    assert (tmp_path / "called").exists()
