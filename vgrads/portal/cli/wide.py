"""Whether tables of the current command show all columns. No imports: every command has the
option."""

from contextvars import ContextVar

WIDE: ContextVar[bool] = ContextVar("WIDE", default=False)
"""Set by the option ``--wide``, read by the console."""


def set_wide(wide: bool) -> bool:
    """Set what the option says; the callback of the option."""
    WIDE.set(wide)
    return wide
