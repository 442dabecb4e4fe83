"""Commands on forecasts of several queues: where a job would start first, and how forecasts have
scored."""

from __future__ import annotations

from typing import Annotated

import typer

from vgrads.kernel.units import parse_duration
from vgrads.portal.cli.completion import complete_sites
from vgrads.portal.cli.options import AsJson, Live, Procs, Sites, Walltime, Wide, answer_with, app


@app.command(epilog="Example: `vgrads where --procs 64 --walltime 4h --sites sites.toml`")
def where(
    procs: Procs = 1,
    walltime: Walltime = "1h",
    sites: Sites = None,
    live: Live = True,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Rank all queues by the expected start of a job, with intervals, and name the cheapest
    cloud."""
    from vgrads.operations.questions import RankingQuestion
    from vgrads.portal.cli.queues import ranking_text
    from vgrads.portal.cli.queues.ranking_now import rank_now

    walltime_s = parse_duration(walltime, "--walltime")
    question = RankingQuestion(procs=procs, walltime_s=walltime_s, live=live)
    document = rank_now(sites, question)
    answer_with(as_json, document, lambda: ranking_text.ranking_table(document))


@app.command(epilog="Examples: `vgrads score` · `vgrads score SITE/QUEUE`")
def score(
    site: Annotated[
        str | None,
        typer.Argument(
            metavar="[SITE",
            show_default=False,
            autocompletion=complete_sites,
            help="A queue as SITE/QUEUE, a site, or a file of a history that was queried. Default: "
            "all queues.",
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Argument(
            metavar="QUEUE]",
            show_default=False,
            help="Its queue. Default: its only one, of a file all.",
        ),
    ] = None,
    sites: Sites = None,
    _wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Score the forecasts that were issued, by the jobs that have started since: coverage, loss,
    reliability, and Slurm's own start estimates for the same jobs."""
    from vgrads.portal.cli.queues import ranking_text, score_now

    if site is None:
        document = score_now.score_all(sites)
        answer_with(as_json, document, lambda: ranking_text.scores_table(document))
        return
    document = score_now.score_queue(site, queue, sites)
    answer_with(as_json, document, lambda: ranking_text.score_text(document))
