"""How the histories of a request are read."""

from __future__ import annotations

from vgrads.operations.questions import FileFormat
from vgrads.traces.reading_options import ReadingOptions, parse_reading_options


def make_reading_options(request: FileFormat) -> ReadingOptions:
    """Return the options of reading."""
    return parse_reading_options(
        request.format, request.columns, request.zone, request.taken_at, request.force
    )
