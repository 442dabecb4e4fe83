"""The front page: all work of a user, what needs attention first; filter, search, order."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, format_duration, format_usd
from vgrads.portal.jobs.run_status import run_status
from vgrads.portal.web.page_context import page_of, reader_of
from vgrads.portal.web.service import Service
from vgrads.portal.web.set_display import (
    AT_RISK,
    BELOW,
    CANCELLED,
    CANNOT_BE_MET,
    FAILED,
    FAILING,
    IMPOSSIBLE,
    INTERRUPTED,
    MISSED,
    NOT_PLANNED,
    READY,
    STATES,
    seconds_left,
)
from vgrads.portal.web.work_entry import WorkEntry
from vgrads.portal.web.work_overview import CurrentPromise, Overview

Json = dict[str, Any]
Order = Literal["attention", "newest", "due", "name", "owner", "probability"]
Kind = Literal["", "set", "bag"]
Archived = Literal["", "yes"]
_PAGE = 50
_FOLDED = 32  # active runs whose progress the service follows
_REFRESH_S = 3.0
_FIRST_S = 0.5  # wait of a view where nothing is known of an active run
_FAR_S = 1e12
_TITLES = {
    "attention": "what needs you first",
    "newest": "newest first",
    "due": "due first",
    "name": "by name",
    "owner": "by owner",
    "probability": "least probable first",
}


_GROUPS = ("Needs you", "Running", "Coming", "Ended")
_GROUP_OF_RANK = (0, 0, 1, 2, 2, 3, 3, 3)
_LIKE = "/submit?like={}"
_ACTIONS = {
    FAILING: ("See the failure", "{}#tasks"),
    CANNOT_BE_MET: ("Change or stop", "{}/request"),
    AT_RISK: ("Change or stop", "{}/request"),
    INTERRUPTED: ("See why", "{}"),
    BELOW: ("See what meets it", "{}"),
    IMPOSSIBLE: ("See what meets it", "{}"),
    NOT_PLANNED: ("Change it", _LIKE),
    READY: ("Run", "{}/run"),
    MISSED: ("Submit again", _LIKE),
    FAILED: ("Submit again", _LIKE),
    CANCELLED: ("Submit again", _LIKE),
}
"""What can be done next, by state: a label, and an address in which the set's stands."""


class WorkView(BaseModel):
    """What of all work is shown, and in which order; ``archived``: only what is archived, else only
    the rest."""

    find: Annotated[str, Field(max_length=200)] = ""
    state: Annotated[str, Field(max_length=30)] = ""
    kind: Kind = ""
    order: Order = "attention"
    archived: Archived = ""
    page: Annotated[int, Field(ge=1, le=100_000)] = 1


def add_dashboard(app: FastAPI, service: Service) -> None:
    """Add the front page."""
    overview, progress = service.overview, ActiveRuns(service)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def dashboard(request: Request, view: Annotated[WorkView, Query()]) -> HTMLResponse:
        who = reader_of(request)
        owner = None if who.operator else who.user
        if view.state and view.state not in _parse_words():
            raise InputError(
                f"'{view.state}' is no state", where="state", fix=", ".join(_parse_words())
            )
        choice, page = view.model_dump(exclude={"page"}), view.page
        result = await run_in_threadpool(_list, overview, progress, owner, choice, page)
        if await progress.refresh(result["active"]):
            # what was just computed changes the states and the order
            result = await run_in_threadpool(_list, overview, progress, owner, choice, page)
        return await run_in_threadpool(
            page_of, request, "/", "work.html", orders=_TITLES, only_owner=owner, **choice, **result
        )


def _parse_words() -> list[str]:
    return [state.word for state in STATES]


