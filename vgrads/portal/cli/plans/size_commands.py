"""The command ``vgrads size``: the number of nodes for a piece of work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_count
from vgrads.portal.cli.options import AsJson, Wide, answer_with, app, diagram_file

_Set = Annotated[
    Path | None,
    typer.Argument(
        metavar="SET", help="A workflow set, or a bag with runtime_s.", show_default=False
    ),
]
_Picture = Annotated[
    Path | None,
    typer.Option(
        "--picture",
        "-o",
        metavar="FILE.svg",
        help="Write a diagram of time and cost against the number of nodes (.svg, .png or .pdf).",
        callback=diagram_file,
        show_default=False,
    ),
]


@app.command(
    "size",
    epilog=(
        "Examples: `vgrads size data/lead-set.yaml --price 0.1 --billing 1h` · `vgrads size "
        "--wavefront 1000 --cell 1s --dispatch 5s` · `vgrads size bag.yaml --sites sites.toml "
        "--deadline 8h -p 0.95`"
    ),
)
def size(
    work: _Set = None,
    wavefront: Annotated[
        str | None,
        typer.Option(
            "--wavefront",
            metavar="N[xM]",
            help="Instead of SET: a Wavefront with this number of cells.",
            show_default=False,
        ),
    ] = None,
    allpairs: Annotated[
        str | None,
        typer.Option(
            "--allpairs",
            metavar="N[xM]",
            help="Instead of SET: All-Pairs with this number of items.",
            show_default=False,
        ),
    ] = None,
    cell: Annotated[str, typer.Option("--cell", help="Run time of a cell.")] = "1s",
    procs: Annotated[
        int, typer.Option("--procs", min=1, max=100_000, help="Processors of a node.")
    ] = 1,
    most: Annotated[
        int, typer.Option("--most", min=1, max=100_000, help="Largest number of nodes to consider.")
    ] = 256,
    price: Annotated[
        float, typer.Option("--price", min=0.0, help="Price of a node, in dollars per hour.")
    ] = 0.0,
    billing: Annotated[
        str,
        typer.Option(
            "--billing",
            help="Billing period; a started period is charged in full. 0s: billing by the second.",
        ),
    ] = "0s",
    wait: Annotated[str, typer.Option("--wait", help="Time until the nodes are available.")] = "0s",
    dispatch: Annotated[
        str, typer.Option("--dispatch", help="Time until a task starts on an available node.")
    ] = "0s",
    capacity: Annotated[
        float | None,
        typer.Option(
            "--capacity",
            min=0.01,
            help="Processors that the manager can keep busy (shown by vgrads pool status).",
            show_default=False,
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline", help="Deadline of the work. Default: that of the set.", show_default=False
        ),
    ] = None,
    sites: Annotated[
        Path | None,
        typer.Option(
            "--sites",
            metavar="SITES.toml",
            help=(
                "Plan a bag or a matrix with a deadline on these sites: which nodes, with which "
                "probability, at which cost."
            ),
            show_default=False,
        ),
    ] = None,
    probability: Annotated[
        float | None,
        typer.Option(
            "--probability",
            "-p",
            min=0.01,
            max=0.9999,
            help=(
                "With --sites: with which the deadline is to be kept. Default: that of the bag, or "
                "0.95."
            ),
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            min=0.0,
            help="With --sites: the most that the nodes may cost, in dollars.",
            show_default=False,
        ),
    ] = None,
    picture: _Picture = None,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show time and cost of work by the number of nodes, and recommend a number."""
    from vgrads.api.bags.sizes import SizeQuestion, matrix_work, size, work_of
    from vgrads.kernel.deadline import parse_deadline
    from vgrads.kernel.errors import InputError
    from vgrads.kernel.units import parse_duration
    from vgrads.pool.models import Resources
    from vgrads.pool.size import AgentPrice
    from vgrads.portal.cli.terminal import busy, console

    def seconds(text: str, where: str) -> float:
        return parse_duration(text, where)

    if sum(item is not None for item in (work, wavefront, allpairs)) != 1:
        raise InputError("give one of SET, --wavefront and --allpairs", where="size")
    kind, grid = ("wavefront", wavefront) if wavefront is not None else ("allpairs", allpairs)
    if sites is not None:
        what = work or (kind, str(grid), seconds(cell, "--cell"))
        _with_sites(what, sites, deadline, (probability, budget), picture, as_json)
        return
    wait_s = seconds(dispatch, "--dispatch")
    question = SizeQuestion(
        procs=procs,
        most=most,
        price=AgentPrice(usd_per_hour=price, billing_s=seconds(billing, "--billing")),
        dispatch_s=wait_s,
        wait_s=seconds(wait, "--wait"),
        capacity=capacity,
        deadline_s=None if deadline is None else parse_deadline(deadline, None, "--deadline"),
        deadline_text=deadline or "",
    )
    if work is not None:
        result = work_of(work, wait_s)
    else:
        machines = Resources(here=procs, nodes=most, cores=procs, dispatch_s=wait_s)
        result = matrix_work(kind, str(grid), seconds(cell, "--cell"), machines)
    with busy(console(stderr=True), "comparing numbers of nodes"):
        payload = size(result, question)
    if picture is not None:
        _draw(payload, picture)
    answer_with(as_json, payload, lambda: _table(payload))


