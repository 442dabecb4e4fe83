"""What the commands of ``vgrads sites`` do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count
from vgrads.operations.sites import (
    AddSitesRequest,
    CheckSitesRequest,
    CollectRequest,
    ListSitesRequest,
    OpenSiteRequest,
    RemoveSiteRequest,
    ResetSiteRequest,
    ShowSiteRequest,
    SiteQueueRequest,
    SweepSitesRequest,
)
from vgrads.portal.cli.options import answer_with, make_console
from vgrads.portal.cli.requests import CommandOutput, NoOutput

if TYPE_CHECKING:
    from vgrads.vgrid.catalog import Catalog


def list_sites(request: ListSitesRequest, output: CommandOutput) -> int:
    """``vgrads sites list``."""
    from vgrads.api.queues.sites import describe
    from vgrads.portal.cli.sites.tables import sites_table
    from vgrads.portal.records.reading.sites import choose_catalog, read_past_acquisitions

    rows = describe(choose_catalog(request.sites), read_past_acquisitions())
    answer_with(output.as_json, {"sites": rows}, lambda: sites_table(rows))
    return 0


def show(request: ShowSiteRequest, output: CommandOutput) -> int:
    """``vgrads sites show``."""
    from vgrads.api.queues.sites import describe
    from vgrads.portal.cli.sites.tables import learned_table
    from vgrads.portal.records.reading.sites import read_past_acquisitions, select_site

    (row,) = describe(select_site(request.site, request.sites), read_past_acquisitions())
    answer_with(output.as_json, row, lambda: learned_table(row))
    return 0


def reset(request: ResetSiteRequest, output: CommandOutput) -> int:
    """``vgrads sites reset``."""
    from vgrads.portal.records.store import Store

    with Store() as store:
        count = store.forget_acquisitions(request.site, request.queue)
    text = (
        f"deleted the observations of {format_count(count, 'slot')} of {request.site}"
        if count
        else f"no observations of {request.site}"
    )
    payload = {"site": request.site, "queue": request.queue, "forgotten": count}
    answer_with(output.as_json, payload, lambda: text)
    return 0


def check(request: CheckSitesRequest, output: CommandOutput) -> int:
    """``vgrads sites check``."""
    from vgrads.api.queues.site_checks import check_all
    from vgrads.portal.cli.sites.tables import checks_table
    from vgrads.portal.cli.terminal import busy, console
    from vgrads.portal.records.reading.sites import choose_catalog

    catalog = choose_catalog(request.sites)
    with busy(console(stderr=True), "connecting to all sites"):
        rows = check_all(catalog)
    scores = _read_scores(catalog) if request.benchmark else None
    payload = {"sites": rows} | ({} if scores is None else {"scores": scores})
    answer_with(output.as_json, payload, lambda: checks_table(rows))
    if scores is not None and not output.as_json:
        _print_scores(scores)
    return 0 if all(row["usable"] for row in rows) else 4


def _read_scores(catalog: Catalog) -> list[dict[str, Any]]:
    from vgrads.portal.cli.terminal import busy, console
    from vgrads.portal.jobs.site_scores import score_sites

    with busy(console(stderr=True), "running benchmarks") as doing:
        return list(score_sites(catalog, doing))


def _print_scores(scores: list[dict[str, Any]]) -> None:
    out = make_console()
    for score in scores:
        result = (
            score["problem"] or f"cpu {score['cpu']:g}, disk {score['io']:g} (larger is faster)"
        )
        out.print(f"benchmark of {score['site']}: {result}", highlight=False)
    if not scores:
        out.print("no real site to run the benchmark", highlight=False)


def add(request: AddSitesRequest, _: NoOutput) -> int:
    """``vgrads sites add``."""
    from vgrads.portal.records.sites import add_sites

    names, embedded = add_sites(request.sites)
    make_console().print(f"stored in the database: {', '.join(names)}", highlight=False)
    if embedded:
        make_console().print(
            "used instead of the embedded sites, which are simulated and no longer offered: "
            f"{', '.join(embedded)}",
            highlight=False,
        )
    return 0


def remove(request: RemoveSiteRequest, _: NoOutput) -> int:
    """``vgrads sites remove``."""
    from vgrads.portal.records.sites import remove_site

    remove_site(request.site)
    make_console().print(f"removed {request.site}", highlight=False)
    return 0


def sweep(request: SweepSitesRequest, output: CommandOutput) -> int:
    """``vgrads sites sweep``."""
    from vgrads.portal.cli.sites.tables import leftovers_table
    from vgrads.portal.cli.terminal import busy, console
    from vgrads.portal.jobs import site_care
    from vgrads.portal.records.reading.sites import choose_catalog

    catalog = choose_catalog(request.sites)
    with busy(console(stderr=True), "querying all sites") as show_step:
        rows = site_care.find_leftovers(catalog)
        if request.yes:
            show_step("releasing slots")
        swept = site_care.sweep(catalog, rows) if request.yes else 0
    payload = {"leftovers": rows, "swept": swept}
    answer_with(output.as_json, payload, lambda: leftovers_table(rows))
    if not output.as_json:
        orphans = sum(row["orphan"] for row in rows)
        hint = "" if request.yes or not orphans else "; --yes releases them"
        make_console().print(
            f"{orphans} belong to no running run of this database{hint}; released: {swept}",
            highlight=False,
        )
    return 0


def queue(request: SiteQueueRequest, output: CommandOutput) -> int:
    """``vgrads sites queue``."""
    from vgrads.api.queues.live_queue import look_into_queue
    from vgrads.portal.cli.sites.tables import queue_table
    from vgrads.portal.cli.terminal import busy, console
    from vgrads.portal.records.reading.sites import select_site

    job = (request.procs, request.walltime_s) if request.procs else None
    with busy(console(stderr=True), f"querying {request.site}"):
        answer = look_into_queue(select_site(request.site, request.sites), request.site, job)
    answer_with(output.as_json, answer, lambda: queue_table(answer))
    return 0


def collect(request: CollectRequest, output: CommandOutput) -> int:
    """``vgrads sites collect``."""
    from vgrads.portal.cli.sites.tables import collected_text
    from vgrads.portal.cli.terminal import progress_bar
    from vgrads.portal.jobs import site_care

    with progress_bar(f"collecting from {request.site}") as callback:
        result = site_care.collect(request.site, request.since_s, callback)
    answer_with(output.as_json, result, lambda: collected_text(result))
    return 0


def open_site(request: OpenSiteRequest, _: NoOutput) -> int:
    """``vgrads sites open``."""
    from vgrads.portal.records.access import AccessControl
    from vgrads.portal.records.reading.sites import choose_catalog
    from vgrads.portal.records.store import Store

    site, user = request.site, request.user
    with Store() as store:
        access = AccessControl(store.engine)
        if not request.close:
            # a typo would have no effect, without an error
            choose_catalog(request.sites).site(site)
            access.grant(site, user)
        elif not access.withdraw(site, user):
            raise InputError(f"site '{site}' was not open for '{user}'", where="site")
    make_console().print(
        f"{site} is {'closed' if request.close else 'open'} for {user}", highlight=False
    )
    return 0
