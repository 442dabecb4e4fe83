"""Sites of files and of the database: which are meant, where their histories lie."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vgrads.api.config import embedded_data, home
from vgrads.api.plans.runtimes import NOTHING, RunTimes
from vgrads.kernel.documents import load_mapping, validate
from vgrads.kernel.errors import InputError, SiteError
from vgrads.portal.records.runtimes import RunTimeRecords
from vgrads.portal.records.site_records import SiteRecords
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import HistoryRow, LinkRow, SiteRow
from vgrads.traces.history import read_history
from vgrads.traces.records import LogQueue
from vgrads.vgrid.acquisition import Acquisition
from vgrads.vgrid.catalog import Catalog, Queue, build_catalog, load_catalog
from vgrads.vgrid.documents import SiteDocument, SitesDocument

HERE = "database"
THIS_MACHINE = "here"
"""What stands in place of a file of sites for the machine that the command runs on."""


def choose_catalog(file: Path | None) -> Catalog:
    """The sites of a file; else those of the database, if it has any; else the embedded ones.

    A queue of the file that names no history has the one that was collected of the queue of that
    name. ``here``, where there is no such file, is this machine.
    """
    if file is not None and file.name == THIS_MACHINE and not file.is_file():
        return this_machine()
    if file is not None:
        return with_collected(load_catalog(file))
    return stored_catalog() or load_catalog(embedded_data() / "sites.toml")


def this_machine() -> Catalog:
    """All processors of this machine, as the site ``local``."""
    site = SiteDocument(name="local", kind="local", procs=os.cpu_count() or 1)
    return build_catalog(SitesDocument(site=(site,)), Path(), THIS_MACHINE)


def only_site(name: str, file: Path | None) -> Catalog:
    """A catalogue of one site; InputError, with where else to look, for one that is not there."""
    catalog = choose_catalog(file)
    try:
        return replace(catalog, sites=(catalog.site(name),))
    except InputError as error:
        if file is None:
            error.fix += "; '--sites FILE' asks for one of a file, 'vgrads sites add FILE' keeps it"
        raise


def stored_catalog() -> Catalog | None:
    """The sites of the database, their histories laid out as files; None where there are none."""
    with Store() as store:
        sites, links, histories = SiteRecords(store.engine).rows()
    if not sites:
        return None
    folder = home() / "cache"
    files = {(row.site, row.queue): _lay_out(row, folder) for row in histories}
    documents = [_with_histories(json.loads(row.document), files) for row in sites]
    parts = {"site": documents, "link": [json.loads(row.document) for row in links]}
    return build_catalog(validate(SitesDocument, parts, HERE), folder, HERE)


def with_collected(catalog: Catalog) -> Catalog:
    """A catalogue whose queues without a history have those of the database; as it is where that
    cannot be asked."""
    if all(queue.history is not None for site in catalog.sites for queue in site.queues):
        return catalog
    try:
        with Store() as store:
            return with_uploads(catalog, store, only_missing=True)
    except (SiteError, OSError):
        return catalog


def with_uploads(catalog: Catalog, store: Store, only_missing: bool = False) -> Catalog:
    """A catalogue with the histories of the database in place of those that it names itself.

    ``only_missing``: only for queues that name none.
    """
    folder = home() / "cache"
    records = SiteRecords(store.engine)
    kept = set(records.histories())

    def with_its_own(site: str, queue: Queue) -> Queue:
        if (site, queue.name) not in kept or (only_missing and queue.history is not None):
            return queue
        row = records.history(site, queue.name)
        return queue if row is None else replace(queue, history=str(folder / _lay_out(row, folder)))

    sites = tuple(
        replace(site, queues=tuple(with_its_own(site.name, queue) for queue in site.queues))
        for site in catalog.sites
    )
    return replace(catalog, sites=sites)


def _with_histories(site: dict[str, Any], files: dict[tuple[str, str], str]) -> dict[str, Any]:
    """A site's document with the present paths of its histories."""
    for queue in site.get("queue", ()):
        queue["history"] = files.get((site["name"], queue["name"]))
    return site


def _lay_out(row: HistoryRow, folder: Path) -> str:
    """A history as a file in the cache, named after its content."""
    name = f"{hashlib.sha256(row.body).hexdigest()[:16]}-{row.file}"
    path = folder / name
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_bytes(row.body)
        draft.replace(path)
    return name


def add_sites(file: Path) -> list[str]:
    """Put the sites of a file, with their links and histories, into the database; their names.

    Everything is read and checked first: nothing is kept of a file with a fault.
    """
    document = validate(SitesDocument, load_mapping(file), str(file))
    catalog = load_catalog(file)
    rows: list[Any] = [SiteRow(name=s.name, document=_site_json(s)) for s in document.site]
    for link in document.link:
        one, other = sorted(link.between)
        rows.append(LinkRow(one=one, other=other, document=link.model_dump_json()))
    for site in catalog.sites:
        for queue in site.queues:
            if queue.history is not None:
                rows.append(_history_row(site.name, queue.name, Path(queue.history)))
    with Store() as store:
        SiteRecords(store.engine).put(rows)
    return [site.name for site in catalog.sites]


def _site_json(site: SiteDocument) -> str:
    return site.model_dump_json(exclude_unset=True)


def _history_row(site: str, queue: str, path: Path) -> HistoryRow:
    try:
        read_history(path)
    except InputError as error:
        raise error.within(f"site '{site}', queue '{queue}'") from error
    return HistoryRow(
        site=site, queue=queue, file=path.name, changed=datetime.now(UTC), body=path.read_bytes()
    )


def remove_site(name: str) -> None:
    """Forget a site of the database."""
    with Store() as store:
        if not SiteRecords(store.engine).remove(name):
            raise InputError(f"no site '{name}' in the database", fix="vgrads sites list")


def past_acquisitions() -> Sequence[Acquisition]:
    """What earlier runs saw; nothing where there is no database to ask: planning works without."""
    try:
        with Store() as store:
            return store.acquisitions()
    except (SiteError, OSError):
        return ()


def past_run_times() -> RunTimes:
    """What was learned of run times; nothing where there is no database to ask."""
    try:
        with Store() as store:
            return RunTimeRecords(store.engine).learned()
    except (SiteError, OSError):
        return NOTHING


def resolve_history(given: Path) -> tuple[Path, LogQueue]:
    """The file behind HISTORY, and which queue of it is meant: a path, ``SITE`` or
    ``SITE/QUEUE``."""
    if given.is_file() or len(given.parts) > 2 or given.suffix:
        return given, None
    catalog = stored_catalog()
    names = {site.name: site for site in catalog.sites} if catalog else {}
    if not given.parts or given.parts[0] not in names:
        return given, None  # the reader says that there is no such file
    site = names[given.parts[0]]
    wanted = given.parts[1] if len(given.parts) == 2 else None
    queues = [queue for queue in site.queues if wanted in (None, queue.name)]
    if len(queues) != 1:
        known = ", ".join(f"{site.name}/{queue.name}" for queue in site.queues)
        raise InputError(f"which queue of '{site.name}'?", where=str(given), fix=f"one of: {known}")
    if queues[0].history is None:
        raise InputError("has no history in the database", where=f"{site.name}/{queues[0].name}")
    return Path(queues[0].history), queues[0].of_log
