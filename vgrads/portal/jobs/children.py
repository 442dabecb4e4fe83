"""What the service's other processes do: named here, imported there.

The service itself only names these functions, so it starts without planning and execution. Their
processes are forked from one that has all of it loaded (:mod:`vgrads.portal.jobs.preload`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from vgrads.kernel.errors import InputError
from vgrads.kernel.problems import list_problems
from vgrads.portal.jobs.forkserver import be_a_child
from vgrads.portal.records.store import Store

if TYPE_CHECKING:
    from vgrads.operations.runs.requests import ChangeRequest
    from vgrads.portal.jobs.alarm_delivery import AlarmSettings
    from vgrads.portal.jobs.worker import CheckedSet
    from vgrads.portal.records.reading.bags import BagEntry
    from vgrads.traces.log_queue import LogQueue
    from vgrads.vgrid.catalog import Catalog

Json = dict[str, Any]
Call = tuple[Callable[..., Json], tuple[Any, ...]]
"""A function of this module, and its arguments."""


def warm(catalog: Catalog) -> None:
    """Learn from all histories of a catalogue; unreadable ones are reported when they are
    queried."""
    from vgrads.portal.jobs import worker

    worker.warm(catalog)


def plan_set(url: str, catalog: Catalog, set_id: str) -> None:
    """Plan a set of the database at ``url``."""
    from vgrads.portal.jobs import worker

    worker.plan_in_child(url, catalog, set_id)


def run_set(url: str, catalog: Catalog, run_id: str, alarms: AlarmSettings) -> None:
    """Run, or resume, a run of the database at ``url``; a process of its own."""
    be_a_child()
    from vgrads.portal.jobs import worker

    worker.run_in_child(url, catalog, run_id, alarms)


def run_bags(url: str, catalog: Catalog, dispatcher: str) -> None:
    """Run the bags of a dispatcher of the database at ``url``; a process of its own."""
    be_a_child()
    from vgrads.portal.jobs import bag_worker

    bag_worker.bags_in_child(url, catalog, dispatcher)


def check_set(
    body: bytes, kind: str, most_tasks: int, change: Mapping[str, Any] | None = None
) -> CheckedSet:
    """Read and check a set submitted from outside; ``change``: values instead of its own."""
    from vgrads.portal.jobs import worker

    return worker.check_set(body, kind, most_tasks, change)


def check_body(model: type[BaseModel], body: bytes) -> BaseModel:
    """Check a JSON body: return the document. Raise InputError for the first wrong field."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first, *_ = list_problems(error, model, lambda _: None)
        where = "body" if first.field == "document" else first.field
        raise InputError(first.what, where=where) from None


def submit_bag(
    url: str,
    catalog: Catalog,
    granted: frozenset[str],
    owner: str,
    text: tuple[bytes, str],
    rerun: bool = True,
) -> BagEntry:
    """Read a bag that an owner submits over REST, body and its kind, and store it in the database
    at ``url``. ``rerun``: do the tasks again that earlier bags have done."""
    from vgrads.portal.jobs import bag_worker

    document = bag_worker.read_document(*text, owner)
    with Store(url) as store:
        return bag_worker.submit_bag(store, catalog, granted, document, rerun)


def check_tasks(url: str, set_id: str, names: Sequence[str]) -> None:
    """Raise InputError for a name that no task of a set has."""
    from vgrads.portal.jobs import worker

    worker.check_tasks(url, set_id, names)


def tasks_of_set(url: str, set_id: str) -> dict[str, frozenset[str]]:
    """Return workflow → its tasks, of a submitted set."""
    from vgrads.portal.jobs import worker

    return worker.tasks_of_set(url, set_id)


def what_if(
    url: str, catalog: Catalog, of_set: tuple[str, str, str], wishes: Mapping[str, Any]
) -> Json:
    """Return the promise for a set (id, document, owner) with other options."""
    from vgrads.portal.jobs import worker

    return worker.what_if_in_child(url, catalog, of_set, wishes)


def set_of_workflow(text: str, deadline: str, most_tasks: int) -> str | None:
    """Return the text of a set of the workflow that a text describes; None for other texts."""
    from vgrads.api.plans.convert import set_of_workflow_text

    return set_of_workflow_text(text, deadline, most_tasks)


def promise_of_text(
    url: str, catalog: Catalog, owner: str, written: tuple[bytes, Mapping[str, Any]], most: int
) -> Json:
    """Return the promise for a set that is not submitted: text, and values instead of its own."""
    from vgrads.portal.jobs import worker

    return worker.promise_in_child(url, catalog, owner, written, most)


def preview_change(url: str, run_id: str, request: ChangeRequest, by: str) -> Json:
    """Return what a run would promise for a changed request."""
    from vgrads.portal.jobs import run_changes

    return run_changes.preview_change(url, run_id, request, by)


def recorded_attempts(url: str, run_id: str) -> list[Json]:
    """Return every attempt of a run, without output."""
    from vgrads.portal.records.reading import attempts

    return attempts.read_recorded_attempts(url, run_id)


def record_picture(history: str, log_queue: LogQueue, dark: bool = False) -> bytes:
    """Draw the bounds of a queue against its waits, as SVG."""
    from vgrads.portal.charts import queue_record

    return queue_record.record_picture(history, log_queue, dark)
