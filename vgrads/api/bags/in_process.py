"""Open bags of a dispatcher in a thread of this process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from vgrads.agent.functions.packing import write_packed
from vgrads.api.bags.answers import exit_text
from vgrads.api.bags.execution import BagWork, ControlRequests, submit_bag
from vgrads.api.bags.open_calls import Ended, OnEnds
from vgrads.api.bags.served import ServedBags
from vgrads.api.bags.sites import check_places, select_usable_sites
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.core.tasks import ASSIGNED, DONE, ENDED, FAILED, TaskColumns
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.server.group import StoredEnd
from vgrads.dispatch.server.manager import DispatchManager
from vgrads.dispatch.storage.folder import append_commands, close_bag, list_bags
from vgrads.dispatch.storage.function_files import PARTS
from vgrads.dispatch.storage.status import exclusive
from vgrads.exchange.values import COULD_NOT
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import SiteError, VgradsError
from vgrads.kernel.files import replace_file
from vgrads.vgrid.catalog import Catalog

_log = logging.getLogger(__name__)
_START_S = 60.0
Result = TypeVar("Result")


class LocalCalls:
    """An open bag of this process: commands, or calls of functions."""

    def __init__(self, channel: LocalChannel, number: int, on_ends: OnEnds) -> None:
        self._channel, self.number, self._on_ends = channel, number, on_ends
        self.address = ""
        self.folder = channel.folder / "bags" / f"{number:04d}"
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._reported = 0  # failed tasks whose ends were passed on
        self._unreported = 0  # failed tasks at the last look
        self.closed = self.abandoned = False

    def put(self, digest: str, parts: Sequence[Any]) -> None:
        path = self.folder / PARTS / digest
        if path.exists():
            return
        with replace_file(path) as file:
            write_packed(parts, file)

    def add(self, commands: Sequence[str]) -> None:
        with self._lock:
            waiting = bool(self._lines)
            self._lines += commands
        if not waiting:
            self._channel.call(self._flush)

    def _flush(self) -> None:
        """Write the collected calls, and let the dispatcher read them."""
        with self._lock:
            lines, self._lines = self._lines, []
        if lines:
            append_commands(self._channel.folder, self.number, lines, self._channel.durable)
            self._channel.bags.grow()

    def cancel(self, tasks: Sequence[int]) -> set[int]:
        return self._channel.ask(lambda: self._cancel(tasks))

    def _cancel(self, tasks: Sequence[int]) -> set[int]:
        self._flush()
        manager = self._channel.manager
        dropped = manager.core.drop(self.number, tasks, manager.clock.now())
        manager.notify()
        return set(dropped)

    def cancel_all(self, why: str) -> None:
        """End the calls that run, drop the others, and close; in the dispatcher's loop."""
        self._flush()
        manager = self._channel.manager
        manager.core.cancel(self.number, manager.clock.now(), why)
        self.closed = True

    @property
    def _tasks(self) -> TaskColumns:
        return self._channel.manager.state.bags[self.number].tasks

    def is_running(self, task: int) -> bool:
        return self.status(task) == ASSIGNED

    def status(self, task: int) -> int | None:
        """Return the state of a task (:mod:`vgrads.dispatch.core.tasks`); None where it was never
        added."""
        status = self._tasks.status
        return status[task] if task < len(status) else None

    def has_ended(self, task: int) -> bool:
        """Return True where a task has ended for good."""
        return self.status(task) in ENDED

    def count_tasks(self) -> int:
        """Return how many tasks the dispatcher has."""
        return len(self._tasks)

    def close(self) -> None:
        self._channel.call(self._close)

    def _close(self) -> None:
        self._flush()
        close_bag(self._channel.folder, self.number)
        self.closed = True
        self._channel.bags.grow()

    def pass_on(self, ends: Sequence[StoredEnd]) -> None:
        """Pass on ends that decide their tasks."""
        results = [self._ended(stored) for stored in ends if stored.counts]
        self._reported += sum(ended.code != 0 for ended in results)
        if results:
            self._on_ends(results)

    def _ended(self, stored: StoredEnd) -> Ended:
        end, printed = stored.end, stored.printed
        value, out, err = (printed.value, printed.out, printed.err) if printed else ("", "", "")
        file = None if value or end.code else self.folder / "results" / f"{end.task}.value"
        code = None if end.code == COULD_NOT else end.code
        return Ended(end.task, code, value, out, err, exit_text(end.code), end.ran_s, file)

    def end(self, why: str) -> None:
        """The dispatcher has ended: pass on that no task will."""
        self._on_ends([Ended(-1, None, how=why, err=why)])

    def look(self) -> None:
        """Pass on tasks that were given up without an end: their agents were lost, or the bag
        failed."""
        bag = self._channel.manager.state.bags.get(self.number)
        if bag is None or self.abandoned:
            return
        if bag.fault or bag.cancelled:
            self.abandoned = True
            why = bag.fault or bag.cancelled
            left = [t for t, s in enumerate(bag.tasks.status) if s not in (DONE, FAILED)]
            self._on_ends([Ended(task, None, how=why, err=why) for task in left])
            return
        # the ends of those that failed just now are still being written
        failed_before, self._unreported = self._unreported, bag.tasks.counts[FAILED]
        if failed_before > self._reported:
            why = "its agents were lost again and again"
            failed = [t for t, s in enumerate(bag.tasks.status) if s == FAILED]
            self._reported = len(failed)
            self._on_ends([Ended(task, None, how=why, err=why) for task in failed])


