"""The dashboard: all sets of a user, at risk first; filter, search, order."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_duration
from vgrads.portal.charts.sparkline import sparkline
from vgrads.portal.jobs.run_status import run_status
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_display import (
    AT_RISK,
    CANNOT_BE_MET,
    FAILING,
    INTERRUPTED,
    STATES,
    seconds_left,
)
from vgrads.portal.web.set_overview import CurrentPromise, Overview, SetEntry

Json = dict[str, Any]
Order = Literal["attention", "newest", "due", "name", "owner", "probability"]
_PAGE = 50
_FOLDED = 32  # active runs whose progress the service follows
_REFRESH_S = 3.0
_FIRST_S = 0.5  # wait of a view where nothing is known of an active run
_FAR_S = 1e12
_TITLES = {
    "attention": "at risk first",
    "newest": "newest first",
    "due": "due first",
    "name": "by name",
    "owner": "by owner",
    "probability": "least probable first",
}


def add_dashboard(app: FastAPI, service: Service) -> None:
    """Add the page of all sets."""
    overview, progress = service.overview, ActiveRuns(service)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def dashboard(
        request: Request,
        find: Annotated[str, Query(max_length=200)] = "",
        state: Annotated[str, Query(max_length=30)] = "",
        order: Order = "attention",
        page: Annotated[int, Query(ge=1, le=100_000)] = 1,
    ) -> HTMLResponse:
        who = reader_of(request)
        owner = None if who.operator else who.user
        if state and state not in {s.word for s in STATES}:
            raise InputError(f"'{state}' is no state", where="state", fix=", ".join(_words()))
        choice = {"find": find, "state": state, "order": order}
        result = await run_in_threadpool(_list, overview, progress, owner, choice, page)
        if await progress.refresh(result["active"]):
            result = await run_in_threadpool(_list, overview, progress, owner, choice, page)
        return await run_in_threadpool(
            page_of, request, "/", "sets.html", orders=_TITLES, only_owner=owner, **choice, **result
        )


def _words() -> list[str]:
    return [state.word for state in STATES]


def _list(
    overview: Overview, progress: ActiveRuns, owner: str | None, choice: Json, page: int
) -> Json:
    entries = overview.entries(owner, progress.promise)
    counts = Counter(entry.state.word for entry in entries)
    matching = [entry for entry in entries if _matches(entry, choice["find"])]
    shown = Counter(entry.state.word for entry in matching)
    if choice["state"]:
        matching = [entry for entry in matching if entry.state.word == choice["state"]]
    matching.sort(key=_KEYS[choice["order"]])
    pages = max(1, -(-len(matching) // _PAGE))
    page = min(page, pages)
    chosen = matching[(page - 1) * _PAGE : page * _PAGE]
    outcomes = overview.outcomes([e.run.id for e in chosen if e.run and not e.run.goes_on])
    active = [entry for entry in entries if entry.run is not None and entry.run.goes_on]
    query = {name: value for name, value in choice.items() if value}
    return {
        "rows": [_row(entry, progress, outcomes) for entry in chosen],
        "total": len(entries),
        "matching": len(matching),
        "states": [(s.word, s.tone, shown[s.word]) for s in STATES if counts[s.word]],
        "page": page,
        "pages": pages,
        "query": urlencode(query),
        "query_of_all": urlencode({k: v for k, v in query.items() if k != "state"}),
        "first": (page - 1) * _PAGE + 1 if matching else 0,
        "last": (page - 1) * _PAGE + len(chosen),
        "active": [entry.run.id for entry in active if entry.run],
        "changes": any(e.state.rank in (0, 2, 3) for e in entries),
    }


def _matches(entry: SetEntry, find: str) -> bool:
    """Return True where all words occur in the name, the owner, or the id of a set."""
    text = f"{entry.name} {entry.owner} {entry.id}".casefold()
    return all(word in text for word in find.casefold().split())


def _attention(entry: SetEntry) -> tuple[int, float]:
    """What needs attention first: within a rank the least probable, then the first due."""
    if entry.state in (FAILING, CANNOT_BE_MET, AT_RISK, INTERRUPTED):
        return entry.state.rank, entry.probability or 0.0
    return entry.state.rank, _due(entry) if entry.run and entry.run.goes_on else 0.0


def _due(entry: SetEntry) -> float:
    return _FAR_S if entry.due_s is None else entry.due_s


def _least_probable(entry: SetEntry) -> float:
    return 2.0 if entry.probability is None else entry.probability


_KEYS: dict[str, Callable[[SetEntry], Any]] = {
    "attention": _attention,
    "newest": lambda _: 0,
    "due": _due,
    "name": lambda entry: entry.name.casefold(),
    "owner": lambda entry: (entry.owner.casefold(), entry.name.casefold()),
    "probability": _least_probable,
}


def _row(entry: SetEntry, progress: ActiveRuns, outcomes: Json) -> Json:
    """Return a row of the table; of an active run, with its progress."""
    outcome = outcomes.get(entry.run.id, {}) if entry.run else {}
    status = progress.status(entry.run.id) if entry.run and entry.run.goes_on else None
    spent = status["spent_usd"] if status else outcome.get("spent_usd")
    cost, budget = entry.promise.cost_usd, entry.promise.budget_usd
    return {
        "entry": entry,
        "live": bool(entry.run and entry.run.goes_on),
        "status": status,
        "outcome": outcome,
        "spark": _spark(entry, progress),
        "due": _due_text(entry, status),
        "spent": spent,
        "of": cost if budget is None else budget,
        "of_what": "planned" if budget is None else "budget",
        "share": min(1.0, spent / budget) if spent and budget else None,
    }


def _spark(entry: SetEntry, progress: ActiveRuns) -> Markup | str:
    """Return the probabilities of a run so far: first the promised one."""
    if entry.run is None or not entry.run.goes_on or entry.promise.probability is None:
        return ""
    points = [(0.0, entry.promise.probability), *progress.points(entry.run.id)]
    return sparkline(points, entry.promise.requested)


def _due_text(entry: SetEntry, status: Json | None) -> str:
    """Return how long a run has until its deadline, on its clock."""
    if entry.due_s is None or not (entry.run and entry.run.goes_on):
        return ""
    left_s = seconds_left(status) if status else entry.due_s - time.time()
    return f"in {format_duration(left_s)}" if left_s >= 0 else f"{format_duration(-left_s)} ago"


class ActiveRuns:
    """Progress of active runs for the dashboard: computed after a view and shown by the next one,
    so that views do not wait for it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._status: dict[str, Json] = {}
        self._task: asyncio.Task[None] | None = None
        self._refreshed_s = -_REFRESH_S

    def status(self, run_id: str) -> Json | None:
        """Return the status of a run; None where it is not known yet."""
        return self._status.get(run_id)

    def promise(self, run_id: str) -> CurrentPromise | None:
        """Return the promise of a run now; None where it is not known yet."""
        status = self._status.get(run_id)
        return (status["promise_state"], status["promise_now"]) if status else None

    def points(self, run_id: str) -> list[tuple[float, float]]:
        """Return the probabilities of a run that were computed so far, with their instants."""
        result = self._service.live.folded(run_id) if run_id in self._status else None
        return [] if result is None else [point[:2] for point in result[1].promise.points]

    async def refresh(self, run_ids: list[str]) -> bool:
        """Compute the progress of these runs in the background, unless it is recent. Return True
        where nothing was known of one of them, and now may be: such a view waits for a moment."""
        running = self._task is not None and not self._task.done()
        if running or not run_ids or time.monotonic() - self._refreshed_s < _REFRESH_S:
            return False
        self._refreshed_s = time.monotonic()
        unknown = not all(run_id in self._status for run_id in run_ids[:_FOLDED])
        self._task = asyncio.create_task(self._compute(run_ids[:_FOLDED]))
        if unknown:
            await asyncio.wait({self._task}, timeout=_FIRST_S)
        return unknown

    async def _compute(self, run_ids: list[str]) -> None:
        results = dict[str, Json]()
        for run_id in run_ids:
            with suppress(InputError):  # it was removed
                run = await run_in_threadpool(self._service.store.get_run, run_id)
                status = await run_in_threadpool(run_status, self._service.live, run)
                if status is not None and status["promise_state"] is not None:
                    results[run_id] = status
        self._status = results
