"""Changes of bags' goals: checked and stored for their dispatchers, which apply them."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.goal_change import NO_GOAL, explain_goal_refusal, read_request
from vgrads.dispatch.storage.goal_requests import request_goal
from vgrads.dispatch.storage.status import read_json
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError
from vgrads.operations.bags.goal_change import GoalChange
from vgrads.portal.records.reading.bags import ENDED, BagEntry, read_bag_status

_LOOK_S, _PROMISE_S = 0.1, 3.0


class NoGoalError(InputError):
    """The bag has no goal, or has ended: nothing of it can be changed."""


def request_goal_change(row: BagEntry, change: GoalChange, expected: int | None = None) -> int:
    """Store a change of a bag's goal for its dispatcher, which applies it once, now or when it is
    started again; return the number of the request. ``expected``: how many there must be before.

    Raise InputError, in one line, where it is refused: NoGoalError for a bag that has none or has
    ended, StaleRequestError where others have come meanwhile.
    """
    request = read_request(**asdict(change), now=datetime.now(UTC))
    folder, status = dispatcher_folder(row.dispatcher), read_bag_status(row)
    if row.state in ENDED or status.get("state") in ENDED:
        raise NoGoalError(f"bag '{row.id}' has ended: {status.get('state', row.state)}")
    goal = status.get("goal")
    if not goal and (status or not _states_goal(row)):
        raise NoGoalError(NO_GOAL, where=row.id)
    document = _read_document(row)
    refused = explain_goal_refusal(
        request,
        is_over=False,
        spent_usd=goal["spent_usd"] if goal else 0.0,
        left_s=request.within_s,
        most=None if document.get("open") else row.tasks,
    )
    if refused:
        raise InputError(refused)
    try:
        return request_goal(folder, row.number, request.as_json(), expected)
    except OSError as error:
        raise InputError(
            f"the request cannot be stored: {error.strerror}", where=str(folder)
        ) from error


def decided_goal(row: BagEntry, request: int, patience_s: float) -> dict[str, Any] | None:
    """Return the goal of a bag once its dispatcher has decided a request, with the promise of the
    new goal where that comes soon; None where it did not decide in time."""
    end_s = time.monotonic() + patience_s
    goal: dict[str, Any] | None = None
    while time.monotonic() < end_s:
        present = read_bag_status(row).get("goal") or {}
        if len(present.get("changes", ())) > request:
            # from the decision on, only the promise of the new goal is waited for
            end_s = end_s if goal else min(end_s, time.monotonic() + _PROMISE_S)
            goal = present
            if goal["changes"][request]["refused"] or goal["promise"] is not None:
                break
        time.sleep(_LOOK_S)
    return goal


def _states_goal(row: BagEntry) -> bool:
    """Return whether the document of a bag that no dispatcher has read yet states a goal."""
    return validate(BagDocument, _read_document(row), row.id).goal is not None


def _read_document(row: BagEntry) -> dict[str, Any]:
    path = dispatcher_folder(row.dispatcher) / "bags" / f"{row.number:04d}" / "document.json"
    return dict(read_json(path, {}).get("document", {}))
