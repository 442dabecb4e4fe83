"""The request to change the goal of a bag while it works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vgrads.operations.fields import About, OnCommandLine, Request


@dataclass(frozen=True, kw_only=True)
class GoalChange(Request):
    """What changes of a goal; None: as it is."""

    deadline: Annotated[
        str | None, About("Time from now, e.g. 4h, or an instant with its zone.")
    ] = None
    at_least: Annotated[
        str | None, About("How much must be done by then: a number of tasks, or a share: 90%, 3/4.")
    ] = None
    budget: Annotated[
        float | None, About("The most that the nodes may cost in all.", unit="USD", minimum=0)
    ] = None
    probability: Annotated[
        float | None,
        About("With which it is to be kept.", minimum=0.01, maximum=0.9999),
        OnCommandLine(flags="--probability -p"),
    ] = None
