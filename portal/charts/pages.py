"""Templates and the files that pages need, of the charts and of the web: no outside addresses."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from kernel.units import format_duration

_CODE = re.compile(r"``?([^`]+)``?")
STATIC = Path(__file__).parent / "static"


@cache
def _templates(package: str) -> Environment:
    found = Environment(loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined)
    found.filters |= {
        "duration": format_duration,
        "clock": clock,
        "share": share,
        "told": told,
        "hours": hours,
    }
    return found


def clock(instant: str) -> Markup:
    """An RFC 3339 instant in UTC; the script of the page puts it into the zone of whoever reads."""
    when = datetime.fromisoformat(instant)
    when = (
        when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
    )  # as SQLite gives it back
    return Markup('<time datetime="{}">{}</time>').format(
        f"{when:%Y-%m-%dT%H:%M:%SZ}", f"{when:%a} {when.day} {when:%b %H:%M} UTC"
    )


def share(chance: float) -> str:
    """A probability as people say it: whole percents, but never certain where it is not."""
    whole = min(99, max(1, round(100 * chance))) if 0.0 < chance < 1.0 else round(100 * chance)
    return f"{whole}\u202f%"


def hours(seconds: float) -> str:
    """A wait in hours, as finely as it matters."""
    return f"{seconds / 3600.0:.2f} h" if 0 < seconds < 36000 else f"{seconds / 3600.0:.0f} h"


def told(text: str) -> Markup:
    """Words of a description: paragraphs, and what stands between backticks as code."""
    parts = (_CODE.sub(r"<code>\1</code>", str(escape(part))) for part in text.split("\n\n"))
    return Markup("".join(f"<p>{part}</p>" for part in parts))


def render(template: str, /, package: str = "portal.charts", **values: Any) -> str:
    """A template of a package filled in; everything that is not marked as safe is escaped."""
    return _templates(package).get_template(template).render(**values)


@cache
def static(name: str) -> str:
    """The text of a file that pages need."""
    return (STATIC / name).read_text(encoding="utf-8")
