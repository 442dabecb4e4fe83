"""Promise a deadline on machines you do not own.

Python programs and notebooks import this package (docs/python.md)::

    import vgrads

    print(vgrads.bound("jobs.swf.gz", procs=16, walltime="2h"))

Its names load when they are first used: ``import vgrads`` itself costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
"""As that of :mod:`typing`, which takes longer to import than all else until Ctrl-C is looked after
(``vgrads/__main__.py``)."""

if TYPE_CHECKING:
    from vgrads.executor.encoding import TaskFailed as TaskFailed
    from vgrads.executor.executor import Executor as Executor
    from vgrads.executor.joblib_registration import register_joblib as register_joblib
    from vgrads.executor.options import task as task
    from vgrads.interface.backtests import BacktestResult as BacktestResult
    from vgrads.interface.bag_runs import BagResult as BagResult
    from vgrads.interface.bags import Bag as Bag
    from vgrads.interface.generated.backtests import backtest as backtest
    from vgrads.interface.generated.plans import plan as plan
    from vgrads.interface.generated.plans import run as run
    from vgrads.interface.generated.queues import bound as bound
    from vgrads.interface.generated.queues import probability as probability
    from vgrads.interface.offers import OfferResult as OfferResult
    from vgrads.interface.offers import offers as offers
    from vgrads.interface.plans import PlanResult as PlanResult
    from vgrads.interface.queue_results import BoundResult as BoundResult
    from vgrads.interface.queue_results import ProbabilityResult as ProbabilityResult
    from vgrads.interface.queue_results import TrajectoryResult as TrajectoryResult
    from vgrads.interface.run_results import RunResult as RunResult
    from vgrads.interface.sets import LoadedSet as LoadedSet
    from vgrads.interface.sets import read_set as read_set
    from vgrads.kernel.errors import InfeasibleError as InfeasibleError
    from vgrads.kernel.errors import InputError as InputError
    from vgrads.kernel.errors import SiteError as SiteError
    from vgrads.kernel.errors import VgradsError as VgradsError
    from vgrads.portal.client import Client as Client

_MODULES = {
    "executor.encoding": ("TaskFailed",),
    "executor.executor": ("Executor",),
    "executor.joblib_registration": ("register_joblib",),
    "executor.options": ("task",),
    "interface.backtests": ("BacktestResult",),
    "interface.generated.backtests": ("backtest",),
    "interface.bag_runs": ("BagResult",),
    "interface.bags": ("Bag",),
    "interface.offers": ("offers", "OfferResult"),
    "interface.generated.queues": ("bound", "probability"),
    "interface.generated.plans": ("plan", "run"),
    "interface.plans": ("PlanResult",),
    "interface.queue_results": ("BoundResult", "ProbabilityResult", "TrajectoryResult"),
    "interface.run_results": ("RunResult",),
    "interface.sets": ("read_set", "LoadedSet"),
    "kernel.errors": ("VgradsError", "InputError", "InfeasibleError", "SiteError"),
    "portal.client": ("Client",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "BacktestResult",
    "Bag",
    "BagResult",
    "BoundResult",
    "Client",
    "Executor",
    "InfeasibleError",
    "InputError",
    "LoadedSet",
    "OfferResult",
    "PlanResult",
    "ProbabilityResult",
    "RunResult",
    "SiteError",
    "TaskFailed",
    "TrajectoryResult",
    "VgradsError",
    "backtest",
    "bound",
    "offers",
    "plan",
    "probability",
    "read_set",
    "register_joblib",
    "run",
    "task",
]


def __getattr__(name: str) -> object:
    """A public name, loaded when it is first used (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'vgrads' has no attribute '{name}'")
    from importlib import import_module  # noqa: PLC0415

    value: object = getattr(import_module(f"vgrads.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
