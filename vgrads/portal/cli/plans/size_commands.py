"""The command ``vgrads size``: how many hosts should this work hold?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vgrads.portal.cli.options import AsJson, answer_with, app

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
        help="Time and cost against hosts, also as .png or .pdf.",
        show_default=False,
    ),
]


@app.command(
    "size",
    epilog=(
        "Examples: `vgrads size data/lead-set.yaml --price 0.1 --billing 1h` · `vgrads size "
        "--wavefront 1000 --cell 1s --dispatch 5s`"
    ),
)
def size(
    work: _Set = None,
    wavefront: Annotated[
        str | None,
        typer.Option(
            "--wavefront",
            metavar="N[xM]",
            help="Instead: a Wavefront of so many cells.",
            show_default=False,
        ),
    ] = None,
    allpairs: Annotated[
        str | None,
        typer.Option(
            "--allpairs",
            metavar="N[xM]",
            help="Instead: All-Pairs of so many items.",
            show_default=False,
        ),
    ] = None,
    cell: Annotated[str, typer.Option("--cell", help="How long a cell takes.")] = "1s",
    procs: Annotated[
        int, typer.Option("--procs", min=1, max=100_000, help="Processors of a host.")
    ] = 1,
    most: Annotated[
        int, typer.Option("--most", min=1, max=100_000, help="Hosts that are looked at.")
    ] = 256,
    price: Annotated[
        float, typer.Option("--price", min=0.0, help="Dollars an hour, of a host.")
    ] = 0.0,
    billing: Annotated[
        str, typer.Option("--billing", help="Begun periods are paid whole; 0s: by the second.")
    ] = "0s",
    wait: Annotated[str, typer.Option("--wait", help="Until hosts come.")] = "0s",
    dispatch: Annotated[
        str, typer.Option("--dispatch", help="Until a task begins at a host that is there.")
    ] = "0s",
    capacity: Annotated[
        float | None,
        typer.Option(
            "--capacity",
            min=0.01,
            help="Processors that the manager can keep busy (vgrads pool status tells).",
            show_default=False,
        ),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", help="Default: of the set.", show_default=False)
    ] = None,
    picture: _Picture = None,
    as_json: AsJson = False,
) -> None:
    """How long work takes on how many hosts, what that costs, and which number is the right one."""
    from vgrads.api.bags.sizes import Question, matrix_work, size, work_of
    from vgrads.kernel.errors import InputError
    from vgrads.kernel.units import parse_duration
    from vgrads.pool.models import Machines
    from vgrads.pool.size import Price

    def seconds(text: str, where: str) -> float:
        return parse_duration(text, where)

    if sum(one is not None for one in (work, wavefront, allpairs)) != 1:
        raise InputError("give one of SET, --wavefront and --allpairs", where="size")
    wait_s = seconds(dispatch, "--dispatch")
    question = Question(
        procs=procs,
        most=most,
        price=Price(usd_per_hour=price, billing_s=seconds(billing, "--billing")),
        dispatch_s=wait_s,
        wait_s=seconds(wait, "--wait"),
        capacity=capacity,
        deadline_s=None if deadline is None else seconds(deadline, "--deadline"),
    )
    if work is not None:
        found = work_of(work, wait_s)
    else:
        kind, grid = ("wavefront", wavefront) if wavefront is not None else ("allpairs", allpairs)
        machines = Machines(here=procs, hosts=most, cores=procs, dispatch_s=wait_s)
        found = matrix_work(kind, str(grid), seconds(cell, "--cell"), machines)
    told = size(found, question)
    if picture is not None:
        _draw(told, picture)
    answer_with(as_json, told, lambda: _table(told))


def _draw(told: Mapping[str, Any], path: Path) -> None:
    from vgrads.kernel.errors import InputError
    from vgrads.portal.charts.size_chart import write_size_chart

    if path.suffix not in (".svg", ".png", ".pdf"):
        raise InputError(
            f"'{path.name}' ends neither in .svg nor in .png nor in .pdf", where="--picture"
        )
    write_size_chart(told, path)


def _table(told: Mapping[str, Any]) -> Any:
    from rich.console import Group
    from rich.text import Text

    from vgrads.kernel.units import format_duration
    from vgrads.portal.cli.terminal import rows_under

    table = rows_under(
        "hosts", "time", "", "busy", "cost", "worth telling", title=str(told["work"])
    )
    names: dict[int, list[str]] = {}
    for name, one in told["worth"].items():
        names.setdefault(one["hosts"], []).append(name)
    longest_s = max(one["seconds"] for one in told["sizes"]) or 1.0
    for one in told["sizes"]:
        bar = "█" * max(1, round(24 * one["seconds"] / longest_s))
        late = told["deadline_s"] is not None and one["seconds"] > told["deadline_s"]
        cost = f"${one['cost_usd']:,.2f}" if one["cost_usd"] else "–"
        said = ", ".join(names.get(one["hosts"], [])) or ("too late" if late else "")
        table.add_row(
            str(one["hosts"]),
            format_duration(one["seconds"]),
            bar,
            f"{one['efficiency']:.0%}",
            cost,
            said,
        )
    if told["how"]:
        how = told["how"]
        words = (
            f"{how['how']}, blocks of {how['block']}, {how['hosts']} hosts: "
            f"{format_duration(how['seconds'])}"
        )
        return Group(table, Text(f"The models would do it {words}."))
    return table
