"""A backend of joblib: what libraries run in parallel with it runs where an executor's calls do.

Imported only by :func:`vgrads.register_joblib`: joblib is no dependency of vgrads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

from joblib._parallel_backends import AutoBatchingMixin
from joblib.parallel import (
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
    register_parallel_backend,
)

from vgrads.executor.executor import Executor

NAME = "vgrads"


class JoblibBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Batches of joblib's calls as calls of an executor.

    ``n_jobs``: how many run at once on this machine. Options of the backend are those of
    :class:`vgrads.Executor`, or ``executor``: one to use, which is not shut down.
    """

    supports_retrieve_callback = True
    supports_return_generator = True
    supports_inner_max_num_threads = False

    def __init__(
        self,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        executor: Executor | None = None,
        **options: object,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._shared, self._options = executor, cast(dict[str, Any], options)
        self._executor: Executor | None = None
        self._futures: set[Future[Any]] = set()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls run at once."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        places = len(os.sched_getaffinity(0))
        # as in joblib: -1 is all processors, -2 all but one
        return n_jobs if n_jobs > 0 else max(1, places + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: object = None, **_: object) -> int:
        """Start an executor; return how many calls run at once. Further options are of joblib's
        memory maps: arrays are passed without copies in any case."""
        count = self.effective_n_jobs(n_jobs)
        if count == 1 and self._shared is None:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        self._executor = self._shared or Executor(count, **self._options)
        return count

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Future[Any]], object] | None = None
    ) -> Future[Any]:
        """Submit a batch."""
        if self._executor is None:
            raise RuntimeError("the backend is not configured")
        future = self._executor.submit(func)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> object:
        """Return the results of a batch."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel the batches that no node has yet."""
        del ensure_ready  # the executor can be used on
        for future in list(self._futures):
            future.cancel()

    def terminate(self) -> None:
        """End the executor, unless it is another's."""
        if self._executor is not None and self._executor is not self._shared:
            self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor = None
        self.reset_batch_stats()

    def get_nested_backend(self) -> tuple[SequentialBackend, None]:
        """Return the backend of parallel calls inside a call: one by one."""
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None


def register(make_default: bool) -> None:
    """Add the backend to joblib's."""
    register_parallel_backend(NAME, JoblibBackend, make_default=make_default)
