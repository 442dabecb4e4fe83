"""A dispatcher's work with the database: its bags are read from there, their status is stored
there."""

from __future__ import annotations

import logging
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgrads.api.bags.execution import BagWork, ControlRequests, submit_bag
from vgrads.api.bags.retries import NotRetriableError, count_retriable
from vgrads.api.bags.reuse import MOST_EARLIER, EarlierBag, is_recorded, record_and_reuse
from vgrads.api.bags.virtual import VirtualBagWork, choose_clock
from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.storage.folder import open_readable_bags, release_number, reserve_number
from vgrads.dispatch.storage.retry_requests import request_retry
from vgrads.dispatch.storage.status import exclusive, is_worked_on, read_status
from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.records.bags import BagStore, PlainStore, new_bag
from vgrads.portal.records.heartbeat import LEASE_S
from vgrads.portal.records.reader import new_id
from vgrads.portal.records.reading.bags import ENDED, HERE, BagEntry
from vgrads.vgrid.catalog import Catalog

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from vgrads.api.pools.adverts import Advertiser
    from vgrads.api.pools.ledger import Ledger
    from vgrads.portal.records.store import Store

    Records = Store | PlainStore
_NOTE_S = 2.0
_log = logging.getLogger("vgrads.bags")


@dataclass(frozen=True, kw_only=True)
class Submission:
    """How a bag is submitted. ``rerun``: its tasks are done again that earlier runs of the bag have
    done."""

    owner: str = HERE
    rerun: bool = True


_HERE = Submission()


def submit(
    store: Records,
    dispatcher: str,
    document: BagDocument,
    source: Path,
    catalog: Catalog,
    how: Submission = _HERE,
) -> tuple[BagEntry, int]:
    """Check a bag and submit it to a dispatcher; return its row, and the number of tasks that
    earlier runs of the same owner have done."""
    bags = BagStore(store.records)
    folder = dispatcher_folder(dispatcher)
    number = reserve_number(folder, bags.next_number(dispatcher))
    try:
        bag = submit_bag(folder, number, document, source, catalog)
        earlier = () if how.rerun else _list_earlier_bags(bags, document.name, how.owner)
        reused = record_and_reuse(folder, bag, catalog, how.owner == HERE, earlier)
    except BaseException:  # interrupted too: no bag is left that nobody knows
        shutil.rmtree(folder / "bags" / f"{number:04d}", ignore_errors=True)
        release_number(folder, number)
        raise
    # a dispatcher of one bag alone has the same id as the bag
    bag_id = dispatcher if number == 0 and dispatcher.startswith("bag-") else new_id("bag")
    row = new_bag(bag_id, dispatcher, number, document.name, how.owner, len(bag.bag.commands))
    bags.add(row)
    return bags.get(bag_id), reused


def _list_earlier_bags(bags: BagStore, name: str, owner: str) -> Iterator[EarlierBag]:
    """Return the newest earlier runs of a bag whose tasks can be reused."""
    rows = bags.same_name(name, owner)
    runs = (EarlierBag(dispatcher_folder(row.dispatcher), row.number) for row in rows)
    return islice(filter(is_recorded, runs), MOST_EARLIER)


@dataclass
class Crew:
    """A dispatcher of the database running in this process. ``stay``: it waits for more bags;
    ``ledger``: where it publishes that it leases agents of pools, if its bags do (None: the
    database); ``contact``: its address for them; ``own``: the bags belong to the user of this
    process."""

    store: Records
    dispatcher: str
    catalog: Catalog
    rules: Rules = field(default_factory=Rules)
    stay: Callable[[], bool] = lambda: False
    watch: Callable[[dict[str, Any]], None] = lambda _: None
    ledger: Ledger | None = None
    contact: str = ""
    own: bool = False
    _noted_s: float = 0.0
    _scored: set[int] = field(default_factory=set)
    _last: ControlRequests = field(default_factory=lambda: ControlRequests(stay=True))
    _work: BagWork | VirtualBagWork | None = None

    def carry_out(self) -> str:
        """Run until no work is left; return why it ended early, empty where all is done."""
        bags = BagStore(self.store.records)
        folder = dispatcher_folder(self.dispatcher)
        with exclusive(folder):
            work = BagWork(
                folder,
                self.catalog,
                self.dispatcher,
                self._wishes,
                self._save_status,
                self.rules,
                own=self.own,
            )
            self._work = choose_clock(work)
            if self._work is work:  # nobody from outside joins in virtual time
                work.extension = self._advertiser(folder)
            try:
                with self._signals():
                    ended = self._work.carry_out()
            except BaseException:
                bags.set_state(self.dispatcher, "interrupted")
                raise
        if ended.unfinished:
            _retry_until_reached(self.store, lambda: bags.set_state(self.dispatcher, "interrupted"))
        return ended.unfinished

    def _advertiser(self, folder: Path) -> Advertiser | None:
        """Return the publisher of the dispatcher's state to pools, where one of its bags allows
        ad-hoc agents."""
        documents = [bag.document for bag in open_readable_bags(folder)]
        ad_hoc_agents = [document for document in documents if document.hosts.guests]
        if not ad_hoc_agents:
            return None
        from vgrads.api.pools.adverts import Advertiser
        from vgrads.api.pools.ledger_connection import LedgerConnection

        ledger = self.ledger or _open_ledger(self.store)
        project = re.sub(r"[^A-Za-z0-9._@+-]+", "-", ad_hoc_agents[0].name).strip("-._@+") or "bag"
        name = f"{project[:150]}.{self.dispatcher.rpartition('-')[2]}"
        return Advertiser(LedgerConnection(ledger, "manager", name), project, contact=self.contact)

    def _wishes(self) -> ControlRequests:
        try:
            rows = BagStore(self.store.records).open_of(self.dispatcher)
            stay = self.stay()
        except SiteError as error:  # a database without answer or space: retried soon
            _log.warning("%s", error)
            return self._last
        self._last = ControlRequests(
            new=[row.number for row in rows],
            stops={row.number: row.stop for row in rows if row.stop},
            stay=stay,
        )
        return self._last

    def _save_status(self, status: dict[str, Any]) -> None:
        self.watch(status)
        if status["state"] == "ended" or time.monotonic() - self._noted_s > _NOTE_S:
            self._noted_s = time.monotonic()
            note = partial(BagStore(self.store.records).note, self.dispatcher, status["bags"])
            if status["state"] == "ended":
                _retry_until_reached(self.store, note)
            else:
                with suppress(SiteError):  # published again soon
                    note()

        self._score(status)

    def _score(self, status: Mapping[str, Any]) -> None:
        """Record what bags with goals promised, and whether they kept it, once they have ended."""
        fresh = [
            bag
            for bag in status["bags"]
            if (bag.get("goal") or {}).get("promises")
            and bag["state"] in ("done", "failed")
            and bag["number"] not in self._scored
        ]
        if fresh and not status.get("virtual"):
            from vgrads.portal.jobs.forecasts.plans import score_bags

            self._scored |= {bag["number"] for bag in fresh}
            score_bags(partial(_find_engine, self.store), self.dispatcher, fresh)

    def _signals(self) -> _Signals:
        return _Signals(self)

    @property
    def has_begun(self) -> bool:
        """Return True when its bags have been read, so that it can end in order."""
        return self._work is not None and self._work.has_begun

    def end(self) -> None:
        """Release everything and stop."""
        if self._work is not None:
            self._work.end()

    def leave(self) -> None:
        """Stop; agents work on, if they have work."""
        if self._work is not None:
            self._work.leave(idle=False)


