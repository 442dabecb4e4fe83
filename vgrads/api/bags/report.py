"""Status of a dispatcher, written into its folder for readers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from vgrads.dispatch.fleet.fleet import Fleet
from vgrads.dispatch.fleet.goal_answer import goal_json
from vgrads.dispatch.server.manager import DispatchManager
from vgrads.dispatch.status import Latest, Rates, status_json
from vgrads.dispatch.storage.status import (
    read_latest,
    write_agent_names,
    write_latest,
    write_status,
)
from vgrads.exchange.values import AttemptEnd

_LOOK_S = 1.0
_LONG = 200


@dataclass
class Report:
    """Reports of one dispatcher. ``began_unix_s``: start of its clock, kept over restarts."""

    folder: Path
    began_unix_s: float
    _rates: Rates = field(default_factory=Rates)
    _latest: Latest = field(default_factory=Latest)
    _looked_s: float = -1e9
    _named: int = 0
    _began_own_s: float = field(default_factory=time.thread_time)

    def ended(self, bag: int, end: AttemptEnd, text: str, error: str) -> None:
        """Record the end of a task, its printed text and the last line of its errors."""
        self._latest.add(bag, end, text, error)

    def is_due(self, now_s: float) -> bool:
        """True if a new status is due."""
        return now_s - self._looked_s >= _LOOK_S

    def report(
        self, manager: DispatchManager, fleet: Fleet, state: str, pools: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the current status and write it to the folder. ``pools``: the extension's part."""
        now = self._looked_s = manager.clock.now()
        self._rates.look(manager.state, now)
        status = status_json(
            manager.state,
            self._rates,
            now,
            fleet.unserved,
            {
                "state": state,
                "began_unix_s": self.began_unix_s,
                "problem": manager.problem or fleet.hopeless or "; ".join(fleet.sites.reasons()),
                "refused": manager.port.refused,
                "exchanges": manager.port.exchanges,
                "reasons": [
                    {"at_s": at, "site": site, "reason": r}
                    for at, site, r in fleet.reasons[-_LONG:]
                ],
                "coming": fleet.coming,
                "pools": dict(pools),
                "slots": [n for n, slot in manager.state.slots.items() if slot.occupied],
            },
        )
        own = {
            "commit_s": manager.journal.commit_s,
            "own_s": (time.thread_time() - self._began_own_s) / max(1, self._latest.count),
        }
        for bag in status["bags"]:
            bag["times"] = self._latest.mean_times(bag["number"], own)
            error_of = partial(self._error_of, bag["number"])
            bag["goal"] = goal_json(fleet.goals, bag["number"], now, error_of)
        with suppress(OSError):  # readers then see the previous status
            agents = [(h.name or h.id, h.site) for h in manager.state.agents.values()]
            self._write_down(agents, status)
        return status

    def _error_of(self, bag: int, code: int) -> str:
        """Return the last line of the errors of the newest attempt that ended with an exit status;
        after a restart, of those before it too."""
        before = read_latest(self.folder, bag)["wrong"]
        rows = (*self._latest.of(bag)["wrong"], *before)
        return next((row.get("error", "") for row in rows if row["code"] == code), "")

    def _write_down(self, agents: list[tuple[str, str]], status: dict[str, Any]) -> None:
        write_status(self.folder, status)
        for number in self._latest.changed:
            write_latest(self.folder, number, self._latest.of(number))
        self._latest.changed.clear()
        if len(agents) != self._named:
            write_agent_names(self.folder, agents)
            self._named = len(agents)
