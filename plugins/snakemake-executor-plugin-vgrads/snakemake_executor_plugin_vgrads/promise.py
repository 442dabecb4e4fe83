"""Handing a graph over, and the promise that is made for it."""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from logging import Logger
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError

from snakemake_executor_plugin_vgrads.graph import document_of
from snakemake_executor_plugin_vgrads.service import Served, asked
from vgrads.portal.client import RunHandle
from vgrads.workflows.formats.snakemake_jobs import notes_of

Task = Mapping[str, Any]
_LADDER = ("15m", "1h", "4h", "12h", "1d", "2d", "4d", "7d", "14d", "30d")
"""Deadlines that are tried where none was given, the soonest first."""


@dataclass(frozen=True, kw_only=True)
class Together:
    """The set that this run is one workflow of."""

    name: str
    of: int
    fraction: str
    wait: str


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is asked of a set. ``deadline`` None: the soonest that can be promised."""

    name: str
    deadline: str | None
    probability: float
    together: Together | None = None


@dataclass(frozen=True, kw_only=True)
class Promised:
    """A set that was planned; ``workflow``: the name of this graph in it; ``run``: of a set of
    several, which has begun."""

    set_id: str
    workflow: str
    plan: Mapping[str, Any]
    deadline: str
    run: RunHandle | None = None

    @property
    def sentence(self) -> str:
        """The promise in words."""
        at = (datetime.now().astimezone() + timedelta(seconds=self.plan["deadline_s"])).strftime(
            "%Y-%m-%d %H:%M"
        )
        sure, cost = self.plan["promise"]["probability"], self.plan.get("cost_usd") or 0.0
        price = f", for up to ${cost:.2f}" if cost else ""
        return f"vgrads: done by {at} with probability {sure:.2f}{price} ({self.set_id})"


class Promises:
    """The promises that one run of Snakemake is made: the first, and another where one does not
    hold."""

    def __init__(self, served: Served, settings: Any, name: str, logger: Logger) -> None:
        """``name``: of its workflow. WorkflowError where the settings contradict each other."""
        self._served, self._logger = served, logger
        self._wishes = Wishes(
            name=name,
            deadline=settings.deadline or None,
            probability=settings.probability,
            together=together_of(settings),
        )

    @property
    def with_others(self) -> bool:
        """True where the set is one of several runs."""
        return self._wishes.together is not None

    def first(self, tasks: Sequence[Task], alone: bool) -> Promised:
        """For all that is to be done; ``alone``: also where the set is one of several runs."""
        if alone or not self.with_others:
            return self._told(hand_over(self._served, tasks, self._wishes))
        return self._told(join(self._served, tasks, self._wishes, self._logger.info))

    def another(self, tasks: Sequence[Task]) -> Promised:
        """For what is left, without the deadline that cannot be kept."""
        wishes = replace(self._wishes, deadline=None, together=None)
        return self._told(hand_over(self._served, tasks, wishes))

    def _told(self, promised: Promised) -> Promised:
        self._logger.info(promised.sentence)
        if promised.plan["promise"]["probability"] < self._wishes.probability:
            self._logger.warning(
                f"vgrads: that is less sure than {self._wishes.probability}, which was asked for"
            )
        for warning in promised.plan.get("warnings") or ():
            self._logger.warning(f"vgrads: {warning}")
        for note in promised.plan.get("notes") or ():
            self._logger.info(f"vgrads: {note}")
        return promised


def hand_over(served: Served, tasks: Sequence[Task], wishes: Wishes) -> Promised:
    """Have a graph planned; WorkflowError with what is lacking where no plan can hold it in
    time."""
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
    """The plan for the soonest deadline of the ladder that is as sure as asked, else for the last
    one."""
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
        "name": wishes.name,
        "deadline": deadline,
        "probability": wishes.probability,
        "released": True,
        "workflows": [_workflow(wishes, tasks)],
    }
    set_id = str(asked(served.client.submit, document))
    plan: Any = asked(served.client.plan, set_id)
    return Promised(set_id=set_id, workflow=f"{wishes.name}-1", plan=plan, deadline=deadline)


def join(
    served: Served, tasks: Sequence[Task], wishes: Wishes, told: Callable[[str], object]
) -> Promised:
    """Bring a graph to the set that several runs put together, and wait for the others."""
    with_others = wishes.together
    assert with_others is not None
    if wishes.deadline is None:
        raise WorkflowError(
            "--vgrads-set needs --vgrads-deadline: all runs of the set say the same one"
        )
    document = {
        "ticket": secrets.token_hex(8),
        "of": with_others.of,
        "fraction": with_others.fraction or "1",
        "deadline": wishes.deadline,
        "probability": wishes.probability,
        "wait": with_others.wait,
        "workflow": _workflow(wishes, tasks),
    }

    def tell(answer: Mapping[str, Any]) -> None:
        told(
            f"vgrads: {answer['came']} of {answer['of']} runs of set '{with_others.name}' have come"
        )

    answer: Any = asked(served.client.gather, with_others.name, document, tell)
    if answer["state"] == "failed":
        raise WorkflowError(f"vgrads: set '{with_others.name}' cannot be run: {answer['reason']}")
    absent = answer["of"] - answer["came"]
    if absent:
        told(
            f"vgrads: {absent} of {answer['of']} runs of set '{with_others.name}' have not "
            "come and were not waited for"
        )
    plan: Any = asked(served.client.plan, answer["set"])
    return Promised(
        set_id=answer["set"],
        workflow=answer["workflow"],
        plan=plan,
        deadline=wishes.deadline,
        run=RunHandle(answer["set"], answer["run"]),
    )


def _workflow(wishes: Wishes, tasks: Sequence[Task]) -> dict[str, Any]:
    return {
        "name": wishes.name,
        "tasks": [document_of(task) for task in tasks],
        "notes": notes_of(tasks),
    }


def begin(served: Served, promised: Promised) -> RunHandle:
    """Have the slots of a set opened; its tasks begin when they are released."""
    run: Any = promised.run or asked(served.client.run, promised.set_id)
    return run  # type: ignore[no-any-return]


def together_of(settings: Any) -> Together | None:
    """The set that this run is a part of; WorkflowError where only half of it is said."""
    if not settings.set:
        if settings.of or settings.fraction:
            raise WorkflowError(
                "--vgrads-of and --vgrads-fraction are of a set: give --vgrads-set NAME"
            )
        return None
    if not settings.of or not settings.url:
        raise WorkflowError(
            "--vgrads-set needs --vgrads-of, how many runs it has, and --vgrads-url, the "
            "service where they meet"
        )
    return Together(
        name=settings.set, of=settings.of, fraction=settings.fraction, wait=settings.wait
    )
