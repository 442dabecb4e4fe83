"""The port of a run for its agents: an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vgrads.exchange.keys import open_keys, read_port, store_port
from vgrads.exchange.port import AgentPort
from vgrads.execmgr.engines.slot_agents import SlotAgents
from vgrads.kernel.errors import SiteError

_TICK_S = 0.25
_log = logging.getLogger("vgrads.execmgr")


class AgentServer:
    """Runs from its creation until :meth:`close`. SiteError (transient) if it cannot listen."""

    def __init__(self, home: Path, agents: SlotAgents) -> None:
        """``home``: folder of the port's number and keys, which a later manager uses again."""
        self.agents, self._home = agents, home
        self.number = 0
        self._problem: Exception | None = None
        self._ready = threading.Event()
        self._closed = False
        self._news = asyncio.Event()
        try:
            self.keys, self._before = open_keys(home), read_port(home)
        except OSError as error:
            raise _report_full_disk(error) from error
        self._loop = asyncio.new_event_loop()
        # no agent knows a new port, so none can bring orders of an earlier manager
        if not self._before:
            agents.begin()
        agents.port = AgentPort(self.keys.secret, agents, agents.clock, self._news.set)
        self._thread = threading.Thread(target=self._run, daemon=True, name="agents")
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            self._thread.join()
            raise self._problem

    def call(self, work: Callable[[SlotAgents], object]) -> None:
        """Do some work in the loop, from any thread; no effect after the end."""

        def do() -> None:
            work(self.agents)
            self._news.set()

        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(do)

    def dismiss(self, slot: str) -> bool:
        """Tell the agents of a slot to end by themselves; False where none accepts tasks."""
        available = self.agents.available(slot)

        def stop(_: SlotAgents) -> None:
            for agent in available:
                agent.leaving = agent.stopping = True

        if available:
            self.call(stop)
        return bool(available)

    def close(self) -> None:
        """Close the port; agents go on with their tasks."""

        def end(_: SlotAgents) -> None:
            self._closed = True

        self.call(end)  # after all earlier calls
        self._thread.join()

    def _run(self) -> None:
        # it ends what is left in the loop: connections whose handshake was not over
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._work())

    async def _work(self) -> None:
        try:
            self.number = await self._listen()
        except (SiteError, OSError) as error:
            self._problem = error if isinstance(error, SiteError) else _report_full_disk(error)
            return
        finally:
            # also after an error, or the creator would wait for ever
            self._ready.set()
        while not self._closed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), _TICK_S)
            self._news.clear()
            self._turn()
        self._turn()  # acknowledge what is stored
        await self.agents.port.close()
        await self.agents.port.close_connections()

    def _turn(self) -> None:
        try:
            self.agents.turn()
        except Exception:
            _log.exception("error in the exchange with agents")

    async def _listen(self) -> int:
        context, before = self.keys.context(), self._before
        where = f"port {before}" if before else "any port"
        try:
            number = await self.agents.port.listen("0.0.0.0", before, context)
        except OSError as error:
            raise SiteError(
                f"cannot listen for agents on {where}: {error}",
                site="here",
                transient=True,
                fix="a resumed run needs the port that its agents connect to",
            ) from error
        store_port(self._home, number)
        return number


def _report_full_disk(error: OSError) -> SiteError:
    """Treat a full or failing disk like a site that does not answer."""
    return SiteError(
        f"the port and keys for the agents of this run cannot be stored: {error}",
        site="here",
        transient=True,
        fix="the request is repeated later",
    )
