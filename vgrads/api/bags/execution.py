"""Execution of bags: a dispatcher over the sites of a catalogue, on this machine or in virtual
time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from vgrads.api.bags.report import Report
from vgrads.api.bags.served import ServedBags
from vgrads.api.bags.sites import check_places, find_places_now
from vgrads.api.wiring import (
    Wiring,
    find_contact_host,
    is_real,
    make_agent_command,
    make_drivers,
)
from vgrads.dispatch.core.faults import fault_in
from vgrads.dispatch.core.protocol import Rules
from vgrads.dispatch.document import BagDocument, build_bag, refuse_missing_inputs
from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.server.config import DispatcherConfig
from vgrads.dispatch.server.dispatcher import Dispatcher
from vgrads.dispatch.server.group import StoredEnd
from vgrads.dispatch.server.manager import DispatchManager
from vgrads.dispatch.storage.folder import StoredBag, keep_bag, list_bags
from vgrads.dispatch.storage.status import read_status
from vgrads.exchange.keys import (
    Keys,
    derive_key,
    find_socket,
    name_socket,
    open_keys,
    read_port,
    store_port,
)
from vgrads.exchange.values import AttemptEnd
from vgrads.execmgr.pilots import Pilot, SitePolling
from vgrads.execmgr.sites import Sites
from vgrads.execmgr.slot_names import spec_id
from vgrads.kernel.clock import Moment, WallClock
from vgrads.kernel.errors import InputError
from vgrads.kernel.files import write_whole
from vgrads.kernel.watchdog import Watchdog
from vgrads.vgrid.catalog import Catalog, Site

Watch = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class ControlRequests:
    """External requests to a working dispatcher: bags to add, bags to cancel, and whether it is to
    end.

    ``new``: numbers of bags in the folder that are not terminal for their users; ``stops``: number
    → reason; ``stay``: wait for more bags when all are terminal.
    """

    new: Sequence[int] = ()
    stops: dict[int, str] = field(default_factory=dict)
    stay: bool = False


class DispatcherExtension(Protocol):
    """An extension of a dispatcher that runs in its loop: pools and their ledger."""

    def begin(self, run: str, port: int, keys: Keys) -> None:
        """Called when the dispatcher listens; ``run``: prefix of the names of its slots."""

    def look(self, manager: DispatchManager, fleet: Fleet) -> None:
        """Called twice a second."""

    def on_end(self, bag: int, end: AttemptEnd) -> None:
        """Called when a task has ended."""

    def status(self) -> dict[str, Any]:
        """Return the extension's part of the status."""

    def end(self) -> None:
        """Called when the dispatcher has ended."""


def _stop(dispatcher: Dispatcher) -> None:
    (dispatcher.leave if dispatcher.manager.core.serving else dispatcher.end)()


