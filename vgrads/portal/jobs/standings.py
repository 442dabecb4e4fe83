"""How runs stand: what is done, how sure the promise is now and when it will be kept, what every
task has come to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

from vgrads.api.plans.attempts import about, attempts_json, attempts_of
from vgrads.execmgr.core.book import Book
from vgrads.execmgr.core.endings import workflows_done
from vgrads.execmgr.core.remainder import progress_of
from vgrads.execmgr.core.states import CopyState, RunState
from vgrads.kernel.errors import InputError, SiteError
from vgrads.planner.replan import Outlook, promise_now
from vgrads.portal.jobs.live_gantt import LiveGantt
from vgrads.portal.records.run_record import RunRecord
from vgrads.portal.records.store import GOES_ON, Store
from vgrads.portal.records.tables import RunRow

Json = dict[str, Any]
_AGAIN_S = 3.0  # between looks ahead at one run, however many people watch it
_REMEMBERED = 256
PATIENCE_S = 2.0
"""How long a page waits for what is reckoned beside the service, where planning may keep all
busy."""
LOGGED = 64 * 1024
"""Bytes of the end of what an attempt printed that are shown."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the last look ahead at a run has found, and of which version of it; None: nothing
    yet."""

    at_s: float
    version: str
    outlook: Outlook | None


class Standings:
    """How runs stand now. ``think``: has something reckoned beside the service."""

    def __init__(
        self, live: LiveGantt, think: Callable[..., Awaitable[Any]], again_s: float = _AGAIN_S
    ) -> None:
        self._live, self._think, self._again_s = live, think, again_s
        self._seen: dict[str, _Seen] = {}

    def of(self, run: RunRow) -> Json | None:
        """What is done of a run, what it has cost, and the last look ahead; None where it has not
        begun."""
        found = self._live.folded(run.id)
        if found is None:
            return None
        seen = self._seen.get(run.id)
        ahead = seen.outlook if seen is not None and run.state in GOES_ON else None
        return standing_json(run, *found, ahead) | {"simulated": self._live.simulated(run.id)}

    async def look_ahead(self, run: RunRow) -> None:
        """Reckon anew how sure the promise of a run that goes on is, unless that is known as of
        just now."""
        seen, now_s = self._seen.get(run.id), time.monotonic()
        if run.state not in GOES_ON or (seen is not None and now_s - seen.at_s < self._again_s):
            return
        if len(self._seen) > _REMEMBERED:
            self._seen.clear()
        last = replace(seen, at_s=now_s) if seen is not None else _Seen(now_s, "", None)
        self._seen[run.id] = last  # others wait for nothing
        found, version = await asyncio.to_thread(self._now, run)
        if found is None or last.version == version:
            return
        book, state = found
        looking = self._think(promise_now, book.plan, book.snapshot, progress_of(book, state))
        with suppress(
            TimeoutError, SiteError
        ):  # all are busy: whoever asks next has it tried again
            outlook = await asyncio.wait_for(looking, PATIENCE_S)
            self._seen[run.id] = _Seen(now_s, version, outlook)

    def _now(self, run: RunRow) -> tuple[tuple[Book, RunState] | None, str]:
        return self._live.folded(run.id), self._live.version(run)


def standing_json(run: RunRow, book: Book, state: RunState, outlook: Outlook | None = None) -> Json:
    """How a run stands; instants are RFC 3339, on the clock of the run."""
    began = run.started if run.started.tzinfo else run.started.replace(tzinfo=UTC)

    def instant(at_s: float | None) -> str | None:
        return None if at_s is None else (began + timedelta(seconds=at_s)).isoformat()

    copies = [record.state for record in state.copies.values()]
    ended = run.state not in GOES_ON
    return {
        "tasks": {
            "done": len(state.done),
            "of": len({p.task_key for p in book.plan.placements}),
            "running": copies.count(CopyState.RUNNING),
            "before": len(book.plan.done),
        },
        "workflows": {
            "done": len(workflows_done(book, state)),
            "needed": book.plan.needed,
            "of": len(book.snapshot.wanted.workflows),
        },
        "spent_usd": sum(
            book.uses[slot].cost_usd for slot, one in state.slots.items() if one.ready_s is not None
        ),
        "cost_usd": book.plan.cost_usd,
        "started": instant(0.0),
        "now": instant(state.now_s),
        "due": instant(book.plan.deadline_s),
        "ended": instant(state.now_s) if ended else None,
        "promise_now": outlook.probability if outlook else None,
        "expected_end": instant(outlook.end_s) if outlook else None,
    }


def attempts_at(
    store: Store, run_id: str, task: str | None = None, most: int = LOGGED
) -> list[Json]:
    """Every attempt of a run, or at a task, with ``most`` bytes of what each printed; InputError
    where there is none such."""
    record = RunRecord(store.engine, run_id)
    books = record.books()
    attempts, _ = attempts_of(books, record.events()) if books else ([], None)
    found = attempts if task is None else about(attempts, task)
    if task is not None and not found:
        begun = sorted({"/".join(one.key[:2]) for one in attempts})
        _refer_to_earlier(books, task)
        raise InputError(
            f"no attempt at a task '{task}' in {run_id}",
            where="TASK",
            fix=f"begun were: {', '.join(begun[:8])}{' …' if len(begun) > 8 else ''}"
            if begun
            else "nothing has begun",
        )
    folder = record.setup().options.folder if books else Path()
    return list(attempts_json(found, folder, most))


def _refer_to_earlier(books: Sequence[Book], task: str) -> None:
    """InputError that tells where a task was done, where that was before a run."""
    workflow, _, name = task.rpartition("/")
    for one in books[0].plan.done if books else ():
        if one.task == name and workflow in ("", one.workflow):
            raise InputError(
                f"was done before, in {one.run}",
                where=f"task '{task}'",
                fix=f"vgrads logs {one.run} {task}",
            )


def attempts_beside(url: str, run_id: str) -> list[Json]:
    """Every attempt of a run of the database at ``url``, without what it printed."""
    with Store(url) as store:
        return attempts_at(store, run_id, None, 0)
