"""Which tasks a run has: a request that names another one is refused, since nothing would ever
answer it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from vgrads.kernel.errors import InputError
from vgrads.portal.jobs import children
from vgrads.portal.records.mailbox import MessageBox
from vgrads.portal.records.tables import RunRow
from vgrads.portal.web.service import Service

_MOST_RUNS = 16  # whose tasks are kept: a set has up to 200,000


@dataclass(slots=True)
class _Tasks:
    """``of_set``: workflow → its tasks, as submitted; ``added``: in the run, by messages up to the
    number ``upto``."""

    of_set: Mapping[str, Set[str]]
    added: set[tuple[str, str]] = field(default_factory=set)
    upto: int = 0

    def has(self, workflow: str, task: str) -> bool:
        return task in self.of_set.get(workflow, ()) or (workflow, task) in self.added


class PlannedTasks:
    """The tasks of runs, by workflow."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._by_run: dict[str, _Tasks] = {}

    async def require(
        self, run: RunRow, named: Iterable[tuple[str, str]], adds: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Raise InputError for a task (workflow, task) that the run does not have and that is not
        among ``adds``, and for a workflow that its set does not have."""
        new = set(adds)
        named = [*new, *named]
        if not named:
            return
        tasks = self._by_run.pop(run.id, None) or await self._read(run)
        self._by_run[run.id] = tasks  # the newest last
        for old in [*self._by_run][:-_MOST_RUNS]:
            self._by_run.pop(old, None)
        # messages may have added tasks since the last look
        if not all(key in new or tasks.has(*key) for key in named):
            box = MessageBox(self._service.store.engine, run.id)
            tasks.upto, added = await run_in_threadpool(box.added, tasks.upto)
            tasks.added.update(added)
        for workflow, task in named:
            if workflow not in tasks.of_set:
                raise InputError(
                    f"set '{run.set_id}' has no workflow '{workflow}'",
                    where="workflow",
                    fix="name it as its plan does",
                )
            if (workflow, task) not in new and not tasks.has(workflow, task):
                raise InputError(
                    f"workflow '{workflow}' of run '{run.id}' has no task '{task}'",
                    where="task",
                    fix="name a task of its set, or one that was added to the run",
                )

    async def _read(self, run: RunRow) -> _Tasks:
        think, url = self._service.supervisor.think, self._service.store.url
        return _Tasks(await think(children.tasks_of_set, url, run.set_id))
