"""The commands ``vgrads runtimes …``: learned run times of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_count
from vgrads.portal.cli.options import (
    AsJson,
    Columns,
    Force,
    Sites,
    Wide,
    answer_with,
    app,
    diagram_file,
)

runtimes_app = typer.Typer(
    help="Run times that are learned from earlier runs instead of being stated.",
    no_args_is_help=True,
)
app.add_typer(runtimes_app, name="runtimes")
_Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="KIND=KIND",
        help="Rename a kind of task, or WORKFLOW/KIND, while reading. Repeatable.",
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
            help="Site or machine where all tasks ran, if the files do not name it.",
        ),
    ] = "",
    workflow: Annotated[
        str, typer.Option("--workflow", help="Workflow to which all tasks belong.")
    ] = "",
    mapping: _Map = None,
    columns: Columns = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Learn run times from files of workflow systems and schedulers. Learning a file twice adds
    nothing."""
    from vgrads.kernel.errors import InputError
    from vgrads.portal.cli.terminal import busy, console
    from vgrads.portal.records.runtimes import RunTimeRecords
    from vgrads.portal.records.store import Store
    from vgrads.runtimes.task_history import rename_kinds
    from vgrads.traces.reading_options import parse_columns
    from vgrads.traces.task_files import read_task_records

    names, column_names = {}, parse_columns(columns)
    for word in mapping or ():
        old, equals, new = word.partition("=")
        if not (old and equals and new):
            raise InputError(f"'{word}' does not have the form KIND=KIND", where="--map")
        names[old] = new
    with busy(console(stderr=True), "reading records of tasks") as show_step:
        read = [
            (path, read_task_records(path, machine, workflow, None, column_names, force))
            for path in files
        ]
        records = [record for _, item in read for record in rename_kinds(item.records, names)]
        show_step(f"learning from {format_count(len(records), 'record')}")
        with Store() as store:
            added, present = RunTimeRecords(store.engine).learn(records)
    kinds: dict[str, int] = {}
    for record in records:
        kinds[record.kind] = kinds.get(record.kind, 0) + 1
    payload = {
        "files": [
            {
                "file": str(path),
                "format": item.format,
                "records": len(item.records),
                "skipped": dict(item.skipped),
                "not_used": item.report.as_json()["not_used"],
            }
            for path, item in read
        ],
        "new": added,
        "present": present,
        "kinds": kinds,
    }
    answer_with(as_json, payload, lambda: _print_learned(payload))


def _print_learned(payload: Mapping[str, Any]) -> None:
    from vgrads.portal.cli.terminal import console, print_warnings
    from vgrads.traces.report import SMALL_SHARE

    out = console()
    for item in payload["files"]:
        unused = item["not_used"]
        left = ", ".join(
            f"{count} {why}"
            + (f" (first in line {unused[why]['first_line']})" if why in unused else "")
            for why, count in sorted(item["skipped"].items())
        )
        out.print(
            f"{item['file']}: {format_count(item['records'], 'record')} ({item['format']})"
            + (f"; not used: {left}" if left else ""),
            highlight=False,
        )
        broken = sum(entry["records"] for entry in unused.values())
        if broken > SMALL_SHARE * (broken + item["records"]):
            print_warnings(out, [f"{format_count(broken, 'record')} could not be read"])
    out.print(
        f"{payload['new']} new of {format_count(len(payload['kinds']), 'kind')}; "
        f"{format_count(payload['present'], 'record', 'are')} stored",
        highlight=False,
    )


@runtimes_app.command("list", epilog="Example: `vgrads runtimes list --json`")
def list_kinds(_wide: Wide = False, as_json: AsJson = False) -> None:
    """List the kinds of tasks with learned run times: run time, interval, number of runs."""
    from vgrads.api.plans.run_time_answers import kinds_json
    from vgrads.portal.records.reading.runtimes import read_past_run_times

    rows = kinds_json(read_past_run_times())
    answer_with(as_json, {"kinds": rows}, lambda: _make_table(rows))


