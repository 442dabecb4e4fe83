"""Requests to plan and to run a workflow set: the options of every interface, each with its
meaning. Light: the interfaces are generated from these."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from vgrads.operations.fields import (
    DEADLINE,
    SHARE,
    SPEED,
    About,
    OnCommandLine,
    Request,
    describe_fields,
)
from vgrads.operations.shared import GridOptions, SitesOption

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class SetFileOptions(Request):
    """What a caller says in addition to the file of a set."""

    deadline: Annotated[
        str | None,
        DEADLINE,
        About("Deadline from now, e.g. 4h. Default: that of the set.", example="4h"),
        OnCommandLine(metavar="TIME"),
    ] = None
    inputs: Annotated[
        Path | None,
        About(
            "Inputs of a workflow file: CWL's input object, a Snakefile's configuration, the work "
            "folder of a Nextflow trace."
        ),
        OnCommandLine(metavar="FILE"),
    ] = None
    targets: Annotated[
        tuple[str, ...],
        About("File or rule of a Snakefile to make instead of its first rule; may be repeated."),
        OnCommandLine(flags="--target", metavar="NAME"),
    ] = ()
    config: Annotated[
        tuple[str, ...],
        About("Value of a Snakefile's configuration; may be repeated.", example="samples=3"),
        OnCommandLine(metavar="NAME=VALUE"),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class PlanningOptions(GridOptions):
    """How a set is planned, whoever requests it."""

    probability: Annotated[
        float | None,
        SHARE,
        About(
            "Requested probability of the promise, e.g. 0.95. Default: that of the set, else 0.9.",
            above=0,
            below=1,
            example=0.95,
        ),
        OnCommandLine(flags="--probability -p", metavar="P"),
    ] = None
    policy: Annotated[
        str,
        About("Planning policy: vgrads, no-replication, heft, or optimal (small sets)."),
        OnCommandLine(complete="complete_policies"),
    ] = "vgrads"
    promise_model: Annotated[
        str, About("Model of the promise: joint, or the paper's rule (paper).")
    ] = "joint"
    effort: Annotated[
        float | None,
        About(
            "Work of planning, from the offers to sufficient changes: 4 is four times the usual; "
            "0: only the first plan. Default: VGRADS_EFFORT, otherwise 1.",
            minimum=0,
            maximum=1000,
        ),
        OnCommandLine(metavar="N"),
    ] = None
    only_sites: Annotated[
        tuple[str, ...],
        About("Use only this site; may be repeated. Default: all sites.", example="kittyhawk"),
        OnCommandLine(flags="--only-site", metavar="SITE", complete="complete_sites"),
    ] = ()


USUAL_OPTIONS = PlanningOptions()


@dataclass(frozen=True, kw_only=True)
class _SetRequest(PlanningOptions, SetFileOptions, SitesOption):
    """A set in a file of this machine, for sites of this machine."""

    set_file: Annotated[
        Path,
        About("A workflow set (YAML or JSON), or with --deadline a workflow file."),
        OnCommandLine(argument=True, metavar="SET", complete="complete_sets"),
    ]
    rerun: Annotated[
        bool,
        About(
            "Run all tasks again. Default: skip tasks whose command, inputs and environment are "
            "unchanged and whose outputs exist."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class PlanRequest(_SetRequest):
    """Plan a workflow set: slots, placement of tasks, and the probability of the promise."""

    calibrate: Annotated[
        bool,
        About(
            "Also list the tasks to run first on small inputs, with the probability that each "
            "would add to the promise."
        ),
    ] = False
    run_pilots: Annotated[
        bool,
        About(
            "Run a task of each such kind as it is, at most a twentieth of the work, learn its run "
            "time, and plan again."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions(Request):
    """How a plan is carried out, whoever requests it."""

    speed: Annotated[
        float | None,
        SPEED,
        About(
            "Virtual seconds per second at simulated sites. Default: max, as fast as possible.",
            minimum=0.01,
            maximum=1e6,
        ),
    ] = None
    replan: Annotated[bool, About("Plan the rest again if too few workflows are left.")] = True


@dataclass(frozen=True, kw_only=True)
class StoredRunOptions(ExecutionOptions):
    """How a set of a service is run."""

    engine: Annotated[
        str,
        About(
            "vgrads, or outside: the caller runs the tasks (start permits, completions).",
            choices=("vgrads", "outside"),
        ),
    ] = "vgrads"
    rerun: Annotated[
        bool,
        About(
            "Run also tasks that an earlier run did, whose command, inputs and environment are "
            "unchanged and whose outputs exist. Default: those are omitted, and the rest is "
            "planned again."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class RunRequest(_SetRequest, ExecutionOptions):
    """Plan a set, then run it to the end."""

    folder: Annotated[
        Path | None,
        About("Folder for the results of real tasks. Default: stored with the run."),
        OnCommandLine(flags="--out -o"),
    ] = None
    keep: Annotated[
        str,
        About(
            "Files of finished workflows to keep: all, results (no scratch), or final (no "
            "intermediate results).",
            choices=("all", "results", "final"),
        ),
    ] = "all"
    webhook: Annotated[
        str,
        About("URL to which events are posted, signed with VGRADS_WEBHOOK_SECRET."),
        OnCommandLine(metavar="URL"),
    ] = ""


def list_changed_options(options: Request, of: type[Request]) -> Json:
    """Return the options of a class that differ from their defaults, as JSON."""
    return {
        entry.name: value.isoformat() if isinstance(value, datetime) else value
        for entry in describe_fields(of)
        if (value := getattr(options, entry.name)) != entry.default
    }


def read_stored_options(stored: Json) -> PlanningOptions:
    """Return the options that :func:`list_changed_options` wrote."""
    at = stored.get("at")
    instant = datetime.fromisoformat(at) if isinstance(at, str) else at
    only = tuple(stored.get("only_sites", ()))
    return PlanningOptions(**stored | {"at": instant, "only_sites": only})
