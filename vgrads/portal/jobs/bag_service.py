"""Processes that run the bags of a service: started where there is work, and again after errors."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.storage.status import is_worked_on
from vgrads.kernel.backoff import Backoff
from vgrads.kernel.errors import VgradsError
from vgrads.portal.jobs import children, forkserver
from vgrads.portal.records.bags import BagStore
from vgrads.portal.records.reading.bags import HERE, BagEntry
from vgrads.portal.records.store import Store
from vgrads.vgrid.catalog import Catalog

_BACKOFF = Backoff(1.0, 60.0)
_STOP_S = 5.0  # for dispatchers that release their agents as the service ends
_log = logging.getLogger("vgrads.bags")


@dataclass
class _Pause:
    until_s: float = 0.0
    length_s: float = _BACKOFF.first_s


@dataclass
class Dispatchers:
    """Ensures that every dispatcher with open bags runs. ``apart``: each in its own process."""

    store: Store
    catalog: Callable[[], Catalog]
    apart: bool
    _children: dict[str, BaseProcess | threading.Thread] = field(default_factory=dict)
    _pauses: dict[str, _Pause] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """Start dispatchers where needed; called twice per second."""
        now = time.monotonic()
        names = {name for name, owner in BagStore(self.store.engine).unended() if owner != HERE}
        for known in (self._failures, self._pauses):
            for name in known.keys() - names:  # its work is done: the next begins without a pause
                del known[name]
        for name in names:
            child = self._children.get(name)
            pause = self._pauses.setdefault(name, _Pause())
            if now < pause.until_s:
                continue
            if child is not None and child.is_alive():
                self._failures.pop(name, None)  # it ran longer than the backoff before it
                continue
            if is_worked_on(dispatcher_folder(name)):
                continue
            pause.until_s = now + pause.length_s
            pause.length_s = _BACKOFF.after(pause.length_s)
            self._children[name] = self._start(name)
        for name in [n for n, c in self._children.items() if not c.is_alive()]:
            child = self._children.pop(name)
            failed = isinstance(child, BaseProcess) and child.exitcode
            self._failures[name] = self._failures.get(name, 0) + 1 if failed else 0

    @property
    def failing(self) -> list[str]:
        """Return dispatchers with work that failed more than once in a row."""
        return [name for name, count in self._failures.items() if count > 1]

    def _start(self, name: str) -> BaseProcess | threading.Thread:
        child: BaseProcess | threading.Thread
        if self.apart:
            child = forkserver.processes.Process(
                target=children.run_bags, args=(self.store.url, self.catalog(), name)
            )
        else:
            child = threading.Thread(target=self._in_thread, args=(name,), daemon=True)
        child.start()
        return child

    def _in_thread(self, name: str) -> None:
        # imported late: the service hands this to another process
        from vgrads.portal.jobs.bag_worker import work_on

        try:
            with Store(self.store.url) as store:
                work_on(store, self.catalog(), name)
        except VgradsError as error:
            _log.warning("dispatcher %s: %s", name, error)

    def stop(self) -> None:
        """Leave them: agents that have work go on, and the next service takes over; the others are
        released, for which there are a few seconds."""
        children = [child for child in self._children.values() if isinstance(child, BaseProcess)]
        for child in children:
            child.terminate()
        end_s = time.monotonic() + _STOP_S
        for child in children:
            child.join(max(0.0, end_s - time.monotonic()))


def source_of(row: BagEntry) -> Path:
    """Return the folder of a bag at its dispatcher."""
    return dispatcher_folder(row.dispatcher) / "bags" / f"{row.number:04d}"
