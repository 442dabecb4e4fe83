"""``vgrads change`` of a bag: a goal that is changed while the bag works."""

from __future__ import annotations

from typing import Any

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.storage.goal_age import change_text, describe_goal_promise
from vgrads.dispatch.storage.status import is_worked_on
from vgrads.kernel.errors import InputError
from vgrads.operations.bags.goal_change import GoalChange
from vgrads.portal.jobs.bag_goals import decided_goal, request_goal_change
from vgrads.portal.records.reading.bags import HERE, get_bag
from vgrads.portal.records.reading.opening import open_reader

_PATIENCE_S = 10.0


def change_goal(bag_id: str, change: GoalChange) -> dict[str, Any]:
    """Change the goal of a bag; return the request, the goal once its dispatcher has decided, and a
    message. Raise InputError, in one line, where the change is refused."""
    with open_reader() as reader:
        row = get_bag(reader, bag_id)
    request = request_goal_change(row, change)
    result = {"id": row.id, "request": request, "goal": None}
    if not is_worked_on(dispatcher_folder(row.dispatcher)):
        later = f"'vgrads bags resume {row.id}' continues the bag" if row.owner == HERE else ""
        text = "no dispatcher is running: the goal is changed once one does"
        return result | {"message": f"{text}; {later}" if later else text}
    goal = decided_goal(row, request, _PATIENCE_S)
    if goal is None:
        return result | {"message": "asked its dispatcher to change the goal"}
    decided = goal["changes"][request]
    if decided["refused"]:
        raise InputError(decided["refused"], where=row.id)
    return result | {
        "goal": goal,
        "message": f"{change_text(decided)}; {describe_goal_promise(goal)}",
    }
