"""The Gantt chart as a picture: SVG, and a self-contained page around it.

As SC'09 Figure 4: a grey rectangle for each slot, as high as its processors, a coloured rectangle
for each task, one colour per workflow, a band at its lower edge for its state. In addition: the
interval in which a queue may start the slot, replicas outlined, plan and reality side by side.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from markupsafe import Markup

from vgrads.kernel.report_page import page_frame
from vgrads.kernel.units import format_chance, format_count, format_duration, format_usd
from vgrads.portal.charts.layout import (
    Bar,
    Lane,
    actual_bars,
    actual_lanes,
    horizon,
    planned_bars,
    planned_lanes,
)
from vgrads.portal.charts.pages import render, static

Json = Mapping[str, Any]
_SCRIPTS = ("gantt_parts.js", "gantt_paint.js", "gantt.js")
_PICTURE_STYLE = "\n.picture svg { width: 100%; height: auto; }"
_LEFT, _TOP, _WIDTH, _GAP, _FOOT = 190, 34, 980, 14, 56
STATE_COLOURS = {
    "planned": "#8a8f98",
    "waiting": "#8a8f98",
    "running": "#0072b2",
    "done": "#4a5058",
    "failed": "#d55e00",
    "cancelled": "#e69f00",
    "skipped": "#b9bec7",
}
DEADLINE, WAIT = "#b3261e", "#b06a00"
_HUES = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#d55e00", "#f0e442")
"""Colours of Okabe and Ito, suitable for colour-blind readers."""
_SHADES = ((255, 0.3), (255, 0.62), (0, 0.25))
"""Softened hues; lighter and darker ones where there are more workflows than hues."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Seconds → x, processors → heights."""

    end_s: float
    per_proc: float

    def x(self, instant_s: float) -> float:
        return _LEFT + _WIDTH * min(max(instant_s, 0.0), self.end_s) / self.end_s


def render_svg(gantt: Json, actual: bool | None = None) -> str:
    """Render one chart; ``actual`` chooses reality or plan, by default reality where there is
    any."""
    if actual is None:
        actual = gantt.get("now_s") is not None
    lanes = actual_lanes(gantt) if actual else planned_lanes(gantt)
    bars = actual_bars(gantt) if actual else planned_bars(gantt)
    scale = _Scale(end_s=horizon(gantt, lanes, bars), per_proc=_choose_height_per_proc(lanes))
    tops, height = _compute_tops(lanes, scale)
    colours = workflow_colours(gantt["workflows"])
    parts = [
        *_draw_axis(scale, height),
        *(_draw_lane(lane, tops[lane.slot["id"]], scale) for lane in lanes),
        *(
            _draw_bar(
                bar,
                tops[bar.slot] + _compute_lane_height(_count_procs(lanes, bar.slot), scale),
                scale,
                colours,
            )
            for bar in bars
        ),
        _draw_deadline(gantt["deadline_s"], scale, height),
        *_draw_legend(height + 34),
        *_draw_before(height + 34, gantt.get("done", ())),
    ]
    total = _LEFT + _WIDTH + 20
    return (
        f'<svg class="gantt" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} '
        f'{height + _FOOT:.0f}" '
        f'role="img" aria-label="Gantt chart of {escape(gantt["name"])}" '
        'font-family="system-ui, sans-serif" font-size="12">' + "".join(parts) + "</svg>"
    )


