"""The environment of a task of a planned run, in addition to passed variables
(:mod:`vgrads.agent.environment`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vgrads.execmgr.tasks.order import TaskOrder


def environment_for(
    order: TaskOrder, passed: Mapping[str, str], folder: Path | None
) -> dict[str, str]:
    """Return the environment of a task. ``passed``: variables that it gets from elsewhere;
    ``folder``: its scratch folder, None where only the node knows it."""
    payload = {
        "VGRADS_WORKFLOW": order.key[0],
        "VGRADS_TASK": order.key[1],
        "VGRADS_SLOT": order.slot,
        "VGRADS_PROCS": str(order.procs),
        "OMP_NUM_THREADS": str(order.procs),
    }
    own = {"VGRADS_FOLDER": str(folder)} if folder else {}
    return {**passed, **payload, **own, **dict(order.environment.env)}
