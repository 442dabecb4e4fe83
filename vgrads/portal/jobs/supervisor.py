"""The service's supervisor: takes queued work, runs it in separate processes, handles those that
die."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from vgrads.execmgr.core.lease_errors import LeaseExpired
from vgrads.kernel.clock import WallClock
from vgrads.kernel.errors import SiteError
from vgrads.kernel.process_pool import end_pool
from vgrads.portal.jobs import children, forkserver
from vgrads.portal.jobs.alarm_delivery import AlarmSettings
from vgrads.portal.jobs.bag_service import Dispatchers
from vgrads.portal.jobs.service_sites import ServiceSites
from vgrads.portal.records.heartbeat import RENEW_S, new_owner
from vgrads.portal.records.reconnect import DatabaseLost
from vgrads.portal.records.run_lease import request_stop
from vgrads.portal.records.sets import Sets
from vgrads.portal.records.store import Store
from vgrads.portal.records.work import MOST_TRIES, PLAN, RUN, WorkItem, Works
from vgrads.vgrid.catalog import Catalog

if TYPE_CHECKING:
    from vgrads.execmgr.engines.outside import OutsideEngine

_LOOK_S = 0.5  # between checks for work left by another service
_END_S = 60.0  # wait for cancelled runs
_log = logging.getLogger("vgrads.work")


class ProcessDied(Exception):
    """A process of the service ended without finishing its work. ``exit_code``: negative for a
    signal, as Python reports it."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(_end_in_words(exit_code))


def _end_in_words(exit_code: int) -> str:
    if exit_code >= 0:
        return f"it ended with exit status {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    memory = ", which the kernel also sends when memory runs out"
    return f"it was ended by {name}{memory if name == 'SIGKILL' else ''}"


@dataclass(frozen=True, kw_only=True)
class Places:
    """Limits of concurrent work. ``planners=0``: in threads of the service itself, for tests and
    trials."""

    planners: int = 2
    runs: int = 16


@dataclass
class _Crew:
    """Plans in a few permanent processes with warm caches; questions of pages, and plans of small
    sets, in one of their own, so that they do not wait for large sets; each run in its own
    process."""

    url: str
    places: Places
    alarms: AlarmSettings
    pools: dict[bool, ProcessPoolExecutor] = field(default_factory=dict)  # by ``is_small``
    children: dict[str, BaseProcess] = field(default_factory=dict)
    threads: ThreadPoolExecutor = field(init=False)
    starting: threading.Lock = field(default_factory=threading.Lock)
    unfinished: dict[Future[Any], bool] = field(default_factory=dict)  # oldest first

    def __post_init__(self) -> None:
        self.threads = ThreadPoolExecutor(self.places.runs + 1)

    def think(
        self, is_small: bool, function: Callable[..., Any], *arguments: object
    ) -> Future[Any]:
        """Run a computation that takes a processor for a while; ``is_small``: for a second or
        so."""
        future = self._begin(is_small, function, *arguments)
        self.unfinished[future] = is_small
        future.add_done_callback(lambda done: self.unfinished.pop(done, None))
        return future

    def ahead_of(self, computation: Future[Any]) -> int:
        """Return how many computations have to end before one begins."""
        # a copy: threads in which computations end remove entries
        unfinished = dict(self.unfinished)
        is_small = unfinished.get(computation)
        if is_small is None:
            return 0
        if self.places.planners:
            older = [future for future, small in unfinished.items() if small == is_small]
            at_once = 1 if is_small else self.places.planners
        else:
            older, at_once = list(unfinished), self.places.runs + 1
        return max(0, older.index(computation) - at_once + 1)

    def _begin(
        self, is_small: bool, function: Callable[..., Any], *arguments: object
    ) -> Future[Any]:
        if not self.places.planners:
            return self.threads.submit(function, *arguments)
        pool = self._ready_pool(is_small)
        try:
            return pool.submit(function, *arguments)
        except BrokenProcessPool:  # one of its processes has died
            return self._ready_pool(is_small, instead_of=pool).submit(function, *arguments)

    def warm(self, catalog: Catalog) -> None:
        """Warm the caches of every planner before the first request."""
        self.think(True, children.warm, catalog)
        for _ in range(self.places.planners):
            self.think(False, children.warm, catalog)

    def _ready_pool(
        self, is_small: bool, instead_of: ProcessPoolExecutor | None = None
    ) -> ProcessPoolExecutor:
        """Return a pool; a new one where there is none, or only one that is broken."""
        with self.starting:
            pool = self.pools.get(is_small)
            # another thread may have replaced the broken one already
            if pool is None or pool is instead_of:
                pool = ProcessPoolExecutor(
                    1 if is_small else self.places.planners,
                    mp_context=forkserver.processes,
                    initializer=forkserver.be_a_child,
                )
                self.pools[is_small] = pool
            return pool

    def run(self, catalog: Catalog, run_id: str) -> Future[None]:
        if not self.places.planners:
            return self.threads.submit(_run_in_thread, self.url, catalog, run_id, self.alarms)
        return self.threads.submit(self._watch, catalog, run_id)

    def _watch(self, catalog: Catalog, run_id: str) -> None:
        child = forkserver.processes.Process(
            target=children.run_set, args=(self.url, catalog, run_id, self.alarms)
        )
        child.start()
        self.children[run_id] = child
        child.join()
        del self.children[run_id]
        if child.exitcode:
            raise ProcessDied(child.exitcode)

    def stop(self) -> None:
        for child in list(self.children.values()):
            child.terminate()
        for pool in list(self.pools.values()):  # a watcher may begin one
            end_pool(pool)
        self.threads.shutdown(wait=False, cancel_futures=True)


