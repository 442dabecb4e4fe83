"""State of a promise while work goes on, of workflow sets and of bags with a goal alike."""

from __future__ import annotations

from enum import StrEnum

AT_RISK_BELOW = 0.05
"""Distance below the requested probability at which a promise is at risk."""


class PromiseState(StrEnum):
    """What can be said of a promise now, in the words that every interface uses.

    ``CANNOT_BE_MET``: in no simulated scenario, nor with every wait and run time at its 5 %
    quantile. ``FAILING``: the user's own command fails repeatedly, and what is left without its
    tasks is too little, or improbably enough.
    """

    ON_TRACK = "on track"
    AT_RISK = "at risk"
    CANNOT_BE_MET = "cannot be met"
    FAILING = "failing"
    MISSED = "missed"
    MET = "met"


def promise_state(
    probability: float | None,
    requested: float,
    *,
    possible: bool = True,
    failing: bool = False,
    is_met: bool = False,
    past_due: bool = False,
) -> PromiseState:
    """Return the state of a promise.

    ``probability``: of being kept, as last computed, None before the first time; ``requested``:
    the probability that the user requested; ``possible``: False where it cannot be met any more;
    ``failing``: a command of the user fails repeatedly; ``is_met``: enough is done, in time;
    ``past_due``: the deadline has passed.
    """
    if is_met:
        return PromiseState.MET
    if past_due:
        return PromiseState.MISSED
    at_risk = probability is not None and probability < requested - AT_RISK_BELOW
    if failing and (at_risk or not possible):
        return PromiseState.FAILING
    if not possible:
        return PromiseState.CANNOT_BE_MET
    return PromiseState.AT_RISK if at_risk else PromiseState.ON_TRACK
