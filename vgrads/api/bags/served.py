"""Bags of a working dispatcher's folder: opened, added to its manager, extended while they are
open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from vgrads.api.wiring import read_own_values
from vgrads.bags.bag import BagSpec
from vgrads.dispatch.core.faults import fault_in
from vgrads.dispatch.core.step import Core
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.fleet.goal_changes import apply_goal_requests
from vgrads.dispatch.fleet.goal_fleet import GoalFleet
from vgrads.dispatch.server.manager import DispatchManager
from vgrads.dispatch.storage.carried import read_carried_tasks
from vgrads.dispatch.storage.drop_requests import answer_drops
from vgrads.dispatch.storage.folder import (
    StoredBag,
    close_if_silent,
    name_of,
    note_client,
    open_bag,
    read_reason_closed,
)
from vgrads.dispatch.storage.retries import apply_requests


class ServedBags:
    """The bags that a manager serves. One that cannot be served fails, without effect on other
    bags.

    ``own``: they belong to the user of this process.
    """

    def __init__(self, folder: Path, manager: DispatchManager, own: bool) -> None:
        self._folder, self._manager, self._own = folder, manager, own
        self._bags: dict[int, StoredBag] = {}
        self._open: dict[int, StoredBag] = {}

    @property
    def documents(self) -> list[BagDocument]:
        """Documents of the bags that could be opened, by number."""
        return [bag.document for _, bag in sorted(self._bags.items())]

    def __contains__(self, number: int) -> bool:
        return number in self._bags

    def open(self, number: int) -> None:
        """Open a bag of the folder."""

        def work() -> None:
            self._bags[number] = open_bag(self._folder, number)

        self._serve(number, work)

    def take_on(self, number: int) -> None:
        """Add a bag to the manager, if it could be opened."""
        if number in self._bags:
            self._serve(number, partial(self._take_on, self._bags[number]))

    def _take_on(self, stored: StoredBag) -> None:
        manager = self._manager
        bag, number = self._with_own_values(stored), stored.number
        is_new = number not in manager.state.bags
        manager.add(stored.number, bag, stored.files, stored.document.open)
        if is_new:
            manager.core.have(number, read_carried_tasks(self._folder, number), manager.clock.now())
        if stored.document.open:
            state = manager.state.bags[stored.number]
            manager.core.add_tasks(stored.number, len(stored.bag.commands) - len(state.tasks))
            self._open[stored.number] = stored
            note_client(self._folder, number)  # it could not reach a service that was down

    def _with_own_values(self, stored: StoredBag) -> BagSpec:
        values = read_own_values(stored.bag.pass_env) if self._own else {}
        return replace(stored.bag, env={**values, **stored.bag.env})

    def rest(self) -> None:
        """Close the files of all bags."""
        for bag in self._bags.values():
            bag.rest()

    def drop(self, numbers: Iterable[int]) -> None:
        """Drop waiting tasks of these bags on request."""
        for number in numbers:
            if number in self._manager.state.bags:
                self._serve(number, partial(self._drop, number))

    def _drop(self, number: int) -> None:
        core, now_s = self._manager.core, self._manager.clock.now()
        count = len(self._manager.state.bags[number].tasks)

        def drop(tasks: Sequence[int]) -> Sequence[int]:
            return core.drop(number, [task for task in tasks if task < count], now_s)

        with suppress(OSError):  # a full disk: tried again soon
            if answer_drops(self._folder, number, drop):
                self._manager.notify()

    def retry(self, numbers: Iterable[int]) -> None:
        """Apply new requests to retry tasks of these bags, and open those again that failed because
        they could not be served."""
        for number in numbers:
            if number in self._manager.state.bags:
                self._serve(number, partial(self._retry, number))

    def _retry(self, number: int) -> None:
        manager = self._manager
        try:
            applied = apply_requests(self._folder, number, manager.core, manager.clock.now())
        except OSError:  # a full disk: tried again soon
            return
        if not applied:
            return
        if number not in self:
            self.open(number)
            self.take_on(number)
        manager.notify()

    def change_goals(self, numbers: Iterable[int], goals: GoalFleet, began_unix_s: float) -> None:
        """Apply new requests to change the goals of these bags. ``began_unix_s``: start of the
        dispatcher's clock."""
        for number in numbers:
            if number in self._manager.state.bags:
                self._serve(number, partial(self._change_goal, number, goals, began_unix_s))

    def _change_goal(self, number: int, goals: GoalFleet, began_unix_s: float) -> None:
        manager, now_s = self._manager, self._manager.clock.now()
        changed = apply_goal_requests(
            self._folder,
            number,
            manager.core,
            partial(goals.spent_usd, at_s=now_s),
            now_s,
            lambda unix_s: unix_s - began_unix_s,
        )
        if changed:
            manager.notify()

    def grow(self) -> None:
        """Add new tasks of open bags, close those that get no more, and drop tasks on request."""
        # a copy, because bags that close are removed meanwhile
        for bag in list(self._open.values()):
            self._serve(bag.number, partial(self._grow, bag))
        self.drop(self._bags)

    def _grow(self, bag: StoredBag) -> None:
        manager, number = self._manager, bag.number
        close_if_silent(self._folder, number, bag.document)
        closed = read_reason_closed(
            self._folder, number
        )  # checked first, so that earlier tasks count
        if grown := bag.added():
            manager.core.add_tasks(number, grown)
            manager.notify()
        if closed is not None:
            manager.core.close(number, manager.clock.now(), closed)
            del self._open[number]
            bag.rest()

    def _serve(self, number: int, work: Callable[[], None]) -> None:
        """Run a step for one bag; mark the bag as failed on an error."""
        manager = self._manager
        if fault := fault_in(number, work):
            self._bags.pop(number, None)
            self._open.pop(number, None)
            manager.core.reject(fault, name_of(self._folder, number), manager.clock.now())
            manager.notify()


def idle(core: Core) -> bool:
    """True if no bag has tasks that could run now."""
    return all(bag.tasks.over for bag in core.serving)
