"""Bags of a service: read as they are submitted, permissions for sites, and the work of a process
that runs them."""

from __future__ import annotations

import time
from dataclasses import replace

from vgrads.api.config import dispatcher_folder
from vgrads.dispatch.document import (
    SILENCE_S,
    BagDocument,
    LinesDocument,
    restore_written_parameters,
)
from vgrads.dispatch.server.manager import AD_HOC
from vgrads.dispatch.storage.folder import open_bag
from vgrads.kernel.documents import parse_mapping, validate_field
from vgrads.kernel.errors import InputError, VgradsError
from vgrads.portal.jobs.bags import Crew, Submission, submit
from vgrads.portal.records.access import AccessControl
from vgrads.portal.records.bags import BagStore
from vgrads.portal.records.reader import new_id
from vgrads.portal.records.reading.bags import BagEntry
from vgrads.portal.records.reading.sites import choose_usable_sites
from vgrads.portal.records.store import Store
from vgrads.vgrid.catalog import Catalog

SERVICE = "service"
"""Prefix of the id of the dispatcher that serves all bags at real sites: its nodes are shared by
weight between their owners. The rest of the id is this database's own, since slots at a site are
identified by it, and another service may use the same site."""
_LINGER_S = 30.0
"""How long a dispatcher waits for the next bag before it releases its nodes, in seconds."""


def read_document(body: bytes, kind: str, owner: str) -> BagDocument:
    """Read a bag submitted from outside, as text of a ``kind`` (json, yaml): it may name no files,
    since none are submitted with it, and no other owner."""
    try:
        values = parse_mapping(body.decode(), "body", kind)
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8 text", where="body") from error
    document = validate_field(BagDocument, restore_written_parameters(values))
    named = [n for n, p in document.parameters.items() if isinstance(p, LinesDocument)]
    for where in ("table", "commands_file", "policy_file"):
        value = getattr(document, where)
        if value is not None:
            raise InputError("names a file; send its content instead", where=where)
    if named:
        raise InputError("names a file; give its lines as a list", where=f"parameters.{named[0]}")
    if document.inputs:
        raise InputError("cannot be submitted over REST; use the command line", where="inputs")
    silence_s = SILENCE_S if document.silence is None else document.silence
    return document.model_copy(update={"owner": owner, "silence": silence_s})


def submit_bag(
    store: Store,
    catalog: Catalog,
    granted: frozenset[str],
    document: BagDocument,
    rerun: bool = True,
) -> BagEntry:
    """Store a bag for the dispatcher of the sites that its owner may use. ``rerun``: do the tasks
    again that earlier bags of the same owner and name have done."""
    allowed, real = choose_usable_sites(catalog, granted)
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
    dispatcher = _make_service(store) if real else new_id("bag")
    # inputs are refused above, so nothing is read from this folder
    folder = dispatcher_folder(dispatcher) / "nothing"
    how = Submission(owner=document.owner, rerun=rerun)
    row, _ = submit(store, dispatcher, document, folder, allowed, how)
    return row


def is_service(dispatcher: str) -> bool:
    """Return True for the dispatcher of all bags at real sites."""
    return dispatcher.startswith(SERVICE)


def _make_service(store: Store) -> str:
    return BagStore(store.engine).dispatcher_like(SERVICE) or new_id(SERVICE)


def bags_in_child(url: str, catalog: Catalog, dispatcher: str) -> None:
    """Run the bags of a dispatcher of the database at ``url``, in a process of the service."""
    with Store(url) as store:
        try:
            work_on(store, catalog, dispatcher)
        except VgradsError as error:
            raise SystemExit(f"vgrads: {error}") from None


def work_on(store: Store, catalog: Catalog, dispatcher: str) -> None:
    """Run the bags of a dispatcher, and wait a while for more."""
    bags = BagStore(store.engine)
    busy_s = time.monotonic()

    def stay() -> bool:
        nonlocal busy_s
        if bags.open_of(dispatcher):
            busy_s = time.monotonic()
        return is_service(dispatcher) and time.monotonic() - busy_s < _LINGER_S

    required = {name for row in bags.open_of(dispatcher) for name in _list_sites(row)}
    simulated = not is_service(dispatcher)
    sites = tuple(
        s
        for s in catalog.sites
        if (s.driver == "simulated") == simulated and (not simulated or s.name in required)
    )
    stopped = Crew(store, dispatcher, replace(catalog, sites=sites), stay=stay).carry_out()
    if stopped:
        raise InputError(stopped, where=dispatcher)


def _list_sites(row: BagEntry) -> tuple[str, ...]:
    try:
        return open_bag(dispatcher_folder(row.dispatcher), row.number).document.sites
    except InputError:  # its dispatcher reports why it cannot be served
        return ()
