"""Requests about sites. Light: the commands are generated from these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vgrads.operations.fields import DURATION, About, OnCommandLine, Request
from vgrads.operations.shared import SitesOption

SITE = OnCommandLine(argument=True, metavar="SITE", complete="complete_sites")
_FILE = "Site description file (TOML). Default: the sites of the database, else the embedded ones."


@dataclass(frozen=True, kw_only=True)
class SitesFile(Request):
    """The sites of a file, or of this installation."""

    sites: Annotated[Path | None, About(_FILE), OnCommandLine(argument=True, metavar="[SITES]")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class ListSitesRequest(SitesFile):
    """List sites with their queues, histories and prices, and observations of earlier runs."""


@dataclass(frozen=True, kw_only=True)
class ShowSiteRequest(SitesOption):
    """Show the observations of runs at a site, queue by queue, next to its description."""

    site: Annotated[str, About("Name of a site."), SITE]


@dataclass(frozen=True, kw_only=True)
class ResetSiteRequest(Request):
    """Delete the observations of a site: plans use its description again."""

    site: Annotated[str, About("Name of a site."), SITE]
    queue: Annotated[
        str | None,
        About("Delete only the observations of this queue."),
        OnCommandLine(flags="--queue -q"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class CheckSitesRequest(SitesFile):
    """Connect to every site and report its capabilities; exit 4 if one cannot be used."""

    benchmark: Annotated[
        bool,
        About(
            "Also run a benchmark of about 30 seconds at each real site, so that run times learned "
            "elsewhere can be converted for it."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class AddSitesRequest(Request):
    """Add the sites of a file to the database, with their histories; existing names are
    replaced."""

    sites: Annotated[
        Path,
        About("Site description file (TOML)."),
        OnCommandLine(argument=True, metavar="SITES"),
    ]


@dataclass(frozen=True, kw_only=True)
class RemoveSiteRequest(Request):
    """Remove a site from the database."""

    site: Annotated[str, About("Name of a site of the database."), SITE]


@dataclass(frozen=True, kw_only=True)
class SweepSitesRequest(SitesFile):
    """Find jobs and instances of vgrads at real sites that belong to no active run, and release
    them."""

    yes: Annotated[bool, About("Release the slots. Default: only list them.")] = False


@dataclass(frozen=True, kw_only=True)
class SiteQueueRequest(SitesOption):
    """Show waiting and running jobs at a batch site, and its own forecast of a job's start."""

    site: Annotated[str, About("Name of a site."), SITE]
    procs: Annotated[
        int | None,
        About("Query the start forecast of the site for a job of so many processors.", minimum=1),
        OnCommandLine(flags="--procs -n"),
    ] = None
    walltime_s: Annotated[
        float, DURATION, About("Requested time of that job."), OnCommandLine(flags="--walltime -w")
    ] = 3600.0


@dataclass(frozen=True, kw_only=True)
class CollectRequest(Request):
    """Import a site's job accounting into the database; later calls fetch only new records."""

    site: Annotated[
        str,
        About("A batch site of the database."),
        OnCommandLine(argument=True, metavar="SITE"),
    ]
    since_s: Annotated[float, DURATION, About("Period that the first collection covers.")] = (
        365 * 86400.0
    )


@dataclass(frozen=True, kw_only=True)
class OpenSiteRequest(SitesOption):
    """Allow a user's tasks to run on a real site, under the account of the service there."""

    site: Annotated[str, About("Name of a site."), SITE]
    user: Annotated[str, About("Name of a user."), OnCommandLine(argument=True, metavar="USER")]
    close: Annotated[bool, About("Close the site for the user again.")] = False
