"""Exports of the Gantt chart: a self-contained page, SVG, PNG and PDF for papers, a trace for
Perfetto."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgrads.kernel.extras import is_installed, require
from vgrads.kernel.files import write_bytes
from vgrads.kernel.units import format_count, format_duration
from vgrads.planner.explain import explain_reason
from vgrads.portal.charts.gantt import (
    DEADLINE,
    STATE_COLOURS,
    before_text,
    render_html,
    render_svg,
    standalone_svg,
    tick,
    workflow_colours,
)
from vgrads.portal.charts.layout import (
    Bar,
    Lane,
    actual_bars,
    actual_lanes,
    horizon,
    planned_bars,
    planned_lanes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Format:
    """A file format."""

    ending: str
    media: str


_SLOT, _MOST_KEYS = "#dcdee2", 64
PICTURES = ("png", "pdf")
"""Formats that the extra ``plots`` draws."""
FORMATS = {
    "html": Format("html", "text/html; charset=utf-8"),
    "svg": Format("svg", "image/svg+xml"),
    "png": Format("png", "image/png"),
    "pdf": Format("pdf", "application/pdf"),
    "trace": Format("trace.json", "application/json"),
}


def format_of(name: str) -> str:
    """Return the format of a file's extension; a page for any other."""
    if name.endswith(".json"):
        return "trace"
    ending = name.rpartition(".")[2]
    return ending if ending in FORMATS else "html"


def reasons_of(plan: Json) -> dict[str, str]:
    """Return the reasons for the placement of each replica of a plan as JSON:
    ``workflow/task/copy`` → sentences."""
    replicas = {(p["workflow"], p["task"], p["copy"]): p for p in plan["placements"]}
    results = {}
    for r in plan.get("reasons", ()):
        key = r["workflow"], r["task"], r["copy"]
        if key in replicas:
            results["{}/{}/{}".format(*key)] = "\n".join(explain_reason(r, replicas[key]))
    return results


def available() -> list[str]:
    """Return the formats that can be written."""
    plots = is_installed("plots")
    return [form for form in FORMATS if plots or form not in PICTURES]


def refuse_without_plots(path: Path | None) -> Path | None:
    """Return the file for a chart; MissingExtraError if its format needs an extra that is not
    installed."""
    if path is not None and format_of(path.name) in PICTURES:
        require("plots", "a chart as PNG or PDF", str(path))
    return path


def write_chart(
    path: Path, gantt: Json, sentence: str, reasons: Mapping[str, str] | None = None
) -> None:
    """Write a page; with the extension ``.svg``, ``.png`` or ``.pdf`` the chart alone, with
    ``.json`` a trace."""
    write_bytes(path, export(gantt, format_of(path.name), sentence, reasons))


def export(
    gantt: Json, form: str, sentence: str = "", reasons: Mapping[str, str] | None = None
) -> bytes:
    """Return the chart in one of :data:`FORMATS`; with ``reasons`` a page shows why each replica is
    placed."""
    if form == "html":
        return render_html(gantt, sentence, reasons).encode()
    if form == "svg":
        return standalone_svg(render_svg(gantt)).encode()
    if form == "trace":
        return json.dumps(trace(gantt)).encode()
    return _draw_picture(gantt, form)


def trace(gantt: Json) -> dict[str, Any]:
    """Return the chart in the Trace Event Format: a process for each slot, a thread for each
    processor row."""
    ran = gantt.get("now_s") is not None
    events: list[dict[str, Any]] = []
    numbers = {slot["id"]: index for index, slot in enumerate(gantt["slots"], start=1)}
    for slot in gantt["slots"]:
        name = (
            f"{slot['id']} ({format_count(slot['procs'], 'processor')}, {slot['probability']:.0%})"
        )
        events.append(
            {"ph": "M", "name": "process_name", "pid": numbers[slot["id"]], "args": {"name": name}}
        )
    for lane in actual_lanes(gantt) if ran else planned_lanes(gantt):
        # a slot that never started has no background
        if lane.end_s > lane.start_s:
            events.append(
                _make_span(
                    "slot", numbers[lane.slot["id"]], 0, (lane.start_s, lane.end_s), lane.slot
                )
            )
    for bar in actual_bars(gantt) if ran else planned_bars(gantt):
        name = f"{bar.item['workflow']}/{bar.item['task']}"
        events.append(
            _make_span(name, numbers[bar.slot], bar.row + 1, (bar.start_s, bar.end_s), bar.item)
        )
    deadline = {
        "ph": "i",
        "name": "deadline",
        "ts": gantt["deadline_s"] * 1e6,
        "pid": 0,
        "tid": 0,
        "s": "g",
    }
    return {"traceEvents": [*events, deadline], "displayTimeUnit": "ms"}


