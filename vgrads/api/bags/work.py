"""Bags of tasks carried out: a dispatcher over the sites of a catalogue, on this machine or in
virtual time."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from vgrads.api.bags.places import check_places, places_of
from vgrads.api.bags.report import Report
from vgrads.api.bags.served import ServedBags
from vgrads.api.wiring import (
    Surrounding,
    contact_host,
    is_real,
    make_drivers,
    python_of,
)
from vgrads.dispatch.agent_file import pilot_command
from vgrads.dispatch.core.records import End
from vgrads.dispatch.core.talk import Rules
from vgrads.dispatch.document import BagDocument, build_bag, refuse_missing_inputs
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.server.dispatcher import Dispatcher
from vgrads.dispatch.server.keys import key_of
from vgrads.dispatch.server.manager import Manager
from vgrads.dispatch.server.setting import Setting
from vgrads.dispatch.storage.kept import (
    KeptBag,
    Keys,
    keep_bag,
    kept_bags,
    keys_of,
)
from vgrads.execmgr.core.book import spec_id
from vgrads.execmgr.engines.base import Pilot, Reach
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import WallClock
from vgrads.kernel.errors import InputError
from vgrads.vgrid.catalog import Catalog, Site

Watch = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What comes from outside while a dispatcher works: bags to take on, bags to cancel, and
    whether it is to end.

    ``new``: numbers of bags that lie in the folder; ``stops``: number → why; ``stay``: wait for
    more bags when all are over.
    """

    new: Sequence[int] = ()
    stops: dict[int, str] = field(default_factory=dict)
    stay: bool = False


class Beside(Protocol):
    """What goes on beside a dispatcher's work, in its loop: pools and their ledger."""

    def begin(self, run: str, port: int, keys: Keys) -> None:
        """The dispatcher listens now; ``run``: what the names of its slots begin with."""

    def look(self, manager: Manager, fleet: Fleet) -> None:
        """Called twice a second."""

    def told(self, bag: int, end: End) -> None:
        """A task has ended."""

    def standing(self) -> dict[str, Any]:
        """For the status."""

    def end(self) -> None:
        """The dispatcher has ended."""


