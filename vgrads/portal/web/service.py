"""Shared state of the endpoints: the store, the sites, the queue of work; permissions for sets."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vgrads.kernel.backoff import Backoff
from vgrads.kernel.errors import InputError
from vgrads.portal.jobs import children
from vgrads.portal.jobs.alarm_delivery import AlarmSettings, AllowedTargets
from vgrads.portal.jobs.forecasts.service_queues import ServiceQueues
from vgrads.portal.jobs.forecasts.upkeep import ForecastUpkeep
from vgrads.portal.jobs.learned_states import LearnedStates
from vgrads.portal.jobs.live_gantt import LiveGantt
from vgrads.portal.jobs.run_attempts import RunAttempts
from vgrads.portal.jobs.service_sites import ServiceSites
from vgrads.portal.jobs.supervisor import Places, Supervisor
from vgrads.portal.records.access import AccessControl, Principal
from vgrads.portal.records.idempotency import Key
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.reading.sites import choose_usable_sites
from vgrads.portal.records.sets import Head, NewSet, Sets
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.embedding.wait_gauges import WaitGauge, WaitGauges
from vgrads.portal.web.meters import Meters
from vgrads.portal.web.work_overview import Overview
from vgrads.vgrid.catalog import Catalog

if TYPE_CHECKING:
    from vgrads.execmgr.engines.outside import OutsideEngine
    from vgrads.portal.jobs.worker import CheckedSet
    from vgrads.portal.web.oidc import Provider

Json = dict[str, Any]
PLANNING_S = 30.0
"""Default wait of a caller for a plan, in seconds."""
_POLLS = Backoff(0.01, 0.2, factor=1.5)  # of a set that is being planned
LARGE = 64 * 1024  # bytes of a set that is checked in another process


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits of a set's requests and of concurrent work; ``url``: public address of the service;
    ``own``: a personal service, whose user may use all its sites; ``wait_gauges``: job shapes
    whose wait bounds are metrics; ``alarms``: what is permitted for targets of alarms."""

    max_tasks: int = 50_000
    history: int = 2 * 2**30
    url: str = ""
    own: bool = False
    places: Places = field(default_factory=lambda: Places(planners=0))
    wait_gauges: tuple[WaitGauge, ...] = ()
    alarms: AllowedTargets = field(default_factory=AllowedTargets)


