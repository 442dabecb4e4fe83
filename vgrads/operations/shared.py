"""Options that several requests have."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

from vgrads.operations.fields import INSTANT, SHARE, About, OnCommandLine, Request

Instant = float | datetime | None


@dataclass(frozen=True, kw_only=True)
class InstantOption(Request):
    """The instant of the histories."""

    at: Annotated[
        Instant,
        INSTANT,
        About(
            "Time of the query in the history: RFC 3339, or seconds of the log's clock. Later "
            "records are ignored. Default: its end."
        ),
        OnCommandLine(metavar="TIME"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class GridOptions(InstantOption):
    """What offers of sites are computed from."""

    seed: Annotated[int, About("Random seed.", minimum=0, example=7)] = 0
    as_stated: Annotated[
        bool,
        About(
            "Use the boot times and rates of the site description, not those observed in earlier "
            "runs."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class SitesOption(Request):
    """Which sites."""

    sites: Annotated[
        Path | None,
        About(
            "Site description file (TOML); 'here' is this machine. Default: the sites that a set "
            "names, else those of the database, else the embedded ones; of a bag this machine."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PredictionOptions(Request):
    """How bounds on waits are predicted."""

    confidence: Annotated[
        float, SHARE, About("Confidence level of the bound.", above=0, below=1)
    ] = 0.95
    method: Annotated[
        str,
        About(
            "Prediction method: state (the current state of the queue, or QBETS where that has "
            "been better), qbets (past waits of similar jobs) or bmbp (all past waits).",
            choices=("state", "qbets", "bmbp"),
        ),
    ] = "state"
    arrays: Annotated[bool, About("Count an array of equal jobs as one observation.")] = True
