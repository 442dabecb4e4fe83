"""A dispatcher's work under the database: its bags come from there, how they stand goes there."""

from __future__ import annotations

import json
import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from vgrads.api.bags.virtual import VirtualBagWork, simulated_part
from vgrads.api.bags.work import BagWork, Wishes, hand_over
from vgrads.api.config import home
from vgrads.api.pools.adverts import Advertiser
from vgrads.api.pools.ledger import Ledger
from vgrads.api.pools.ledger_line import LedgerLine
from vgrads.dispatch.core.talk import Rules
from vgrads.dispatch.document import BagDocument
from vgrads.dispatch.storage.kept import is_worked_on, only_one, read_status, readable_bags
from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.records.bags import ENDED, HERE, Bags, new_bag
from vgrads.portal.records.lease import LEASE_S
from vgrads.portal.records.pools import PoolLedger
from vgrads.portal.records.reconnect import await_database
from vgrads.portal.records.store import Store, new_id
from vgrads.portal.records.tables import BagRow
from vgrads.vgrid.catalog import Catalog

_NOTE_S = 2.0
_log = logging.getLogger("vgrads.bags")


def dispatcher_folder(dispatcher: str) -> Path:
    """Where a dispatcher keeps what it works on."""
    return home() / "dispatchers" / dispatcher


def submit(
    store: Store,
    dispatcher: str,
    document: BagDocument,
    source: Path,
    catalog: Catalog,
    owner: str = HERE,
) -> BagRow:
    """Hand a bag over to a dispatcher, checked; its row."""
    bags = Bags(store.engine)
    number = bags.next_number(dispatcher)
    kept = hand_over(dispatcher_folder(dispatcher), number, document, source, catalog)
    bag_id = dispatcher if number == 0 and dispatcher.startswith("bag-") else new_id("bag")
    row = new_bag(bag_id, dispatcher, number, document.name, owner, len(kept.bag.commands))
    bags.add(row)
    return row


def bag_standing(row: BagRow) -> dict[str, Any]:
    """A bag as its dispatcher told of it last; empty where it has not yet."""
    status = read_status(dispatcher_folder(row.dispatcher))
    told = (bag for bag in status.get("bags", ()) if bag["number"] == row.number)
    return next(told, {}) or dict(json.loads(row.summary))


@dataclass
class Crew:
    """A dispatcher of the database at work in this process. ``stay``: it waits for more bags;
    ``ledger``: where it says that it takes hosts of pools, if its bags do (None: the database);
    ``contact``: where these find it; ``own``: the bags belong to whoever runs this process."""

    store: Store
    dispatcher: str
    catalog: Catalog
    rules: Rules = field(default_factory=Rules)
    stay: Callable[[], bool] = lambda: False
    watch: Callable[[dict[str, Any]], None] = lambda _: None
    ledger: Ledger | None = None
    contact: str = ""
    own: bool = False
    _noted_s: float = 0.0
    _last: Wishes = field(default_factory=lambda: Wishes(stay=True))
    _work: BagWork | VirtualBagWork | None = None

    def carry_out(self) -> str:
        """Work until nothing is to do; why it ended before, empty where all is done."""
        bags = Bags(self.store.engine)
        folder = dispatcher_folder(self.dispatcher)
        with only_one(folder):
            virtual = simulated_part(self.catalog, folder)
            how = (self.dispatcher, self._wishes, self._told, self.rules)
            if virtual is not None:
                self._work = VirtualBagWork(folder, virtual, *how)
            else:
                self._work = BagWork(
                    folder, self.catalog, *how, beside=self._advertiser(folder), own=self.own
                )
            try:
                with self._signals():
                    ended = self._work.carry_out()
            except BaseException:
                bags.set_state(self.dispatcher, "interrupted")
                raise
        if ended.ended_early or ended.hopeless:
            _when_reached(lambda: bags.set_state(self.dispatcher, "interrupted"))
        return ended.hopeless or ("interrupted" if ended.ended_early else "")

    def _advertiser(self, folder: Path) -> Advertiser | None:
        """Says that the dispatcher takes hosts of pools, where one of its bags has guests."""
        documents = [kept.document for kept in readable_bags(folder)]
        guests = [document for document in documents if document.hosts.guests]
        if not guests:
            return None
        ledger = self.ledger or PoolLedger(self.store.engine)
        project = re.sub(r"[^A-Za-z0-9._@+-]+", "-", guests[0].name).strip("-._@+") or "bag"
        name = f"{project[:150]}.{self.dispatcher.rpartition('-')[2]}"
        return Advertiser(LedgerLine(ledger, "manager", name), project, contact=self.contact)

    def _wishes(self) -> Wishes:
        try:
            rows = Bags(self.store.engine).open_of(self.dispatcher)
            stay = self.stay()
        except (
            SiteError
        ) as error:  # a database that does not answer, or has no room: asked again soon
            _log.warning("%s", error)
            return self._last
        self._last = Wishes(
            new=[row.number for row in rows],
            stops={row.number: row.stop for row in rows if row.stop},
            stay=stay,
        )
        return self._last

    def _told(self, status: dict[str, Any]) -> None:
        self.watch(status)
        if status["state"] == "ended" or time.monotonic() - self._noted_s > _NOTE_S:
            self._noted_s = time.monotonic()
            note = partial(Bags(self.store.engine).note, self.dispatcher, status["bags"])
            if status["state"] == "ended":
                _when_reached(note)
            else:
                with suppress(SiteError):  # told again soon
                    note()

    def _signals(self) -> _Signals:
        return _Signals(self)

    def end(self) -> None:
        """Give everything back and stop."""
        if self._work is not None:
            self._work.end()

    def leave(self) -> None:
        """Stop; hosts work on."""
        if self._work is not None:
            self._work.leave()


def _when_reached(work: Callable[[], None]) -> None:
    """Do what may be done twice; a database that is lost meanwhile is waited for."""
    end_s = time.monotonic() + LEASE_S
    await_database(lambda _: work(), lambda: end_s)


class _Signals:
    """Ctrl-C gives everything back, a second one and SIGTERM leave it as it is."""

    def __init__(self, crew: Crew) -> None:
        self._crew, self._before, self._count = crew, {}, 0  # type: ignore[var-annotated]

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._came)

    def _came(self, number: int, _: object) -> None:
        self._count += 1
        if number == signal.SIGTERM or self._count > 1:
            self._crew.leave()
        else:
            self._crew.end()

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def cancel(store: Store, row: BagRow, why: str) -> str:
    """Have a bag cancelled by its dispatcher, or here where none is at work; what was done, in
    words."""
    if row.state in ENDED:
        raise InputError(
            f"bag '{row.id}' is over: {row.state}", fix="vgrads bags status lists them"
        )
    Bags(store.engine).ask_to_stop(row.id, why)
    if is_worked_on(dispatcher_folder(row.dispatcher)):
        return "its dispatcher was asked to stop it"
    return ""


def resumable(store: Store, bag_id: str) -> Sequence[BagRow]:
    """The bags of the dispatcher of a bag that have not ended, or this one, where only its slots
    are to be given back; InputError where there is nothing to go on with."""
    row = Bags(store.engine).get(bag_id)
    folder = dispatcher_folder(row.dispatcher)
    if is_worked_on(folder):
        raise InputError("its dispatcher is at work", where=bag_id)
    status = read_status(folder)
    holds = status.get("state") != "ended" and status.get("slots")
    if row.state in ENDED and not holds:
        raise InputError(
            f"bag '{bag_id}' is over: {row.state}", fix="vgrads bags status lists them"
        )
    return Bags(store.engine).open_of(row.dispatcher) or [row]
