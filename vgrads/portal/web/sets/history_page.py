"""The last runs of the sets of one name: promised, kept, time, money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_chance, format_count, format_duration, format_usd
from vgrads.portal.charts.history_chart import PastRun, history_chart
from vgrads.portal.records.reading.run_list import runs_of_name
from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.service import Service

Json = Mapping[str, Any]
MOST_RUNS = 30
"""Shown of a name."""
_Name = Annotated[str, Query(max_length=200)]


def add_history_page(app: FastAPI, service: Service) -> None:
    """Add the page."""

    @app.get("/history", response_class=HTMLResponse, include_in_schema=False)
    def history(request: Request, name: _Name = "", owner: _Name = "") -> HTMLResponse:
        who = reader_of(request)
        if not name:
            raise InputError("the name of a set is needed", where="name")
        owner = owner or who.user
        if owner != who.user and not who.operator:
            # the same answer as for a name that nobody uses: names of others are not revealed
            raise HTTPException(404, f"no set '{name}'")
        rows = runs_of_name(service.store.reader, owner, name, MOST_RUNS)
        runs = [past_run(run, summary) for run, summary in rows]
        ended = [run for run in runs if run.state not in GOES_ON]
        return page_of(
            request,
            "",
            "history.html",
            name=name,
            runs=runs,
            goes_on=GOES_ON,
            sentence=sentence_of(ended),
            chart=history_chart(ended[::-1]) if ended else "",
        )


def past_run(run: Json, summary: Json) -> PastRun:
    """Return a run of its stored row and the summary of its set's plan."""
    outcome = run["outcome"]
    promised = outcome.get("promised")
    if promised is None:  # of an earlier version: that of the newest plan
        promised = (summary.get("promise") or {}).get("probability")
    return PastRun(
        path=f"/sets/{run['set']}",
        started=datetime.fromisoformat(run["started"]),
        state=run["state"],
        promised=promised,
        took_s=_compute_duration_s(outcome),
        deadline_s=summary.get("deadline_s"),
        spent_usd=outcome.get("spent_usd"),
    )


def _compute_duration_s(outcome: Json) -> float | None:
    """Return when enough workflows were done; of a run without that, when it ended."""
    ends = sorted((outcome.get("finished_s") or {}).values())
    needed = outcome.get("needed") or 0
    if 0 < needed <= len(ends):
        return float(ends[needed - 1])
    return outcome.get("ended_s")


def sentence_of(runs: Sequence[PastRun]) -> str:
    """Return in a sentence how often promises were kept, in which time and for how much."""
    judged = [run for run in runs if run.state in ("kept", "broken")]
    if not judged:
        return "No run of this name has ended with a verdict yet."
    kept = sum(run.state == "kept" for run in judged)
    words = f"{kept} of the last {format_count(len(judged), 'run')} kept the deadline"
    promised = [run.promised for run in judged if run.promised is not None]
    if promised:
        words += f"; {format_chance(sum(promised) / len(promised))} was promised on average"
    took = [run.took_s for run in judged if run.took_s is not None]
    if took:
        words += f". Half of them took less than {format_duration(median(took))}"
    spent = [run.spent_usd for run in judged if run.spent_usd]
    if spent:
        words += f"; they cost {format_usd(sum(spent))} in all"
    return f"{words}."
