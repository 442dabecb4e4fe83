"""Which nodes could be had: a request in a file, answered by all sites."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vgrads.operations.bags.requests import SitesOption
from vgrads.operations.fields import INSTANT, About, OnCommandLine
from vgrads.operations.plans.requests import Instant


@dataclass(frozen=True, kw_only=True)
class OffersRequest(SitesOption):
    """Show available nodes, their start, probability and cost. Exit 3 where the requested
    probability is not reached."""

    file: Annotated[
        Path,
        About("Requested nodes: YAML, JSON, or the text form described in docs/requests.md."),
        OnCommandLine(argument=True, metavar="REQUEST"),
    ]
    at: Annotated[
        Instant,
        INSTANT,
        About(
            "Time of the query in the history: RFC 3339, or seconds of the log's clock. Later "
            "records are ignored. Default: its end."
        ),
        OnCommandLine(metavar="TIME"),
    ] = None
    seed: Annotated[int, About("Random seed.", minimum=0)] = 0
    as_stated: Annotated[
        bool,
        About(
            "Use the boot times and rates of the site description, not those observed in earlier "
            "runs."
        ),
    ] = False
