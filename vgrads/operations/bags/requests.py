"""Requests about bags of tasks. Light: the interfaces are generated from these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from vgrads.operations.fields import About, OnCommandLine, Request
from vgrads.operations.shared import SitesOption

BAG_POLICIES = ("fair-share", "next-available")
_OF_BAG = OnCommandLine(argument=True, metavar="BAG")
_ID = "Id of a bag, as listed by `bags status`."


@dataclass(frozen=True, kw_only=True)
class GoalOptions(Request):
    """A deadline for which nodes are planned."""

    deadline: Annotated[
        str | None,
        About(
            "Time from now, e.g. 4h, or an instant with its zone, by which all is to be done: "
            "nodes are planned for it (docs/deadlines.md)."
        ),
    ] = None
    probability: Annotated[
        float | None,
        About(
            "With --deadline: with which it is to be kept. Default: 0.95.",
            minimum=0.01,
            maximum=0.9999,
        ),
        OnCommandLine(flags="--probability -p"),
    ] = None
    budget_usd: Annotated[
        float | None,
        About(
            "With --deadline: the most that the nodes may cost, in dollars.", unit="USD", minimum=0
        ),
        OnCommandLine(flags="--budget"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ResultsOptions(Request):
    """Where results of a bag are written."""

    out: Annotated[
        Path | None,
        About(
            "Folder for the outputs of all tasks, a table of all tasks (results.csv) and what they "
            "printed; FILE.csv or FILE.parquet: only the table."
        ),
        OnCommandLine(metavar="DIR"),
    ] = None
    separate: Annotated[bool, About("Write what each task printed to a file of its own.")] = False


@dataclass(frozen=True, kw_only=True)
class ServiceOption(Request):
    """Which service knows pools and managers."""

    service: Annotated[
        str | None,
        About(
            "Service through which pools and managers find each other; it is accessed with "
            "VGRADS_TOKEN. Default: this machine's database."
        ),
        OnCommandLine(metavar="URL"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class BagWorkOptions(ResultsOptions, ServiceOption, SitesOption):
    """How a dispatcher works."""

    policy: Annotated[
        str,
        About(
            "Order between bags: fair-share (between owners), or next-available.",
            choices=BAG_POLICIES,
        ),
    ] = "fair-share"
    contact: Annotated[
        str,
        About(
            "Names under which agents of pools reach this machine, for bags with `hosts: {guests: "
            "true}`."
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class RunBagsRequest(BagWorkOptions, GoalOptions):
    """Run bags of independent tasks: request nodes, assign tasks, collect results, release nodes.
    Default: on this machine. Tasks that an earlier run of the bag has done are not repeated."""

    files: Annotated[
        tuple[Path, ...],
        About("Bag files, each with a command template and its parameters."),
        OnCommandLine(argument=True, metavar="FILE.yaml…"),
    ]
    rerun: Annotated[
        bool,
        About(
            "Do all tasks, also those that an earlier run of the bag has done: with the same "
            "command, environment and inputs, and unchanged outputs."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ResumeBagRequest(BagWorkOptions):
    """Resume a bag whose dispatcher was interrupted or killed. Agents that kept running reconnect,
    and their results are accepted."""

    bag: Annotated[str, About(_ID), _OF_BAG]


@dataclass(frozen=True, kw_only=True)
class RetryBagRequest(BagWorkOptions):
    """Do failed tasks of a bag again, in the same bag; what is done is not repeated."""

    bag: Annotated[str, About(_ID), _OF_BAG]
    tasks: Annotated[
        tuple[int, ...],
        About("Do these tasks again, done or not.", minimum=0),
        OnCommandLine(argument=True, metavar="[TASK]..."),
    ] = ()
    failed: Annotated[bool, About("Do what failed or was not run. The default.")] = False


@dataclass(frozen=True, kw_only=True)
class BagResultsRequest(ResultsOptions):
    """Write the results of a bag so far, and show where they are."""

    bag: Annotated[str, About(_ID), _OF_BAG]


@dataclass(frozen=True, kw_only=True)
class CancelBagRequest(SitesOption):
    """Cancel the remaining tasks of a bag, and release its nodes."""

    bag: Annotated[str, About(_ID), _OF_BAG]


@dataclass(frozen=True, kw_only=True)
class BagStatusRequest(Request):
    """Show the status of bags."""

    bag: Annotated[str | None, About("Id of a bag. Default: all bags."), _OF_BAG] = None


@dataclass(frozen=True, kw_only=True)
class BagLogsRequest(Request):
    """Show the output of tasks, and the result of each attempt."""

    bag: Annotated[str, About(_ID), _OF_BAG]
    tasks: Annotated[
        tuple[int, ...],
        About("Show only this task. Repeatable.", minimum=0),
        OnCommandLine(flags="--task"),
    ] = ()
    failed: Annotated[bool, About("Show only failed attempts.")] = False


@dataclass(frozen=True, kw_only=True)
class InviteRequest(Request):
    """Print a script that connects a machine to the bag's dispatcher as an ad-hoc agent, for bags
    with `hosts: {guests: true}`. It contains a key."""

    bag: Annotated[str, About(_ID), _OF_BAG]
    name: Annotated[str, About("Common name of the agents that are started with this script.")] = (
        "guests"
    )
    contact: Annotated[str, About("Address under which the agents reach this machine.")] = ""


@dataclass(frozen=True, kw_only=True)
class ExplainBagRequest(Request):
    """Explain the state of a task of a bag, and why agents do not get it: policy slot, expression,
    values. Without a task: why nodes were requested and released, with the numbers."""

    bag: Annotated[str, About(_ID), _OF_BAG]
    task: Annotated[
        int | None,
        About("Number of the task.", minimum=0),
        OnCommandLine(argument=True, metavar="N"),
    ] = None
    host: Annotated[str, About("Explain only why this agent does not have the task.")] = ""
