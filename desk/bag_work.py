"""Bags of tasks carried out: a dispatcher over the sites of a catalogue, on this machine or in virtual time."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from desk.wiring import (
    Surrounding,
    all_simulated,
    contact_host,
    is_real,
    make_drivers,
    python_of,
)
from dispatch.agent_file import pilot_command
from dispatch.dispatcher import Dispatcher
from dispatch.document import BagDocument, HostsDocument
from dispatch.fleet import Fleet, Place, looking_ahead
from dispatch.kept import (
    KeptBag,
    Keys,
    is_closed,
    keep_bag,
    kept_bags,
    keys_of,
    open_bag,
    write_host_names,
    write_latest,
    write_status,
)
from dispatch.keys import key_of
from dispatch.manager import GUEST, Manager, Setting
from dispatch.records import End
from dispatch.standing import Latest, Rates, status_json
from dispatch.talk import Rules
from execmgr.book import spec_id
from execmgr.engine import Pilot, Reach
from execmgr.sites import Sites
from kernel.clock import WallClock
from kernel.errors import InputError
from pool.acquire import ACQUISITIONS, acquire
from pool.release import before_the_end, central_all, coordinated, distributed
from pool.view import PoolDecision, PoolLimits, PoolView, together
from vgrid.catalog import Catalog, Site

RELEASES = ("distributed", "central", "coordinated", "look-ahead")
_LOOK_S, _LOCAL_S = 1.0, 30 * 86400.0
_LONG = 200
Watch = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What comes from outside while a dispatcher works: bags to take on, bags to cancel, and whether it is to end.

    ``new``: numbers of bags that lie in the folder; ``stops``: number → why; ``stay``: wait for more bags when all
    are over.
    """

    new: Sequence[int] = ()
    stops: dict[int, str] = field(default_factory=dict)
    stay: bool = False


def check_places(catalog: Catalog, document: BagDocument) -> None:
    """InputError for a bag that none of the sites can serve, or that asks in a way that nobody knows."""
    for name in {*document.sites, *document.failover} - {GUEST}:
        catalog.site(name)
    if document.sites == (GUEST,) and document.hosts.guests:
        return
    sites = [s for s in catalog.sites if not document.sites or s.name in document.sites]
    if all_simulated(sites) and sites and document.runtime_s is None:
        raise InputError(
            "is not given, and simulated sites cannot find out how long a task runs", where="runtime_s",
            fix="give runtime_s, in seconds",
        )  # fmt: skip
    widest = max((_procs(s, document.hosts) for s in sites), default=0)
    if document.procs > widest:
        raise InputError(
            f"needs {document.procs} processors of one host; the largest has {widest}",
            where="procs",
        )
    places = [_place(site, [document.hosts]) for site in sites]
    longest_s = max(place.longest_s for place in places)
    if (document.runtime_s or 0.0) > longest_s:
        raise InputError(
            f"is {document.runtime_s:g} s, and no host stays longer than {longest_s:g} s", where="runtime_s",
            fix="give hosts.longest, up to the longest walltime of a queue",
        )  # fmt: skip


def _procs(site: Site, hosts: HostsDocument) -> int:
    """Processors of one host of a site."""
    node = (
        site.procs if site.driver == "local" else min(site.procs, max(n.cores for n in site.nodes))
    )
    return min(node, hosts.procs or node)


def places_of(catalog: Catalog, documents: Sequence[BagDocument]) -> list[Place]:
    """Where hosts for these bags may come from: as many as any of them allows."""
    found = []
    for site in catalog.sites:
        wanting = [d.hosts for d in documents if not d.sites or site.name in d.sites]
        if wanting:
            found.append(_place(site, wanting))
    return found


