"""Dependencies between jobs: ``afterok:12:13_4,afterany:15``.

Source: --dependency in sbatch(1). A job that Slurm does not know (any more) satisfies every
dependency, as Slurm 22.05 has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from vgrads.slurm.errors import SlurmError, command_error
from vgrads.slurm.job import Job, JobState

KINDS = ("after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer")
_TARGET = re.compile(r"(\d+)(?:_(\d+|\*))?(?:\+(\d+))?")


class Outcome(Enum):
    """Whether a dependency lets its job start."""

    SATISFIED = "satisfied"
    WAITING = "waiting"
    NEVER = "never"


@dataclass(frozen=True)
class DependencyTarget:
    """One condition: a kind of ``KINDS`` or ``singleton``, the job, one index of an array or None
    for all of it, and minutes after its start."""

    kind: str
    job: int = 0
    index: int | None = None
    minutes: int = 0


@dataclass(frozen=True)
class Dependency:
    """Conditions of which all must hold, or, with ``any_of``, one."""

    targets: tuple[DependencyTarget, ...] = ()
    any_of: bool = False


@dataclass(frozen=True)
class DependencyStatus:
    """The outcome, and what remains as ``squeue -o %E`` prints it (empty if satisfied)."""

    outcome: Outcome
    text: str = ""


@dataclass(frozen=True)
class DependencyView:
    """What a dependency is judged by.

    ``tasks_of`` returns the job of an id or all rows of that array (empty: unknown); ``earlier``
    are unfinished jobs of the same name and user with lower ids, for ``singleton``.
    """

    tasks_of: Callable[[int], Sequence[Job]]
    now_s: float
    earlier: Sequence[Job] = field(default=())


def parse_dependency(text: str) -> Dependency:
    """Parse the argument of ``--dependency``. Raises SlurmError with Slurm's words.

    >>> parse_dependency("afterok:12:13_4").targets[1]
    DependencyTarget(kind='afterok', job=13, index=4, minutes=0)
    """
    if not text:
        return Dependency()
    any_of = "?" in text
    targets: list[DependencyTarget] = []
    for part in re.split("[,?]", text):
        kind, colon, ids = part.partition(":")
        kind = kind.lower()
        if kind == "singleton" and not colon:
            targets.append(DependencyTarget(kind))
            continue
        if kind.isdigit():
            kind, ids = "afterany", part
        elif kind not in KINDS or not ids:
            raise _make_problem()
        targets.extend(_parse_target(kind, word) for word in ids.split(":"))
    return Dependency(tuple(targets), any_of)


def format_dependency(dependency: Dependency) -> str:
    """Return the text that ``parse_dependency`` reads as this dependency."""
    separator = "?" if dependency.any_of else ","
    return separator.join(_format_condition(target) for target in dependency.targets)


def dependency_status(dependency: Dependency, job: Job, view: DependencyView) -> DependencyStatus:
    """Return whether ``job`` may start, and which conditions remain.

    An array's pending tasks must be judged one by one where ``aftercorr`` is among the kinds.
    """
    outcomes = [(target, _judge_target(target, job, view)) for target in dependency.targets]
    if dependency.any_of:
        satisfied = any(outcome is Outcome.SATISFIED for _, outcome in outcomes)
        never = all(outcome is Outcome.NEVER for _, outcome in outcomes)
    else:
        satisfied = all(outcome is Outcome.SATISFIED for _, outcome in outcomes)
        never = any(outcome is Outcome.NEVER for _, outcome in outcomes)
    if satisfied or not outcomes:
        return DependencyStatus(Outcome.SATISFIED)
    separator = "?" if dependency.any_of else ","
    text = separator.join(
        _format_condition(
            target,
            "(failed)" if outcome is Outcome.NEVER else "(unfulfilled)",
            is_array=_is_array(target, view),
        )
        for target, outcome in outcomes
        if outcome is not Outcome.SATISFIED
    )
    return DependencyStatus(Outcome.NEVER if never else Outcome.WAITING, text)


def _parse_target(kind: str, word: str) -> DependencyTarget:
    match = _TARGET.fullmatch(word)
    if match is None or int(match[1]) == 0:
        raise _make_problem()
    index = int(match[2]) if match[2] and match[2] != "*" else None
    return DependencyTarget(kind, int(match[1]), index, int(match[3] or 0))


def _make_problem() -> SlurmError:
    return command_error("sbatch", "Batch job submission failed: Job dependency problem")


def _is_array(target: DependencyTarget, view: DependencyView) -> bool:
    return target.kind != "singleton" and any(
        row.array_id is not None for row in view.tasks_of(target.job)
    )


def _format_condition(target: DependencyTarget, state: str = "", *, is_array: bool = False) -> str:
    """Return a condition as text; a whole array is ``15_*``."""
    if target.kind == "singleton":
        return f"singleton{state}"
    index = "_*" if is_array else ""
    index = index if target.index is None else f"_{target.index}"
    delay = f"+{target.minutes}" if target.minutes else ""
    return f"{target.kind}:{target.job}{index}{delay}{state}"


def _judge_target(target: DependencyTarget, job: Job, view: DependencyView) -> Outcome:
    if target.kind == "singleton":
        return Outcome.WAITING if view.earlier else Outcome.SATISFIED
    rows = view.tasks_of(target.job)
    index = target.index
    if target.kind == "aftercorr" and index is None:
        index = job.array_index
    if index is not None and any(row.array_id is not None for row in rows):
        rows = _list_task_rows(rows, index)
    if not rows:
        return Outcome.SATISFIED
    return _JUDGES[target.kind](rows, target, view.now_s)


def _list_task_rows(rows: Sequence[Job], index: int) -> list[Job]:
    """Return the row of a task: its own, or that of all pending ones."""
    own = [row for row in rows if row.array_index == index]
    return own or [row for row in rows if row.array_index is None]


def _judge_after(rows: Sequence[Job], target: DependencyTarget, now_s: float) -> Outcome:
    for row in rows:
        # `after` also holds when its job is cancelled (sbatch(1))
        if row.state is JobState.CANCELLED:
            continue
        if row.start_s is None or row.state.is_pending:
            return Outcome.WAITING
        if now_s < row.start_s + 60 * target.minutes:
            return Outcome.WAITING
    return Outcome.SATISFIED


def _judge_after_any(
    rows: Sequence[Job], _parse_target: DependencyTarget, _now_s: float
) -> Outcome:
    return Outcome.SATISFIED if all(r.state.is_terminal for r in rows) else Outcome.WAITING


def _judge_after_ok(rows: Sequence[Job], _parse_target: DependencyTarget, _now_s: float) -> Outcome:
    if not all(row.state.is_terminal for row in rows):
        return Outcome.WAITING
    return Outcome.NEVER if any(row.state.is_failure for row in rows) else Outcome.SATISFIED


def _judge_after_not_ok(
    rows: Sequence[Job], _parse_target: DependencyTarget, _now_s: float
) -> Outcome:
    if not all(row.state.is_terminal for row in rows):
        return Outcome.WAITING
    return Outcome.SATISFIED if any(row.state.is_failure for row in rows) else Outcome.NEVER


_JUDGES: dict[str, Callable[[Sequence[Job], DependencyTarget, float], Outcome]] = {
    "after": _judge_after,
    "afterany": _judge_after_any,
    "afterok": _judge_after_ok,
    "aftercorr": _judge_after_ok,
    "afternotok": _judge_after_not_ok,
    "afterburstbuffer": _judge_after_any,
}
