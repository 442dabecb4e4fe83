"""Care for real sites: what of ours is still there, what their queues look like, collecting their histories."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from drivers.api import SlotSpec, mark
from execmgr.book import spec_id
from kernel.errors import InputError
from kernel.units import format_duration
from portal.run_record import RunRecord
from portal.sites import choose_catalog
from portal.store import GOES_ON, Store
from portal.tables import HistoryRow
from portal.wiring import is_real, open_batch, open_site
from vgrid.catalog import Catalog, Site

Json = dict[str, Any]
_WINDOW_S = 7 * 86400.0  # of accounting in one call
_OVERLAP_S = 3600.0  # what has just ended may be written down late
COLLECTED = "collected.txt.gz"


def find_leftovers(catalog: Catalog) -> list[Json]:
    """Jobs and instances that bear our mark; ``orphan``: no run of this database that goes on knows them."""
    with Store() as store:
        known = _marks_of_running(store)
    found = []
    for site in catalog.sites:
        for held in open_site(site).held() if is_real(site) else ():
            found.append(
                {"site": site.name, "handle": held.handle, "slot": held.slot, "run": held.run, "age_s": held.age_s,
                 "state": held.state.name.lower(), "orphan": held.name not in known}
            )  # fmt: skip
    return found


def _marks_of_running(store: Store) -> set[str]:
    """The names at their sites of all slots of runs that go on, or may be resumed."""
    found = set()
    for run in store.list_runs(limit=1000):
        if run.state in GOES_ON:
            books = RunRecord(store.engine, run.id).books()
            slots = books[-1].uses if books else ()
            found |= {mark(spec_id(slot, run.id)) for slot in slots}
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


def leftovers_table(rows: Sequence[Json]) -> Table:
    """Leftovers for a person."""
    table = Table(box=SIMPLE_HEAD)
    for title in ("site", "what", "slot", "state", "since", "belongs to"):
        table.add_column(title)
    for row in rows:
        since = "–" if row["age_s"] is None else format_duration(row["age_s"])
        owner = "[red]no running run[/]" if row["orphan"] else row["run"] or "a running run"
        table.add_row(row["site"], row["handle"], row["slot"] or "–", row["state"], since, owner)
    return table


def look_into_queue(catalog: Catalog, name: str, job: tuple[int, float] | None) -> Json:
    """Everybody's jobs at a batch site, and for a job of ours (processors, seconds) the site's own forecast."""
    site = catalog.site(name)
    driver = open_batch(site)
    jobs = driver.queue()
    answer: Json = {
        "site": name,
        "waiting": [_job(j) for j in jobs if j.left_s is None],
        "running": [_job(j) for j in jobs if j.left_s is not None],
    }
    if job is not None:
        spec = SlotSpec(
            id="forecast", name="forecast", site=name, queue=site.queues[0].name if site.queues else "", procs=job[0], duration_s=job[1]
        )  # fmt: skip
        answer["forecast_start_in_s"] = driver.forecast_s(spec)
    return answer


def _job(job: Any) -> Json:
    return {
        "queue": job.queue, "user": job.user, "procs": job.procs, "requested_s": job.requested_s,
        "waited_s": job.waited_s, "left_s": job.left_s,
    }  # fmt: skip


def queue_table(answer: Json) -> Table:
    """A queue for a person: sums for each queue."""
    table = Table(box=SIMPLE_HEAD, title=_forecast_text(answer), title_justify="left")
    for title in (
        "queue",
        "waiting",
        "their processors",
        "longest wait",
        "running",
        "on processors",
    ):
        table.add_column(title, justify="left" if title == "queue" else "right")
    for name in sorted({j["queue"] for j in (*answer["waiting"], *answer["running"])}):
        waiting = [j for j in answer["waiting"] if j["queue"] == name]
        running = [j for j in answer["running"] if j["queue"] == name]
        longest = max((j["waited_s"] for j in waiting), default=0.0)
        table.add_row(
            name or "any", str(len(waiting)), str(sum(j["procs"] for j in waiting)),
            format_duration(longest) if waiting else "–", str(len(running)), str(sum(j["procs"] for j in running)),
        )  # fmt: skip
    return table


def _forecast_text(answer: Json) -> str:
    if "forecast_start_in_s" not in answer:
        return ""
    seconds = answer["forecast_start_in_s"]
    if seconds is None:
        return "The site does not say when such a job would start."
    return (
        f"The site expects such a job to start in {format_duration(seconds)}; that is no promise."
    )


def collect(name: str, since_s: float, progress: Callable[[float, float], None]) -> Json:
    """Bring a site's accounting into the database, from where the last collection stopped.

    Window by window, each kept when it is complete: what was collected stays when the rest fails. A job
    that is told of again replaces what was known of it.
    """
    site = _stored_site(name)
    driver = open_batch(site)
    with Store() as store:
        kept = _Kept(site, store)
        now = datetime.now(UTC).timestamp()
        start_s = kept.start_s(now - since_s)
        ago_s = now - start_s
        while True:
            progress(now - start_s - ago_s, now - start_s)
            until_ago_s = max(0.0, ago_s - _WINDOW_S)
            kept.merge(driver.accounting(ago_s, until_ago_s))
            ago_s = until_ago_s
            kept.save(now - ago_s)
            if ago_s <= 0:
                break
        progress(now - start_s, now - start_s)
    return kept.summary()


def _stored_site(name: str) -> Site:
    catalog = choose_catalog(None)
    site = catalog.site(name)
    if not is_real(site):
        raise InputError(
            f"site '{name}' is {site.driver}; only real batch sites have accounting", where="SITE"
        )
    with Store() as store:
        if name not in {row.name for row in store.site_rows()[0]}:
            raise InputError(f"no site '{name}' in the database", fix="vgrads sites add SITES.toml")
    return site


class _Kept:
    """The histories of one site's queues, as lines of the site's own accounting by job."""

    def __init__(self, site: Site, store: Store) -> None:
        self.site, self._store = site, store
        self.added, self.changed = 0, 0
        self._lines: dict[str, dict[str, str]] = {q.name: {} for q in site.queues}
        self._touched: set[str] = set()
        self._rows = {row.queue: row for row in store.site_rows()[2] if row.site == site.name}
        dialect = open_batch(site).dialect
        for queue, row in self._rows.items():
            if row.file == COLLECTED and queue in self._lines:
                for line in gzip.decompress(row.body).decode().splitlines():
                    who = dialect.accounted(line)
                    self._lines[queue][who[0] if who else ""] = line

    def start_s(self, earliest_s: float) -> float:
        """Where the next collection begins, in seconds since 1970."""
        until = self._store.collected_until(self.site.name)
        return earliest_s if until is None else max(earliest_s, until - _OVERLAP_S)

    def merge(self, found: Mapping[str, tuple[str, str]]) -> None:
        """Take jobs over; the empty key is the header of every queue's file."""
        for key, (queue, line) in found.items():
            for name in self._lines if key == "" else _queues(queue, self._lines):
                before = self._lines[name].get(key)
                if before == line:
                    continue
                self._lines[name][key] = line
                self._touched.add(name)
                if key:
                    self.added += before is None
                    self.changed += before is not None

    def save(self, until_s: float) -> None:
        """Keep what has changed, and how far it goes, in one step."""
        rows = []
        for name in sorted(self._touched):
            lines = self._lines[name]
            head = [lines[""]] if "" in lines else []
            text = "\n".join([*head, *(lines[key] for key in sorted(lines) if key)]) + "\n"
            body = gzip.compress(text.encode(), mtime=0)
            rows.append(
                HistoryRow(
                    site=self.site.name,
                    queue=name,
                    file=COLLECTED,
                    changed=datetime.now(UTC),
                    body=body,
                )
            )
        self._store.put_collected(self.site.name, until_s, rows)
        self._touched.clear()

    def summary(self) -> Json:
        """Each queue with the jobs that are now known of it, and what this collection brought."""
        queues = [
            {"site": self.site.name, "queue": name, "jobs": sum(bool(key) for key in lines)}
            for name, lines in self._lines.items()
        ]
        return {
            "site": self.site.name,
            "queues": queues,
            "added": self.added,
            "changed": self.changed,
        }


def _queues(queue: str, known: Iterable[str]) -> list[str]:
    """The queues of ours that a job counts for: a waiting job may name several."""
    return [name for name in queue.split(",") if name in known]


def collected_text(found: Json) -> str:
    """A collection for a person."""
    told = ", ".join(f"{row['queue']}: {row['jobs']} jobs" for row in found["queues"])
    return f"{found['added']} new, {found['changed']} changed; {told}"
