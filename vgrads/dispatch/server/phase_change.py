"""What a dispatcher waits for between its looks at bags and sites."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from vgrads.dispatch.core.step import Core


class PhaseChange:
    """Occurs when the first agent has joined or the last one has left, and when work begins or none
    is left."""

    def __init__(self) -> None:
        self._occurred = asyncio.Event()
        self._phase = (False, False)

    def compare(self, core: Core) -> None:
        """Compare the state with that at the last call."""
        phase = bool(core.last_heartbeat_s), bool(core.serving)
        if phase != self._phase:
            self._phase = phase
            self._occurred.set()

    async def wait(self, within_s: float) -> bool:
        """Return True as soon as the phase has changed since the last call; False after this many
        seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._occurred.wait(), within_s)
        has_occurred = self._occurred.is_set()
        self._occurred.clear()
        return has_occurred
