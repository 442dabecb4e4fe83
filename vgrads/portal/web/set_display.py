"""How the state of a set is displayed: stored states and probabilities in words that users know."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from vgrads.portal.records.reading.run_rows import GOES_ON

Json = Mapping[str, Any]


def seconds_left(status: Json) -> float:
    """Return the seconds that an active run has until its deadline: on every page by the same
    clock. Its own stands still between two events, and runs ahead at simulated sites."""
    due_s = datetime.fromisoformat(status["due"]).timestamp()
    return float(min(status["deadline_s"] - status["now_s"], due_s - time.time()))


@dataclass(frozen=True, slots=True)
class DisplayState:
    """A state as displayed: its word, its tone (a class of the style sheet), and its rank in lists:
    what needs attention first."""

    word: str
    tone: str
    rank: int


FAILING = DisplayState("failing", "bad", 0)
CANNOT_BE_MET = DisplayState("cannot be met", "bad", 0)
AT_RISK = DisplayState("at risk", "warn", 0)
INTERRUPTED = DisplayState("interrupted", "warn", 0)
BELOW = DisplayState("below the request", "warn", 1)
IMPOSSIBLE = DisplayState("impossible", "bad", 1)
NOT_PLANNED = DisplayState("not planned", "bad", 1)
ON_TRACK = DisplayState("on track", "good", 2)
PLANNING = DisplayState("planning", "soft", 3)
RECEIVED = DisplayState("received", "soft", 3)
READY = DisplayState("ready", "soft", 4)
WAITING = DisplayState("waiting", "soft", 3)
RUNNING = DisplayState("running", "good", 2)
MISSED = DisplayState("missed", "bad", 5)
FAILED = DisplayState("failed", "bad", 5)
MET = DisplayState("met", "good", 6)
DONE = DisplayState("done", "good", 6)
CANCELLED = DisplayState("cancelled", "soft", 7)
STATES = (
    FAILING,
    CANNOT_BE_MET,
    AT_RISK,
    ON_TRACK,
    RUNNING,
    BELOW,
    IMPOSSIBLE,
    NOT_PLANNED,
    INTERRUPTED,
    RECEIVED,
    PLANNING,
    WAITING,
    READY,
    MET,
    DONE,
    MISSED,
    FAILED,
    CANCELLED,
)
"""All displayed states, in the order of filters."""
_BY_WORD = {state.word: state for state in STATES}
_ENDED = {"kept": MET, "broken": MISSED, "failed": FAILED, "cancelled": CANCELLED}


def state_with(word: str | None) -> DisplayState | None:
    """Return the state with a word; None without one."""
    return _BY_WORD.get(word or "")


@dataclass(frozen=True, slots=True)
class PromiseSummary:
    """The promise of a set's newest plan, from its stored summary; None: not stated there."""

    feasible: bool = False
    probability: float | None = None
    requested: float = 0.9
    needed: int | None = None
    deadline_s: float | None = None
    cost_usd: float | None = None
    budget_usd: float | None = None

    @property
    def below(self) -> bool:
        """True where the promised probability is below the requested one."""
        return (self.probability or 0.0) < self.requested


def read_summary(summary: Json) -> PromiseSummary:
    """Return the promise of a stored summary."""
    promise = summary.get("promise") or {}
    requested = promise.get("requested")
    return PromiseSummary(
        feasible=bool(summary.get("feasible")),
        probability=promise.get("probability"),
        requested=0.9 if requested is None else requested,
        needed=summary.get("needed"),
        deadline_s=summary.get("deadline_s"),
        cost_usd=summary.get("cost_usd"),
        budget_usd=summary.get("budget_usd"),
    )


def display_state(
    state: str,
    run_state: str | None,
    promise: PromiseSummary,
    now: str | None = None,
    taken: bool = True,
) -> DisplayState:
    """Return the displayed state of a set.

    ``state``: of the set, ``run_state``: of its newest run; ``now``: state of an active run's
    promise (:class:`vgrads.kernel.promise_state.PromiseState`), None before it was read; ``taken``:
    a service plans the set that is being planned.
    """
    if run_state == "interrupted":
        return INTERRUPTED
    if run_state in GOES_ON:
        return ON_TRACK if now is None else _BY_WORD[now]
    # before the state of the run: a set with an ended run may be planned again
    if state == "planning":
        return PLANNING if taken else RECEIVED
    if run_state is not None:
        return _ENDED.get(run_state, FAILED)
    if state == "failed":
        return NOT_PLANNED
    if not promise.feasible:
        return IMPOSSIBLE
    return BELOW if promise.below else READY