@runtimes_app.command("show", epilog="Example: `vgrads runtimes show FASTQC --plot fastqc.svg`")
def show(
    kind: Annotated[str, typer.Argument(metavar="TASK", help="A kind of task.")],
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            "-o",
            metavar="FILE.svg",
            help="Write a diagram of run times against input size (.svg, .png or .pdf).",
            callback=diagram_file,
            show_default=False,
        ),
    ] = None,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show the records of one kind of task: runs, machines, and predictions by input size."""
    from vgrads.api.plans.run_time_answers import kind_json
    from vgrads.portal.charts.run_time_chart import write_run_time_chart
    from vgrads.portal.cli.terminal import console
    from vgrads.portal.records.reading.runtimes import read_past_run_times

    run_times = read_past_run_times()
    payload = kind_json(run_times, kind)
    if plot is not None:
        write_run_time_chart(payload, plot)

    def words() -> None:
        console().print(payload["sentence"], highlight=False)
        console().print(_make_table(payload["machines"]), highlight=False)

    answer_with(as_json, payload, words)


@runtimes_app.command("predict", epilog="Example: `vgrads runtimes predict data/lead-set.yaml`")
def predict(
    set_file: Annotated[Path, typer.Argument(metavar="SET", exists=True, dir_okay=False)],
    sites: Sites = None,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Predict the run times of a set's tasks, by kind, with the evidence."""
    from vgrads.api.plans.run_time_answers import predictions_json
    from vgrads.api.plans.set_files import SetOverrides, load_set
    from vgrads.portal.records.reading.runtimes import read_past_run_times
    from vgrads.portal.records.reading.sites import choose_catalog

    workflow_set, named = load_set(
        set_file, overrides=SetOverrides(deadline="1d")
    )  # no deadline applies here
    catalog = choose_catalog(sites or (Path(named) if named else None))
    rows = predictions_json(workflow_set, read_past_run_times(), catalog)
    answer_with(as_json, {"kinds": rows}, lambda: _make_table(rows))


@runtimes_app.command("forget", epilog="Example: `vgrads runtimes forget FASTQC`")
def forget(
    kind: Annotated[str, typer.Argument(metavar="TASK", help="A kind of task.")],
    as_json: AsJson = False,
) -> None:
    """Delete the records of a kind of task."""
    from vgrads.portal.cli.terminal import console
    from vgrads.portal.records.runtimes import RunTimeRecords
    from vgrads.portal.records.store import Store

    with Store() as store:
        count = RunTimeRecords(store.engine).forget(kind)
    payload = {"kind": kind, "forgotten": count}
    answer_with(
        as_json,
        payload,
        lambda: console().print(
            f"{format_count(count, 'record')} of {kind} deleted", highlight=False
        ),
    )


def _make_table(rows: list[dict[str, Any]]) -> TextTable | str:
    """Return rows as a table; seconds in readable units."""
    from vgrads.kernel.units import format_duration

    if not rows:
        return "no run times are recorded yet; add some with 'vgrads runtimes learn FILE'"
    texts = ("kind", "machine", "from")
    columns = tuple(
        Column(
            name.removesuffix("_s").replace("_", " "),
            right=name not in texts,
            shorten=name in texts,
            fold=_FOLDED.get(name, 0),
        )
        for name in rows[0]
    )
    return TextTable(
        columns, tuple(Row(tuple(_format_cells(row, format_duration))) for row in rows)
    )


_FOLDED = {"low_s": 1, "shortest_s": 1, "from": 2, "machines": 3, "memory_mib": 4, "tasks": 5}


def _format_cells(row: dict[str, Any], format_s: Callable[[float | None], str]) -> Iterator[str]:
    for name, value in row.items():
        text = format_s(value) if name.endswith("_s") else value
        yield "–" if text is None else str(text)
