"""Requests about a run, set, bag or pool that exists, named by its id or its name. Light: the
interfaces are generated from these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vgrads.operations.bags.goal_change import GoalChange
from vgrads.operations.fields import DURATION, About, OnCommandLine, Request

_OF_RUN = OnCommandLine(argument=True, metavar="RUN", complete="complete_runs")
_ID = "Id or name of a run, set or bag."


@dataclass(frozen=True, kw_only=True)
class ResumeRequest(Request):
    """Resume a run or bag that was interrupted or whose process was killed; tasks that still run
    are found again."""

    run: Annotated[str, About(_ID), _OF_RUN]
    before: Annotated[
        int | None,
        About("Use only the events of the journal before this one.", minimum=0),
        OnCommandLine(flags="--from", metavar="EVENT"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RetryRunRequest(Request):
    """Run tasks of an ended run again, with those that depend on them, as a new run of the same set
    and sites; those of a bag in the same bag. What is done is not repeated."""

    run: Annotated[str, About(_ID), _OF_RUN]
    tasks: Annotated[
        tuple[str, ...],
        About("Run these again, done or not: WORKFLOW/TASK, or numbers of a bag's tasks."),
        OnCommandLine(argument=True, metavar="[TASK]..."),
    ] = ()
    failed: Annotated[bool, About("Run what failed or was not run. The default.")] = False


@dataclass(frozen=True, kw_only=True)
class CancelRunRequest(Request):
    """Cancel a run or bag and release everything that it holds."""

    run: Annotated[str, About(_ID), _OF_RUN]


@dataclass(frozen=True, kw_only=True)
class ArchiveRequest(Request):
    """Archive a set or bag that has ended: lists of work leave it out, nothing is deleted."""

    run: Annotated[str, About(_ID), _OF_RUN]
    undo: Annotated[bool, About("List it again.")] = False


@dataclass(frozen=True, kw_only=True)
class ChangeRequest(GoalChange):
    """Change what a set or a bag with a goal has to keep while it runs: the remainder is planned
    again, what is done stays done. The new promise is shown before it is confirmed."""

    run: Annotated[str, About(_ID), _OF_RUN]
    at_least: Annotated[
        str | None,
        About("How much must be done by then: a number of workflows or tasks, or a share: 90%."),
    ] = None
    add_sites: Annotated[
        tuple[str, ...],
        About("Use this site of the run again, which was dropped."),
        OnCommandLine(flags="--add-site", metavar="SITE"),
    ] = ()
    drop_sites: Annotated[
        tuple[str, ...],
        About("Request no more slots at this site; its slots in which nothing runs are released."),
        OnCommandLine(flags="--drop-site", metavar="SITE"),
    ] = ()
    preview: Annotated[bool, About("Show the new promise and change nothing.")] = False
    yes: Annotated[bool, About("Change it without a question.")] = False


@dataclass(frozen=True, kw_only=True)
class StatusRequest(Request):
    """Show the status or the result of runs, or of one run, bag or pool."""

    run: Annotated[
        str | None,
        About("Id or name of a run, set, bag or pool. Default: all runs."),
        OnCommandLine(argument=True, metavar="[RUN]", complete="complete_runs"),
    ] = None
    limit: Annotated[int, About("Largest number of runs to list.", minimum=1)] = 50


@dataclass(frozen=True, kw_only=True)
class TopRequest(Request):
    """Watch active runs and bags: due time, current promise, progress. Ctrl-C ends it. Without a
    terminal the current state is printed once."""

    interval_s: Annotated[
        float, DURATION, About("Time between two readings, e.g. 10s.", above=0)
    ] = 2.0


@dataclass(frozen=True, kw_only=True)
class LogsRequest(Request):
    """Show every attempt at the tasks of a run or bag: state, exit code, seconds, slot; for one
    task also its output."""

    run: Annotated[str, About(_ID), _OF_RUN]
    task: Annotated[
        str | None,
        About("WORKFLOW/TASK, or TASK in every workflow; of a bag its number."),
        OnCommandLine(argument=True, metavar="[TASK]"),
    ] = None
    follow: Annotated[
        bool,
        About("Print the output as it is written, until the run ends."),
        OnCommandLine(flags="--follow -f"),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ExplainRequest(Request):
    """Explain the placement of a task, or the decisions about a pool's or a bag's nodes, with the
    numbers that decided."""

    plan: Annotated[
        str,
        About("Output of vgrads plan --json, or the id or name of a set, run, bag or pool."),
        OnCommandLine(argument=True, metavar="PLAN"),
    ]
    task: Annotated[
        str | None,
        About("WORKFLOW/TASK, or TASK; of a bag its number, or nothing; of a pool nothing."),
        OnCommandLine(argument=True, metavar="[TASK]"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class GanttRequest(Request):
    """Draw a run stored in the database."""

    run: Annotated[str, About("Id of a run."), _OF_RUN]
    out: Annotated[
        Path,
        About("FILE.html, .svg, .png, .pdf, or .json for Perfetto."),
        OnCommandLine(flags="--out -o", metavar="FILE", default="gantt.html", check="chart_file"),
    ] = Path("gantt.html")