@dataclass
class BagWork:
    """One dispatcher's folder and what is made of it. ``wishes``: asked twice a second; ``watch``:
    told how it stands.

    ``own``: the bags belong to whoever runs this process; ``began_unix_s``: when its clock began,
    kept over restarts.
    """

    folder: Path
    catalog: Catalog
    run: str
    wishes: Callable[[], Wishes]
    watch: Watch = lambda _: None
    rules: Rules = field(default_factory=Rules)
    beside: Beside | None = None
    own: bool = False

    def carry_out(self) -> Dispatcher:
        """Work until there is nothing to do; the dispatcher as it ended."""
        return asyncio.run(self._carry_out())

    async def _carry_out(self) -> Dispatcher:
        keys = keys_of(self.folder)
        report = Report(self.folder, _began_s(self.folder))
        clock = WallClock(time.time() - report.began_unix_s)

        def told(bag: int, end: End, text: str) -> None:
            report.ended(bag, end, text)
            if self.beside is not None:
                self.beside.told(bag, end)

        setting = Setting(folder=self.folder, secret=keys.secret, rules=self.rules, run=self.run)
        manager = Manager(setting, clock, told)
        _check_known(manager, self.catalog)
        bags, numbers = ServedBags(self.folder, manager, self.own), kept_bags(self.folder)
        for number in numbers:
            bags.open(number)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "cert.pem", keys.key)
        away = any(is_real(site) for site in self.catalog.sites) or any(
            document.hosts.guests for document in bags.documents
        )
        port = await self._listen(manager, "0.0.0.0" if away else "127.0.0.1", context)
        fleet = self._fleet(manager, keys, port, clock, bags.documents)
        control = partial(self._control, manager, fleet, bags, report)
        self._dispatcher = Dispatcher(manager, fleet, control, bags.grow)
        for number in numbers:
            bags.take_on(number)
        if self.beside is not None:
            self.beside.begin(self.run, port, keys)
        try:
            await self._dispatcher.run()
        finally:
            if self.beside is not None:
                self.beside.end()
        self.watch(report.tell(manager, fleet, "ended", self._standing()))
        return self._dispatcher

    def end(self) -> None:
        """Give everything back and stop, also from a signal's handler."""
        self._dispatcher.end()

    def leave(self) -> None:
        """Stop, and let hosts work on."""
        self._dispatcher.leave()

    async def _listen(self, manager: Manager, address: str, context: ssl.SSLContext) -> int:
        """The same port as before, where hosts look for it."""
        path = self.folder / "port"
        before = int(path.read_text()) if path.exists() else 0
        try:
            port = await manager.port.listen(address, before, context)
        except OSError as error:
            raise InputError(
                f"port {before} is taken, and hosts look for the dispatcher there",
                where=str(path),
                fix="end what listens there, or remove the file and give up the hosts",
            ) from error
        path.write_text(str(port))
        return port

    def _fleet(
        self,
        manager: Manager,
        keys: Keys,
        port: int,
        clock: WallClock,
        documents: Sequence[BagDocument],
    ) -> Fleet:
        sites = [s for s in self.catalog.sites if s.driver != "simulated"]
        nothing = Surrounding(logs={}, instants={}, until_s=0.0, seed=0)
        drivers = make_drivers(
            replace(self.catalog, sites=tuple(sites)),
            [s.name for s in sites],
            clock,
            nothing,
            own=self.own,
        )
        by_name = {site.name: site for site in sites}

        def pilot(site: Site) -> Pilot:
            contact = contact_host(site) if is_real(site) else "127.0.0.1"
            environment = {
                "VGRADS_CONTACT": f"tls://{contact}:{port}",
                "VGRADS_CERT": keys.certificate,
            }
            return Pilot(command=pilot_command(python_of(site)), environment=environment)

        reach = {
            site.name: Reach(
                poll_s=site.access.poll_s if is_real(site) else 0.0, pilot=partial(pilot, site)
            )
            for site in sites
        }

        def environment(slot: str) -> dict[str, str]:
            place = by_name[manager.state.slots[slot].site]
            where = next(p for p in fleet.places if p.site == place.name)
            return {
                "VGRADS_HOST_KEY": key_of(keys.secret, spec_id(slot, self.run)),
                "VGRADS_HOST_PROCS": str(where.procs),
                "VGRADS_LEFT_S": str(int(where.longest_s)),
                "VGRADS_OWN": "1" if self.own and place.driver == "local" else "",
                "VGRADS_PASS_ENV": " ".join(place.pass_env),
            }

        fleet = Fleet(
            core=manager.core,
            sites=Sites(self.run, drivers, clock, reach),
            run=self.run,
            places=places_of(self.catalog, documents),
            pilot_environment=environment,
            fits=manager.core.fits,
            guests=any(d.hosts.guests for d in documents),
        )
        return fleet

    def _control(self, manager: Manager, fleet: Fleet, bags: ServedBags, report: Report) -> bool:
        wishes = self.wishes()
        fresh = [n for n in wishes.new if n not in bags and n not in manager.state.bags]
        for number in fresh:
            bags.open(number)
            bags.take_on(number)
        if fresh:
            fleet.ask_at(places_of(self.catalog, bags.documents))
        for number, why in wishes.stops.items():
            if number in manager.state.bags and not manager.state.bags[number].over:
                manager.cancel(number, why)
        if self.beside is not None:
            self.beside.look(manager, fleet)
            bags.grow()
        if report.is_due(manager.clock.now()):
            self.watch(report.tell(manager, fleet, "working", self._standing()))
        over = not wishes.stay and all(bag.over for bag in manager.state.bags.values())
        if over and self.beside is not None:
            self.beside.end()  # before hosts go: they are needed elsewhere
        return over

    def _standing(self) -> dict[str, Any]:
        return self.beside.standing() if self.beside else {}


def _began_s(folder: Path) -> float:
    """When the clock of a dispatcher began, which may have been restarted since."""
    path = folder / "began"
    if not path.exists():
        path.write_text(repr(time.time()))
    return float(path.read_text())


def _check_known(manager: Manager, catalog: Catalog) -> None:
    """InputError where slots are held at a site that is not among those given: nobody could give
    them back."""
    names = {site.name for site in catalog.sites}
    for slot in manager.state.slots.values():
        if slot.held and slot.site not in names:
            raise InputError(
                f"do not name '{slot.site}', where slots are held from before",
                where="--sites",
                fix="give the sites that it was begun with",
            )


def hand_over(
    folder: Path, number: int, document: BagDocument, source: Path, catalog: Catalog
) -> KeptBag:
    """Put a bag into a dispatcher's folder, after everything about it was checked."""
    check_places(catalog, document)
    if document.inputs and not document.open:
        refuse_missing_inputs(build_bag(document, source), source)
    return keep_bag(folder, number, document, source)
