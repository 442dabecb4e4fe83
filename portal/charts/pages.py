"""Templates and the files that pages need, of the charts and of the web: no outside addresses."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kernel.units import format_duration

STATIC = Path(__file__).parent / "static"


@cache
def _templates(package: str) -> Environment:
    found = Environment(loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined)
    found.filters["duration"] = format_duration
    return found


def render(template: str, /, package: str = "portal.charts", **values: Any) -> str:
    """A template of a package filled in; everything that is not marked as safe is escaped."""
    return _templates(package).get_template(template).render(**values)


@cache
def static(name: str) -> str:
    """The text of a file that pages need."""
    return (STATIC / name).read_text(encoding="utf-8")
