"""What the executor keeps of jobs that it was given, and of the sets that hold slots for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_vgrads.promise import Promised
from vgrads.portal.client import RunHandle


@dataclass(slots=True)
class HandedOver:
    """A job that was handed over. ``name``: its task's in the round; ``after``: answers up to this
    number are about earlier releases; ``state``: as vgrads told last; ``dropped``: it is to be left
    if it has not begun."""

    info: SubmittedJobInfo
    task: str
    command: str
    memory_mib: float
    round: Round | None = None
    name: str = ""
    after: int = 0
    state: str = "released"
    dropped: bool = False


@dataclass(slots=True)
class Round:
    """A set that holds slots for the jobs that are left: the first one, and another where one could
    not keep all.

    ``done``: how often it was told of a task that it is done; Snakemake, which then looks at its
    outputs, may want it again.
    """

    promised: Promised
    run: RunHandle
    tasks: set[str] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)
    over: bool = False