def _with_sites(
    work: Path | tuple[str, str, float],
    sites: Path,
    deadline: str | None,
    wishes: tuple[float | None, float | None],
    picture: Path | None,
    as_json: bool,
) -> None:
    from vgrads.api.bags.deadline_plans import GoalOverrides, deadline_plan, matrix_plan
    from vgrads.api.bags.sizes import matrix_sides
    from vgrads.kernel.deadline import parse_deadline
    from vgrads.portal.cli.plans.deadline_text import deadline_table
    from vgrads.portal.cli.terminal import busy, console
    from vgrads.vgrid.catalog import load_catalog

    overrides = GoalOverrides(
        deadline_s=None if deadline is None else parse_deadline(deadline, None, "--deadline"),
        deadline_text=deadline or "",
        probability=wishes[0],
        budget_usd=wishes[1],
    )
    with busy(console(stderr=True), "comparing plans"):
        if isinstance(work, Path):
            payload = deadline_plan(work, load_catalog(sites), overrides)
        else:
            sides = matrix_sides(*work)
            payload = matrix_plan(work[0], sides, work[2], load_catalog(sites), overrides)
    if picture is not None:
        _draw(payload, picture)
    answer_with(as_json, payload, lambda: deadline_table(payload))


def _draw(payload: Mapping[str, Any], path: Path) -> None:
    from vgrads.kernel.errors import InputError
    from vgrads.portal.charts.size_chart import write_deadline_chart, write_size_chart

    if path.suffix not in (".svg", ".png", ".pdf"):
        raise InputError(f"'{path.name}' does not end in .svg, .png or .pdf", where="--picture")
    (write_deadline_chart if "front" in payload else write_size_chart)(payload, path)


def _table(payload: Mapping[str, Any]) -> TextTable:
    from vgrads.kernel.units import format_duration

    columns = (
        Column("hosts", right=True),
        Column("time", right=True),
        Column("", fold=3),
        Column("busy", right=True, fold=2),
        Column("cost", right=True, fold=1),
        Column("remark", below=True),
    )
    rows = []
    names: dict[int, list[str]] = {}
    for name, item in payload["worth"].items():
        names.setdefault(item["hosts"], []).append(name)
    longest_s = max(entry["seconds"] for entry in payload["sizes"]) or 1.0
    for item in payload["sizes"]:
        bar = "█" * max(1, round(24 * item["seconds"] / longest_s))
        late = payload["deadline_s"] is not None and item["seconds"] > payload["deadline_s"]
        cost = f"${item['cost_usd']:,.2f}" if item["cost_usd"] else "–"
        text = ", ".join([*names.get(item["hosts"], []), *(["too late"] if late else [])])
        cells = (str(item["hosts"]), format_duration(item["seconds"]), bar)
        rows.append(Row((*cells, f"{item['efficiency']:.0%}", cost, text)))
    notes: tuple[str, ...] = ()
    if payload["how"]:
        how = payload["how"]
        words = (
            f"{how['how']}, blocks of {how['block']}, {format_count(how['hosts'], 'node')}: "
            f"{format_duration(how['seconds'])}"
        )
        notes = (f"Configuration chosen by the models: {words}.",)
    if payload["question"]:
        notes = (*notes, payload["question"])
    return TextTable(columns, tuple(rows), title=str(payload["work"]), notes=notes)
