"""The Gantt chart as a picture: SVG, and a self-contained page around it.

As SC'09 Figure 4: a grey rectangle for each slot, as high as its processors, a coloured rectangle
for each task, one colour a workflow, a band at its lower edge for its state. Beyond it: the interval
in which a queue may start the slot, copies outlined, plan and reality side by side.
"""

from __future__ import annotations

import colorsys
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from kernel.units import format_duration, format_usd
from portal.gantt_layout import Bar, Lane, actual_bars, actual_lanes, planned_bars, planned_lanes

Json = Mapping[str, Any]
_LEFT, _TOP, _WIDTH, _GAP, _FOOT = 190, 34, 980, 14, 30
_STATE_COLOURS = {
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
        f'<rect x="{x:.1f}" y="{y + height - band:.1f}" width="{width:.1f}" height="{band:.1f}" fill="{_STATE_COLOURS[item["state"]]}" />'
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


def render_html(gantt: Json, sentence: str = "") -> str:
    """A page of its own: the chart as it happened and as it was planned, the promise, a legend."""
    ran = gantt.get("now_s") is not None
    charts = [("What happened", render_svg(gantt, True))] if ran else []
    charts.append(("The plan" if gantt["placements"] else "On offer", render_svg(gantt, False)))
    sections = "".join(f"<section><h2>{escape(title)}</h2>{svg}</section>" for title, svg in charts)
    sections = _decisions(gantt.get("decisions", ())) + sections
    promise = gantt["promise"]
    facts = gantt.get("facts") or (
        f"{gantt['needed']} of {len(gantt['workflows'])} workflows by {format_duration(gantt['deadline_s'])}, "
        f"promised with probability {promise['probability']:.3f} ± {promise['standard_error']:.3f}, "
        f"cost {format_usd(gantt['cost_usd'])}"
    )
    return _PAGE.format(
        title=escape(gantt["name"]), facts=escape(facts), sentence=escape(sentence), legend=_legend(gantt),
        sections=sections, data=json.dumps(gantt).replace("</", "<\\/"),
    )  # fmt: skip


def _decisions(rows: Sequence[Json]) -> str:
    """What was decided during the run, and why; nothing where nothing was."""
    items = "".join(
        f"<li><b>{format_duration(row['at_s'])}</b> {escape(row['text'])}</li>" for row in rows
    )
    return (
        f'<section><h2>What was decided</h2><ul class="decisions">{items}</ul></section>'
        if items
        else ""
    )


def _legend(gantt: Json) -> str:
    colours = workflow_colours(gantt["workflows"])
    used = {p["workflow"] for p in gantt["placements"]}
    items = [
        f'<button type="button" class="key" data-workflow="{escape(name)}"><i style="background:{colour}"></i>{escape(name)}</button>'
        for name, colour in colours.items()
        if name in used
    ][:60]
    states = [
        f'<span><i style="background:{_STATE_COLOURS[s]}"></i>{s}</span>'
        for s in ("planned", "running", "done", "failed", "cancelled")
    ]
    return "".join(items) + '<span class="rule"></span>' + "".join(states) if items else ""


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · vgrads</title>
<style>
:root {{ color-scheme: light dark; --ink: #1c2430; --soft: #6a7380; --page: #fff; --key: #eef0f3; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e6e9ee; --soft: #9aa3b0; --page: #14181f; --key: #222935; }} }}
body {{ font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 1.5rem auto; max-width: 1280px; padding: 0 1rem; }}
h1 {{ font-size: 1.4rem; margin: 0; }} h2 {{ font-size: 1rem; margin: 1.4rem 0 .3rem; }}
p {{ margin: .2rem 0; }} .decisions {{ margin: .2rem 0; padding-left: 1.2rem; }} .soft-text {{ color: var(--soft); }}
svg.gantt {{ width: 100%; height: auto; display: block; touch-action: none; }}
svg .ink {{ fill: var(--ink); }} svg .soft {{ fill: var(--soft); }}
svg .bar.dim {{ opacity: .15; }}
.facts {{ white-space: pre-wrap; }}
.legend {{ display: flex; flex-wrap: wrap; gap: .3rem .7rem; margin-top: .8rem; align-items: center; }}
.legend i {{ display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .35em; }}
.key {{ border: 0; border-radius: 4px; background: var(--key); color: inherit; font: inherit; font-size: .85rem; padding: .1rem .5rem; cursor: pointer; }}
.key[aria-pressed=true] {{ outline: 2px solid currentColor; }}
.rule {{ width: 1px; height: 1.2em; background: var(--soft); opacity: .5; }}
</style></head><body>
<h1>{title}</h1><p class="facts">{facts}</p><p><strong>{sentence}</strong></p>
<p class="soft-text">Grey: slots, as high as their processors. Bars: tasks, one colour a workflow, dashed where they are copies;
the band below tells their state. Thin line under a slot: when it may be ready (5–95 %, tick at the median).
Wheel to zoom, drag to pan, double-click to reset, hover for details, click a workflow to pick it out.</p>
<div class="legend">{legend}</div>
{sections}
<script type="application/json" id="gantt-data">{data}</script>
<script>
for (const svg of document.querySelectorAll("svg.gantt")) {{
  const full = svg.viewBox.baseVal, home = [full.x, full.y, full.width, full.height];
  const set = (x, w) => svg.setAttribute("viewBox", `${{x}} ${{home[1]}} ${{w}} ${{home[3]}}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.addEventListener("wheel", e => {{
    e.preventDefault();
    const v = svg.viewBox.baseVal, box = svg.getBoundingClientRect();
    const at = v.x + v.width * (e.clientX - box.left) / box.width;
    const w = Math.min(home[2], Math.max(30, v.width * (e.deltaY > 0 ? 1.2 : 1 / 1.2)));
    set(Math.min(Math.max(0, at - (at - v.x) * w / v.width), home[2] - w), w);
  }}, {{passive: false}});
  let from = null;
  svg.addEventListener("pointerdown", e => {{ from = [e.clientX, svg.viewBox.baseVal.x]; svg.setPointerCapture(e.pointerId); }});
  svg.addEventListener("pointermove", e => {{
    if (!from) return;
    const v = svg.viewBox.baseVal, box = svg.getBoundingClientRect();
    set(Math.min(Math.max(0, from[1] - (e.clientX - from[0]) * v.width / box.width), home[2] - v.width), v.width);
  }});
  svg.addEventListener("pointerup", () => {{ from = null; }});
  svg.addEventListener("dblclick", () => set(home[0], home[2]));
}}
for (const key of document.querySelectorAll(".key")) key.addEventListener("click", () => {{
  const on = key.getAttribute("aria-pressed") !== "true";
  document.querySelectorAll(".key").forEach(k => k.setAttribute("aria-pressed", String(k === key && on)));
  document.querySelectorAll("svg .bar").forEach(b => b.classList.toggle("dim", on && b.dataset.workflow !== key.dataset.workflow));
}});
</script></body></html>
"""
