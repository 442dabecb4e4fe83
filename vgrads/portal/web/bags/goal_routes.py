"""REST: change the goal of a bag while it works."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Response
from starlette.exceptions import HTTPException

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.storage.goal_requests import read_goal_requests
from vgrads.portal.records.reading.bags import BagEntry
from vgrads.portal.web.answers import answers
from vgrads.portal.web.bags.access import BagId, refuse_unattended, visible_bag
from vgrads.portal.web.goal_fields import GoalPatch
from vgrads.portal.web.guard import IfMatch, Submitter
from vgrads.portal.web.problems import message
from vgrads.portal.web.service import Service

_TAG = re.compile(r'"goal-(\d{1,9})"')


class BagGoalPatch(GoalPatch):
    """What changes of a bag's goal. ``deadline``: a time from now, or an instant with its zone;
    ``at_least``: a number of tasks, or a share as ``90%``."""


def add_goal_routes(app: FastAPI, service: Service) -> None:
    """Add the route."""

    @app.patch(
        "/v1/bags/{bag_id}/goal",
        status_code=202,
        **answers(
            "bags.GoalChangeSent",
            operation="change_bag_goal",
            tag="bags",
            errors=(404, 409, 412, 428, 507),
        ),
    )
    def change_bag_goal(
        bag_id: BagId,
        who: Submitter,
        change: BagGoalPatch,
        response: Response,
        if_match: IfMatch = None,
    ) -> dict[str, Any]:
        """Change the goal of a bag that works; its nodes are planned anew at once. ``If-Match``:
        the ``ETag`` of the bag. ``goal.changes`` of the bag then has the change, or why its
        dispatcher refused it after all."""
        row = visible_bag(service, bag_id, who)
        if if_match is None:
            raise HTTPException(428, "If-Match: the ETag of the bag is needed")
        number = send_goal_change(service, row, change, if_match)
        response.headers["ETag"] = goal_tag(row)
        text = message("asked its dispatcher to change the goal")
        return {"id": row.id, "request": number, **text}


def send_goal_change(service: Service, row: BagEntry, change: BagGoalPatch, if_match: str) -> int:
    """Have the dispatcher of a bag change its goal; return the number of the request. ``if_match``:
    the tag of the goal that is to be changed. Raise InputError for what is refused, HTTPException
    409 or 412."""
    refuse_unattended(row, "resume")
    number = _change(row, change, _check_expected(row, if_match))
    service.supervisor.notify()
    return number


def _change(row: BagEntry, change: BagGoalPatch, expected: int | None) -> int:
    # imported late: the service starts without the dispatcher
    from vgrads.operations.bags.goal_change import GoalChange
    from vgrads.portal.jobs.bag_goals import NoGoalError, request_goal_change

    try:
        return request_goal_change(row, GoalChange(**change.stated()), expected)
    except NoGoalError as error:
        raise HTTPException(409, str(error)) from error


def goal_tag(row: BagEntry) -> str:
    """Return the tag of a bag's goal: it changes with each request to change it."""
    requests = read_goal_requests(dispatcher_folder(row.dispatcher), row.number)
    return f'"goal-{len(requests)}"'


def undecided(row: BagEntry, bag: Mapping[str, Any]) -> int:
    """Return how many requests to change the goal of a bag, with this status, its dispatcher has
    not decided yet."""
    requests = read_goal_requests(dispatcher_folder(row.dispatcher), row.number)
    return max(0, len(requests) - len((bag.get("goal") or {}).get("changes", ())))


def _check_expected(row: BagEntry, if_match: str) -> int | None:
    """Return how many requests there must be; 412 for any other tag than the present one."""
    if if_match == "*":
        return None
    matched = _TAG.fullmatch(if_match)
    if matched is None or if_match != goal_tag(row):
        raise HTTPException(412, f"If-Match: the goal has changed; its ETag is {goal_tag(row)}")
    return int(matched[1])
