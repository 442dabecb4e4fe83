"""Planning policies by name: phases, their order, and the probability rule."""

from __future__ import annotations

from collections.abc import Callable

from vgrads.kernel.errors import InputError
from vgrads.planner.coarse import LARGE, coarse_pipeline
from vgrads.planner.phases import (
    PIPELINE,
    Pipeline,
    Steps,
    cloud_for_minimum,
    free_slots,
    minimal,
    more_workflows,
)
from vgrads.planner.placement.draft import Draft, PaperDraft
from vgrads.planner.placement.heft import place_heft
from vgrads.planner.snapshot import Snapshot

MakePipeline = Callable[[Draft], Pipeline]


def _plan_vgrads(draft: Draft) -> Pipeline:
    """Return the four phases, task by task; workflow by workflow if there are very many tasks."""
    tasks = draft.snapshot.workflow_set.task_count
    return coarse_pipeline(draft) if tasks > LARGE else PIPELINE


def _plan_heft(draft: Draft) -> Steps:
    """Place every workflow by HEFT, the shortest first, on slots without cost; from their first
    possible instants on if it does not fit from likely ones."""
    slots = free_slots(draft)
    placed = [
        name
        for name in draft.snapshot.by_length
        if any(place_heft(draft, name, slots, share) for share in (0.5, 0.0))
    ]
    return [{"workflows": len(placed), "promise": draft.promise}]


def _plan_optimal(draft: Draft) -> Steps:
    """Place all at once, by an integer programme."""
    from vgrads.planner.exact import place_optimal  # noqa: PLC0415  # the solver takes its time to load

    return [{"gap": place_optimal(draft), "promise": draft.promise}]


POLICIES: dict[str, tuple[str, MakePipeline]] = {
    "vgrads": (
        "the four phases; very large sets are placed one whole workflow at a time",
        _plan_vgrads,
    ),
    "no-replication": (
        "no replicas: further workflows are the only reserve",
        lambda _: (
            ("minimal", minimal),
            ("additional", more_workflows),
            ("cloud", cloud_for_minimum),
        ),
    ),
    "heft": (
        "HEFT on the earliest slots, ignoring probabilities",
        lambda _: (("heft", _plan_heft),),
    ),
    "optimal": ("integer programming, for small sets", lambda _: (("optimal", _plan_optimal),)),
}
RULES = ("joint", "paper")


def make_pipeline(name: str) -> MakePipeline:
    """Return a planning policy by name."""
    if name not in POLICIES:
        raise InputError(
            f"unknown planning policy '{name}'",
            where="--policy",
            fix=f"choose one of {', '.join(POLICIES)}",
        )
    return POLICIES[name][1]


def check_rule(rule: str) -> None:
    """Raise InputError for an unknown probability rule."""
    if rule not in RULES:
        raise InputError(
            f"unknown model '{rule}'",
            where="--promise-model",
            fix=f"choose one of {', '.join(RULES)}",
        )


def make_draft(snapshot: Snapshot, rule: str) -> Draft:
    """Return an empty draft with a probability rule."""
    check_rule(rule)
    return PaperDraft(snapshot) if rule == "paper" else Draft(snapshot)
