"""What the executor keeps of jobs that it was given, and of the sets that hold slots for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from portal.client import RunHandle
from snakemake_executor_plugin_vgrads.promise import Promised


@dataclass(slots=True)
class HandedOver:
    """A job that was handed over. ``state``: as vgrads told last; ``dropped``: it is to be left if it has not begun."""

    info: SubmittedJobInfo
    task: str
    command: str
    memory_mib: float
    round: Round | None = None
    state: str = "released"
    dropped: bool = False


@dataclass(slots=True)
class Round:
    """A set that holds slots for the jobs that are left: the first one, and another where one could not keep all."""

    promised: Promised
    run: RunHandle
    tasks: set[str] = field(default_factory=set)
    over: bool = False
