"""How a run ended: the verdict on its promise, every attempt, the Gantt chart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgrads.api.plans.answers import outcome_json, plan_json, run_gantt
from vgrads.api.plans.attempts import about, attempts_json, read_printed
from vgrads.api.plans.execution import RunOutcome
from vgrads.api.plans.run_setup import RunOptions
from vgrads.interface.arguments import FileName
from vgrads.interface.gantt import gantt_html, gantt_png
from vgrads.interface.plans import write_gantt
from vgrads.interface.run_journal import RunJournal
from vgrads.kernel.errors import InputError
from vgrads.kernel.units import format_count, format_duration
from vgrads.planner.plan import Promise

_TAIL_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """One attempt at a replica of a task.

    ``state``: done, failed, cancelled or running. ``exit_code``: of the command; None where it did
    not end by itself. ``started_s``: seconds from the beginning of the run. ``seconds``: how long
    it took. ``reason``: of a failure.
    """

    workflow: str
    task: str
    replica: int
    attempt: int
    state: str
    exit_code: int | None
    reason: str | None
    started_s: float
    seconds: float | None
    site: str
    slot: str


@dataclass(frozen=True, kw_only=True, repr=False)
class RunResult:
    """How a run ended.

    ``promise``: the probability that was promised, with its standard error. ``in_time``: workflows
    done by ``deadline_s``; ``needed``: how many the promise is about. ``verdict``: kept, broken or
    cancelled. ``finished_s``: workflow → seconds from the beginning. ``attempts``: in the order of
    their starts. ``folder``: results of tasks; absent after a simulated run.
    """

    run_id: str
    name: str
    promise: Promise
    deadline_s: float
    needed: int
    in_time: int
    verdict: str
    finished_s: Mapping[str, float]
    attempts: tuple[AttemptResult, ...]
    folder: Path
    outcome: RunOutcome = field(compare=False)
    journal: RunJournal = field(compare=False)

    @property
    def kept(self) -> bool:
        """True where the promise was kept."""
        return self.verdict == "kept"

    def to_json(self) -> dict[str, Any]:
        """The JSON of ``vgrads run --json``."""
        return plan_json(self.outcome.execution.plan) | {
            "run": self.run_id,
            "outcome": outcome_json(self.outcome),
        }

    def printed(self, task: str) -> tuple[str, str]:
        """The end of the standard output and of the standard error of the last attempt at a task
        (``workflow/task``)."""
        rows = about(self.journal.attempts(), task)
        if not rows:
            raise InputError(f"task '{task}' has not been started", where="task")
        out, err, _ = read_printed(self.folder, rows[-1], _TAIL_BYTES)
        return out, err

    def gantt(self, path: FileName) -> Path:
        """Write the Gantt chart of the run, as :meth:`PlanResult.gantt` does."""
        chart = run_gantt(self.outcome)
        return write_gantt(path, chart, self.sentence, plan_json(self.outcome.execution.plan))

    @property
    def sentence(self) -> str:
        """The promise and the outcome in words."""
        return (
            f"Promised {format_count(self.needed, 'workflow')} within "
            f"{format_duration(self.deadline_s)} with probability "
            f"{self.promise.probability:.3f}; {self.in_time} "
            f"{'was' if self.in_time == 1 else 'were'} done in time: {self.verdict}"
        )

    def __repr__(self) -> str:
        states = [attempt.state for attempt in self.attempts]
        counts = ", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(states))
        return (
            f"RunResult '{self.name}': {self.sentence}\n  {format_count(len(states), 'attempt')} "
            f"({counts})" + (f" in {self.folder}" if self.folder.is_dir() else "")
        )

    def _repr_html_(self) -> str:
        return gantt_html(self.sentence, run_gantt(self.outcome) if self.attempts else None)

    def _repr_png_(self) -> bytes | None:
        return gantt_png(run_gantt(self.outcome)) if self.attempts else None


def run_result(options: RunOptions, outcome: RunOutcome, journal: RunJournal) -> RunResult:
    decision = outcome.execution.plan
    return RunResult(
        run_id=options.run_id,
        name=decision.set_name,
        promise=decision.promise,
        deadline_s=decision.deadline_s,
        needed=decision.needed,
        in_time=outcome.in_time,
        verdict=outcome.verdict,
        finished_s=dict(sorted(outcome.done.items())),
        attempts=tuple(
            _make_attempt(row) for row in attempts_json(journal.attempts(), options.folder, 0)
        ),
        folder=options.folder,
        outcome=outcome,
        journal=journal,
    )


def _make_attempt(row: Mapping[str, Any]) -> AttemptResult:
    names = ("workflow", "task", "attempt", "state", "reason", "started_s", "seconds", "site")
    fields = {name: row[name] for name in (*names, "slot")}
    return AttemptResult(replica=row["copy"], exit_code=row["exit"], **fields)
