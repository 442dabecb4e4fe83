"""Care for real sites: what of ours is still there, collecting their histories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from vgrads.api.wiring import is_real, open_batch, open_site
from vgrads.dispatch.storage.kept import read_status
from vgrads.drivers.api import mark
from vgrads.execmgr.core.book import spec_id
from vgrads.kernel.errors import InputError
from vgrads.portal.jobs.bags import dispatcher_folder
from vgrads.portal.records.bags import Bags
from vgrads.portal.records.collected import CollectedHistories
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.site_records import SiteRecords
from vgrads.portal.records.sites import stored_catalog
from vgrads.portal.records.store import GOES_ON, Store
from vgrads.vgrid.catalog import Catalog, Site

Json = dict[str, Any]
_WINDOW_S = 7 * 86400.0  # of accounting in one call


def find_leftovers(catalog: Catalog) -> list[Json]:
    """Jobs and instances that bear our mark; ``orphan``: no run of this database that goes on knows
    them."""
    with Store() as store:
        known = _marks_of_running(store)
    found = []
    for site in catalog.sites:
        for held in open_site(site).held() if is_real(site) else ():
            found.append(
                {
                    "site": site.name,
                    "handle": held.handle,
                    "slot": held.slot,
                    "run": held.run,
                    "age_s": held.age_s,
                    "state": held.state.name.lower(),
                    "orphan": held.name not in known,
                }
            )
    return found


def _marks_of_running(store: Store) -> set[str]:
    """The names at their sites of all slots of runs and dispatchers that go on, or may be
    resumed."""
    found = set()
    for run in store.list_runs(limit=1000):
        if run.state in GOES_ON:
            record = RunRecord(store.engine, run.id)
            books, again = record.books(), record.asked_again()
            slots = books[-1].uses if books else ()
            found |= {mark(spec_id(slot, run.id, again[slot])) for slot in slots}
    for name in {row.dispatcher for row in Bags(store.engine).unended()}:
        slots = read_status(dispatcher_folder(name)).get("slots", ())
        found |= {mark(spec_id(slot, name)) for slot in slots}
    return found


def sweep(catalog: Catalog, rows: Sequence[Json]) -> int:
    """Give orphans back; how many there were."""
    orphans: dict[str, list[str]] = {}
    for row in rows:
        if row["orphan"]:
            orphans.setdefault(row["site"], []).append(row["handle"])
    for name, handles in orphans.items():
        open_site(catalog.site(name)).sweep(handles)
    return sum(map(len, orphans.values()))


def collect(name: str, since_s: float, progress: Callable[[float, float], None]) -> Json:
    """Bring a site's accounting into the database, from where the last collection stopped.

    Window by window, each kept when it is complete: what was collected stays when the rest fails. A
    job that is told of again replaces what was known of it.
    """
    site = _stored_site(name)
    batch = open_batch(site)
    with Store() as store:
        kept = CollectedHistories(site, batch.dialect.accounted, SiteRecords(store.engine))
        now = datetime.now(UTC).timestamp()
        start_s = kept.start_s(now - since_s)
        ago_s = now - start_s
        while True:
            progress(now - start_s - ago_s, now - start_s)
            until_ago_s = max(0.0, ago_s - _WINDOW_S)
            kept.merge(batch.accounting(ago_s, until_ago_s))
            ago_s = until_ago_s
            kept.save(now - ago_s)
            if ago_s <= 0:
                break
        progress(now - start_s, now - start_s)
    return kept.summary()


def _stored_site(name: str) -> Site:
    catalog = stored_catalog()
    if catalog is None or name not in {site.name for site in catalog.sites}:
        raise InputError(
            f"no site '{name}' in the database", fix="'vgrads sites add SITES.toml' puts it there"
        )
    site = catalog.site(name)
    if not is_real(site):
        raise InputError(
            f"site '{name}' is {site.driver}; only real batch sites have accounting", where="SITE"
        )
    return site