def _make_span(
    name: str, pid: int, tid: int, span_s: tuple[float, float], item: Json
) -> dict[str, Any]:
    payload = {k: item[k] for k in ("copy", "state", "probability", "procs") if k in item}
    begin_s, end_s = span_s
    # the format has microseconds
    return {
        "ph": "X",
        "name": name,
        "cat": str(item.get("workflow", "slot")),
        "pid": pid,
        "tid": tid,
        "ts": begin_s * 1e6,
        "dur": (end_s - begin_s) * 1e6,
        "args": payload,
    }


def _draw_picture(gantt: Json, form: str) -> bytes:
    """Draw with matplotlib, at the resolution of a paper."""
    require("plots", f"a chart as {form.upper()}")
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # loaded only for pictures
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import MultipleLocator

    ran = gantt.get("now_s") is not None
    lanes = actual_lanes(gantt) if ran else planned_lanes(gantt)
    bars = actual_bars(gantt) if ran else planned_bars(gantt)
    heights = [max(0.4, min(2.5, lane.procs / 16)) for lane in lanes]
    figure = Figure(figsize=(10, min(40.0, 1.2 + 0.45 * sum(heights) + 0.12 * len(lanes))))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    colours = workflow_colours(gantt["workflows"])
    tops = _draw_lanes(axes, lanes, heights)
    _draw_bars(axes, bars, tops, colours)
    end_s = horizon(gantt, lanes, bars)
    _draw_deadline(axes, gantt["deadline_s"], end_s)
    axes.set_xlim(0, end_s)
    axes.xaxis.set_major_locator(MultipleLocator(tick(end_s)))
    axes.margins(y=0.01)
    used = {bar.item["workflow"] for bar in bars}
    kinds = {n: c for n, c in colours.items() if n in used} | STATE_COLOURS | {"slot": _SLOT}
    keys = [
        Patch(color=colour, label=_escape_name(name))
        for name, colour in list(kinds.items())[:_MOST_KEYS]
    ]
    axes.legend(
        handles=keys,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        borderaxespad=4,
        ncols=8,
        fontsize=6,
        frameon=False,
    )
    axes.invert_yaxis()
    axes.set_yticks(
        [top + h / 2 for top, h, _ in tops.values()],
        [_escape_name(lane.slot["id"]) for lane in lanes],
    )
    axes.tick_params(axis="y", labelsize=7)
    axes.xaxis.set_major_formatter(lambda t, _: format_duration(max(0.0, t)))
    axes.spines[["top", "right"]].set_visible(False)
    done = gantt.get("done", ())
    more = f" ({before_text(done)})" if done else ""
    axes.set_title(_escape_name(gantt["name"] + more), loc="left", fontsize=10)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, dpi=200, bbox_inches="tight")
    return buffer.getvalue()


def _escape_name(name: str) -> str:
    """Escape a name: matplotlib would read dollars as formulas."""
    return name.replace("$", r"\$")


def _draw_deadline(axes: Axes, deadline_s: float, end_s: float) -> None:
    """Draw the deadline; beyond the end, at the edge with its distance."""
    beyond_s = deadline_s - end_s
    axes.axvline(
        min(deadline_s, end_s), color=DEADLINE, linewidth=1, linestyle=":" if beyond_s > 0 else "-"
    )
    more = f", {format_duration(beyond_s)} beyond →" if beyond_s > 0 else ""
    text = f"deadline {format_duration(deadline_s)}{more}"
    axes.text(
        min(deadline_s, end_s),
        1.01,
        text,
        color=DEADLINE,
        fontsize=7,
        ha="right",
        va="bottom",
        transform=axes.get_xaxis_transform(),
    )


def _draw_lanes(
    axes: Axes, lanes: list[Lane], heights: list[float]
) -> dict[str, tuple[float, float, int]]:
    tops, y = {}, 0.0
    for lane, height in zip(lanes, heights, strict=True):
        tops[lane.slot["id"]] = (y, height, lane.procs)
        axes.broken_barh([(lane.start_s, lane.end_s - lane.start_s)], (y, height), color=_SLOT)
        y += height + 0.25
    return tops


def _draw_bars(
    axes: Axes,
    bars: list[Bar],
    tops: Mapping[str, tuple[float, float, int]],
    colours: Mapping[str, str],
) -> None:
    for bar in bars:
        top, height, procs = tops[bar.slot]
        # rows are counted from below, and the axis is inverted
        per = height / procs
        y = top + height - (bar.row + bar.procs) * per
        span = [(bar.start_s, bar.end_s - bar.start_s)]
        axes.broken_barh(
            span,
            (y, bar.procs * per),
            color=colours[bar.item["workflow"]],
            edgecolor="#fff",
            linewidth=0.3,
            hatch="//" if bar.item["copy"] else None,
        )
        band = min(0.06, bar.procs * per / 3)
        axes.broken_barh(
            span,
            (y + bar.procs * per - band, band),
            color=STATE_COLOURS[bar.item["state"]],
            linewidth=0,
        )