class Service:
    """A service over one database."""

    def __init__(
        self, store: Store, catalog: Catalog, bounds: Bounds, oidc: Provider | None = None
    ) -> None:
        self.store, self.bounds, self.oidc = store, bounds, oidc
        self.sites = sites = ServiceSites(catalog, store.reader)
        self.sets, self.access = Sets(store.engine), AccessControl(store.engine)
        self.meters, self.overview = Meters(), Overview(store.reader)
        self.live, self.learned = LiveGantt(store), LearnedStates()
        self.forecasts = ForecastUpkeep(store, sites.current, self.learned)
        self.queues = ServiceQueues(sites.current, self.learned, self.forecasts.record)
        self.wait_gauges = WaitGauges(bounds.wait_gauges, self.queues)
        self.stopping, self._answered_s = threading.Event(), -1.0
        alarms = AlarmSettings(bounds.alarms, bounds.url)
        self.supervisor = Supervisor(store, self._catalog_of, bounds.places, sites, alarms)
        self.attempts = RunAttempts(self.live, self.supervisor.think, store.url)

    def start(self) -> None:
        """Start with queued work, and work left by an earlier service."""
        self.supervisor.start()
        self.forecasts.start()
        self.queues.start()
        self.wait_gauges.start()

    def stop(self) -> None:
        """Leave all work to the next service."""
        self.stopping.set()
        self.wait_gauges.stop()
        self.supervisor.stop()
        self.queues.stop()
        self.learned.close()
        self.forecasts.stop()

    @property
    def catalog(self) -> Catalog:
        """The sites as they are now."""
        return self.sites.current()

    def _catalog_of(self, set_id: str) -> Catalog:
        head = self.sets.head(set_id)
        return choose_usable_sites(self.catalog, self.granted(head.owner if head else ""))[0]

    def granted(self, user: str) -> frozenset[str]:
        """Return the real sites that are open for a user's tasks."""
        if self.bounds.own:
            return frozenset(site.name for site in self.catalog.sites)
        return self.access.granted(user)

    async def database_answers(self) -> None:
        """Raise an error where the database does not answer; queried at most once per second."""
        if time.monotonic() - self._answered_s > 1.0:
            await run_in_threadpool(self.store.ready)
            self._answered_s = time.monotonic()

    # sets

    def visible(self, set_id: str, principal: Principal) -> Head:
        """Return a set that the user may see; 404 where there is none, or it belongs to another
        user."""
        head = self.sets.head(set_id)
        if head is None or not (principal.operator or head.owner == principal.user):
            # not 403, which would tell that the set of another user exists
            raise HTTPException(404, f"no workflow set '{set_id}'")
        return head

    def visible_run(self, run_id: str, principal: Principal) -> RunRow:
        """Return a run that the user may see; 404 where there is none, or it belongs to another
        user, whose set is not named."""
        run = self.sets.run(run_id)
        if run is not None:
            with suppress(HTTPException):
                self.visible(run.set_id, principal)
                return run
        raise HTTPException(404, f"no run '{run_id}'")

    async def read_set(
        self, body: bytes, kind: str, change: Mapping[str, Any] | None = None
    ) -> CheckedSet:
        """Read and check a set (``kind``: json or yaml); a large one in another process of the
        service. ``change``: values of its keys instead of those of the text."""
        most = self.bounds.max_tasks
        if len(body) > LARGE:
            checked_set: CheckedSet = await self.supervisor.think(
                children.check_set, body, kind, most, change
            )
            return checked_set
        return await run_in_threadpool(children.check_set, body, kind, most, change)

    def submit(self, checked: CheckedSet, principal: Principal, key: Key | None) -> Json:
        """Store a checked set, and queue it for planning."""
        real = choose_usable_sites(self.catalog, self.granted(principal.user))[1]
        new = NewSet(checked.name, checked.text, checked.stored_options, checked.tasks)
        answer = self.sets.add(principal.user, new, real, key)
        self.supervisor.notify()
        return answer

    async def submit_set(
        self, checked: CheckedSet, principal: Principal, key: Key | None, wait_s: float
    ) -> tuple[Json, Head | None]:
        """Submit a set and wait for its plan; return the answer for the caller, and the current
        set.

        Raises InputError for a set that turns out not to be plannable within that time; it is not
        stored.
        """
        answer = await run_in_threadpool(self.submit, checked, principal, key)
        head = await self.planned(answer["id"], wait_s)
        if head is not None and head.state == "failed":
            await run_in_threadpool(self.sets.forget, head.id)
            raise InputError(head.problem)
        return answer, head

    async def planned(self, set_id: str, wait_s: float) -> Head | None:
        """Return the set, when it is no longer being planned or the time is up."""
        end_s, pause_s = time.monotonic() + wait_s, _POLLS.first_s
        while True:
            head = await run_in_threadpool(self.sets.head, set_id)
            over = time.monotonic() >= end_s or self.stopping.is_set()
            if head is None or head.state != "planning" or over:
                return head
            await asyncio.sleep(pause_s)
            pause_s = _POLLS.after(pause_s)

    # runs

    def run(self, head: Head, how: Json, key: Key | None) -> str:
        """Queue a run of a set. Raise HTTPException where there is nothing to run, InputError where
        it is not allowed."""
        if head.state == "failed":
            raise HTTPException(409, f"the set could not be planned: {head.problem}")
        if head.state == "planning":
            raise HTTPException(409, "the set is still being planned")
        if not head.summary["feasible"]:
            raise HTTPException(409, str(head.summary["lacking"]))
        self._refuse_closed_sites(head, how["engine"] == "outside")
        if not head.real and self.sets.is_released(head.id):
            message = (
                "all sites here are simulated and run no command; add real sites (docs/sites.md)"
            )
            raise HTTPException(409, message)
        answer = self.sets.add_run(head.id, how, key)
        self.supervisor.notify()
        return str(answer["run"])

    def _refuse_closed_sites(self, head: Head, outside: bool) -> None:
        """Reject sites without permission: commands run only where the operator opened a site, and
        so do other uses of machines of others."""
        if not head.real:
            return
        # imported late: only sets for real sites need it
        from vgrads.api.wiring import is_real

        granted = self.granted(head.owner)
        for name in {s["site"] for s in json.loads(self.sets.text(head.id, "plan"))["slots"]}:
            site = self.catalog.site(name)
            closed = site.name not in granted and (is_real(site) or not outside)
            if closed:
                raise InputError(
                    f"site '{name}' is not open for the tasks of '{head.owner}'",
                    where="sites",
                    fix=(
                        f"ask the operator to run: vgrads sites open {name} {head.owner}; or use "
                        "engine=outside"
                    ),
                )

    async def outside(
        self, run_id: str, principal: Principal, wait_s: float
    ) -> OutsideEngine | None:
        """Return the engine through which an outside caller runs a run's tasks; None where there is
        none.

        Waits for a run that has not started, or not restarted, yet; then raises HTTPException 503.
        """
        end_s = time.monotonic() + wait_s
        while True:
            run = await run_in_threadpool(self.visible_run, run_id, principal)
            engine = self.supervisor.outside(run_id)
            if engine is not None:
                return engine
            outside = await run_in_threadpool(self.sets.engine_of, run_id) == "outside"
            if run.state not in GOES_ON or not outside:
                return None
            if time.monotonic() >= end_s or self.stopping.is_set():
                raise HTTPException(503, f"run '{run_id}' has not started", {"Retry-After": "1"})
            await asyncio.sleep(0.05)

    def newest_run(self, set_id: str) -> RunRow | None:
        """Return the latest run of a set."""
        return next(iter(self.store.list_runs(set_id, limit=1)), None)
