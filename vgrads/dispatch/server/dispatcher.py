"""A dispatcher with its agents: manager and fleet in one event loop, from the first bag to the
release of the last slot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.server.manager import DispatchManager

_PERIOD_S = 0.5
_LEAVE_S = 60.0
_log = logging.getLogger("vgrads.dispatch")


@dataclass
class Dispatcher:
    """``control``: called twice per second in the loop, to submit bags and requests; True when no
    work is left. ``often``: called ten times per second, to check whether an open bag has grown.

    It ends when no work is left, and releases everything; :meth:`leave` ends it so that agents work
    on.
    """

    manager: DispatchManager
    fleet: Fleet
    control: Callable[[], bool]
    often: Callable[[], None] = lambda: None
    _left: bool = False
    _ended: bool = False
    _hopeless: str = ""

    def leave(self) -> None:
        """Stop at once, and leave agents and slots as they are, for a later dispatcher."""
        self._left = True

    def end(self) -> None:
        """Release everything and stop, even with work left; a later dispatcher continues it."""
        self._ended = True

    @property
    def ended_early(self) -> bool:
        """Return True where it was ended or left before the work was done."""
        return self._ended or self._left

    @property
    def hopeless(self) -> str:
        """Return why it ended although there is work: no agent can join."""
        return self._hopeless

    async def run(self) -> None:
        """Run until no work is left, or none can be done."""
        working = asyncio.ensure_future(self.manager.work())
        thread = ThreadPoolExecutor(1, "sites")
        try:
            while not self._left and not working.done():
                if self.control() or self._ended:
                    break
                await self._look_after(thread)
                self._hopeless = self.fleet.hopeless
                if self._hopeless:
                    break
                await self._pause()
            if not self._left and not working.done():
                await self._give_back(thread)
        finally:
            await self.manager.stop()
            await working
            thread.shutdown()
            self.manager.close()

    async def _pause(self) -> None:
        for _ in range(5):
            if not self._left and not self._ended:
                await asyncio.sleep(_PERIOD_S / 5)
                self.often()

    async def _look_after(self, thread: ThreadPoolExecutor) -> None:
        """Decide, write the journal, send requests to the sites, process their answers."""
        self.fleet.decide(self.manager.clock.now())
        await self._carry_out(thread)

    async def _carry_out(self, thread: ThreadPoolExecutor) -> None:
        await self.manager.durable()
        loop = asyncio.get_running_loop()
        events = await loop.run_in_executor(thread, self.fleet.carry_out)
        self.fleet.observe(events, self.manager.clock.now())
        self.manager.notify()

    async def _give_back(self, thread: ThreadPoolExecutor) -> None:
        """Shut down agents and release their slots, with a timeout for sites that do not answer."""
        clock = self.manager.clock
        end_s = clock.now() + _LEAVE_S
        for agent in self.manager.state.agents.values():
            if agent.here:
                self.manager.disconnect(agent, "the work has ended")
        soon_s = clock.now() + 5.0
        while clock.now() < soon_s and any(h.here for h in self.manager.state.agents.values()):
            await asyncio.sleep(0.05)
        while not self.fleet.wait_for_end() and clock.now() < end_s:
            await self._carry_out(thread)
            await asyncio.sleep(0.1)
        if not self.fleet.wait_for_end():
            _log.warning("not all slots could be released: find them with 'vgrads sites sweep'")
