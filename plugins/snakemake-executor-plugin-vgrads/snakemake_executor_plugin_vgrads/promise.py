"""Handing a graph over, and the promise that is made for it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError

from portal.client import RunHandle
from snakemake_executor_plugin_vgrads.service import Served, asked

Task = Mapping[str, Any]
_LADDER = ("15m", "1h", "4h", "12h", "1d", "2d", "4d", "7d", "14d", "30d")
"""Deadlines that are tried where none was given, the soonest first."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is asked of a set. ``deadline`` None: the soonest that can be promised."""

    name: str
    deadline: str | None
    probability: float
    together: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Promised:
    """A set that was planned; ``workflow``: the name of this graph in it."""

    set_id: str
    workflow: str
    plan: Mapping[str, Any]
    deadline: str

    @property
    def sentence(self) -> str:
        """The promise in words."""
        at = (datetime.now().astimezone() + timedelta(seconds=self.plan["deadline_s"])).strftime(
            "%Y-%m-%d %H:%M"
        )
        sure, cost = self.plan["promise"]["probability"], self.plan.get("cost_usd") or 0.0
        price = f", for up to ${cost:.2f}" if cost else ""
        return f"vgrads: done by {at} with probability {sure:.2f}{price} ({self.set_id})"


def hand_over(served: Served, tasks: Sequence[Task], wishes: Wishes) -> Promised:
    """Have a graph planned; WorkflowError with what is lacking where no plan can hold it in time."""
    if wishes.deadline is not None:
        found = _planned(served, tasks, wishes, wishes.deadline)
    else:
        found = _soonest(served, tasks, wishes)
    if not found.plan["feasible"]:
        raise WorkflowError(
            f"vgrads: this cannot be done in {found.deadline}: {found.plan['lacking']}. "
            "A later --vgrads-deadline may do, or other sites (--vgrads-sites)."
        )
    return found


def _soonest(served: Served, tasks: Sequence[Task], wishes: Wishes) -> Promised:
    """The plan for the soonest deadline of the ladder that is as sure as asked, else for the last one."""
    made: dict[int, Promised] = {}

    def sure(position: int) -> bool:
        made[position] = _planned(served, tasks, wishes, _LADDER[position])
        plan = made[position].plan
        return bool(plan["feasible"] and plan["promise"]["probability"] >= wishes.probability)

    last = len(_LADDER) - 1
    first = bisect_left(range(last), True, key=sure)
    return made[first] if first in made else _planned(served, tasks, wishes, _LADDER[first])


def _planned(served: Served, tasks: Sequence[Task], wishes: Wishes, deadline: str) -> Promised:
    document = {
        "name": wishes.name, "deadline": deadline, "probability": wishes.probability, "released": True,
        "workflows": [{"name": wishes.name, "tasks": list(tasks)}],
    }  # fmt: skip
    set_id = str(asked(served.client.submit, document))
    plan: Any = asked(served.client.plan, set_id)
    return Promised(set_id=set_id, workflow=f"{wishes.name}-1", plan=plan, deadline=deadline)


def begin(served: Served, promised: Promised) -> RunHandle:
    """Have the slots of a set opened; its tasks begin when they are released."""
    run: Any = asked(served.client.run, promised.set_id)
    return run  # type: ignore[no-any-return]
