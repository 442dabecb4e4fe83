"""The commands ``vgrads runtimes …``: what is known of how long tasks take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vgrads.portal.cli.options import AsJson, Sites, answer_with, app

runtimes_app = typer.Typer(
    help="Run times that nobody has to state: learned from what ran before.", no_args_is_help=True
)
app.add_typer(runtimes_app, name="runtimes")
_Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="KIND=KIND",
        help="Rename a kind, or WORKFLOW/KIND, as it is read. Repeatable.",
        show_default=False,
    ),
]


@runtimes_app.command(
    "learn",
    epilog=(
        "Examples: `vgrads runtimes learn trace.txt --workflow rnaseq` · `vgrads runtimes "
        "learn benchmarks/ --machine cluster` · `sacct -P > jobs.txt; vgrads runtimes learn "
        "jobs.txt`"
    ),
)
def learn(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…",
            help=(
                "Nextflow traces, Snakemake benchmarks and metadata (folders too), WfFormat, "
                "Pegasus, HTCondor, sacct -P."
            ),
            exists=True,
        ),
    ],
    machine: Annotated[
        str,
        typer.Option(
            "--machine",
            help="The site or machine where all of it ran, where the files do not tell.",
        ),
    ] = "",
    workflow: Annotated[
        str, typer.Option("--workflow", help="The workflow that all of it belongs to.")
    ] = "",
    mapping: _Map = None,
    as_json: AsJson = False,
) -> None:
    """Learn run times from files that workflow systems and schedulers left behind. Learning one
    twice adds nothing."""
    from vgrads.kernel.errors import InputError
    from vgrads.portal.records.runtimes import RunTimeRecords
    from vgrads.portal.records.store import Store
    from vgrads.runtimes.known import mapped
    from vgrads.traces.task_files import read_task_records

    names = {}
    for word in mapping or ():
        old, equals, new = word.partition("=")
        if not (old and equals and new):
            raise InputError(f"'{word}' is not KIND=KIND", where="--map")
        names[old] = new
    read = [(path, read_task_records(path, machine, workflow)) for path in files]
    records = [record for _, one in read for record in mapped(one.records, names)]
    with Store() as store:
        added, known = RunTimeRecords(store.engine).learn(records)
    kinds: dict[str, int] = {}
    for record in records:
        kinds[record.kind] = kinds.get(record.kind, 0) + 1
    told = {
        "files": [
            {
                "file": str(path),
                "format": one.format,
                "records": len(one.records),
                "skipped": dict(one.skipped),
            }
            for path, one in read
        ],
        "new": added,
        "known": known,
        "kinds": kinds,
    }
    answer_with(as_json, told, lambda: _learned(told))


def _learned(told: Mapping[str, Any]) -> None:
    from vgrads.portal.cli.terminal import console

    out = console()
    for one in told["files"]:
        left = ", ".join(f"{count} {why}" for why, count in sorted(one["skipped"].items()))
        out.print(
            f"{one['file']}: {one['records']} records ({one['format']})"
            + (f"; not used: {left}" if left else ""),
            highlight=False,
        )
    out.print(
        f"{told['new']} new of {len(told['kinds'])} kinds; {told['known']} records are known",
        highlight=False,
    )


@runtimes_app.command("list", epilog="Example: `vgrads runtimes list --json`")
def list_kinds(as_json: AsJson = False) -> None:
    """Kinds of tasks that something is known of: how long one takes, how surely, from how many
    runs."""
    from vgrads.api.plans.run_time_answers import kinds_json
    from vgrads.portal.records.sites import past_run_times

    rows = kinds_json(past_run_times())
    answer_with(as_json, {"kinds": rows}, lambda: _table(rows))


@runtimes_app.command("show", epilog="Example: `vgrads runtimes show FASTQC --plot fastqc.svg`")
def show(
    kind: Annotated[str, typer.Argument(metavar="TASK", help="A kind of task.")],
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            "-o",
            metavar="FILE.svg",
            help="Run times against input size, also as .png or .pdf.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What is known of one kind of task: its records, machines, and what is predicted by input
    size."""
    from vgrads.api.plans.run_time_answers import kind_json
    from vgrads.portal.charts.run_time_chart import write_run_time_chart
    from vgrads.portal.cli.terminal import console
    from vgrads.portal.records.sites import past_run_times

    known = past_run_times()
    told = kind_json(known, kind)
    if plot is not None:
        write_run_time_chart(told, plot)

    def words() -> None:
        console().print(told["sentence"], highlight=False)
        console().print(_table(told["machines"]), highlight=False)

    answer_with(as_json, told, words)


@runtimes_app.command("predict", epilog="Example: `vgrads runtimes predict data/lead-set.yaml`")
def predict(
    set_file: Annotated[Path, typer.Argument(metavar="SET", exists=True, dir_okay=False)],
    sites: Sites = None,
    as_json: AsJson = False,
) -> None:
    """What is predicted for the tasks of a set, by kind, and what that rests on."""
    from vgrads.api.plans.run_time_answers import predictions_json
    from vgrads.portal.records.sites import choose_catalog, past_run_times
    from vgrads.workflows.sets import Beside, load_set

    wanted, named = load_set(set_file, beside=Beside(deadline="1d"))  # no deadline counts here
    catalog = choose_catalog(sites or (Path(named) if named else None))
    rows = predictions_json(wanted, past_run_times(), catalog)
    answer_with(as_json, {"kinds": rows}, lambda: _table(rows))


@runtimes_app.command("forget", epilog="Example: `vgrads runtimes forget FASTQC`")
def forget(
    kind: Annotated[str, typer.Argument(metavar="TASK", help="A kind of task.")],
    as_json: AsJson = False,
) -> None:
    """Drop what is known of a kind of task."""
    from vgrads.portal.cli.terminal import console
    from vgrads.portal.records.runtimes import RunTimeRecords
    from vgrads.portal.records.store import Store

    with Store() as store:
        count = RunTimeRecords(store.engine).forget(kind)
    told = {"kind": kind, "forgotten": count}
    answer_with(
        as_json,
        told,
        lambda: console().print(f"{count} records of {kind} forgotten", highlight=False),
    )


def _table(rows: list[dict[str, Any]]) -> Any:
    """Rows as a table; seconds as people say them."""
    from vgrads.kernel.units import format_duration
    from vgrads.portal.cli.terminal import rows_under

    if not rows:
        return "nothing is known yet; vgrads runtimes learn FILE"
    table = rows_under(*(name.removesuffix("_s").replace("_", " ") for name in rows[0]))
    for row in rows:
        told = (
            format_duration(value) if name.endswith("_s") else value for name, value in row.items()
        )
        table.add_row(*("–" if value is None else str(value) for value in told))
    return table
