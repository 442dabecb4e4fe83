"""Pages of the service: plain HTML, no outside addresses."""

from __future__ import annotations

from html import escape
from typing import Any

from kernel.units import format_duration

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>vgrads</title><style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 900px; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }} th, td {{ text-align: left; padding: .4rem .6rem; border-bottom: 1px solid #8885; }}
</style></head><body><h1>Workflow sets</h1>{body}
<p>Hand over a set with <code>POST /v1/workflow-sets</code>; see <a href="/docs">the API</a>.</p></body></html>
"""


def index_page(sets: list[dict[str, Any]]) -> str:
    """All sets with promise and state."""
    if not sets:
        return _PAGE.format(body="<p>None yet.</p>")
    rows = "".join(_row(entry) for entry in sets)
    head = "<tr><th>Set</th><th>Needed by</th><th>Promise</th><th>State</th></tr>"
    return _PAGE.format(body=f"<table>{head}{rows}</table>")


def _row(entry: dict[str, Any]) -> str:
    state = (
        entry["runs"][0]["state"]
        if entry["runs"]
        else ("planned" if entry["feasible"] else "cannot be promised")
    )
    return (
        f'<tr><td><a href="/sets/{escape(entry["id"])}">{escape(entry["name"])}</a></td>'
        f"<td>{entry['needed']} by {format_duration(entry['deadline_s'])}</td>"
        f"<td>{entry['promise']['probability']:.1%}</td><td>{escape(state)}</td></tr>"
    )
