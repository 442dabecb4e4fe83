"""Pages that are files of their own. A report, in the style of the portal's pages: first its
conclusion, then its tables and pictures; light and dark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from vgrads.kernel.files import write_text

_STYLE = """:root{color-scheme:light dark;--ink:#1c2430;--soft:#59626f;--page:#ffffff;
--card:#f5f6f8;--line:#d9dce1;--accent:#1f5fbf}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#a4adba;--page:#14181f;
--card:#1d232d;--line:#333b48;--accent:#8ab4f8}}
*{box-sizing:border-box}a{color:var(--accent)}
:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:1320px;
margin:0 auto;padding:1rem 1.2rem 2rem}
h1{font-size:1.4rem;margin:.4rem 0}h2{font-size:1.05rem;margin:1.5rem 0 .4rem}p{margin:.3rem 0}
.conclusion{font-size:1.15rem;border-left:5px solid var(--accent);padding:.1rem 0 .1rem .9rem;
margin:.6rem 0}
.scroll{overflow-x:auto;margin:1rem 0}table{border-collapse:collapse;font-size:.9rem}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{color:var(--soft);font-weight:600}th:first-child,td:first-child{text-align:left}
.soft{color:var(--soft)}figure{margin:1rem 0}
figure svg{max-width:100%;height:auto;display:block;fill:var(--ink)}
code,pre{font-family:ui-monospace,monospace;font-size:.9em;background:var(--card);
border-radius:6px;padding:0 .3rem}"""
"""The names and values of the colours are those of the portal's pages
(``vgrads/portal/charts/static/app.css``)."""

_COLOURS = {
    "#000000": "ink",
    "#1c2430": "ink",
    "#999999": "soft",
    "#b0b0b0": "line",
    "#cccccc": "line",
    "#ffffff": "page",
}
"""Colours of matplotlib's frames, and those of the page that take their places."""
_COLOUR = re.compile(rf"(?<=[: \"])(?:{'|'.join(_COLOURS)})(?=[;\"])")


def report_page(title: str, conclusion: str, body: str) -> str:
    """Return the HTML page. ``conclusion``: what the report found, in a sentence; ``body``: HTML.

    >>> "<h1>a &lt; b?</h1>" in report_page("a < b?", "Yes.", "<p>…</p>")
    True
    """
    head = f'<h1>{escape(title)}</h1><p class="conclusion">{escape(conclusion)}</p>'
    return page_frame(title, _STYLE, head + body)


def page_frame(title: str, style: str, main: str) -> str:
    """Return the HTML of a page that is one file, which loads nothing. ``style``: CSS; ``main``:
    HTML, with the page's scripts."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · vgrads</title><style>{style}</style></head>"
        f"<body><main>{main}</main></body></html>"
    )


def write_page(path: Path, title: str, conclusion: str, parts: Sequence[str]) -> None:
    """Write the page of a report; parts are HTML. Raise InputError where it cannot be written."""
    write_text(path, report_page(title, conclusion, "".join(parts)))


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table; every cell is text."""
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return scrolling("<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>")


def scrolling(table: str) -> str:
    """Return a table that scrolls by itself where a screen is narrower; a keyboard reaches it."""
    return f'<div class="scroll" tabindex="0" role="group" aria-label="Table">{table}</div>'


def figure_of(drawn: str) -> str:
    """Return a picture of matplotlib (a file of SVG) as a part of a page: its paper, frames and
    texts have the colours of the page, in light and in dark; what is drawn keeps its own.

    >>> figure_of('<?xml?><svg><path style="fill: #ffffff"/></svg>')
    '<figure><svg><path style="fill: var(--page)"/></svg></figure>'
    """
    picture = drawn[drawn.index("<svg") :]
    picture = _COLOUR.sub(lambda colour: f"var(--{_COLOURS[colour[0]]})", picture)
    return f"<figure>{picture}</figure>"
