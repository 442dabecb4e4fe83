"""How many nodes for a piece of work: its request. Light: the command is generated from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vgrads.operations.fields import DURATION, About, OnCommandLine, Request


@dataclass(frozen=True, kw_only=True)
class SizeRequest(Request):
    """Show time and cost of work by the number of nodes, and recommend a number."""

    work: Annotated[
        Path | None,
        About("A workflow set, or a bag with runtime_s."),
        OnCommandLine(argument=True, metavar="SET"),
    ] = None
    wavefront: Annotated[
        str | None,
        About("Instead of SET: a Wavefront with this number of cells."),
        OnCommandLine(metavar="N[xM]"),
    ] = None
    allpairs: Annotated[
        str | None,
        About("Instead of SET: All-Pairs with this number of items."),
        OnCommandLine(metavar="N[xM]"),
    ] = None
    cell_s: Annotated[float, DURATION, About("Run time of a cell.")] = 1.0
    procs: Annotated[int, About("Processors of a node.", minimum=1, maximum=100_000)] = 1
    most: Annotated[
        int, About("Largest number of nodes to consider.", minimum=1, maximum=100_000)
    ] = 256
    price_usd_per_hour: Annotated[
        float,
        About("Price of a node, in dollars per hour.", unit="USD", minimum=0),
        OnCommandLine(flags="--price"),
    ] = 0.0
    billing_s: Annotated[
        float,
        DURATION,
        About("Billing period; a started period is charged in full. 0s: billing by the second."),
    ] = 0.0
    wait_s: Annotated[float, DURATION, About("Time until the nodes are available.")] = 0.0
    dispatch_s: Annotated[
        float, DURATION, About("Time until a task starts on an available node.")
    ] = 0.0
    capacity: Annotated[
        float | None,
        About(
            "Processors that the manager can keep busy (shown by vgrads pool status).",
            minimum=0.01,
        ),
    ] = None
    deadline: Annotated[str | None, About("Deadline of the work. Default: that of the set.")] = None
    sites: Annotated[
        Path | None,
        About(
            "Plan a bag or a matrix with a deadline on these sites: which nodes, with which "
            "probability, at which cost."
        ),
        OnCommandLine(metavar="SITES.toml"),
    ] = None
    probability: Annotated[
        float | None,
        About(
            "With --sites: with which the deadline is to be kept. Default: that of the bag, or "
            "0.95.",
            minimum=0.01,
            maximum=0.9999,
        ),
        OnCommandLine(flags="--probability -p"),
    ] = None
    budget_usd: Annotated[
        float | None,
        About("With --sites: the most that the nodes may cost, in dollars.", unit="USD", minimum=0),
        OnCommandLine(flags="--budget"),
    ] = None
