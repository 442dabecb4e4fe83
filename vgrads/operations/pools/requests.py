"""Requests about pools. Light: the interfaces are generated from these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vgrads.operations.bags.requests import ServiceOption
from vgrads.operations.fields import About, OnCommandLine
from vgrads.operations.shared import SitesOption

_FILE = OnCommandLine(argument=True, metavar="POOL.yaml")
_ABOUT_FILE = "Description of the pool: number of workers, sizing policy and sites."


@dataclass(frozen=True, kw_only=True)
class RunPoolRequest(ServiceOption, SitesOption):
    """Lease nodes to managers that need them until Ctrl-C: read their needs, decide, request
    missing nodes from sites."""

    file: Annotated[Path, About(_ABOUT_FILE), _FILE]


@dataclass(frozen=True, kw_only=True)
class PoolStatusRequest(ServiceOption):
    """Show pools and managers: needs, assigned nodes, bottlenecks."""

    pool: Annotated[
        str | None,
        About("Name of a pool. Default: all."),
        OnCommandLine(argument=True, metavar="POOL"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class DecidePoolRequest(ServiceOption):
    """Show what a pool would decide now for the current managers, and why; nothing is requested."""

    file: Annotated[Path, About(_ABOUT_FILE), _FILE]


@dataclass(frozen=True, kw_only=True)
class ExplainPoolRequest(ServiceOption):
    """Explain the last decision of a running pool, with its numbers."""

    pool: Annotated[
        str | None,
        About("Name of a pool. Default: the only one."),
        OnCommandLine(argument=True, metavar="POOL"),
    ] = None
