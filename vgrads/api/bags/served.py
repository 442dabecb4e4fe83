"""The bags of a dispatcher's folder while it works: opened, taken on by its manager, growing as
long as they are open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from vgrads.api.wiring import own_values
from vgrads.dispatch.core.faults import fault_in
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.server.manager import Manager
from vgrads.dispatch.storage.kept import KeptBag, is_closed, name_of, open_bag


class ServedBags:
    """The bags that a manager serves. One that cannot be served is failed, and costs no other bag.

    ``own``: they belong to whoever runs this process.
    """

    def __init__(self, folder: Path, manager: Manager, own: bool) -> None:
        self._folder, self._manager, self._own = folder, manager, own
        self._bags: dict[int, KeptBag] = {}
        self._open: dict[int, KeptBag] = {}

    @property
    def documents(self) -> list[BagDocument]:
        """Of the bags that could be opened, by number."""
        return [kept.document for _, kept in sorted(self._bags.items())]

    def __contains__(self, number: int) -> bool:
        return number in self._bags

    def open(self, number: int) -> None:
        """Open a bag of the folder."""

        def work() -> None:
            self._bags[number] = open_bag(self._folder, number)

        self._serve(number, work)

    def take_on(self, number: int) -> None:
        """Have the manager take on a bag, if it could be opened."""
        if number in self._bags:
            self._serve(number, partial(self._take_on, self._bags[number]))

    def _take_on(self, kept: KeptBag) -> None:
        manager = self._manager
        values = own_values(kept.bag.pass_env) if self._own else {}
        bag = replace(kept.bag, env={**values, **kept.bag.env})
        manager.add(kept.number, bag, kept.files, kept.document.open)
        if kept.document.open:
            state = manager.state.bags[kept.number]
            manager.core.grow(kept.number, len(kept.bag.commands) - len(state.tasks))
            self._open[kept.number] = kept

    def grow(self) -> None:
        """More tasks of open bags, and the end of those to which none comes any more."""
        for kept in list(self._open.values()):
            self._serve(kept.number, partial(self._grow, kept))

    def _grow(self, kept: KeptBag) -> None:
        manager, number = self._manager, kept.number
        closed = is_closed(self._folder, number)  # looked at first: what came before it counts
        if grown := kept.grown():
            manager.core.grow(number, grown)
            manager.poke()
        if closed:
            manager.core.close(number, manager.clock.now())
            del self._open[number]
            kept.rest()

    def _serve(self, number: int, work: Callable[[], None]) -> None:
        """Work for one bag; one in which something goes wrong is failed."""
        manager = self._manager
        if fault := fault_in(number, work):
            self._bags.pop(number, None)
            self._open.pop(number, None)
            manager.core.reject(fault, name_of(self._folder, number), manager.clock.now())
            manager.poke()
