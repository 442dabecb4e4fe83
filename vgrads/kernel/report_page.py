"""The page of a report in one file: light and dark, at a desk and on a phone; first its conclusion,
then its tables and pictures."""

from __future__ import annotations

from html import escape

_STYLE = """:root{color-scheme:light dark;--text:#1c2430;--soft:#5a6472;--line:#d8dee6;
--back:#fff;--tint:#f1f4f8}
@media (prefers-color-scheme:dark){:root{--text:#e6eaf0;--soft:#a9b3c0;--line:#3a4452;
--back:#14181e;--tint:#1f262f}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:75rem;
margin:0 auto;padding:1rem}
h1{margin:.5rem 0}.conclusion{font-size:1.15rem;border-left:4px solid #3b7dd8;padding:.5rem .8rem;
background:var(--tint);margin:1rem 0}
.scroll{overflow-x:auto;margin:1rem 0}table{border-collapse:collapse;font-size:.9rem}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}.soft{color:var(--soft)}
figure{margin:1rem 0;padding:.5rem;background:#fff;border-radius:6px}
figure svg{max-width:100%;height:auto;display:block}
code{background:var(--tint);padding:0 .3rem}"""


def report_page(title: str, conclusion: str, body: str) -> str:
    """Return the HTML page. ``conclusion``: what the report found, in a sentence; ``body``: HTML.

    >>> "<h1>a &lt; b?</h1>" in report_page("a < b?", "Yes.", "<p>…</p>")
    True
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · vgrads</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{escape(title)}</h1><p class="conclusion">{escape(conclusion)}</p>{body}'
        "</main></body></html>"
    )


def scrolling(table: str) -> str:
    """Return a table that scrolls by itself where a screen is narrower; a keyboard reaches it."""
    return f'<div class="scroll" tabindex="0" role="group" aria-label="Table">{table}</div>'