def _free(places: Places, works: Sequence[WorkItem]) -> Iterator[tuple[str, bool | None]]:
    """Yield the kinds of work for which there is a place besides these works: small plans, large
    ones, runs. One more plan of each size waits while one is made."""
    plans = [work.is_small for work in works if work.kind == PLAN]
    if plans.count(True) < 2:
        yield PLAN, True
    if plans.count(False) < 2 * max(1, places.planners):
        yield PLAN, False
    if len(works) - len(plans) < places.runs:
        yield RUN, None


def _explain_cause(error: BaseException) -> str:
    if isinstance(error, BrokenProcessPool):
        return "a planning process ended without a result; memory may have run out"
    return str(error)


def _run_in_thread(url: str, catalog: Catalog, run_id: str, alarms: AlarmSettings) -> None:
    # imported late: the service hands runs to other processes
    from vgrads.portal.jobs import worker

    with Store(url) as store:
        worker.run_set(store, catalog, run_id, alarms)


async def result_of(computation: Future[Any]) -> Any:
    """Return the result of a computation in another process. Raise SiteError where that process has
    died."""
    try:
        return await asyncio.wrap_future(computation)
    except BrokenProcessPool as error:
        raise SiteError(
            "a process of the service died",
            site="service",
            transient=True,
            fix="repeat the request",
        ) from error


