"""What a task of a planned run finds in its environment, beside what it is passed
(:mod:`vgrads.agent.environment`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vgrads.execmgr.engines.base import TaskOrder


def environment_for(
    order: TaskOrder, kept: Mapping[str, str], mark: tuple[str, str], folder: Path
) -> dict[str, str]:
    """The environment of a task. ``kept``: what it is passed on; ``mark``: name, value;
    ``folder``: its own."""
    told = {
        "VGRADS_WORKFLOW": order.key[0],
        "VGRADS_TASK": order.key[1],
        "VGRADS_SLOT": order.slot,
        "VGRADS_PROCS": str(order.procs),
        "OMP_NUM_THREADS": str(order.procs),
        "VGRADS_FOLDER": str(folder),
    }
    return {**kept, **told, **dict(order.manner.env), mark[0]: mark[1]}
