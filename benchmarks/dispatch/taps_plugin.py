"""``vgrads.Executor`` as an executor of TaPS (https://taps.proxystore.dev), and the two programs of
``bench_taps.py`` that run where TaPS is installed.

    python taps_plugin.py run --app cholesky … --engine.executor vgrads   # the command of TaPS
    python taps_plugin.py fail KIND EXECUTOR [NAME=VALUE]                 # calls, each fifth fails

The second prints how many calls it made, how many failed that were to fail, how many that were not,
and the seconds until all had ended.
"""

from __future__ import annotations

import importlib
import sys
import time
from concurrent.futures import Executor
from typing import Literal

from taps.apps.failures.types import FAILURE_FUNCTIONS, FailureType
from taps.engine import EngineConfig
from taps.executor import ExecutorConfig
from taps.plugins import get_executor_configs, register
from taps.run.main import main as run_taps

_CALLS, _EACH = 40, 5


@register("executor")
class VgradsConfig(ExecutorConfig):
    """The plug-in."""

    name: Literal["vgrads"] = "vgrads"
    max_workers: int = 2

    def get_executor(self) -> Executor:
        """Return an executor of this machine whose interpreters have started and imported TaPS, as
        the workers of Dask and of the pool have: they begin as copies of this program."""
        import vgrads  # noqa: PLC0415 not where other executors are measured

        modules = (run_taps.__module__,)
        executor = vgrads.Executor(self.max_workers, importlib.import_module, modules)
        for started in [executor.submit(time.sleep, 0.1) for _ in range(self.max_workers)]:
            started.result()
        return executor


def call(kind: str, number: int, _parent: object = None) -> int:
    """Fail as TaPS makes tasks fail, or return the number."""
    if kind:
        FAILURE_FUNCTIONS[FailureType(kind)]()
    return number


def fail(kind: str, executor: str, *settings: str) -> str:
    """Return what became of calls of which each fifth fails; one that fails by its dependency has
    an argument that did."""
    options = {name: int(value) for name, _, value in (s.partition("=") for s in settings)}
    config = EngineConfig(executor=get_executor_configs()[executor](**options))
    chosen, others, begin = 0, 0, time.perf_counter()
    with config.get_engine() as engine:
        assert engine.submit(call, "", 0).result() == 0
        tasks = []
        for number in range(_CALLS):
            fails = number % _EACH == 0
            if fails and kind == FailureType.DEPENDENCY.value:
                parent = engine.submit(call, FailureType.FAILURE.value, number)
                tasks.append(engine.submit(call, "", number, parent))
            else:
                tasks.append(engine.submit(call, kind if fails else "", number))
        for number, task in enumerate(tasks):
            try:
                failed = task.result() != number
            except BaseException:
                failed = True
            chosen += failed and number % _EACH == 0
            others += failed and number % _EACH != 0
        seconds = time.perf_counter() - begin
    return f"{_CALLS} {chosen} {others} {seconds:.2f}"


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "run":
        sys.exit(run_taps(words))
    print(fail(*words), flush=True)