class Supervisor:
    """Processes the queue of work while the service runs. ``catalog``: the sites for a set's id;
    ``sites``: those of all users; ``alarms``: how managers of runs send messages."""

    def __init__(
        self,
        store: Store,
        catalog: Callable[[str], Catalog],
        places: Places,
        sites: ServiceSites,
        alarms: AlarmSettings,
    ) -> None:
        self._store, self._catalog, self._places = store, catalog, places
        self._sites = sites
        self.works, self.sets = Works(store.engine), Sets(store.engine)
        self._owner, self._crew = new_owner(), _Crew(store.url, places, alarms)
        self._busy: dict[int, tuple[WorkItem, Future[None]]] = {}
        self._causes: dict[int, str] = {}  # of the last death of a process, by its work
        self._over: deque[tuple[WorkItem, BaseException | None]] = deque()  # ends to be stored
        self._news, self._stopped = threading.Event(), threading.Event()
        self._outside: dict[str, OutsideEngine] = {}
        self._dispatchers = Dispatchers(store, sites.current, bool(places.planners))
        self._thread = threading.Thread(target=self._look_after, daemon=True, name="supervisor")

    def start(self) -> None:
        """Start processing the queue; planners load all sites in advance."""
        self._thread.start()

    def notify(self) -> None:
        """Wake the loop to check for work."""
        self._news.set()

    def outside(self, run_id: str) -> OutsideEngine | None:
        """Return the engine through which an outside caller runs a run's tasks; None where there is
        none."""
        return self._outside.get(run_id)

    async def think(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Return the result of a function, computed in another process. Raise SiteError where that
        is currently impossible."""
        return await result_of(await self.enqueue(function, *arguments))

    async def enqueue(self, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        """Have a function computed in another process; :func:`result_of` waits for it."""
        # in a thread: it waits while the first processes are started
        return await asyncio.to_thread(self._crew.think, True, function, *arguments)

    def ahead_of(self, computation: Future[Any]) -> int:
        """Return how many computations have to end before one begins."""
        return self._crew.ahead_of(computation)

    def end_runs(self, reason: str) -> None:
        """Cancel all runs of this supervisor, and wait for them for a limited time."""
        end_s = time.monotonic() + _END_S
        while time.monotonic() < end_s:
            # a copy: threads in which work ends remove entries
            runs = [work.run_id for work, _ in list(self._busy.values()) if work.kind == RUN]
            if not runs:
                return
            for run_id in runs:
                request_stop(self._store.engine, run_id, reason)
            self._stopped.wait(0.2)

    @property
    def failing(self) -> list[str]:
        """Return dispatchers of bags that fail at each start."""
        return self._dispatchers.failing

    @property
    def alive(self) -> bool:
        """Return True while the queue is processed."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Terminate all processes and leave the work to the next service; runs resume from their
        journals."""
        self._stopped.set()
        self.notify()
        self._thread.join(5)
        self._crew.stop()
        self._dispatchers.stop()
        for engine in list(self._outside.values()):
            engine.detach()
        # last: another service may take the work at once, and no process
        # of this one may be left with it
        self.works.release(self._owner)

    def _look_after(self) -> None:
        try:  # here, since it waits until a process can be forked, and the service answers before
            self._crew.warm(self._sites.current())
        except Exception:
            _log.exception("the planners cannot be started; trying again with the next work")
        renewed_s, lost = time.monotonic(), False
        while not self._stopped.is_set():
            try:
                self._store.refuse_lost()
                self._sites.look()
                if (
                    time.monotonic() - renewed_s > RENEW_S
                ):  # first: take over work whose lease has expired
                    self.works.renew(self._owner)
                    renewed_s = time.monotonic()
                self._write_ends()
                while work := self._next():
                    self._hand_out(work)
                self._dispatchers.look()
                lost = False
            except SiteError as error:
                if not lost:
                    _log.warning("the queue of work cannot be read; trying again: %s", error)
                lost = True
            except Exception:
                _log.exception("the queue of work cannot be read; trying again")
            self._news.wait(_LOOK_S)
            self._news.clear()

    def _next(self) -> WorkItem | None:
        """Claim a piece of work for which there is a place: small plans first."""
        for kind, is_small in _free(self._places, [work for work, _ in list(self._busy.values())]):
            if work := self.works.claim(self._owner, [kind], self._busy, is_small):
                return work
        return None

    def _hand_out(self, work: WorkItem) -> None:
        if work.tries >= MOST_TRIES:
            cause = self._causes.pop(work.id, "the log of the service that ran it says why")
            self._abandon(work, f"its process died {MOST_TRIES} times: {cause}")
            return
        future = self._begin(work)
        self._busy[work.id] = (work, future)
        future.add_done_callback(lambda done: self._ended(work, done))

    def _begin(self, work: WorkItem) -> Future[None]:
        catalog = self._catalog(work.set_id)
        if work.kind == PLAN:
            return self._crew.think(
                work.is_small, children.plan_set, self._store.url, catalog, work.set_id
            )
        if self.sets.engine_of(work.run_id) == "outside":
            # imported late: few services have runs of an outside engine
            from vgrads.execmgr.engines.outside import OutsideEngine

            self._outside[work.run_id] = OutsideEngine(WallClock())
            return self._crew.threads.submit(self._run_outside, catalog, work.run_id)
        return self._crew.run(catalog, work.run_id)

    def _run_outside(self, catalog: Catalog, run_id: str) -> None:
        # imported late: few services have runs of an outside engine
        from vgrads.portal.jobs import worker

        try:
            outside = self._outside[run_id]
            worker.run_set(self._store, catalog, run_id, self._crew.alarms, outside)
        finally:
            self._outside.pop(run_id, None)

    def _ended(self, work: WorkItem, done: Future[Any]) -> None:
        # a service that stops leaves its work to the next one, so such an end is no result
        if done.cancelled() or self._stopped.is_set():
            self._busy.pop(work.id, None)
            return
        self._over.append((work, done.exception()))
        self.notify()

    def _write_ends(self) -> None:
        """Store the results of work; until the database has them, the work counts as running."""
        while self._over:
            # only looked at: it is removed once it is stored
            work, error = self._over[0]
            try:
                self._write_end(work, error)
            except SiteError:  # a database without answer: retried
                raise
            except Exception:
                _log.exception("the result of %s of %s cannot be stored", work.kind, work.set_id)
            self._over.popleft()
            self._busy.pop(work.id, None)

    def _write_end(self, work: WorkItem, error: BaseException | None) -> None:
        self._causes.pop(work.id, None)
        if isinstance(error, ProcessDied | BrokenProcessPool | DatabaseLost | LeaseExpired):
            _log.error("%s of %s: %s", work.kind, work.run_id or work.set_id, error)
            self._causes[work.id] = _explain_cause(error)
            self.works.release(self._owner, work)
        elif error is not None:
            _log.error("%s of %s failed", work.kind, work.set_id, exc_info=error)
            self._abandon(work, "internal error; the error was logged, please report it")
        else:
            self.works.finish(work, True)

    def _abandon(self, work: WorkItem, reason: str) -> None:
        self.works.finish(work, False)
        if work.kind == PLAN:
            self.sets.fail(work.set_id, reason)
        else:
            gantt = json.loads(self.sets.text(work.set_id, "gantt"))
            self._store.end_run(work.run_id, "failed", {"reason": reason}, gantt)
