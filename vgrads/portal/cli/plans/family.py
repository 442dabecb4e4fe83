"""Status, logs, cancel, resume, explain and retry for whatever an id or a name means: a run, a set,
a bag or a pool. What concerns bags and pools is imported for them alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, NoReturn

import typer

from vgrads.kernel.errors import InputError
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.requests import CommandOutput, LinesOutput
from vgrads.portal.records.reading.opening import open_reader
from vgrads.portal.records.reading.run_rows import NamedWork, find_named, refuse_inapplicable

if TYPE_CHECKING:
    from vgrads.operations.runs.requests import ChangeRequest

OfWork = Callable[[str], None]


def run_of(
    name: str, verb: str, for_bag: OfWork | None = None, for_pool: OfWork | None = None
) -> str:
    """Return the id of a run, or of the newest run of a set; for a bag or a pool, do this with its
    id and end the command, or raise InapplicableError."""
    work = _make_work_commands(name, verb, for_bag, for_pool)
    if not work.run_id:
        raise InputError(f"set '{work.id}' has not run", fix="list runs with 'vgrads status'")
    return work.run_id


def plan_of(name: str, for_bag: OfWork, for_pool: OfWork) -> str:
    """Return the id of a set or run; for a bag or a pool as with :func:`run_of`."""
    return _make_work_commands(name, "explain", for_bag, for_pool).id


def work_of(name: str, verb: str) -> NamedWork:
    """Return what a name means. Raise InapplicableError where it does not have the action."""
    with open_reader() as reader:
        work = find_named(reader, name)
    refuse_inapplicable(work, verb)
    return work


def _make_work_commands(
    name: str, verb: str, for_bag: OfWork | None, for_pool: OfWork | None
) -> NamedWork:
    work = work_of(name, verb)
    instead = {"bag": for_bag, "pool": for_pool}.get(work.kind)
    if instead is not None:
        _end_with(instead, work.id)
    return work


def _end_with(instead: OfWork, id_: str) -> NoReturn:
    instead(id_)
    raise typer.Exit


def status_of_bag(bag: str, as_json: bool) -> None:
    """Show the status of a bag."""
    from vgrads.operations.bags import requests
    from vgrads.portal.cli.bags import commands

    commands.status(requests.BagStatusRequest(bag=bag), CommandOutput(as_json=as_json))


def status_of_pool(pool: str, as_json: bool) -> None:
    """Show the status of a pool."""
    from vgrads.operations.pools import requests
    from vgrads.portal.cli.pools import commands as pool_commands

    pool_commands.status(requests.PoolStatusRequest(pool=pool), CommandOutput(as_json=as_json))


def logs_of_bag(bag: str, task: str | None, follow: bool, as_json: bool) -> None:
    """Show the attempts and the output of a bag's tasks."""
    from vgrads.operations.bags import requests
    from vgrads.portal.cli.bags import commands

    if follow:
        raise InputError("follows runs, not bags", where="--follow")
    tasks = () if task is None else (_parse_number(task),)
    commands.logs(requests.BagLogsRequest(bag=bag, tasks=tasks), LinesOutput(as_json=as_json))


def change_bag(bag_id: str, request: ChangeRequest, as_json: bool) -> None:
    """Change the goal of a bag."""
    from vgrads.operations.bags.goal_change import GoalChange
    from vgrads.portal.cli.bags.goal_change import change_goal

    if request.add_sites or request.drop_sites:
        raise InputError("a bag keeps its sites while it works", where="--add-site, --drop-site")
    if request.preview:
        raise InputError("is for sets: a bag's dispatcher plans it anew", where="--preview")
    shared = {field.name: getattr(request, field.name) for field in fields(GoalChange)}
    answer = change_goal(bag_id, GoalChange(**shared))
    answer_with(as_json, answer, lambda: str(answer["message"]))


def cancel_bag(bag: str, as_json: bool) -> None:
    """Cancel a bag."""
    from vgrads.operations.bags import requests
    from vgrads.portal.cli.bags import commands

    commands.cancel(requests.CancelBagRequest(bag=bag), CommandOutput(as_json=as_json))


def resume_bag(bag: str, as_json: bool) -> None:
    """Resume a bag; ends with its exit code."""
    from vgrads.operations.bags import requests
    from vgrads.portal.cli.bags import commands

    request = requests.ResumeBagRequest(bag=bag)
    raise typer.Exit(commands.resume(request, CommandOutput(as_json=as_json)))


def retry_bag(bag: str, tasks: Sequence[str], as_json: bool) -> None:
    """Do tasks of a bag again; ends with its exit code."""
    from vgrads.operations.bags import requests
    from vgrads.portal.cli.bags import commands

    request = requests.RetryBagRequest(bag=bag, tasks=tuple(map(_parse_number, tasks)))
    raise typer.Exit(commands.retry(request, CommandOutput(as_json=as_json)))


def explain_of_bag(bag: str, task: str | None, as_json: bool) -> None:
    """Explain the state of a bag's task, or without one the decisions about its nodes."""
    from vgrads.operations.bags import requests
    from vgrads.portal.cli.bags import commands

    number = None if task is None else _parse_number(task)
    commands.explain(
        requests.ExplainBagRequest(bag=bag, task=number), CommandOutput(as_json=as_json)
    )


def explain_of_pool(pool: str, as_json: bool) -> None:
    """Explain the last decision of a pool."""
    from vgrads.operations.pools import requests
    from vgrads.portal.cli.pools import commands as pool_commands

    pool_commands.explain(requests.ExplainPoolRequest(pool=pool), CommandOutput(as_json=as_json))


def stated(task: str | None) -> str:
    """Return a task's name. Raise InputError where it is missing."""
    if task is None:
        raise InputError("is missing", where="TASK")
    return task


def _parse_number(task: str) -> int:
    # isdigit alone accepts characters such as ², of which int makes no number
    if not task.isascii() or not task.isdigit():
        raise InputError(f"'{task}' is no number of a task of a bag", where="TASK")
    return int(task)
