"""Maintenance of real sites: leftovers, collection of histories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from vgrads.api.config import dispatcher_folder
from vgrads.api.wiring import is_real, open_batch, open_site
from vgrads.dispatch.storage.status import read_status
from vgrads.drivers.api import mark
from vgrads.execmgr.slot_names import spec_id
from vgrads.kernel.errors import InputError
from vgrads.portal.records.bags import BagStore
from vgrads.portal.records.collected import CollectedHistories
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.reading.sites import read_stored_catalog
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.site_records import SiteRecords
from vgrads.portal.records.store import Store
from vgrads.vgrid.catalog import Catalog, Site

Json = dict[str, Any]
_WINDOW_S = 7 * 86400.0  # of accounting in one call


def find_leftovers(catalog: Catalog) -> list[Json]:
    """Return jobs and instances with our mark; ``orphan``: they belong to no active run of this
    database."""
    with Store() as store:
        running_marks = _list_marks_of_running(store)
    results = []
    for site in catalog.sites:
        for reserved in open_site(site).marked_jobs() if is_real(site) else ():
            results.append(
                {
                    "site": site.name,
                    "handle": reserved.handle,
                    "slot": reserved.slot,
                    "run": reserved.run,
                    "age_s": reserved.age_s,
                    "state": reserved.state.name.lower(),
                    "orphan": reserved.name not in running_marks,
                }
            )
    return results


def _list_marks_of_running(store: Store) -> set[str]:
    """Return the names at their sites of all slots of runs and dispatchers that are active, or may
    be resumed."""
    result = set()
    for run in store.list_runs(limit=1000):
        if run.state in GOES_ON:
            record = RunRecord(store.engine, run.id)
            executions, again = record.executions(), record.repeated_requests()
            slots = executions[-1].uses if executions else ()
            result |= {mark(spec_id(slot, run.id, again[slot])) for slot in slots}
    for name in {name for name, _ in BagStore(store.engine).unended()}:
        slots = read_status(dispatcher_folder(name)).get("slots", ())
        result |= {mark(spec_id(slot, name)) for slot in slots}
    return result


def sweep(catalog: Catalog, rows: Sequence[Json]) -> int:
    """Release orphans; return how many there were."""
    orphans: dict[str, list[str]] = {}
    for row in rows:
        if row["orphan"]:
            orphans.setdefault(row["site"], []).append(row["handle"])
    for name, handles in orphans.items():
        open_site(catalog.site(name)).sweep(handles)
    return sum(map(len, orphans.values()))


def collect(name: str, since_s: float, progress: Callable[[float, float], None]) -> Json:
    """Import a site's accounting into the database, from the end of the last collection.

    Each window is stored when it is complete: collected data stays when the rest fails. A job that
    is reported again replaces its earlier record. Queues that share nodes are one machine: the
    history of each has the jobs of all of them.
    """
    site = _make_stored_site(name)
    batch = open_batch(site)
    with Store() as store:
        records, machines = SiteRecords(store.engine), batch.machines()
        histories = CollectedHistories(site, batch.dialect.accounted, records, machines)
        now = datetime.now(UTC).timestamp()
        start_s = histories.start_s(now - since_s)
        ago_s = now - start_s
        while True:
            progress(now - start_s - ago_s, now - start_s)
            until_ago_s = max(0.0, ago_s - _WINDOW_S)
            histories.merge(batch.accounting(ago_s, until_ago_s))
            ago_s = until_ago_s
            histories.save(now - ago_s)
            if ago_s <= 0:
                break
        progress(now - start_s, now - start_s)
    return histories.summary()


def _make_stored_site(name: str) -> Site:
    catalog = read_stored_catalog()
    if catalog is None or name not in {site.name for site in catalog.sites}:
        raise InputError(
            f"no site '{name}' in the database", fix="add it with 'vgrads sites add SITES.toml'"
        )
    site = catalog.site(name)
    if not is_real(site):
        raise InputError(
            f"site '{name}' has the driver '{site.driver}'; only real batch sites have accounting",
            where="SITE",
        )
    return site
