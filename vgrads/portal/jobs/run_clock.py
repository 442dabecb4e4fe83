"""The clock of a run: seconds since its start."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from vgrads.portal.records.tables import RunRow

if TYPE_CHECKING:
    from vgrads.execmgr.core.states import RunState


def started_at(run: RunRow) -> datetime:
    """Return when a run started, with its zone, which some databases do not store."""
    return run.started if run.started.tzinfo else run.started.replace(tzinfo=UTC)


def elapsed_s(run: RunRow, state: RunState, simulated: bool) -> float:
    """Return the clock of a run: that of a simulation stands still between its events."""
    if simulated:
        return state.now_s
    return max(state.now_s, (datetime.now(UTC) - started_at(run)).total_seconds())