@dataclass
class BagWork:
    """The work of one dispatcher's folder. ``control_requests``: called twice a second; ``watch``:
    receives the status.

    ``own``: the bags belong to the user of this process; ``durable``: what was acknowledged
    outlives a crash of this machine; ``started``: called in its loop before any work.
    """

    folder: Path
    catalog: Catalog
    run: str
    control_requests: Callable[[], ControlRequests]
    watch: Watch = lambda _: None
    rules: Rules = field(default_factory=Rules)
    extension: DispatcherExtension | None = None
    own: bool = False
    durable: bool = True
    watched: bool = False
    started: Callable[[DispatchManager, ServedBags], None] = lambda *_: None
    _dispatcher: Dispatcher | None = None
    _early: Callable[[Dispatcher], None] = lambda _: None  # requested before there was one

    @property
    def has_begun(self) -> bool:
        """Return True when its bags have been read; before, :meth:`end` has an effect only then."""
        return self._dispatcher is not None

    def carry_out(self) -> Dispatcher:
        """Work until nothing is left; return the ended dispatcher."""
        return asyncio.run(self._carry_out())

    async def _carry_out(self) -> Dispatcher:
        keys = open_keys(self.folder)
        began = _find_begin(self.folder)
        # the clock of the journal, which goes on from the first start of the folder
        report, clock = Report(self.folder, began.unix_s), WallClock(began.elapsed_s())

        config = DispatcherConfig(
            folder=self.folder,
            secret=keys.secret,
            rules=self.rules,
            run=self.run,
            durable=self.durable,
        )
        manager = DispatchManager(config, clock)
        manager.on_stored.append(partial(self._on_stored, manager, report))
        _check_sites_exist(manager, self.catalog)
        bags, numbers = ServedBags(self.folder, manager, self.own), list_bags(self.folder)
        for number in numbers:
            bags.open(number)
        # agents on other machines must reach it; where there are none, nobody else should
        away = any(is_real(site) for site in self.catalog.sites) or any(
            document.hosts.guests for document in bags.documents
        )
        here, port = find_socket(self.folder), 0
        if here is not None:
            await manager.port.listen_here(here)
        # a pool gives its workers away; agents of an earlier manager may know its port
        if away or here is None or self.extension is not None or read_port(self.folder):
            port = await self._listen(manager, "0.0.0.0" if away else "127.0.0.1", keys)
        fleet = self._fleet(manager, keys, port, clock, bags.documents)
        control = partial(self._control, manager, fleet, bags, report)
        self._watchdog = Watchdog(self.rules.stuck_s, self._stuck)
        dispatcher = self._dispatcher = Dispatcher(manager, fleet, control, bags.grow)
        # what was requested before there was a dispatcher
        self._early(dispatcher)
        for number in numbers:
            bags.take_on(number)
        self.started(manager, bags)
        if self.extension is not None:
            self.extension.begin(self.run, port, keys)
        # in a thread, other work may share the process, which must not be ended
        alone = self.watched or threading.current_thread() is threading.main_thread()
        with self._watchdog.watching() if alone else nullcontext():
            try:
                await dispatcher.run()
            finally:
                bags.rest()
                if self.extension is not None:
                    self.extension.end()
            self.watch(report.report(manager, fleet, "ended", self._status()))
        return dispatcher

    def _on_stored(
        self, manager: DispatchManager, report: Report, ends: Sequence[StoredEnd]
    ) -> None:
        for stored in ends:
            report.ended(stored.bag, stored.end, stored.text, stored.error_line)
            if self.extension is not None:
                on_end = partial(self.extension.on_end, stored.bag, stored.end)
                if fault := fault_in(stored.bag, on_end):
                    manager.core.fail(fault, manager.clock.now())

    def end(self) -> None:
        """Release everything and stop, also from a signal handler."""
        self._request(Dispatcher.end)

    def leave(self, idle: bool = True) -> None:
        """Stop, and leave the agents running; not ``idle``: only if they have work."""
        self._request(Dispatcher.leave if idle else _stop)

    def _request(self, request: Callable[[Dispatcher], None]) -> None:
        self._early = request
        if self._dispatcher is not None:
            request(self._dispatcher)

    async def _listen(self, manager: DispatchManager, address: str, keys: Keys) -> int:
        """Listen on the same port as before, to which agents reconnect."""
        before = read_port(self.folder)
        try:
            port = await manager.port.listen(address, before, keys.context())
        except OSError as error:
            raise InputError(
                f"port {before} is in use, but agents connect to the dispatcher there",
                where=str(self.folder / "port"),
                fix=(
                    "stop the process that listens there, or remove the file and abandon the agents"
                ),
            ) from error
        store_port(self.folder, port)
        return port

    def _fleet(
        self,
        manager: DispatchManager,
        keys: Keys,
        port: int,
        clock: WallClock,
        documents: Sequence[BagDocument],
    ) -> Fleet:
        sites = [s for s in self.catalog.sites if s.driver != "simulated"]
        real = replace(self.catalog, sites=tuple(sites))
        nothing = Wiring(logs={}, instants={}, until_s=0.0, seed=0)
        drivers = make_drivers(real, [s.name for s in sites], clock, nothing, own=self.own)
        by_name = {site.name: site for site in sites}
        here = find_socket(self.folder)

        def pilot(site: Site) -> Pilot:
            if here is not None and not is_real(site):
                contact = name_socket(here)
            else:
                host = find_contact_host(site) if is_real(site) else "127.0.0.1"
                contact = keys.contact(host, port)
            return Pilot(command=make_agent_command(site), environment=contact)

        polling = {
            site.name: SitePolling(
                poll_s=site.access.poll_s if is_real(site) else 0.0, pilot=partial(pilot, site)
            )
            for site in sites
        }

        def environment(slot: str) -> dict[str, str]:
            place = by_name[manager.state.slots[slot].site]
            where = next(p for p in fleet.sources if p.site == place.name)
            return {
                "VGRADS_HOST_KEY": derive_key(keys.secret, spec_id(slot, self.run)),
                "VGRADS_HOST_PROCS": str(where.procs),
                "VGRADS_LEFT_S": str(int(fleet.slots.length_s(slot))),
                "VGRADS_OWN": "1" if self.own and place.driver == "local" else "",
                "VGRADS_PASS_ENV": " ".join(place.pass_env),
            }

        fleet = Fleet(
            core=manager.core,
            sites=Sites(self.run, drivers, clock, polling),
            run=self.run,
            sources=find_places_now(self.catalog, documents, time.time() - clock.now()),
            pilot_environment=environment,
            fits=manager.core.fits,
            ad_hoc_agents=any(d.hosts.guests for d in documents),
        )
        fleet.goals.resume(read_status(self.folder))
        return fleet

    def _control(
        self, manager: DispatchManager, fleet: Fleet, bags: ServedBags, report: Report
    ) -> bool:
        control_requests = self.control_requests()
        fresh = [n for n in control_requests.new if n not in bags and n not in manager.state.bags]
        # a large bag may take longer to open than the watchdog permits
        with self._watchdog.paused() if fresh else nullcontext():
            for number in fresh:
                bags.open(number)
                bags.take_on(number)
        if fresh:
            fleet.ask_at(find_places_now(self.catalog, bags.documents, report.began_unix_s))
        bags.retry(control_requests.new)
        bags.drop(control_requests.new)
        bags.change_goals(control_requests.new, fleet.goals, report.began_unix_s)
        for number, why in control_requests.stops.items():
            if number in manager.state.bags and not manager.state.bags[number].over:
                manager.cancel(number, why)
        if self.extension is not None:
            self.extension.look(manager, fleet)
            bags.grow()
        if report.is_due(manager.clock.now()):
            self.watch(report.report(manager, fleet, "working", self._status()))
        over = not control_requests.stay and all(bag.over for bag in manager.state.bags.values())
        if over and self.extension is not None:
            self.extension.end()  # before agents leave: they are needed elsewhere
        return over

    def _stuck(self) -> str:
        return (
            f"dispatcher {self.run}: its loop made no progress for {self.rules.stuck_s:.0f} s and "
            "is ended; agents work on, and the next dispatcher continues (a service starts it; "
            f"after a command: vgrads bags resume {self.run}). What each thread was doing:"
        )

    def _status(self) -> dict[str, Any]:
        return self.extension.status() if self.extension else {}


def _find_begin(folder: Path) -> Moment:
    """Return the start of a dispatcher's clock, which may have been restarted since."""
    path = folder / "began"
    if not path.exists():
        now = Moment.now()
        write_whole(path, f"{now.unix_s!r} {now.up_s!r} {now.boot}".encode())
    unix_s, up_s, boot = path.read_text().split(" ")
    return Moment(float(unix_s), boot, float(up_s))


def _check_sites_exist(manager: DispatchManager, catalog: Catalog) -> None:
    """Raise InputError if slots are held at a site that is not given: they could not be
    released."""
    names = {site.name for site in catalog.sites}
    for slot in manager.state.slots.values():
        if slot.occupied and slot.site not in names:
            raise InputError(
                f"do not name '{slot.site}', where slots are still held",
                where="--sites",
                fix="give the sites with which it was started",
            )


def submit_bag(
    folder: Path, number: int, document: BagDocument, source: Path, catalog: Catalog
) -> StoredBag:
    """Put a bag into a dispatcher's folder, after all checks."""
    check_places(catalog, document)
    if document.inputs and not document.open:
        refuse_missing_inputs(build_bag(document, source), source)
    return keep_bag(folder, number, document, source)
