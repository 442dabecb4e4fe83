"""Submit a graph and obtain its promise."""

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
from snakemake_executor_plugin_vgrads.service import Served, call_service
from vgrads.portal.client import RunHandle
from vgrads.workflows.formats.snakemake_jobs import notes_of

Task = Mapping[str, Any]
_LADDER = ("15m", "1h", "4h", "12h", "1d", "2d", "4d", "7d", "14d", "30d")
"""Deadlines that are tried where none was given, the soonest first."""


@dataclass(frozen=True, kw_only=True)
class Together:
    """The set that contains this run as one workflow."""

    name: str
    of: int
    fraction: str
    wait: str


@dataclass(frozen=True, kw_only=True)
class PromiseOptions:
    """Options of the promise for a set. ``deadline`` None: the soonest that can be promised."""

    name: str
    deadline: str | None
    probability: float
    together: Together | None = None


@dataclass(frozen=True, kw_only=True)
class Promised:
    """A planned set. ``workflow``: the name of this graph in it; ``run``: the started run of a set
    of several workflows."""

    set_id: str
    workflow: str
    plan: Mapping[str, Any]
    deadline: str
    run: RunHandle | None = None

    @property
    def sentence(self) -> str:
        """Return the promise as a sentence."""
        at = (datetime.now().astimezone() + timedelta(seconds=self.plan["deadline_s"])).strftime(
            "%Y-%m-%d %H:%M"
        )
        sure, cost = self.plan["promise"]["probability"], self.plan.get("cost_usd") or 0.0
        price = f", for up to ${cost:.2f}" if cost else ""
        return f"vgrads: done by {at} with probability {sure:.2f}{price} ({self.set_id})"


class Promises:
    """The promises for one run of Snakemake: the first, and a new one where it cannot be kept."""

    def __init__(self, served: Served, settings: Any, name: str, logger: Logger) -> None:
        """``name``: of the workflow. Raises WorkflowError where the settings contradict each
        other."""
        self._served, self._logger = served, logger
        self._options = PromiseOptions(
            name=name,
            deadline=settings.deadline or None,
            probability=settings.probability,
            together=together_of(settings),
        )

    @property
    def with_others(self) -> bool:
        """Return True where the set consists of several runs."""
        return self._options.together is not None

    def first(self, tasks: Sequence[Task], alone: bool) -> Promised:
        """Return the promise for all unfinished tasks. ``alone``: also where the set consists of
        several runs."""
        if alone or not self.with_others:
            return self._report(submit_graph(self._served, tasks, self._options))
        return self._report(join(self._served, tasks, self._options, self._logger.info))

    def another(self, tasks: Sequence[Task]) -> Promised:
        """Return a new promise for the remaining tasks, without the deadline that cannot be
        kept."""
        options = replace(self._options, deadline=None, together=None)
        return self._report(submit_graph(self._served, tasks, options))

    def _report(self, promised: Promised) -> Promised:
        self._logger.info(promised.sentence)
        if promised.plan["promise"]["probability"] < self._options.probability:
            self._logger.warning(
                f"vgrads: this is less than the requested probability {self._options.probability}"
            )
        for warning in promised.plan.get("warnings") or ():
            self._logger.warning(f"vgrads: {warning}")
        for note in promised.plan.get("notes") or ():
            self._logger.info(f"vgrads: {note}")
        return promised


def submit_graph(served: Served, tasks: Sequence[Task], options: PromiseOptions) -> Promised:
    """Have a graph planned. Raise WorkflowError with the missing resources where no plan can keep
    the deadline."""
    if options.deadline is not None:
        promised = _planned(served, tasks, options, options.deadline)
    else:
        promised = _soonest(served, tasks, options)
    if not promised.plan["feasible"]:
        raise WorkflowError(
            f"vgrads: this cannot be done in {promised.deadline}: {promised.plan['lacking']}. "
            "Try a later --vgrads-deadline or other sites (--vgrads-sites)."
        )
    return promised


