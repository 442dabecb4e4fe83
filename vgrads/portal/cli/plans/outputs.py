"""What commands for sets do with a plan or run besides printing it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vgrads.operations.fields import About, OnCommandLine
from vgrads.portal.cli.requests import TableOutput


@dataclass(frozen=True, kw_only=True)
class ChartOutput(TableOutput):
    """A result with a Gantt chart."""

    gantt: Annotated[
        Path | None,
        About("Write the Gantt chart as a separate page."),
        OnCommandLine(metavar="FILE.html", check="chart_file"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PlanOutput(ChartOutput):
    """``vgrads plan``."""

    strict: Annotated[
        bool, About("Exit with code 3 also if the promise is below the requested probability.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class RunOutput(ChartOutput):
    """``vgrads run``."""
