"""A dispatcher with its hosts: manager and fleet in one event loop, from the first bag to the last
slot given back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.server.manager import Manager

_PERIOD_S = 0.5
_LEAVE_S = 60.0
_log = logging.getLogger("vgrads.dispatch")


@dataclass
class Dispatcher:
    """``control``: called twice a second in the loop, to hand over bags and wishes; True when
    nothing is to do. ``often``: called ten times a second, to look whether an open bag has grown.

    It ends when there is nothing to do, giving everything back; :meth:`leave` ends it so that hosts
    work on.
    """

    manager: Manager
    fleet: Fleet
    control: Callable[[], bool]
    often: Callable[[], None] = lambda: None
    _left: bool = False
    _ended: bool = False
    _hopeless: str = ""

    def leave(self) -> None:
        """Stop here and now, and leave hosts and slots as they are, for a dispatcher that comes
        later."""
        self._left = True

    def end(self) -> None:
        """Give everything back and stop, whatever is left to do; a dispatcher that comes later goes
        on with it."""
        self._ended = True

    @property
    def ended_early(self) -> bool:
        """True where somebody ended it or left before the work was done."""
        return self._ended or self._left

    @property
    def hopeless(self) -> str:
        """Why it ended although there is work: no host can come."""
        return self._hopeless

    async def run(self) -> None:
        """Until there is nothing to do, or nothing can be done."""
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
        """Decide, write it down, ask the sites, hear what they say."""
        self.fleet.decide(self.manager.clock.now())
        await self._carry_out(thread)

    async def _carry_out(self, thread: ThreadPoolExecutor) -> None:
        await self.manager.durable()
        loop = asyncio.get_running_loop()
        events = await loop.run_in_executor(thread, self.fleet.carry_out)
        self.fleet.heard(events, self.manager.clock.now())
        self.manager.poke()

    async def _give_back(self, thread: ThreadPoolExecutor) -> None:
        """Hosts are told to go, their slots given back; a site that does not answer is not waited
        for for ever."""
        clock = self.manager.clock
        end_s = clock.now() + _LEAVE_S
        for host in self.manager.state.hosts.values():
            if host.here:
                self.manager.dismiss(host, "the work is over")
        soon_s = clock.now() + 5.0
        while clock.now() < soon_s and any(h.here for h in self.manager.state.hosts.values()):
            await asyncio.sleep(0.05)
        while not self.fleet.wait_for_end() and clock.now() < end_s:
            await self._carry_out(thread)
            await asyncio.sleep(0.1)
        if not self.fleet.wait_for_end():
            _log.warning("not all slots could be given back: vgrads sites sweep finds them")