def _soonest(served: Served, tasks: Sequence[Task], options: PromiseOptions) -> Promised:
    """Return the plan for the soonest deadline of the ladder that reaches the requested
    probability, else for the last one."""
    promised: dict[int, Promised] = {}

    def sure(position: int) -> bool:
        promised[position] = _planned(served, tasks, options, _LADDER[position])
        plan = promised[position].plan
        return bool(plan["feasible"] and plan["promise"]["probability"] >= options.probability)

    last = len(_LADDER) - 1
    first = bisect_left(range(last), True, key=sure)
    return (
        promised[first] if first in promised else _planned(served, tasks, options, _LADDER[first])
    )


def _planned(
    served: Served, tasks: Sequence[Task], options: PromiseOptions, deadline: str
) -> Promised:
    document = {
        "name": options.name,
        "deadline": deadline,
        "probability": options.probability,
        "released": True,
        "workflows": [_workflow(options, tasks)],
    }
    set_id = str(call_service(served.client.submit, document))
    plan: Any = call_service(served.client.plan, set_id)
    # the service spells the name: a folder's may have characters that a workflow's cannot have
    workflow = next(iter(plan["promise"]["by_workflow"]), "")
    return Promised(set_id=set_id, workflow=workflow, plan=plan, deadline=deadline)


def join(
    served: Served,
    tasks: Sequence[Task],
    options: PromiseOptions,
    callback: Callable[[str], object],
) -> Promised:
    """Add a graph to a joint submission of several runs, and wait for the others."""
    with_others = options.together
    assert with_others is not None
    if options.deadline is None:
        raise WorkflowError(
            "--vgrads-set needs --vgrads-deadline: all runs of the set must state the same one"
        )
    document = {
        "ticket": secrets.token_hex(8),
        "of": with_others.of,
        "fraction": with_others.fraction or "1",
        "deadline": options.deadline,
        "probability": options.probability,
        "wait": with_others.wait,
        "workflow": _workflow(options, tasks),
    }

    def report(answer: Mapping[str, Any]) -> None:
        callback(
            f"vgrads: {answer['came']} of {answer['of']} runs of set '{with_others.name}' have "
            "been submitted"
        )

    answer: Any = call_service(served.client.gather, with_others.name, document, report)
    if answer["state"] == "failed":
        raise WorkflowError(f"vgrads: set '{with_others.name}' cannot be run: {answer['reason']}")
    absent = answer["of"] - answer["came"]
    if absent:
        callback(
            f"vgrads: {absent} of {answer['of']} runs of set '{with_others.name}' have not "
            "been submitted and are left out"
        )
    plan: Any = call_service(served.client.plan, answer["set"])
    return Promised(
        set_id=answer["set"],
        workflow=answer["workflow"],
        plan=plan,
        deadline=options.deadline,
        run=RunHandle(answer["set"], answer["run"]),
    )


def _workflow(options: PromiseOptions, tasks: Sequence[Task]) -> dict[str, Any]:
    return {
        "name": options.name,
        "tasks": [document_of(task) for task in tasks],
        "notes": notes_of(tasks),
    }


def begin(served: Served, promised: Promised) -> RunHandle:
    """Request the slots of a set; its tasks start when they are released."""
    run: Any = promised.run or call_service(served.client.run, promised.set_id)
    return run  # type: ignore[no-any-return]


def together_of(settings: Any) -> Together | None:
    """Return the set that this run is a part of. Raise WorkflowError where only one of the two
    settings is given."""
    if not settings.set:
        if settings.of or settings.fraction:
            raise WorkflowError(
                "--vgrads-of and --vgrads-fraction need a set: give --vgrads-set NAME"
            )
        return None
    if not settings.of or not settings.url:
        raise WorkflowError(
            "--vgrads-set needs --vgrads-of, the number of its runs, and --vgrads-url, the "
            "service to which all of them are submitted"
        )
    return Together(
        name=settings.set, of=settings.of, fraction=settings.fraction, wait=settings.wait
    )
