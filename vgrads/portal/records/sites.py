"""Changes of the sites in the database; histories by the name of a site."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vgrads.kernel.documents import load_mapping, validate
from vgrads.kernel.errors import InputError
from vgrads.kernel.user_files import read_user_file
from vgrads.portal.records.reading.sites import (
    choose_catalog,
    read_stored_catalog,
    read_stored_queue,
)
from vgrads.portal.records.site_records import SiteRecords
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import HistoryRow, LinkRow, SiteRow
from vgrads.traces.history import read_history
from vgrads.traces.log_queue import LogQueue
from vgrads.vgrid.catalog import load_catalog
from vgrads.vgrid.documents import SiteDocument, SitesDocument


def add_sites(file: Path) -> tuple[list[str], list[str]]:
    """Add the sites of a file, with their links and histories, to the database; return their names,
    and those of the embedded sites that are used no more, since the database had none.

    Everything is read and checked first: nothing of an invalid file is stored.
    """
    document = validate(SitesDocument, load_mapping(file), str(file))
    catalog = load_catalog(file)
    rows: list[Any] = [SiteRow(name=s.name, document=_describe_site(s)) for s in document.site]
    for link in document.link:
        # a link is the same in both directions
        name, other = sorted(link.between)
        rows.append(LinkRow(first_site=name, other=other, document=link.model_dump_json()))
    for site in catalog.sites:
        for queue in site.queues:
            if queue.history is not None:
                rows.append(_make_history_row(site.name, queue.name, Path(queue.history)))
    # before the rows are stored: afterwards the database has sites
    embedded = choose_catalog(None).sites if read_stored_catalog() is None else ()
    with Store() as store:
        SiteRecords(store.engine).put(rows)
    return [site.name for site in catalog.sites], [site.name for site in embedded]


def _describe_site(site: SiteDocument) -> str:
    return site.model_dump_json(exclude_unset=True)


def _make_history_row(site: str, queue: str, path: Path) -> HistoryRow:
    try:
        read_history(path)
    except InputError as error:
        raise error.within(f"site '{site}', queue '{queue}'") from error
    return HistoryRow(
        site=site, queue=queue, file=path.name, changed=datetime.now(UTC), body=read_user_file(path)
    )


def remove_site(name: str) -> None:
    """Remove a site from the database."""
    with Store() as store:
        if not SiteRecords(store.engine).remove(name):
            raise InputError(
                f"no site '{name}' in the database", fix="list sites with 'vgrads sites list'"
            )


def resolve_history(value: Path) -> tuple[Path, LogQueue]:
    """Resolve HISTORY to a file and a queue in it: a path, ``SITE`` or ``SITE/QUEUE``."""
    named = read_stored_queue(value)
    if named is None:
        return value, None
    site, queue = named
    if queue.history is None:
        raise InputError("has no history in the database", where=f"{site.name}/{queue.name}")
    return Path(queue.history), queue.of_log