def _place(site: Site, wanting: Sequence[HostsDocument]) -> Place:
    first = wanting[0]
    procs = max(_procs(site, hosts) for hosts in wanting)
    longest_s = max(float(hosts.longest) for hosts in wanting)
    if site.driver == "local":  # our own: nobody waits for it
        longest_s = max(longest_s, _LOCAL_S)
    queue = next((q for q in site.queues if q.max_procs >= procs), None)
    if queue is not None:
        longest_s = min(longest_s, queue.max_walltime_s)
    widest = max(1, queue.max_procs // procs) if queue else site.procs
    most = max(1, min(max(hosts.most for hosts in wanting), site.procs // procs))
    least = min(most, max(hosts.least for hosts in wanting))
    node = max(site.nodes, key=lambda n: n.cores)
    return Place(
        site=site.name, queue=queue.name if queue else "", node_type=node.name, procs=procs,
        limits=PoolLimits(least=least, most=most, longest_s=longest_s), longest_s=longest_s, decide=_decide(first),
        boot_s=180.0 + 2 * site.boot_s, widest=widest, requests=queue.max_jobs if queue else 1 << 30,
        price=node.price_usd_per_hour,
    )  # fmt: skip


def _decide(hosts: HostsDocument) -> Callable[[PoolView], PoolDecision]:
    """When hosts are asked for and given back, by the names in a bag's document."""
    if hosts.acquire not in ACQUISITIONS:
        raise InputError(f"'{hosts.acquire}' is no way to ask", where="hosts.acquire", fix=f"one of {', '.join(ACQUISITIONS)}")  # fmt: skip
    if hosts.release not in RELEASES:
        raise InputError(f"'{hosts.release}' is no way to give back", where="hosts.release", fix=f"one of {', '.join(RELEASES)}")  # fmt: skip
    if hosts.release == "look-ahead":
        return looking_ahead(hosts.patience, hosts.acquire)
    idle_s = float(hosts.idle)

    def give_back(view: PoolView) -> PoolDecision:
        if hosts.release == "central":
            return central_all(view)
        return (
            coordinated(view, idle_s)
            if hosts.release == "coordinated"
            else distributed(view, idle_s)
        )

    return lambda view: together(
        [acquire(view, hosts.acquire), give_back(view), before_the_end(view)]
    )


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
    """One dispatcher's folder and what is made of it. ``wishes``: asked twice a second; ``watch``: told how it stands.

    ``began_unix_s``: when its clock began, kept over restarts.
    """

    folder: Path
    catalog: Catalog
    run: str
    wishes: Callable[[], Wishes]
    watch: Watch = lambda _: None
    rules: Rules = field(default_factory=Rules)
    beside: Beside | None = None
    _rates: Rates = field(default_factory=Rates)
    _latest: Latest = field(default_factory=Latest)
    _looked_s: float = -1e9
    _named: int = 0
    _known: set[int] = field(default_factory=set)
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
        bags = [open_bag(self.folder, number) for number in kept_bags(self.folder)]
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
                f"port {before} is taken, and hosts look for the dispatcher there", where=str(path),
                fix="end what listens there, or remove the file and give up the hosts",
            ) from error  # fmt: skip
        path.write_text(str(port))
        return port

    def _fleet(
        self, manager: Manager, keys: Keys, port: int, clock: WallClock, documents: Sequence[BagDocument]
    ) -> Fleet:  # fmt: skip
        sites = [s for s in self.catalog.sites if s.driver != "simulated"]
        nothing = Surrounding(logs={}, instants={}, until_s=0.0, seed=0)
        drivers = make_drivers(
            replace(self.catalog, sites=tuple(sites)), [s.name for s in sites], clock, nothing
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
            site.name: Reach(poll_s=site.access.poll_s if is_real(site) else 0.0, pilot=lambda s=site: pilot(s))  # type: ignore[misc]
            for site in sites
        }  # fmt: skip

        def environment(slot: str) -> dict[str, str]:
            place = by_name[str(manager.state.slots[slot]["site"])]
            where = next(p for p in fleet.places if p.site == place.name)
            return {
                "VGRADS_HOST_KEY": key_of(keys.secret, spec_id(slot, self.run)),
                "VGRADS_HOST_PROCS": str(where.procs), "VGRADS_LEFT_S": str(int(where.longest_s)),
            }  # fmt: skip

        fleet = Fleet(
            core=manager.core, sites=Sites(self.run, drivers, clock, reach), run=self.run,
            places=places_of(self.catalog, documents), pilot_environment=environment,
            fits=manager.core.giving.choosing.fits, guests=any(d.hosts.guests for d in documents),
        )  # fmt: skip
        return fleet

    def _take(self, manager: Manager, kept: KeptBag) -> None:
        self._known.add(kept.number)
        manager.add(kept.number, kept.bag, kept.files, kept.document.open)
        if kept.document.open:
            state = manager.state.bags[kept.number]
            manager.core.grow(kept.number, len(kept.bag.commands) - len(state.tasks))
            self._open[kept.number] = kept

    def _grow(self, manager: Manager) -> None:
        """More tasks of open bags, and the end of those to which none comes any more."""
        for number, kept in list(self._open.items()):
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
        fresh = [n for n in wishes.new if n not in self._known]
        for number in fresh:
            self._take(manager, open_bag(self.folder, number))
        if fresh:
            documents = [open_bag(self.folder, n).document for n in sorted(self._known)]
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
            manager.state, self._rates, now, fleet.unserved,
            {
                "state": state, "began_unix_s": self._began_s(), "problem": manager.problem or fleet.hopeless,
                "refused": manager.refused, "exchanges": manager.exchanges,
                "reasons": [{"at_s": at, "site": site, "reason": r} for at, site, r in fleet.reasons[-_LONG:]],
                "coming": fleet.coming, "pools": self.beside.standing() if self.beside else {},
                "slots": [n for n, slot in manager.state.slots.items() if "site" in slot and not slot.get("ended")],
            },
        )  # fmt: skip
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
    """InputError where slots are held at a site that is not among those given: nobody could give them back."""
    names = {site.name for site in catalog.sites}
    for slot in manager.state.slots.values():
        if "site" in slot and not slot.get("ended") and slot["site"] not in names:
            raise InputError(
                f"do not name '{slot['site']}', where slots are held from before", where="--sites",
                fix="give the sites that it was begun with",
            )  # fmt: skip


def hand_over(
    folder: Path, number: int, document: BagDocument, source: Path, catalog: Catalog
) -> KeptBag:
    """Put a bag into a dispatcher's folder, after everything about it was checked."""
    check_places(catalog, document)
    return keep_bag(folder, number, document, source)
