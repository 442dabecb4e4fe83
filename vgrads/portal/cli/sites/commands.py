"""Commands for sites: list, check, add, remove; and their offers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vgrads.kernel.units import format_count
from vgrads.portal.cli.options import (
    AsJson,
    SiteName,
    Sites,
    Wide,
    answer_with,
    app,
    make_console,
)

if TYPE_CHECKING:
    from vgrads.vgrid.catalog import Catalog

sites_app = typer.Typer(
    name="sites",
    help="List, check and manage sites.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(sites_app)

SitesFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[SITES]",
        help="Site description file (TOML). Default: the sites of the database, else the "
        "embedded ones.",
        show_default=False,
    ),
]


@sites_app.command("list", epilog="Example: `vgrads sites list data/sites.toml`")
def list_sites(sites: SitesFile = None, _wide: Wide = False, as_json: AsJson = False) -> None:
    """List sites with their queues, histories and prices, and observations of earlier runs."""
    from vgrads.api.queues.sites import describe
    from vgrads.portal.cli.sites.tables import sites_table
    from vgrads.portal.records.reading.sites import choose_catalog, past_acquisitions

    rows = describe(choose_catalog(sites), past_acquisitions())
    answer_with(as_json, {"sites": rows}, lambda: sites_table(rows))


@sites_app.command("show", epilog="Example: `vgrads sites show local`")
def show(
    site: SiteName,
    sites: Sites = None,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show the observations of runs at a site, queue by queue, next to its description."""
    from vgrads.api.queues.sites import describe
    from vgrads.portal.cli.sites.tables import learned_table
    from vgrads.portal.records.reading.sites import only_site, past_acquisitions

    (row,) = describe(only_site(site, sites), past_acquisitions())
    answer_with(as_json, row, lambda: learned_table(row))


@sites_app.command("reset", epilog="Example: `vgrads sites reset local`")
def reset(
    site: SiteName,
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", help="Delete only the observations of this queue."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Delete the observations of a site: plans use its description again."""
    from vgrads.portal.records.store import Store

    with Store() as store:
        count = store.forget_acquisitions(site, queue)
    text = (
        f"deleted the observations of {format_count(count, 'slot')} of {site}"
        if count
        else f"no observations of {site}"
    )
    answer_with(as_json, {"site": site, "queue": queue, "forgotten": count}, lambda: text)


@sites_app.command("check", epilog="Example: `vgrads sites check data/sites.toml`")
def check_sites(
    sites: SitesFile = None,
    benchmark: Annotated[
        bool,
        typer.Option(
            "--benchmark",
            help=(
                "Also run a benchmark of about 30 seconds at each real site, so that run times "
                "learned elsewhere can be converted for it."
            ),
        ),
    ] = False,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Connect to every site and report its capabilities; exit 4 if one cannot be used."""
    from vgrads.api.queues.site_checks import check_all
    from vgrads.portal.cli.sites.tables import checks_table
    from vgrads.portal.cli.terminal import busy, console
    from vgrads.portal.records.reading.sites import choose_catalog

    catalog = choose_catalog(sites)
    with busy(console(stderr=True), "connecting to all sites"):
        rows = check_all(catalog)
    scores = _scores(catalog) if benchmark else None
    payload = {"sites": rows} | ({} if scores is None else {"scores": scores})
    answer_with(as_json, payload, lambda: checks_table(rows))
    if scores is not None and not as_json:
        _print_scores(scores)
    if not all(row["usable"] for row in rows):
        raise typer.Exit(4)


def _scores(catalog: Catalog) -> list[dict[str, Any]]:
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


@sites_app.command("add", epilog="Example: `vgrads sites add mysites.toml`")
def add(
    sites: Annotated[Path, typer.Argument(metavar="SITES", help="Site description file (TOML).")],
) -> None:
    """Add the sites of a file to the database, with their histories; existing names are
    replaced."""
    from vgrads.portal.records.sites import add_sites

    names, embedded = add_sites(sites)
    make_console().print(f"stored in the database: {', '.join(names)}", highlight=False)
    if embedded:
        make_console().print(
            "used instead of the embedded sites, which are simulated and no longer offered: "
            f"{', '.join(embedded)}",
            highlight=False,
        )


@sites_app.command("remove", epilog="Example: `vgrads sites remove kittyhawk`")
def remove(name: SiteName) -> None:
    """Remove a site from the database."""
    from vgrads.portal.records.sites import remove_site

    remove_site(name)
    make_console().print(f"removed {name}", highlight=False)


@sites_app.command("sweep", epilog="Example: `vgrads sites sweep sites.toml --yes`")
def sweep(
    sites: SitesFile = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Release the slots. Default: only list them.")
    ] = False,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Find jobs and instances of vgrads at real sites that belong to no active run, and release
    them."""
    from vgrads.portal.cli.sites.tables import leftovers_table
    from vgrads.portal.cli.terminal import busy, console
    from vgrads.portal.jobs import site_care
    from vgrads.portal.records.reading.sites import choose_catalog

    catalog = choose_catalog(sites)
    with busy(console(stderr=True), "querying all sites") as show_step:
        rows = site_care.find_leftovers(catalog)
        if yes:
            show_step("releasing slots")
        swept = site_care.sweep(catalog, rows) if yes else 0
    answer_with(
        as_json, {"leftovers": rows, "found": rows, "swept": swept}, lambda: leftovers_table(rows)
    )
    if not as_json:
        orphans = sum(row["orphan"] for row in rows)
        hint = "" if yes or not orphans else "; --yes releases them"
        make_console().print(
            f"{orphans} belong to no running run of this database{hint}; released: {swept}",
            highlight=False,
        )


@sites_app.command("queue", epilog="Example: `vgrads sites queue cluster --procs 16 --walltime 2h`")
def queue(
    site: SiteName,
    sites: Sites = None,
    procs: Annotated[
        int | None,
        typer.Option("--procs", "-n", min=1, help="Query the start forecast of the site."),
    ] = None,
    walltime: Annotated[str, typer.Option("--walltime", "-w")] = "1h",
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show waiting and running jobs at a batch site, and its own forecast of a job's start."""
    from vgrads.api.queues.live_queue import look_into_queue
    from vgrads.kernel.units import parse_duration
    from vgrads.portal.cli.sites.tables import queue_table
    from vgrads.portal.cli.terminal import busy, console
    from vgrads.portal.records.reading.sites import only_site

    job = (procs, parse_duration(walltime, "--walltime")) if procs else None
    with busy(console(stderr=True), f"querying {site}"):
        answer = look_into_queue(only_site(site, sites), site, job)
    answer_with(as_json, answer, lambda: queue_table(answer))


@sites_app.command("collect", epilog="Example: `vgrads sites collect cluster --since 90d`")
def collect(
    site: Annotated[str, typer.Argument(metavar="SITE", help="A batch site of the database.")],
    since: Annotated[
        str, typer.Option("--since", help="Period that the first collection covers.")
    ] = "365d",
    as_json: AsJson = False,
) -> None:
    """Import a site's job accounting into the database; later calls fetch only new records."""
    from vgrads.kernel.units import parse_duration
    from vgrads.portal.cli.sites.tables import collected_text
    from vgrads.portal.cli.terminal import progress_bar
    from vgrads.portal.jobs import site_care

    with progress_bar(f"collecting from {site}") as callback:
        result = site_care.collect(site, parse_duration(since, "--since"), callback)
    answer_with(as_json, result, lambda: collected_text(result))