def _open_ledger(store: Records) -> Ledger:
    """Return the ledger of pools in the database."""
    from vgrads.portal.records.pools import PoolLedger

    return PoolLedger(_find_engine(store))


def _find_engine(store: Records) -> Engine:
    from vgrads.portal.records.database import open_engine

    return open_engine(store.url) if isinstance(store, PlainStore) else store.engine


def _retry_until_reached(store: Records, work: Callable[[], None]) -> None:
    """Run repeatable work; wait while the database is unreachable, which a file never is."""
    if isinstance(store, PlainStore):
        work()
        return
    from vgrads.portal.records.reconnect import await_database

    end_s = time.monotonic() + LEASE_S
    await_database(lambda _: work(), lambda: end_s)


class _Signals:
    """Handles signals: Ctrl-C releases everything, a second one and SIGTERM leave it as it is."""

    def __init__(self, crew: Crew) -> None:
        self._crew, self._before, self._count = crew, {}, 0  # type: ignore[var-annotated]

    def __enter__(self) -> None:
        # Python sets handlers of signals in the main thread only
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._came)

    def _came(self, number: int, _: object) -> None:
        if not self._crew.has_begun:
            raise KeyboardInterrupt  # reading a million commands takes time
        self._count += 1
        if number == signal.SIGTERM or self._count > 1:
            self._crew.leave()
        else:
            self._crew.end()

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def cancel(store: Records, row: BagEntry, why: str) -> str:
    """Cancel a bag through its dispatcher, or here where none is running; return a message with the
    result."""
    if row.state in ENDED:
        raise InputError(
            f"bag '{row.id}' has ended: {row.state}", fix="list bags with 'vgrads bags status'"
        )
    BagStore(store.records).ask_to_stop(row.id, why)
    if is_worked_on(dispatcher_folder(row.dispatcher)):
        return "its dispatcher was asked to cancel it"
    return ""


def retry(store: Records, row: BagEntry, tasks: Sequence[int] | None) -> tuple[int, bool]:
    """Request that tasks of a bag are done again: these, or (None) all that failed or were not run.
    Return how many, and whether another process does them: its dispatcher, or its service.

    Raise InputError for a task that the bag does not have, NotRetriableError where nothing can be
    retried."""
    folder = dispatcher_folder(row.dispatcher)
    if row.stop and row.state not in ENDED:
        raise NotRetriableError(
            f"bag '{row.id}' is being cancelled", fix="retry it when it has ended"
        )
    count = count_retriable(folder, row.number, row.id, tasks)
    try:
        # before the bag is opened again: a dispatcher that is started for it must find the request
        request_retry(folder, row.number, tasks)
    except OSError as error:
        raise InputError(
            f"the request cannot be stored: {error.strerror}", where=str(folder)
        ) from error
    if row.state in ENDED:
        BagStore(store.records).reopen(row.id)
    return count, row.owner != HERE or is_worked_on(folder)


def resumable(store: Records, bag_id: str) -> Sequence[BagEntry]:
    """Return the bags of a bag's dispatcher that are not terminal, or this bag, where only its
    slots remain to be released. Raise InputError where nothing can be resumed."""
    row = BagStore(store.records).get(bag_id)
    folder = dispatcher_folder(row.dispatcher)
    if is_worked_on(folder):
        raise InputError("its dispatcher is still running", where=bag_id)
    status = read_status(folder)
    holds = status.get("state") != "ended" and status.get("slots")
    if row.state in ENDED and not holds:
        raise InputError(
            f"bag '{bag_id}' has ended: {row.state}", fix="list bags with 'vgrads bags status'"
        )
    return BagStore(store.records).open_of(row.dispatcher) or [row]
