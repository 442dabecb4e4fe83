"""Fragments of HTML for notebooks: self-contained, no script, any number of them on one page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_BOX = (
    "background:#fff;color:#1c2430;font:14px/1.45 system-ui,sans-serif;padding:.6em .8em;"
    "max-width:1200px"
)
_CELL = (
    "padding:.15em .7em;border-bottom:1px solid #ddd;text-align:right;background:#fff;color:#1c2430"
)


def box_html(*parts: str) -> str:
    """One result: its parts on white, whatever the page looks like."""
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def charts_html(*charts: str) -> str:
    """Charts next to each other, as far as the page is wide enough."""
    style = "display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,560px));gap:8px"
    return f'<div style="{style}">{"".join(charts)}</div>'


def text_html(text: str, bold: bool = False) -> str:
    """A paragraph."""
    weight = "font-weight:600;" if bold else ""
    return f'<p style="{weight}margin:.2em 0">{escape(text)}</p>'


def table_html(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table under its title, in a box."""
    return box_html(text_html(title, bold=True), bare_table(heads, rows))


def bare_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    head = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    return f'<table style="border-collapse:collapse;font:inherit"><tr>{head}</tr>{body}</table>'
