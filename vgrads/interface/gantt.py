"""Gantt charts in notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vgrads.interface.html import box_html, text_html
from vgrads.kernel.extras import MissingExtraError
from vgrads.portal.charts.exports import export
from vgrads.portal.charts.gantt import render_svg

_MOST_NOTES = 8


def gantt_html(sentence: str, chart: Mapping[str, Any] | None, notes: Sequence[str] = ()) -> str:
    """A sentence, the chart, notes."""
    shown = [text_html(note) for note in notes[:_MOST_NOTES]]
    return box_html(
        text_html(sentence, bold=True), "" if chart is None else render_svg(chart), *shown
    )


def gantt_png(chart: Mapping[str, Any]) -> bytes | None:
    """The chart as PNG; None where matplotlib is not installed."""
    try:
        return export(chart, "png")
    except MissingExtraError:
        return None
