"""Which nodes could be had: a request in a file, answered by all sites."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vgrads.operations.fields import About, OnCommandLine
from vgrads.operations.shared import GridOptions, SitesOption


@dataclass(frozen=True, kw_only=True)
class OffersRequest(GridOptions, SitesOption):
    """Show available nodes, their start, probability and cost. Exit 3 where the requested
    probability is not reached."""

    file: Annotated[
        Path,
        About("Requested nodes: YAML, JSON, or the text form described in docs/requests.md."),
        OnCommandLine(argument=True, metavar="REQUEST"),
    ]