class LocalChannel:
    """A dispatcher in a thread of this process. ``durable``: what was submitted outlives a crash of
    this machine, not only of this process; ``watched``: the process is ended where the dispatcher
    hangs, as there is no other work in it."""

    def __init__(
        self,
        catalog: Catalog,
        folder: Path,
        run: str,
        durable: bool = False,
        *,
        rules: Rules | None = None,
        watched: bool = False,
    ) -> None:
        self.catalog, self.folder, self.durable = catalog, folder, durable
        self._rules, self._watched = rules or Rules(), watched
        self.manager: DispatchManager
        self.bags: ServedBags
        self.places = sum(site.procs for site in catalog.sites if site.driver == "local") or 8
        self._run, self._ending, self._problem = run, False, ""
        self._calls: dict[int, LocalCalls] = {}
        self._new: list[int] = []
        self._loop: asyncio.AbstractEventLoop
        self._work: BagWork
        self._ready, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(
            target=self._run_thread, name="vgrads-executor", daemon=True
        )

    def open(self, document: Mapping[str, Any], on_ends: OnEnds) -> LocalCalls:
        checked = validate(BagDocument, document, self._run)
        catalog = select_usable_sites(self.catalog, checked)
        check_places(catalog, checked)
        number = self.next_number
        submit_bag(self.folder, number, checked, self.folder, catalog)
        calls = self._calls[number] = LocalCalls(self, number, on_ends)
        if self._thread.is_alive():
            self.ask(lambda: self._take_on(number))
        else:
            self.start()
        return calls

    @property
    def next_number(self) -> int:
        """Return the number of the bag that is opened next."""
        return len(list_bags(self.folder))

    def adopt(self, number: int, on_ends: OnEnds) -> LocalCalls:
        """Return an open bag that an earlier process of this folder has opened; before the
        start."""
        calls = self._calls[number] = LocalCalls(self, number, on_ends)
        return calls

    def start(self) -> None:
        """Start the dispatcher. Raise SiteError if that fails."""
        self._thread.start()
        if not self._ready.wait(_START_S) or self._problem:
            raise SiteError(self._problem or "did not start", site=self._run, transient=False)

    def attach(self, *_: object) -> bool:
        """Return False: tasks of a dispatcher of this process ended with their program."""
        return False

    def _take_on(self, number: int) -> None:
        self.bags.open(number)
        self.bags.take_on(number)

    def call(self, work: Callable[[], None]) -> None:
        """Do work in the dispatcher's loop."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(work)

    def ask(self, work: Callable[[], Result]) -> Result:
        """Do work in the dispatcher's loop and return its result. Raise SiteError where it has
        ended."""
        if not self._thread.is_alive():
            raise SiteError(self._problem, site=self._run, transient=False)
        answer: Future[Result] = Future()

        def in_loop() -> None:
            try:
                answer.set_result(work())
            except Exception as error:
                answer.set_exception(error)

        self.call(in_loop)
        return answer.result(_START_S)

    def interrupt(self) -> None:
        self.call(self._cancel_all)

    def _cancel_all(self) -> None:
        for calls in self._calls.values():
            calls.cancel_all("interrupted")
        self.manager.notify()

    def shutdown(self, wait: bool) -> None:
        self._ending = True
        if self._ready.is_set() and not self._problem:
            self.call(self.manager.phase_change.wake)  # it may have looked just before
        if wait and self._thread.ident is not None:  # an interrupted join() leaves it as ended
            self._over.wait()

    def stop(self, leave: bool) -> None:
        """End the dispatcher; its bags stay to the next one of its folder. ``leave``: its agents
        too."""
        if self._thread.is_alive():
            (self._work.leave if leave else self._work.end)()
            self._thread.join()

    def _run_thread(self) -> None:
        try:
            self._carry_out()
        finally:
            self._over.set()

    def _carry_out(self) -> None:
        work = self._work = BagWork(
            self.folder,
            self.catalog,
            self._run,
            self._control,
            rules=self._rules,
            own=True,
            durable=self.durable,
            watched=self._watched,
            started=self._started,
        )
        why = "the dispatcher has ended"
        try:
            with exclusive(self.folder):
                ended = work.carry_out()
            why = ended.hopeless or why
        except Exception as error:
            if not isinstance(error, VgradsError):
                _log.exception("dispatcher %s has ended", self._run)
            why = str(error) or type(error).__name__
        self._problem = why
        self._ready.set()
        # whoever waits for a call must learn that it does not end any more
        for calls in self._calls.values():
            calls.end(why)

    def _started(self, manager: DispatchManager, bags: ServedBags) -> None:
        self.manager, self.bags, self._loop = manager, bags, asyncio.get_running_loop()
        manager.on_stored.append(self._on_stored)
        # set here too: where the start has failed, nobody must wait for the whole time limit
        self._ready.set()

    def _on_stored(self, ends: Sequence[StoredEnd]) -> None:
        by_bag: dict[int, list[StoredEnd]] = {}
        for end in ends:
            by_bag.setdefault(end.bag, []).append(end)
        for number, of_bag in by_bag.items():
            if number in self._calls:
                self._calls[number].pass_on(of_bag)

    def _control(self) -> ControlRequests:
        for calls in self._calls.values():
            calls.look()
        stay = not self._ending or not all(calls.closed for calls in self._calls.values())
        return ControlRequests(stay=stay)
