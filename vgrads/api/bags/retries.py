"""Which tasks of a bag can be retried, by the journal of its dispatcher."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vgrads.dispatch.core.step import find_retriable
from vgrads.dispatch.core.tasks import ENDED, WORDS
from vgrads.dispatch.storage.journal import read_state
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count


class NotRetriableError(InputError):
    """The bag or the task is in a state in which it cannot be retried."""


def count_retriable(folder: Path, number: int, bag_id: str, tasks: Sequence[int] | None) -> int:
    """Return the number of tasks that a retry does again: of these, or (None) of all that failed or
    were not run. Raise InputError for a task that the bag does not have, NotRetriableError where
    there is none, or one has not ended."""
    bag = read_state(folder / "journal").bags.get(number)
    if bag is None:
        raise NotRetriableError(
            f"bag '{bag_id}' has not started", fix=f"vgrads bags resume {bag_id} starts it"
        )
    status = bag.tasks.status
    for task in tasks or ():
        if not 0 <= task < len(status):
            raise InputError(
                f"bag '{bag_id}' has no task {task}: its "
                f"{format_count(len(status), 'task', 'are')} numbered from 0",
                where="TASK",
            )
        if status[task] not in ENDED:
            raise NotRetriableError(
                f"task {task} of bag '{bag_id}' has not ended: it is in the state "
                f"'{WORDS[status[task]]}'",
                where="TASK",
            )
    chosen = find_retriable(status, tasks)
    if not chosen:
        fix = f"to do tasks again that are done, name them: vgrads retry {bag_id} TASK"
        what = "all tasks are done" if bag.over else "it has not ended, and no task has failed"
        raise NotRetriableError(f"bag '{bag_id}' has nothing to retry: {what}", fix=fix)
    return len(chosen)
