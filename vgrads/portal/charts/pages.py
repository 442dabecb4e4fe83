"""Templates and static files of pages, for the charts and the web: no external addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from vgrads.kernel.units import format_chance, format_count, format_duration, format_share
from vgrads.portal.charts.wait_axis import wait_words

_METHODS = ("get", "items")
_LONGEST_WORD = 28
_WORD_ENDS = re.compile(r"(?<=[/_])(?=\S)|(?<=\.)(?=[^\W\d])")
_LONG_WORD = re.compile(rf"[^\s-]{{{_LONGEST_WORD + 1},}}")
_CODE = re.compile(r"``?([^`]+)``?")
STATIC = Path(__file__).parent / "static"


class _Templates(Environment):
    """Templates in which ``row.copy`` is the entry of a dictionary, never its method, except
    ``get`` and ``items``."""

    def getattr(self, obj: object, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute not in _METHODS:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)


@cache
def environment(package: str) -> Environment:
    """Return the templates of a package."""
    templates = _Templates(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined
    )
    templates.filters |= {
        "duration": format_duration,
        "seconds": brief_seconds,
        "coverage": format_share,
        "with_noun": format_count,
        "clock": clock,
        "instant": instant_clock,
        "unix_clock": unix_clock,
        "day": day,
        "share": format_chance,
        "prose": render_text,
        "sentence": render_sentence,
        "hours": hours,
        "wait": wait_words,
        "breakable": breakable,
    }
    return templates


def clock(instant: str) -> Markup:
    """Format an RFC 3339 instant in UTC; the script of the page converts it to the reader's time
    zone."""
    return instant_clock(datetime.fromisoformat(instant))


def unix_clock(at_s: float) -> Markup:
    """Format seconds since 1970, as :func:`clock` does."""
    return instant_clock(datetime.fromtimestamp(at_s, UTC))


def instant_clock(instant: datetime | str) -> Markup:
    """Format an instant of the database, as :func:`clock` does."""
    when = datetime.fromisoformat(instant) if isinstance(instant, str) else instant
    when = when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)  # as SQLite returns it
    return Markup('<time datetime="{}">{}</time>').format(
        f"{when:%Y-%m-%dT%H:%M:%SZ}", f"{when:%a} {when.day} {when:%b %H:%M} UTC"
    )


def day(instant: str) -> str:
    """Format an RFC 3339 instant, perhaps of another year, in UTC."""
    return f"{datetime.fromisoformat(instant).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def brief_seconds(seconds: float) -> str:
    """Format a time with two digits.

    >>> [brief_seconds(seconds) for seconds in (0.0, 0.0004, 0.0456, 0.25, 12.3456, 5224.0)]
    ['0 s', '0.4 ms', '46 ms', '0.25 s', '12s', '1h 27m']
    """
    if 0 < seconds < 0.1:
        return f"{1000 * seconds:.2g} ms"
    return f"{seconds:.2g} s" if seconds < 9.95 else format_duration(seconds)


def hours(seconds: float) -> str:
    """Format a wait in hours, with a precision that fits its size."""
    if 0 < seconds < 18:
        return "< 0.01\u202fh"
    return f"{seconds / 3600.0:.{2 if 0 < seconds < 36000 else 0}f}\u202fh"


def breakable(text: str) -> Markup:
    """Return a text that browsers break only where words of it end; longer words are shortened, and
    the whole is the title."""
    words = _WORD_ENDS.split(text)
    short = [_LONG_WORD.sub(lambda word: f"{word[0][:19]}…{word[0][-8:]}", word) for word in words]
    shown = Markup("<bdi>{}</bdi>").format(Markup("<wbr>").join(short))
    return shown if short == words else Markup('<span title="{}">{}</span>').format(text, shown)


def render_text(text: str) -> Markup:
    """Render the text of a description: paragraphs, and text between backticks as code."""
    parts = map(render_sentence, text.split("\n\n"))
    return Markup("").join(Markup("<p>{}</p>").format(part) for part in parts)


def render_sentence(text: str) -> Markup:
    """Render a text without paragraphs; what is between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def render(template: str, /, package: str = "vgrads.portal.charts", **values: object) -> str:
    """Render a template of a package; everything that is not marked as safe is escaped."""
    return environment(package).get_template(template).render(**values)


@cache
def static(name: str) -> str:
    """Return the text of a static file."""
    return (STATIC / name).read_text(encoding="utf-8")
