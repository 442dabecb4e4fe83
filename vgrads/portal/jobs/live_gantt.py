"""The current chart of a run: folded from its journal, a few events at a time."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vgrads.portal.records.reading.run_rows import GOES_ON
from vgrads.portal.records.store import Store
from vgrads.portal.records.tables import RunRow

if TYPE_CHECKING:
    from vgrads.execmgr.core.execution_plan import ExecutionPlan
    from vgrads.execmgr.core.states import RunState

Json = dict[str, Any]
_REMEMBERED = 32


@dataclass
class _Followed:
    """A run and the position up to which it has been read."""

    executions: list[ExecutionPlan] = field(default_factory=list)
    state: RunState | None = None
    position: int = 0
    simulated: bool = True


class LiveGantt:
    """Charts of active runs. Each part of a journal is read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._followed: OrderedDict[str, _Followed] = OrderedDict()
        self._lock = threading.Lock()

    def version(self, run: RunRow) -> str:
        """Return a version that changes with the chart."""
        return f"{run.id}-{run.state}-{self._store.count_events(run.id)}"

    def chart(self, run: RunRow) -> Json | None:
        """Return the Gantt query of a run; None where it has not started."""
        if run.gantt != "{}" and run.state not in GOES_ON:
            stored: Json = json.loads(run.gantt)
            return stored
        # imported late, as in _follow
        from vgrads.api.plans.answers import gantt_json

        result = self.folded(run.id)
        return gantt_json(result[0].plan, result[0].snapshot, result[1]) if result else None

    def folded(self, run_id: str) -> tuple[ExecutionPlan, RunState] | None:
        """Return the current execution plan and the state of a run; None where it has not
        started."""
        with self._lock:
            followed = self._follow(run_id)
            if followed.state is None:
                return None
            return followed.executions[followed.state.version], followed.state

    def simulated(self, run_id: str) -> bool:
        """Return True where the clock of a folded run is that of a simulation."""
        followed = self._followed.get(run_id)
        return followed is None or followed.simulated

    def _follow(self, run_id: str) -> _Followed:
        # imported late: the service starts without what runs are made of
        from vgrads.api.wiring import uses_real_site
        from vgrads.execmgr.core.journal import advance, event_from_json, find_ruling_version
        from vgrads.execmgr.core.step import begin
        from vgrads.portal.records.run_record import RunRecord

        followed = self._followed.setdefault(run_id, _Followed())
        self._followed.move_to_end(run_id)
        if len(self._followed) > _REMEMBERED:
            self._followed.popitem(last=False)
        if self._store.count_events(run_id) < followed.position:  # replayed from its start
            followed.executions, followed.state, followed.position = [], None, 0
        record = RunRecord(self._store.engine, run_id)
        if followed.state is None:
            followed.executions = record.executions()
            if not followed.executions:
                return followed
            followed.state = begin(followed.executions[0])
            followed.simulated = not uses_real_site(
                record.setup().catalog, followed.executions[0].plan
            )
        for body in self._store.events(run_id, followed.position):
            event = event_from_json(body)
            # it announces a plan that was stored after the plans were read here
            if find_ruling_version(followed.state, event) >= len(followed.executions):
                followed.executions = record.executions()
            followed.state = advance(followed.executions, followed.state, event)
            followed.position += 1
        return followed
