"""Numbers as people write them into forms."""

from __future__ import annotations

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import parse_probability


def read_usd(text: str, field: str) -> float | None:
    """Return a sum of dollars; None for an empty text. Raise InputError, with the field."""
    if not text.strip():
        return None
    try:
        value = float(text.strip().removeprefix("$").replace(",", ""))
    except ValueError as error:
        raise InputError(f"'{text}' is not a number", where=field) from error
    if not 0 <= value < float("inf"):
        raise InputError(f"{text} is outside its range", where=field)
    return value


def read_probability(text: str, field: str) -> float | None:
    """Return a probability, written as 0.9 or 90%; None for an empty text. Raise InputError, with
    the field."""
    return parse_probability(text.strip(), field) if text.strip() else None