def workflow_colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each workflow: the same as in pages."""
    colours = {}
    for index, name in enumerate(names):
        towards, share = _SHADES[index // len(_HUES) % len(_SHADES)]
        mixed = (
            # halves are rounded up, as in pages; round() takes them to even numbers
            math.floor(c + share * (towards - c) + 0.5)
            for c in _parse_channels(_HUES[index % len(_HUES)])
        )
        colours[name] = "#" + "".join(f"{c:02x}" for c in mixed)
    return colours


def _parse_channels(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))


def readable(colour: str) -> str:
    """Return black or white, the more readable one on a colour."""
    # relative luminance of WCAG 2; above .179 black has the higher contrast
    red, green, blue = (
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
        for c in (channel / 255 for channel in _parse_channels(colour))
    )
    return "#101418" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "#ffffff"


def _choose_height_per_proc(lanes: list[Lane]) -> float:
    widest = max((lane.procs for lane in lanes), default=1)
    return max(1.0, min(26.0, 74.0 / widest))


def _compute_lane_height(procs: int, scale: _Scale) -> float:
    return max(18.0, procs * scale.per_proc)


def _count_procs(lanes: list[Lane], slot: str) -> int:
    return next(lane.procs for lane in lanes if lane.slot["id"] == slot)


def _compute_tops(lanes: list[Lane], scale: _Scale) -> tuple[dict[str, float], float]:
    tops, y = {}, float(_TOP)
    for lane in lanes:
        tops[lane.slot["id"]] = y
        y += _compute_lane_height(lane.procs, scale) + _GAP
    return tops, y


def _draw_axis(scale: _Scale, height: float) -> list[str]:
    step = tick(scale.end_s)
    parts = []
    for index in range(int(scale.end_s / step) + 1):
        x = scale.x(index * step)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" '
            f'y2="{height:.1f}" stroke="#9993" />'
        )
        label = format_duration(index * step) if index else "0"
        parts.append(
            f'<text class="soft" x="{x:.1f}" y="{_TOP - 14}" text-anchor="middle" '
            f'fill="#888">{label}</text>'
        )
    return parts


def tick(end_s: float) -> float:
    """Return a round step for about eight ticks."""
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


def _draw_lane(lane: Lane, top: float, scale: _Scale) -> str:
    slot, height = lane.slot, _compute_lane_height(lane.procs, scale)
    x, right = scale.x(lane.start_s), scale.x(lane.end_s)
    chance = format_chance(slot["probability"])
    price = f" · {format_usd(slot['cost_usd'])}" if slot["cost_usd"] else ""
    end = (slot.get("actual") or {}).get("reason") or ""
    title = (
        f"{slot['id']} ({slot['kind']}, {format_count(slot['procs'], 'processor')})\nrequested at "
        f"{format_duration(slot['submit_s'])}, "
        f"{_format_likely(slot)}needed from {format_duration(slot['start_s'])}\n"
        f"probability {chance}{price}\n"
        f"state {slot['state']}{': ' + end if end else ''}"
    )
    return (
        f"<g><title>{escape(title)}</title>"
        f'<rect class="slot" x="{x:.1f}" y="{top:.1f}" width="{max(0.0, right - x):.1f}" '
        f'height="{height:.1f}" fill="#8884" />'
        f"{_wait(slot, top + height + 4, scale)}"
        f'<text class="ink" x="{_LEFT - 10}" y="{top + 13:.1f}" text-anchor="end" '
        f'fill="#444" font-weight="600">{escape(slot["id"])}</text>'
        f'<text class="soft" x="{_LEFT - 10}" y="{top + 27:.1f}" text-anchor="end" '
        f'fill="#888">{slot["procs"]}p · {chance}{price}</text>'
        "</g>"
    )


def _format_likely(slot: Json) -> str:
    middle_s = slot.get("ready_p50_s")
    return "" if middle_s is None else f"likely ready at {format_duration(middle_s)}, "


def _wait(slot: Json, y: float, scale: _Scale) -> str:
    """Draw the wait from the request to the start: a thin line over 5–95 %, a tick at the
    median."""
    low = slot.get("ready_p5_s")
    if low is None:
        return ""
    middle, high = slot.get("ready_p50_s"), slot.get("ready_p95_s")
    x1, x2 = scale.x(low), scale.x(scale.end_s if high is None else high)
    tick = (
        ""
        if middle is None
        else (
            f'<rect x="{scale.x(middle) - 1:.1f}" y="{y - 3:.1f}" width="2" height="6" '
            f'fill="{WAIT}" />'
        )
    )
    return (
        f'<line x1="{x1:.1f}" x2="{max(x2, x1 + 1):.1f}" y1="{y:.1f}" y2="{y:.1f}" '
        f'stroke="{WAIT}" stroke-width="1.5" />{tick}'
    )


def _draw_bar(bar: Bar, bottom: float, scale: _Scale, colours: Mapping[str, str]) -> str:
    item = bar.item
    height = max(2.0, bar.procs * scale.per_proc)
    y = bottom - bar.row * scale.per_proc - height
    x, width = scale.x(bar.start_s), max(1.5, scale.x(bar.end_s) - scale.x(bar.start_s))
    replica = ' stroke="#222" stroke-dasharray="3 2"' if item["copy"] else ""
    band = min(4.0, height / 3)
    label = f"{item['workflow']} {item['task']}"
    text = ""
    # a letter is about 6.2 pixels wide
    if height >= 13 and width > 6.2 * len(label):
        text = (
            f'<text x="{x + 5:.1f}" y="{y + height / 2 + 4:.1f}" '
            f'fill="{readable(colours[item["workflow"]])}">{escape(label)}</text>'
        )
    return (
        '<g class="bar" '
        f'data-workflow="{escape(item["workflow"])}"><title>{escape(_format_bar_title(bar))}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{colours[item["workflow"]]}"{replica} />'
        f'<rect x="{x:.1f}" y="{y + height - band:.1f}" width="{width:.1f}" '
        f'height="{band:.1f}" fill="{STATE_COLOURS[item["state"]]}" />'
        f"{text}</g>"
    )


def _format_bar_title(bar: Bar) -> str:
    item = bar.item
    replica = f" (replica {item['copy'] + 1})" if item["copy"] else ""
    reason = f": {item['reason']}" if item.get("reason") else ""
    return (
        f"{item['workflow']} · {item['task']}{replica}\n{format_duration(bar.start_s)} – "
        f"{format_duration(bar.end_s)}, "
        f"{format_count(item['procs'], 'processor')}\nplanned {format_duration(item['start_s'])} – "
        f"{format_duration(item['end_s'])}, "
        f"probability {format_chance(item['probability'])}\nstate {item['state']}{reason}"
    )


def _draw_deadline(deadline_s: float, scale: _Scale, height: float) -> str:
    """Draw the deadline; beyond the end, at the edge with its distance."""
    beyond_s = deadline_s - scale.end_s
    dash = ' stroke-dasharray="2 4"' if beyond_s > 0 else ""
    more = f", {format_duration(beyond_s)} beyond →" if beyond_s > 0 else ""
    x = scale.x(deadline_s)
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{height:.1f}" '
        f'stroke="{DEADLINE}" stroke-width="1.5"{dash} />'
        f'<text x="{x - 4:.1f}" y="{height + 12:.1f}" text-anchor="end" '
        f'fill="{DEADLINE}">deadline {format_duration(deadline_s)}{more}</text>'
    )


def _draw_legend(y: float) -> list[str]:
    """Draw the legend of lines and bands, in a row."""
    kinds = [
        ("slot", '<rect width="12" height="10" y="-9" fill="#8884" />'),
        (
            "its start, 5–95 %, tick at the median",
            f'<path d="M0 -4H14M7 -7V-1" stroke="{WAIT}" stroke-width="1.5" />',
        ),
        (
            "copy",
            (
                '<rect width="12" height="10" y="-9" fill="none" stroke="#888" '
                'stroke-dasharray="3 2" />'
            ),
        ),
        ("deadline", f'<path d="M5 -10V2" stroke="{DEADLINE}" stroke-width="1.5" />'),
        *(
            (state, f'<rect width="12" height="5" y="-6" fill="{STATE_COLOURS[state]}" />')
            for state in ("planned", "running", "done", "failed", "cancelled", "skipped")
        ),
    ]
    parts, x = [], float(_LEFT)
    for text, mark in kinds:
        parts.append(
            f'<g transform="translate({x:.0f} {y:.0f})">{mark}<text class="soft" x="18" '
            f'fill="#888">{text}</text></g>'
        )
        x += 34 + 6.6 * len(text)
    return parts


def _draw_before(y: float, done: Sequence[Json]) -> list[str]:
    """Draw, next to the legend, the number of tasks without bars because an earlier run did
    them."""
    if not done:
        return []
    text = f"<title>{escape(before_text(done))}</title>{len(done)} done before"
    return [
        (
            f'<text class="soft" x="{_LEFT - 10}" y="{y:.0f}" text-anchor="end" '
            f'fill="#888">{text}</text>'
        )
    ]


def before_text(done: Sequence[Json]) -> str:
    """Return the text for the number of tasks that an earlier run did."""
    runs = {item["run"] for item in done}
    where = next(iter(runs)) if len(runs) == 1 else f"{format_count(len(runs), 'run')}"
    return f"{len(done)} done before, in {where}"


def standalone_svg(svg: str) -> str:
    """Return the chart on a white background: outside a page, it must not depend on the viewer's
    colours."""
    # the first > ends the svg tag
    return svg.replace(">", '><rect width="100%" height="100%" fill="#fff" />', 1)


def render_html(
    gantt: Json,
    sentence: str = "",
    why: Mapping[str, str] | None = None,
    promises: Markup | None = None,
) -> str:
    """Render a self-contained page: the interactive chart, the promise, a legend. ``why``: replica
    → reason; ``promises``: a picture of the promise over time."""
    promise = gantt["promise"]
    facts = gantt.get("facts") or (
        f"{gantt['needed']} of {format_count(len(gantt['workflows']), 'workflow')} by "
        f"{format_duration(gantt['deadline_s'])}, "
        f"promised with probability {promise['probability']:.3f} ± "
        f"{promise['standard_error']:.3f}, "
        f"cost {format_usd(gantt['cost_usd'])}"
    )
    if before := gantt.get("done"):
        facts += f"; {before_text(before)}"
    ran = gantt.get("now_s") is not None
    title = "Execution" if ran else "The plan" if gantt["placements"] else "Offer"
    # no text in it may end the script element
    data = json.dumps({**gantt, "why": why or {}}).replace("<", "\\u003c")
    main = render(
        "alone.html",
        title=title,
        gantt=gantt,
        facts=facts,
        sentence=sentence,
        svg=Markup(render_svg(gantt)),
        promises=promises,
        data=Markup(data),
        script=Markup("".join(map(static, _SCRIPTS))),
    )
    return page_frame(gantt["name"], static("app.css") + _PICTURE_STYLE, main)
