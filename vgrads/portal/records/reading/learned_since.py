"""What was learned since the last stored plan of a set: why its promise is another one now."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from vgrads.api.plans.planning import Planned
from vgrads.kernel.errors import SiteError
from vgrads.kernel.units import format_count, format_share
from vgrads.planner.plan import Plan
from vgrads.portal.records.reader import OPERATOR, RecordReader
from vgrads.portal.records.reading.opening import open_reader


def add_learned_note(planned: Planned) -> Planned:
    """Return a plan of the operator with :func:`describe_learned_since` among its notes; as it is
    where there is no database."""
    try:
        with open_reader() as reader:
            note = describe_learned_since(reader, planned.plan)
    except (SiteError, OSError):
        return planned
    if not note:
        return planned
    return replace(planned, plan=replace(planned.plan, notes=(*planned.plan.notes, note)))


def describe_learned_since(reader: RecordReader, plan: Plan, owner: str = OPERATOR) -> str:
    """Return what was learned since the last stored plan of the same set, if that promised
    something else; else nothing."""
    rows = reader.rows(
        "SELECT id, created, plan FROM workflow_set WHERE name = :name AND owner = :owner "
        "AND state = 'planned' ORDER BY created DESC, id DESC LIMIT 1",
        name=plan.set_name,
        owner=owner,
    )
    if not rows:
        return ""
    set_id, created, text = rows[0]
    before = json.loads(text or "{}")
    if not plan.feasible or not before.get("feasible") or not _is_same(before, plan):
        return ""
    promised = format_share(before["promise"]["probability"])
    if promised == format_share(plan.promise.probability):
        return ""
    ((slots,),) = reader.rows(
        "SELECT COUNT(*) FROM acquisition JOIN run ON acquisition.run_id = run.id "
        "WHERE run.set_id = :set_id OR run.started >= :created",
        set_id=set_id,
        created=created,
    )
    parts = [
        format_count(count, noun)
        for count, noun in ((_count_new_run_times(before, plan), "run time"), (slots, "slot start"))
        if count
    ]
    if not parts:
        return ""
    return (
        f"since the last plan of this set, which promised {promised}, {' and '.join(parts)} "
        f"{'was' if parts[0].startswith('1 ') and len(parts) == 1 else 'were'} learned"
    )


def _is_same(before: Mapping[str, Any], plan: Plan) -> bool:
    """Return whether an earlier plan is about the same tasks and the same request."""
    return (
        (before["deadline_s"], before["needed"], before["promise"]["requested"])
        == (plan.deadline_s, plan.needed, plan.requested_probability)
    ) and _list_tasks(before["run_times"]) == _list_tasks(plan.run_times)


def _list_tasks(entries: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return {entry["kind"]: entry["tasks"] for entry in entries}


def _count_new_run_times(before: Mapping[str, Any], plan: Plan) -> int:
    """Return how many more run times the kinds of a set have."""
    counts = {entry["kind"]: entry["observations"] for entry in before["run_times"]}
    return sum(max(0, entry["observations"] - counts[entry["kind"]]) for entry in plan.run_times)