def _list(
    overview: Overview, progress: ActiveRuns, owner: str | None, choice: Json, page: int
) -> Json:
    whole = overview.entries(owner, progress.promise)
    if choice["kind"]:
        whole = [entry for entry in whole if entry.kind == choice["kind"]]
    entries = [entry for entry in whole if entry.archived == bool(choice["archived"])]
    counts = Counter(entry.state.word for entry in entries)
    words = choice["find"].casefold().split()
    matching = [entry for entry in entries if _matches_words(entry, words)] if words else [*entries]
    shown = Counter(entry.state.word for entry in matching) if words else counts
    if choice["state"]:
        matching = [entry for entry in matching if entry.state.word == choice["state"]]
    matching.sort(key=_KEYS[choice["order"]])
    pages = max(1, -(-len(matching) // _PAGE))
    page = min(page, pages)
    chosen = matching[(page - 1) * _PAGE : page * _PAGE]
    outcomes = overview.outcomes([e.run.id for e in chosen if e.run and not e.run.goes_on])
    active = [entry for entry in entries if entry.run is not None and entry.goes_on]
    query = {name: value for name, value in choice.items() if value}
    rows = [_make_row(entry, progress, outcomes) for entry in chosen]
    return {
        "groups": _group_rows(rows, matching, is_grouped=choice["order"] == "attention"),
        "total": len(entries),
        "apart": len(whole) - len(entries),
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


def _group_rows(
    rows: Iterable[Json], matching: Iterable[WorkEntry], is_grouped: bool
) -> list[tuple[str, int, list[Json]]]:
    """Return the rows of a page with the titles of their groups, and how many entries each group
    has; one group without a title in another order than by attention."""
    if not is_grouped:
        rows = list(rows)
        return [("", len(rows), rows)] if rows else []
    counts = Counter(_group(entry) for entry in matching)
    return [
        (_GROUPS[group], counts[group], list(members))
        for group, members in groupby(rows, lambda row: _group(row["entry"]))
    ]


def _group(entry: WorkEntry) -> int:
    return _GROUP_OF_RANK[entry.state.rank]


def _matches_words(entry: WorkEntry, words: Sequence[str]) -> bool:
    """Return True where all words, folded, occur in the name, the owner, or the id."""
    text = f"{entry.name} {entry.owner} {entry.id}".casefold()
    return all(word in text for word in words)


def _rank_attention(entry: WorkEntry) -> tuple[int, int, float]:
    """What needs attention first: within a group the least probable, then the first due, then the
    newest."""
    rank = entry.state.rank
    group = _GROUP_OF_RANK[rank]
    if entry.state in (FAILING, CANNOT_BE_MET, AT_RISK, INTERRUPTED):
        return group, rank, entry.probability or 0.0
    if entry.goes_on and entry.due_s is not None:
        return group, rank, entry.due_s
    # behind those with a deadline; only what needs attention is ordered by rank too
    return group, rank if group == 0 else 9, -entry.created_s


def _find_due(entry: WorkEntry) -> float:
    return _FAR_S if entry.due_s is None else entry.due_s


def _rank_least_probable(entry: WorkEntry) -> float:
    # without a probability: last
    return 2.0 if entry.probability is None else entry.probability


_KEYS: dict[str, Callable[[WorkEntry], Any]] = {
    "attention": _rank_attention,
    "newest": lambda entry: -entry.created_s,
    "due": _find_due,
    "name": lambda entry: entry.name.casefold(),
    "owner": lambda entry: (entry.owner.casefold(), entry.name.casefold()),
    "probability": _rank_least_probable,
}


def _make_row(entry: WorkEntry, progress: ActiveRuns, outcomes: Json) -> Json:
    """Return a row of the table; of an active run, with its progress."""
    outcome = outcomes.get(entry.run.id, {}) if entry.run else {}
    status = progress.status(entry.run.id) if entry.run and entry.goes_on else None
    spent = status["spent_usd"] if status else outcome.get("spent_usd", entry.spent_usd)
    return {
        "entry": entry,
        "progress": _describe_progress(entry, status, outcome),
        "due": due_text(entry, status),
        "money": _describe_money(spent, entry.promise.cost_usd, entry.promise.budget_usd),
        "action": _find_action(entry),
    }


def _find_action(entry: WorkEntry) -> tuple[str, str] | None:
    """Return what can be done next: a label and an address; None: nothing is needed."""
    action = _ACTIONS.get(entry.state)
    if action is None:
        return None
    label, address = action
    if entry.state is READY and entry.promise.cost_usd:
        label = f"Run for {format_usd(entry.promise.cost_usd)}"
    if entry.kind == "bag":
        return "See why", entry.path
    return label, address.format(entry.id if address == _LIKE else entry.path)


def _describe_progress(entry: WorkEntry, status: Json | None, outcome: Json) -> str:
    """Return how far an entry is, in words."""
    needed = entry.promise.needed
    if entry.kind == "bag":
        return entry.progress + (f", {needed:,} needed" if needed else "")
    if status:
        done = status["workflows"]
        workflows = format_count(done["of"], "workflow")
        return f"{done['done']} of {workflows} done, {done['needed']} needed"
    if "in_time" in outcome:
        return f"{outcome['in_time']} in time, {outcome['needed']} needed"
    return f"{format_count(needed, 'workflow', 'are')} needed" if needed else ""


def _describe_money(spent: float | None, cost: float | None, budget: float | None) -> str:
    """Return what was spent of what may be; empty where nothing is paid for."""
    most = cost if budget is None else budget
    if spent is None:
        words = "about" if budget is None else "up to"
        return f"{words} {format_usd(most)}" if most else ""
    if not most:
        return format_usd(spent) if spent else ""
    return f"{format_usd(spent)} of {format_usd(most)}"


def due_text(entry: WorkEntry, status: Json | None) -> str:
    """Return how long work has until its deadline, a run on its own clock."""
    if entry.due_s is None or not entry.goes_on:
        return ""
    left_s = seconds_left(status) if status else entry.due_s - time.time()
    return f"{format_duration(left_s)} left" if left_s >= 0 else f"{format_duration(-left_s)} late"


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
        # replaced as a whole, so that ended runs are forgotten
        self._status = results
