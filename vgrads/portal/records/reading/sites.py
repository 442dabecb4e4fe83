"""Sites of files and of the database: the choice of a catalogue, the locations of histories; what
earlier runs observed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vgrads.api.config import THIS_MACHINE, embedded_data, home, make_home
from vgrads.kernel.documents import validate
from vgrads.kernel.errors import InputError, SiteError
from vgrads.kernel.files import write_whole
from vgrads.portal.records.acquisitions import newest_acquisitions
from vgrads.portal.records.reader import RecordReader
from vgrads.portal.records.reading.opening import open_reader
from vgrads.vgrid.acquisition import Acquisition
from vgrads.vgrid.catalog import (
    Catalog,
    Queue,
    Site,
    build_catalog,
    choose_queue,
    describe_this_machine,
    load_catalog,
    split_queue_name,
)
from vgrads.vgrid.documents import SitesDocument

HERE = "database"


def is_this_machine(file: Path | None) -> bool:
    """True for the name ``here``, unless a file has it."""
    return file is not None and file.name == THIS_MACHINE and not file.is_file()


def choose_catalog(file: Path | None) -> Catalog:
    """Return the sites of a file; else those of the database, if it has any; else the embedded
    ones.

    A queue of the file that names no history gets the collected one of the queue of that name.
    ``here``, where there is no such file, is this machine.
    """
    if is_this_machine(file):
        return describe_this_machine()
    if file is not None:
        return add_collected(load_catalog(file))
    return read_stored_catalog() or load_catalog(embedded_data() / "sites.toml")


def select_site(name: str, file: Path | None) -> Catalog:
    """Return a catalogue of one site. Raise InputError, with other places to look, for a missing
    one."""
    catalog = choose_catalog(file)
    try:
        return replace(catalog, sites=(catalog.site(name),))
    except InputError as error:
        if file is None:
            error.fix += (
                "; use '--sites FILE' for a site of a file, or store it with 'vgrads "
                "sites add FILE'"
            )
        raise


def read_stored_catalog() -> Catalog | None:
    """Return the sites of the database, their histories written to files; None where there are
    none."""
    with open_reader() as reader:
        sites = reader.rows("SELECT document FROM site ORDER BY name")
        if not sites:
            return None
        links = reader.rows("SELECT document FROM link")
        histories = reader.rows("SELECT site, queue, file, body FROM history")
    folder = home() / "cache"
    files = {(site, queue): _lay_out(file, body, folder) for site, queue, file, body in histories}
    documents = [_add_histories(json.loads(document), files) for (document,) in sites]
    parts = {"site": documents, "link": [json.loads(document) for (document,) in links]}
    return build_catalog(validate(SitesDocument, parts, HERE), folder, HERE)


def read_stored_queue(value: Path, queue: str | None = None) -> tuple[Site, Queue] | None:
    """Return the queue of the database that ``SITE``, with the name of a ``queue``, or
    ``SITE/QUEUE`` names; None for a path, also of a missing file, which its reader reports."""
    if value.is_file() or len(value.parts) > 2 or value.suffix:
        return None
    name, queue_name = split_queue_name(str(value))
    catalog = read_stored_catalog()
    site = next((s for s in catalog.sites if s.name == name), None) if catalog else None
    return None if site is None else (site, choose_queue(site, queue_name or queue, str(value)))


def read_stored_sites() -> list[tuple[Any, ...]]:
    """Return the sites and links of the database as they are stored, to notice changes."""
    with open_reader() as reader:
        sites = reader.rows("SELECT name, document FROM site ORDER BY name")
        return [*sites, *reader.rows("SELECT document FROM link ORDER BY document")]


def read_stored_histories(reader: RecordReader) -> list[tuple[Any, ...]]:
    """Return which histories the database has, and when each changed."""
    return reader.rows("SELECT site, queue, file, changed FROM history ORDER BY site, queue")


def add_collected(catalog: Catalog) -> Catalog:
    """Return a catalogue whose queues without a history have those of the database; unchanged where
    the database is unavailable."""
    if all(queue.history is not None for site in catalog.sites for queue in site.queues):
        return catalog
    try:
        with open_reader() as reader:
            return replace_by_uploads(catalog, reader, only_missing=True)
    except (SiteError, OSError):
        return catalog


def replace_by_uploads(
    catalog: Catalog, reader: RecordReader, only_missing: bool = False
) -> Catalog:
    """Return a catalogue with the histories of the database in place of its own.

    ``only_missing``: only for queues that name none.
    """
    folder = home() / "cache"
    with_history = set(reader.rows("SELECT site, queue FROM history"))

    def with_its_own(site: str, queue: Queue) -> Queue:
        if (site, queue.name) not in with_history or (only_missing and queue.history is not None):
            return queue
        query = "SELECT file, body FROM history WHERE site = :site AND queue = :queue"
        for file, body in reader.rows(query, site=site, queue=queue.name):
            return replace(queue, history=str(folder / _lay_out(file, body, folder)))
        return queue

    sites = tuple(
        replace(site, queues=tuple(with_its_own(site.name, queue) for queue in site.queues))
        for site in catalog.sites
    )
    return replace(catalog, sites=sites)


def choose_usable_sites(catalog: Catalog, granted: frozenset[str]) -> tuple[Catalog, bool]:
    """Return the sites for planning a user's sets, and whether these are real ones.

    The sites that the operator opened for the user; else the simulated ones; where there are none,
    all: such a plan can be viewed, and run by an outside engine where that uses no machines of
    others.
    """
    opened = tuple(s for s in catalog.sites if s.name in granted and s.driver != "simulated")
    simulated = tuple(s for s in catalog.sites if s.driver == "simulated")
    chosen = opened or simulated or catalog.sites
    return replace(catalog, sites=chosen), chosen is not simulated


def _add_histories(site: dict[str, Any], files: dict[tuple[str, str], str]) -> dict[str, Any]:
    """Return a site's document with the current paths of its histories."""
    for queue in site.get("queue", ()):
        queue["history"] = files.get((site["name"], queue["name"]))
    return site


def _lay_out(file: str, body: bytes, folder: Path) -> str:
    """Write a history to a file in the cache, named after its content."""
    name = f"{hashlib.sha256(body).hexdigest()[:16]}-{file}"
    path = folder / name
    # named after its content, so an existing file is the same
    if not path.is_file():
        make_home()
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, body)
    return name


def read_past_acquisitions() -> Sequence[Acquisition]:
    """Return the observations of earlier runs; nothing where there is no database: planning works
    without."""
    try:
        with open_reader() as reader:
            return newest_acquisitions(reader)
    except (SiteError, OSError):
        return ()
