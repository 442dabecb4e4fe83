"""Bags of tasks carried out: a dispatcher over the sites of a catalogue, on this machine or in
virtual time."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from vgrads.api.bags.places import check_places, places_of
from vgrads.api.wiring import (
    Surrounding,
    contact_host,
    is_real,
    make_drivers,
    own_values,
    python_of,
)
from vgrads.dispatch.agent_file import pilot_command
from vgrads.dispatch.core.faults import fault_in
from vgrads.dispatch.core.records import End
from vgrads.dispatch.core.talk import Rules
from vgrads.dispatch.document import BagDocument, build_bag, refuse_missing_inputs
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.server.dispatcher import Dispatcher
from vgrads.dispatch.server.keys import key_of
from vgrads.dispatch.server.manager import Manager
from vgrads.dispatch.server.setting import Setting
from vgrads.dispatch.standing import Latest, Rates, status_json
from vgrads.dispatch.storage.kept import (
    KeptBag,
    Keys,
    is_closed,
    keep_bag,
    kept_bags,
    keys_of,
    name_of,
    open_bag,
    write_host_names,
    write_latest,
    write_status,
)
from vgrads.execmgr.core.book import spec_id
from vgrads.execmgr.engines.base import Pilot, Reach
from vgrads.execmgr.sites import Sites
from vgrads.kernel.clock import WallClock
from vgrads.kernel.errors import InputError
from vgrads.vgrid.catalog import Catalog, Site

_LOOK_S = 1.0
_LONG = 200
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
    _rates: Rates = field(default_factory=Rates)
    _latest: Latest = field(default_factory=Latest)
    _looked_s: float = -1e9
    _named: int = 0
    _bags: dict[int, KeptBag] = field(default_factory=dict)
    _open: dict[int, KeptBag] = field(default_factory=dict)

    def carry_out(self) -> Dispatcher:
        """Work until there is nothing to do; the dispatcher as it ended."""
        return asyncio.run(self._carry_out())

    async def _carry_out(self) -> Dispatcher:
        self._began_own_s = time.thread_time()
        keys = keys_of(self.folder)
        clock = WallClock(time.time() - self._began_s())
        manager = Manager(
            Setting(folder=self.folder, secret=keys.secret, rules=self.rules, run=self.run),
            clock,
            self._told,
        )
        _check_known(manager, self.catalog)
        for number in kept_bags(self.folder):
            self._open_bag(manager, number)
        bags = list(self._bags.values())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "cert.pem", keys.key)
        away = any(is_real(site) for site in self.catalog.sites) or any(
            bag.document.hosts.guests for bag in bags
        )
        port = await self._listen(manager, "0.0.0.0" if away else "127.0.0.1", context)
        fleet = self._fleet(manager, keys, port, clock, [b.document for b in bags])
        self._dispatcher = Dispatcher(
            manager, fleet, lambda: self._control(manager, fleet), lambda: self._grow(manager)
        )
        for bag in bags:
            self._take(manager, bag)
        if self.beside is not None:
            self.beside.begin(self.run, port, keys)
        try:
            await self._dispatcher.run()
        finally:
            if self.beside is not None:
                self.beside.end()
        self._tell(manager, fleet, "ended")
        return self._dispatcher

    def _told(self, bag: int, end: End, text: str) -> None:
        self._latest.add(bag, end, text)
        if self.beside is not None:
            self.beside.told(bag, end)

    def end(self) -> None:
        """Give everything back and stop, also from a signal's handler."""
        self._dispatcher.end()

    def leave(self) -> None:
        """Stop, and let hosts work on."""
        self._dispatcher.leave()

    def _began_s(self) -> float:
        path = self.folder / "began"
        if not path.exists():
            path.write_text(repr(time.time()))
        return float(path.read_text())

    async def _listen(self, manager: Manager, address: str, context: ssl.SSLContext) -> int:
        """The same port as before, where hosts look for it."""
        path = self.folder / "port"
        before = int(path.read_text()) if path.exists() else 0
        try:
            port = await manager.listen(address, before, context)
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

    def _open_bag(self, manager: Manager, number: int) -> None:
        """Open a bag of the folder; one that cannot be served is failed, and costs no other bag."""

        def work() -> None:
            self._bags[number] = open_bag(self.folder, number)

        self._serve(manager, number, work)

    def _take(self, manager: Manager, kept: KeptBag) -> None:
        self._serve(manager, kept.number, lambda: self._take_on(manager, kept))

    def _serve(self, manager: Manager, number: int, work: Callable[[], None]) -> None:
        """Work for one bag; one in which something goes wrong is failed."""
        if fault := fault_in(number, work):
            self._bags.pop(number, None)
            self._open.pop(number, None)
            manager.core.reject(fault, name_of(self.folder, number), manager.clock.now())
            manager.poke()

    def _take_on(self, manager: Manager, kept: KeptBag) -> None:
        values = own_values(kept.bag.pass_env) if self.own else {}
        bag = replace(kept.bag, env={**values, **kept.bag.env})
        manager.add(kept.number, bag, kept.files, kept.document.open)
        if kept.document.open:
            state = manager.state.bags[kept.number]
            manager.core.grow(kept.number, len(kept.bag.commands) - len(state.tasks))
            self._open[kept.number] = kept

    def _grow(self, manager: Manager) -> None:
        """More tasks of open bags, and the end of those to which none comes any more."""
        for kept in list(self._open.values()):
            self._serve(manager, kept.number, partial(self._grow_bag, manager, kept))

    def _grow_bag(self, manager: Manager, kept: KeptBag) -> None:
        number = kept.number
        closed = is_closed(self.folder, number)  # looked at first: what came before it counts
        if grown := kept.grown():
            manager.core.grow(number, grown)
            manager.poke()
        if closed:
            manager.core.close(number, manager.clock.now())
            del self._open[number]
            kept.rest()

    def _control(self, manager: Manager, fleet: Fleet) -> bool:
        wishes = self.wishes()
        fresh = [n for n in wishes.new if n not in self._bags and n not in manager.state.bags]
        for number in fresh:
            self._open_bag(manager, number)
            if number in self._bags:
                self._take(manager, self._bags[number])
        if fresh:
            documents = [kept.document for _, kept in sorted(self._bags.items())]
            fleet.places = places_of(self.catalog, documents)
        for number, why in wishes.stops.items():
            if number in manager.state.bags and not manager.state.bags[number].over:
                manager.cancel(number, why)
        if self.beside is not None:
            self.beside.look(manager, fleet)
            self._grow(manager)
        if manager.clock.now() - self._looked_s >= _LOOK_S:
            self._tell(manager, fleet, "working")
        over = not wishes.stay and all(bag.over for bag in manager.state.bags.values())
        if over and self.beside is not None:
            self.beside.end()  # before hosts go: they are needed elsewhere
        return over

    def _tell(self, manager: Manager, fleet: Fleet, state: str) -> None:
        now = self._looked_s = manager.clock.now()
        self._rates.look(manager.state, now)
        status = status_json(
            manager.state,
            self._rates,
            now,
            fleet.unserved,
            {
                "state": state,
                "began_unix_s": self._began_s(),
                "problem": manager.problem or fleet.hopeless,
                "refused": manager.port.refused,
                "exchanges": manager.port.exchanges,
                "reasons": [
                    {"at_s": at, "site": site, "reason": r}
                    for at, site, r in fleet.reasons[-_LONG:]
                ],
                "coming": fleet.coming,
                "pools": self.beside.standing() if self.beside else {},
                "slots": [n for n, slot in manager.state.slots.items() if slot.held],
            },
        )
        own = {
            "commit_s": manager.journal.commit_s,
            "own_s": (time.thread_time() - self._began_own_s) / max(1, self._latest.count),
        }
        for bag in status["bags"]:
            bag["times"] = self._latest.mean_times(bag["number"], own)
        with suppress(OSError):  # who looks sees how it stood before
            self._write_down(manager, status)
        self.watch(status)

    def _write_down(self, manager: Manager, status: dict[str, Any]) -> None:
        write_status(self.folder, status)
        for number in self._latest.changed:
            write_latest(self.folder, number, self._latest.of(number))
        self._latest.changed.clear()
        if len(manager.state.hosts) != self._named:
            write_host_names(self.folder, [h.name or h.id for h in manager.state.hosts.values()])
            self._named = len(manager.state.hosts)


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
