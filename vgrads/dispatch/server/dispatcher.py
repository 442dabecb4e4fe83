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
from vgrads.dispatch.storage.status import news_pipe
from vgrads.kernel.wakeups import WakeupPipe

_PERIOD_S = 0.5
_LOOK_S = 0.1  # between checks whether agents and slots are gone
_AGENTS_LEAVE_S, _LEAVE_S = 5.0, 60.0
_log = logging.getLogger("vgrads.dispatch")


@dataclass
class Dispatcher:
    """``control``: called in the loop, twice per second and when the last bag is terminal, to
    submit bags and requests; True when no work is left. ``often``: called ten times per second, to
    check whether an open bag has grown.

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
    def unfinished(self) -> str:
        """Return why it ended before the work was done; empty where all is done."""
        return self._hopeless or ("interrupted" if self._ended or self._left else "")

    @property
    def hopeless(self) -> str:
        """Return why it ended although there is work: no agent can join."""
        return self._hopeless

    async def run(self) -> None:
        """Run until no work is left, or none can be done."""
        working = asyncio.ensure_future(self.manager.work())
        # a site may answer slowly, and meanwhile the loop must answer agents
        thread = ThreadPoolExecutor(1, "sites")
        pipe = WakeupPipe(news_pipe(self.manager.config.folder))
        asyncio.get_running_loop().add_reader(pipe, self._on_news, pipe)
        try:
            while not self._left and not working.done():
                if self.control() or self._ended:
                    break
                await self._look_after(thread)
                self._hopeless = self.fleet.hopeless
                if self._hopeless:
                    break
                await self._pause()
            # without the manager's loop nothing becomes durable, and the
            # wait for it would never end
            if not self._left and not working.done():
                await self._give_back(thread)
        finally:
            asyncio.get_running_loop().remove_reader(pipe)
            pipe.close()
            # the manager's last round answers what was received and writes
            # it: only then the journal closes
            await self.manager.stop()
            await working
            thread.shutdown()
            self.manager.close()

    def _on_news(self, pipe: WakeupPipe) -> None:
        pipe.clear()
        self.often()

    async def _pause(self) -> None:
        # an open bag is looked at more often than the sites; a change of phase needs both at once
        for _ in range(5):
            if self._left or self._ended or await self.manager.phase_change.wait(_PERIOD_S / 5):
                return
            self.often()

    async def _look_after(self, thread: ThreadPoolExecutor) -> None:
        """Decide, write the journal, send requests to the sites, process their answers."""
        self.fleet.decide(self.manager.clock.now())
        await self._carry_out(thread)

    async def _carry_out(self, thread: ThreadPoolExecutor) -> None:
        # requests are on disk before a site gets them: the next
        # dispatcher finds each slot after a crash
        await self.manager.durable()
        loop = asyncio.get_running_loop()
        events = await loop.run_in_executor(thread, self.fleet.carry_out)
        self.fleet.observe(events, self.manager.clock.now())
        self.manager.notify()

    async def _give_back(self, thread: ThreadPoolExecutor) -> None:
        """Shut down agents and release their slots, with a timeout for sites that do not answer."""
        clock = self.manager.clock
        end_s, soon_s = clock.now() + _LEAVE_S, clock.now() + _AGENTS_LEAVE_S
        while self._disconnect_agents() and clock.now() < soon_s:
            await self.manager.phase_change.wait(_LOOK_S)
        pause_s = 0.0
        while not self.fleet.wait_for_end() and clock.now() < end_s:
            await asyncio.sleep(pause_s)
            self._disconnect_agents()
            await self._carry_out(thread)
            pause_s = _LOOK_S
        if not self.fleet.wait_for_end():
            _log.warning("not all slots could be released: find them with 'vgrads sites sweep'")

    def _disconnect_agents(self) -> bool:
        """Let all agents leave, also those that have joined since the last call; return True while
        there are any."""
        agents = [agent for agent in self.manager.state.agents.values() if agent.here]
        for agent in agents:
            self.manager.disconnect(agent, "the work has ended")
        return bool(agents)
