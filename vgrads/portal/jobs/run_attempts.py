"""Attempts at the tasks of runs, for pages: complete ones are computed in another process; while
all processes are busy, the state that the service itself follows shows all but their phases."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from vgrads.kernel.errors import SiteError
from vgrads.portal.jobs import children
from vgrads.portal.jobs.live_gantt import LiveGantt
from vgrads.portal.jobs.run_status import PATIENCE_S
from vgrads.portal.records.tables import RunRow

Json = dict[str, Any]
_REMEMBERED = 32


class RunAttempts:
    """Attempts of runs; those of the current state of a run are computed once for all viewers.
    ``think``: runs a computation in another process of the service; ``url``: the database."""

    def __init__(
        self,
        live: LiveGantt,
        think: Callable[..., Awaitable[Any]],
        url: str,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._live, self._think, self._url, self._patience_s = live, think, url, patience_s
        self._last: OrderedDict[str, tuple[str, list[Json]]] = OrderedDict()
        self._current: dict[str, asyncio.Task[None]] = {}

    async def of(self, run: RunRow) -> tuple[list[Json], bool]:
        """Return the attempts of a run, and whether they are complete."""
        version = await asyncio.to_thread(self._live.version, run)
        if self._version(run.id) != version:
            task = self._current.get(run.id)
            # a task of another event loop cannot be awaited in this one
            if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
                task = asyncio.create_task(self._compute(run.id, version))
                self._current[run.id] = task
            # wait, unlike wait_for, does not cancel it: others wait for it too, and the next call
            # uses it
            await asyncio.wait({task}, timeout=self._patience_s)
        if self._version(run.id) == version:
            return self._last[run.id][1], True
        return await asyncio.to_thread(self._followed, run.id), False

    def _version(self, run_id: str) -> str:
        return self._last.get(run_id, ("", []))[0]

    async def _compute(self, run_id: str, version: str) -> None:
        try:
            rows = await self._think(children.recorded_attempts, self._url, run_id)
        except SiteError:  # the next call tries again
            return
        finally:
            self._current.pop(run_id, None)
        self._last[run_id] = version, rows
        self._last.move_to_end(run_id)
        if len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)

    def _followed(self, run_id: str) -> list[Json]:
        """Return the last attempts in the state that the service follows, with the phases that were
        computed before."""
        # imported late: the journal of the run was read before
        from vgrads.api.plans.attempts import attempts_json, list_last_attempts

        result = self._live.folded(run_id)
        if result is None:
            return []
        before = {_make_key(row): row["times"] for row in self._last.get(run_id, ("", []))[1]}
        rows = attempts_json(list_last_attempts(*result), Path(), 0)
        return [
            row | {"times": before.get(_make_key(row)), "count": row["attempt"] + 1} for row in rows
        ]


def _make_key(row: Json) -> tuple[str, str, int, int]:
    return row["workflow"], row["task"], row["copy"], row["attempt"]
