"""Bags of a service: permissions for sites, and the processes that run them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.document import BagDocument, LinesDocument, with_written_parameters
from vgrads.dispatch.server.manager import AD_HOC
from vgrads.dispatch.storage.folder import open_bag
from vgrads.dispatch.storage.status import is_worked_on
from vgrads.kernel.documents import validate_field
from vgrads.kernel.errors import InputError, VgradsError
from vgrads.portal.jobs import forkserver
from vgrads.portal.jobs.bags import Crew, submit
from vgrads.portal.jobs.worker import be_a_child, usable
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.bags import BagStore
from vgrads.portal.records.reading.bags import HERE, BagEntry
from vgrads.portal.records.store import Store, new_id
from vgrads.vgrid.catalog import Catalog

SERVICE = "service"
"""Prefix of the id of the dispatcher that serves all bags at real sites: its nodes are shared by
weight between their owners. The rest of the id is this database's own, since slots at a site are
identified by it, and another service may use the same site."""
_LINGER_S = 30.0
"""How long a dispatcher waits for the next bag before it releases its nodes, in seconds."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_log = logging.getLogger("vgrads.bags")


def read_document(values: dict[str, Any], owner: str) -> BagDocument:
    """Read a bag submitted from outside: it may name no files, since none are submitted with it,
    and no other owner."""
    document = validate_field(BagDocument, with_written_parameters(values))
    named = [n for n, p in document.parameters.items() if isinstance(p, LinesDocument)]
    for where in ("table", "commands_file", "policy_file"):
        value = getattr(document, where)
        if value is not None:
            raise InputError("names a file; send its content instead", where=where)
    if named:
        raise InputError("names a file; give its lines as a list", where=f"parameters.{named[0]}")
    if document.inputs:
        raise InputError("cannot be submitted over REST; use the command line", where="inputs")
    return document.model_copy(update={"owner": owner})


def submit_bag(
    store: Store, catalog: Catalog, granted: frozenset[str], document: BagDocument
) -> BagEntry:
    """Store a bag for the dispatcher of the sites that its owner may use."""
    allowed, real = usable(catalog, granted)
    if not any(site.driver == "simulated" or site.name in granted for site in allowed.sites):
        raise InputError(
            "no site is open to you",
            where="sites",
            fix="ask the operator to run 'vgrads sites open SITE USER'",
        )
    ad_hoc_agents = (AD_HOC,) if document.hosts.guests else ()
    names = (*(site.name for site in allowed.sites), *ad_hoc_agents)
    unknown = [name for name in document.sites if name not in names]
    if unknown:
        raise InputError(
            f"'{unknown[0]}' is not open to you", where="sites", fix=f"yours: {', '.join(names)}"
        )
    account = AccessControl(store.engine).account_of(document.owner)
    document = document.model_copy(update={"sites": document.sites or names, "account": account})
    dispatcher = _service_of(store) if real else new_id("bag")
    folder = dispatcher_folder(dispatcher) / "nothing"
    return submit(store, dispatcher, document, folder, allowed, document.owner)


def is_service(dispatcher: str) -> bool:
    """Return True for the dispatcher of all bags at real sites."""
    return dispatcher.startswith(SERVICE)


def _service_of(store: Store) -> str:
    return BagStore(store.engine).dispatcher_like(SERVICE) or new_id(SERVICE)


def bags_in_child(url: str, catalog: Catalog, dispatcher: str) -> None:
    """Run the bags of a dispatcher of the database at ``url``, in a process of the service."""
    be_a_child()
    with Store(url) as store:
        work_on(store, catalog, dispatcher)


def work_on(store: Store, catalog: Catalog, dispatcher: str) -> None:
    """Run the bags of a dispatcher, and wait a while for more."""
    bags = BagStore(store.engine)
    busy_s = time.monotonic()

    def stay() -> bool:
        nonlocal busy_s
        if bags.open_of(dispatcher):
            busy_s = time.monotonic()
        return is_service(dispatcher) and time.monotonic() - busy_s < _LINGER_S

    required = {name for row in bags.open_of(dispatcher) for name in _sites_of(row)}
    simulated = not is_service(dispatcher)
    sites = tuple(
        s
        for s in catalog.sites
        if (s.driver == "simulated") == simulated and (not simulated or s.name in required)
    )
    stopped = Crew(store, dispatcher, replace(catalog, sites=sites), stay=stay).carry_out()
    if stopped:
        raise InputError(stopped, where=dispatcher)


def _sites_of(row: BagEntry) -> tuple[str, ...]:
    try:
        return open_bag(dispatcher_folder(row.dispatcher), row.number).document.sites
    except InputError:  # its dispatcher reports why it cannot be served
        return ()


@dataclass
class _Pause:
    until_s: float = 0.0
    length_s: float = _FIRST_PAUSE_S


@dataclass
class Dispatchers:
    """Ensures that every dispatcher with open bags runs. ``apart``: each in its own process."""

    store: Store
    catalog: Callable[[], Catalog]
    apart: bool
    _children: dict[str, BaseProcess | threading.Thread] = field(default_factory=dict)
    _pauses: dict[str, _Pause] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """Start dispatchers where needed; called twice per second."""
        now = time.monotonic()
        names = {r.dispatcher for r in BagStore(self.store.engine).unended() if r.owner != HERE}
        for name in self._failures.keys() - names:
            del self._failures[name]
        for name in names:
            child = self._children.get(name)
            pause = self._pauses.setdefault(name, _Pause())
            if now < pause.until_s:
                continue
            if child is not None and child.is_alive():
                self._failures.pop(name, None)  # it ran longer than the backoff before it
                continue
            if is_worked_on(dispatcher_folder(name)):
                continue
            pause.until_s = now + pause.length_s
            pause.length_s = min(_LONGEST_PAUSE_S, pause.length_s * 2)
            self._children[name] = self._start(name)
        for name in [n for n, c in self._children.items() if not c.is_alive()]:
            child = self._children.pop(name)
            failed = isinstance(child, BaseProcess) and child.exitcode
            self._failures[name] = self._failures.get(name, 0) + 1 if failed else 0

    @property
    def failing(self) -> list[str]:
        """Return dispatchers with work that failed more than once in a row."""
        return [name for name, count in self._failures.items() if count > 1]

    def _start(self, name: str) -> BaseProcess | threading.Thread:
        child: BaseProcess | threading.Thread
        if self.apart:
            child = forkserver.processes.Process(
                target=bags_in_child, args=(self.store.url, self.catalog(), name)
            )
        else:
            child = threading.Thread(target=self._in_thread, args=(name,), daemon=True)
        child.start()
        return child

    def _in_thread(self, name: str) -> None:
        try:
            with Store(self.store.url) as store:
                work_on(store, self.catalog(), name)
        except VgradsError as error:
            _log.warning("dispatcher %s: %s", name, error)

    def stop(self) -> None:
        """Leave them: agents work on, and the next service takes over."""
        for child in self._children.values():
            if isinstance(child, BaseProcess):
                child.terminate()


def source_of(row: BagEntry) -> Path:
    """Return the folder of a bag at its dispatcher."""
    return dispatcher_folder(row.dispatcher) / "bags" / f"{row.number:04d}"
