"""``vgrads size``: the number of nodes for a piece of work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.text_table import Column, Row, TextTable
from vgrads.kernel.units import format_count
from vgrads.operations.fields import About, OnCommandLine
from vgrads.operations.sizes import SizeRequest
from vgrads.portal.cli.options import answer_with
from vgrads.portal.cli.requests import TableOutput


@dataclass(frozen=True, kw_only=True)
class SizeOutput(TableOutput):
    """``vgrads size``."""

    picture: Annotated[
        Path | None,
        About("Write a diagram of time and cost against the number of nodes (.svg, .png or .pdf)."),
        OnCommandLine(flags="--picture -o", metavar="FILE.svg", check="diagram_file"),
    ] = None


def size_now(request: SizeRequest, output: SizeOutput) -> int:
    """Compare numbers of nodes, or with sites plans for the deadline; print and draw the answer."""
    from vgrads.portal.cli.plans.deadline_text import deadline_table
    from vgrads.portal.cli.terminal import busy, console

    if sum(item is not None for item in (request.work, request.wavefront, request.allpairs)) != 1:
        raise InputError("give one of SET, --wavefront and --allpairs", where="size")
    planned = request.sites is not None
    what = "comparing plans" if planned else "comparing numbers of nodes"
    with busy(console(stderr=True), what):
        payload = _plan(request) if planned else _compare(request)
    if output.picture is not None:
        _draw(payload, output.picture)
    table = deadline_table if planned else _make_table
    answer_with(output.as_json, payload, lambda: table(payload))
    return 0


def _read_matrix(request: SizeRequest) -> tuple[str, str, float]:
    if request.wavefront is not None:
        return "wavefront", request.wavefront, request.cell_s
    return "allpairs", str(request.allpairs), request.cell_s


def _compare(request: SizeRequest) -> dict[str, Any]:
    from vgrads.api.bags.sizes import SizeQuestion, make_matrix_work, read_work, size
    from vgrads.pool.models import Resources
    from vgrads.pool.size import AgentPrice

    question = SizeQuestion(
        procs=request.procs,
        most=request.most,
        price=AgentPrice(usd_per_hour=request.price_usd_per_hour, billing_s=request.billing_s),
        dispatch_s=request.dispatch_s,
        wait_s=request.wait_s,
        capacity=request.capacity,
        deadline_s=_parse_deadline_s(request),
        deadline_text=request.deadline or "",
    )
    if request.work is not None:
        return size(read_work(request.work, request.dispatch_s), question)
    machines = Resources(
        here=request.procs,
        nodes=request.most,
        cores=request.procs,
        dispatch_s=request.dispatch_s,
    )
    return size(make_matrix_work(*_read_matrix(request), machines), question)


def _parse_deadline_s(request: SizeRequest) -> float | None:
    from vgrads.kernel.deadline import parse_deadline

    if request.deadline is None:
        return None
    return parse_deadline(request.deadline, None, "--deadline")


def _plan(request: SizeRequest) -> dict[str, Any]:
    from vgrads.api.bags.deadline_plans import (
        GoalOverrides,
        answer_deadline_plan,
        answer_matrix_plan,
    )
    from vgrads.api.bags.sizes import parse_matrix_sides
    from vgrads.vgrid.catalog import load_catalog

    overrides = GoalOverrides(
        deadline_s=_parse_deadline_s(request),
        deadline_text=request.deadline or "",
        probability=request.probability,
        budget_usd=request.budget_usd,
    )
    assert request.sites is not None  # otherwise numbers of nodes are compared
    catalog = load_catalog(request.sites)
    if request.work is not None:
        return answer_deadline_plan(request.work, catalog, overrides)
    kind, sides, cell_s = _read_matrix(request)
    return answer_matrix_plan(
        kind, parse_matrix_sides(kind, sides, cell_s), cell_s, catalog, overrides
    )


def _draw(payload: Mapping[str, Any], path: Path) -> None:
    from vgrads.portal.charts.size_chart import write_deadline_chart, write_size_chart

    if path.suffix not in (".svg", ".png", ".pdf"):
        raise InputError(f"'{path.name}' does not end in .svg, .png or .pdf", where="--picture")
    (write_deadline_chart if "front" in payload else write_size_chart)(payload, path)


def _make_table(payload: Mapping[str, Any]) -> TextTable:
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
