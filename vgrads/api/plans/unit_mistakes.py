"""A deadline without a unit that makes a plan impossible: probably another unit was intended."""

from __future__ import annotations

from collections.abc import Iterable

from vgrads.kernel.deadline import is_bare
from vgrads.kernel.units import LONGEST_S, format_count
from vgrads.planner.plan import Relaxation
from vgrads.workflows.sets import WorkflowSet

_UNITS = (("m", 60.0), ("h", 3600.0), ("d", 86400.0))
_USUAL = "h"


def ask_for_unit(workflow_set: WorkflowSet, changes: Iterable[Relaxation]) -> str:
    """Return a question about the deadline's unit where it was stated as a bare number: the
    smallest unit in which it would suffice, by the relaxations, otherwise hours. Empty where it has
    a unit, or is no longer that of the set."""
    text = workflow_set.deadline_text
    if not is_bare(text) or float(text) != workflow_set.deadline_s:
        return ""
    later_s = [change.amount for change in changes if change.unit == "s"]
    return find_question(text, workflow_set.deadline_s + min(later_s) if later_s else None)


def find_question(text: str, enough_s: float | None) -> str:
    """Return the question about the unit of a deadline that does not suffice; empty where it has
    one. ``enough_s``: with which it would suffice; None: unknown, hours are usual."""
    if not is_bare(text):
        return ""
    units = [
        name
        for name, size_s in _UNITS
        if float(text) * size_s <= LONGEST_S
        and (name == _USUAL if enough_s is None else float(text) * size_s >= enough_s)
    ]
    if not units:
        return ""
    return f"{text} means {format_count(text, 'second')}; did you mean {text}{units[0]}?"
