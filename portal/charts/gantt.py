"""The Gantt chart as a picture: SVG, and a self-contained page around it.

As SC'09 Figure 4: a grey rectangle for each slot, as high as its processors, a coloured rectangle
for each task, one colour a workflow, a band at its lower edge for its state. Beyond it: the interval
in which a queue may start the slot, copies outlined, plan and reality side by side.
"""

from __future__ import annotations

import colorsys
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from markupsafe import Markup

from kernel.units import format_duration, format_usd
from portal.charts.layout import Bar, Lane, actual_bars, actual_lanes, planned_bars, planned_lanes
from portal.charts.pages import render, static

Json = Mapping[str, Any]
_LEFT, _TOP, _WIDTH, _GAP, _FOOT = 190, 34, 980, 14, 30
STATE_COLOURS = {
    "planned": "#8a8f98", "waiting": "#8a8f98", "running": "#2e9e44", "done": "#5b6068",
    "failed": "#d22f2f", "cancelled": "#c58a00", "skipped": "#b9bec7",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Scale:
    """Seconds → x, processors → heights."""

    end_s: float
    per_proc: float

    def x(self, instant_s: float) -> float:
        return _LEFT + _WIDTH * min(max(instant_s, 0.0), self.end_s) / self.end_s


def render_svg(gantt: Json, actual: bool | None = None) -> str:
    """One chart; ``actual`` chooses reality or plan, by default reality where there is any."""
    if actual is None:
        actual = gantt.get("now_s") is not None
    lanes = actual_lanes(gantt) if actual else planned_lanes(gantt)
    bars = actual_bars(gantt) if actual else planned_bars(gantt)
    ends = [gantt["deadline_s"], *(lane.end_s for lane in lanes), *(bar.end_s for bar in bars)]
    scale = _Scale(end_s=max(ends) * 1.02, per_proc=_per_proc(lanes))
    tops, height = _tops(lanes, scale)
    colours = workflow_colours(gantt["workflows"])
    parts = [
        *_axis(scale, height),
        *(_lane(lane, tops[lane.slot["id"]], scale) for lane in lanes),
        *(
            _bar(bar, tops[bar.slot] + _lane_height(_procs(lanes, bar.slot), scale), scale, colours)
            for bar in bars
        ),
        _deadline(gantt["deadline_s"], scale, height),
    ]
    total = _LEFT + _WIDTH + 20
    return (
        f'<svg class="gantt" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height + _FOOT:.0f}" '
        f'role="img" aria-label="Gantt chart of {escape(gantt["name"])}" font-family="system-ui, sans-serif" font-size="12">'
        + "".join(parts)
        + "</svg>"
    )


def workflow_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each workflow, neighbours far apart on the circle of hues."""
    colours = {}
    for index, name in enumerate(names):
        hue = (index * 0.61803398875 + 0.58) % 1.0
        r, g, b = colorsys.hls_to_rgb(hue, 0.60 if index % 2 else 0.52, 0.55)
        colours[name] = f"#{round(r * 255):02x}{round(g * 255):02x}{round(b * 255):02x}"
    return colours


def _per_proc(lanes: list[Lane]) -> float:
    widest = max((lane.procs for lane in lanes), default=1)
    return max(1.0, min(26.0, 74.0 / widest))


def _lane_height(procs: int, scale: _Scale) -> float:
    return max(18.0, procs * scale.per_proc)


def _procs(lanes: list[Lane], slot: str) -> int:
    return next(lane.procs for lane in lanes if lane.slot["id"] == slot)


def _tops(lanes: list[Lane], scale: _Scale) -> tuple[dict[str, float], float]:
    tops, y = {}, float(_TOP)
    for lane in lanes:
        tops[lane.slot["id"]] = y
        y += _lane_height(lane.procs, scale) + _GAP
    return tops, y


def _axis(scale: _Scale, height: float) -> list[str]:
    step = _tick(scale.end_s)
    parts = []
    for index in range(int(scale.end_s / step) + 1):
        x = scale.x(index * step)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{height:.1f}" stroke="#9993" />'
        )
        label = format_duration(index * step) if index else "0"
        parts.append(
            f'<text class="soft" x="{x:.1f}" y="{_TOP - 14}" text-anchor="middle" fill="#888">{label}</text>'
        )
    return parts


def _tick(end_s: float) -> float:
    """A round step that gives about eight ticks."""
    nice = (
        1,
        2,
        5,
        10,
        15,
        30,
        60,
        120,
        300,
        600,
        900,
        1800,
        3600,
        7200,
        14400,
        21600,
        43200,
        86400,
    )
    return next((float(t) for t in nice if end_s / t <= 10), math.ceil(end_s / 864000) * 86400.0)


def _lane(lane: Lane, top: float, scale: _Scale) -> str:
    slot, height = lane.slot, _lane_height(lane.procs, scale)
    x, right = scale.x(lane.start_s), scale.x(lane.end_s)
    chance = f"{slot['probability']:.0%}"
    price = f" · {format_usd(slot['cost_usd'])}" if slot["cost_usd"] else ""
    end = (slot.get("actual") or {}).get("reason") or ""
    title = (
        f"{slot['id']} ({slot['kind']}, {slot['procs']} processors)\nasked for at {format_duration(slot['submit_s'])}, "
        f"needed from {format_duration(slot['start_s'])}\nprobability {chance}{price}\nstate {slot['state']}{': ' + end if end else ''}"
    )
    return (
        f"<g><title>{escape(title)}</title>"
        f'<rect class="slot" x="{x:.1f}" y="{top:.1f}" width="{max(0.0, right - x):.1f}" height="{height:.1f}" fill="#8884" />'
        f"{_wait(slot, top + height + 4, scale)}"
        f'<text class="ink" x="{_LEFT - 10}" y="{top + 13:.1f}" text-anchor="end" fill="#444" font-weight="600">{escape(slot["id"])}</text>'
        f'<text class="soft" x="{_LEFT - 10}" y="{top + 27:.1f}" text-anchor="end" fill="#888">{slot["procs"]}p · {chance}{price}</text>'
        "</g>"
    )


def _wait(slot: Json, y: float, scale: _Scale) -> str:
    """From the request to the start: a thin line over 5–95 %, a tick at the median."""
    low = slot.get("ready_p5_s")
    if low is None:
        return ""
    middle, high = slot.get("ready_p50_s"), slot.get("ready_p95_s")
    x1, x2 = scale.x(low), scale.x(scale.end_s if high is None else high)
    tick = (
        ""
        if middle is None
        else f'<rect x="{scale.x(middle) - 1:.1f}" y="{y - 3:.1f}" width="2" height="6" fill="#b06a00" />'
    )
    return f'<line x1="{x1:.1f}" x2="{max(x2, x1 + 1):.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#b06a00" stroke-width="1.5" />{tick}'


def _bar(bar: Bar, bottom: float, scale: _Scale, colours: Mapping[str, str]) -> str:
    item = bar.item
    height = max(2.0, bar.procs * scale.per_proc)
    y = bottom - bar.row * scale.per_proc - height
    x, width = scale.x(bar.start_s), max(1.5, scale.x(bar.end_s) - scale.x(bar.start_s))
    twin = ' stroke="#222" stroke-dasharray="3 2"' if item["copy"] else ""
    band = min(4.0, height / 3)
    label = f"{item['workflow']} {item['task']}"
    text = ""
    if height >= 13 and width > 6.2 * len(label):
        text = (
            f'<text x="{x + 5:.1f}" y="{y + height / 2 + 4:.1f}" fill="#fff">{escape(label)}</text>'
        )
    return (
        f'<g class="bar" data-workflow="{escape(item["workflow"])}"><title>{escape(_bar_title(bar))}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colours[item["workflow"]]}"{twin} />'
        f'<rect x="{x:.1f}" y="{y + height - band:.1f}" width="{width:.1f}" height="{band:.1f}" fill="{STATE_COLOURS[item["state"]]}" />'
        f"{text}</g>"
    )


def _bar_title(bar: Bar) -> str:
    item = bar.item
    copy = f" (copy {item['copy']})" if item["copy"] else ""
    reason = f": {item['reason']}" if item.get("reason") else ""
    return (
        f"{item['workflow']} · {item['task']}{copy}\n{format_duration(bar.start_s)} – {format_duration(bar.end_s)}, "
        f"{item['procs']} processors\nplanned {format_duration(item['start_s'])} – {format_duration(item['end_s'])}, "
        f"probability {item['probability']:.1%}\nstate {item['state']}{reason}"
    )


def _deadline(deadline_s: float, scale: _Scale, height: float) -> str:
    x = scale.x(deadline_s)
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{height:.1f}" stroke="#d22f2f" stroke-width="1.5" />'
        f'<text x="{x - 4:.1f}" y="{height + 14:.1f}" text-anchor="end" fill="#d22f2f">deadline {format_duration(deadline_s)}</text>'
    )


def standalone_svg(svg: str) -> str:
    """The chart on white paper: seen without a page, it must not depend on the viewer's colours."""
    return svg.replace(">", '><rect width="100%" height="100%" fill="#fff" />', 1)


def render_html(gantt: Json, sentence: str = "", why: Mapping[str, str] | None = None) -> str:
    """A page of its own: the chart to zoom and to ask, the promise, a legend. ``why``: copy → reason."""
    promise = gantt["promise"]
    facts = gantt.get("facts") or (
        f"{gantt['needed']} of {len(gantt['workflows'])} workflows by {format_duration(gantt['deadline_s'])}, "
        f"promised with probability {promise['probability']:.3f} ± {promise['standard_error']:.3f}, "
        f"cost {format_usd(gantt['cost_usd'])}"
    )
    ran = gantt.get("now_s") is not None
    title = "What happened" if ran else "The plan" if gantt["placements"] else "On offer"
    data = json.dumps({**gantt, "why": why or {}}).replace("<", "\\u003c")
    return render(
        "alone.html", title=title, gantt=gantt, facts=facts, sentence=sentence, svg=Markup(render_svg(gantt)), data=Markup(data),
        css=Markup(static("app.css")), script=Markup(static("gantt.js")),
    )  # fmt: skip
