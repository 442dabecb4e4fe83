"""What the dispatcher knows of its agents, for their port: keys, tasks, files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vgrads.dispatch.core.events import SlotChanged
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.server.messages import check_tasks
from vgrads.dispatch.storage.bag_files import BagFiles
from vgrads.exchange.values import Message
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import InputError


class AgentAccess:
    """The owner of the dispatcher's port (:class:`vgrads.exchange.port.PortOwner`).

    ``run``: prefix of its slots' names at their sites.
    """

    def __init__(
        self,
        run: str,
        clock: Clock,
        core: Core,
        files: Mapping[int, BagFiles],
    ) -> None:
        self._run, self._clock, self._core, self._files = run, clock, core, files

    def _name(self, slot: str) -> str:
        return slot.removeprefix(f"{self._run}.")

    def is_revoked(self, slot: str) -> bool:
        requested = self._core.state.slots.get(self._name(slot))
        return requested is not None and requested.revoked

    def number_of(self, agent: str) -> int:
        number = self._core.state.by_id.get(agent)
        return len(self._core.state.agents) if number is None else number

    def check(self, message: Message) -> None:
        check_tasks(message, self._core.state)

    def revoke(self, slot: str) -> list[int]:
        name = self._name(slot)
        self._core.note(SlotChanged(id=name, revoked=True))
        agents = [a for a in self._core.state.agents.values() if a.slot == name and a.here]
        for agent in agents:
            self._core.gone(agent, self._clock.now(), lost=True)
        return [agent.number for agent in agents]

    def not_waiting(self, agent: int) -> None:
        self._core.waiting.pop(agent, None)

    def destination(self, numbers: tuple[int, int, int], name: str) -> Path:
        bag, task, attempt = numbers
        tasks = self._core.state.bags[bag].tasks
        if not (0 <= task < len(tasks) and 0 < attempt <= tasks.attempts[task]):
            raise InputError("is an attempt that was not assigned", where=f"{bag}/{task}/{attempt}")
        return self._files[bag].place(task, attempt, name)

    def input(self, digest: str) -> Path | None:
        return next((p for f in self._files.values() if (p := f.input(digest))), None)
