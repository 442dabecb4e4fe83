"""A task record: measurements of one attempt of a task, the common form of all sources of run
times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One attempt of one task.

    ``kind`` is the program, rule, process or job name that groups similar tasks; ``workflow`` the
    workflow of which it is a step, ``run`` distinguishes its runs, ``task`` names the task in that
    run. ``seconds`` is wall-clock execution, without waiting and staging. An attempt that is not
    ``finished`` is right-censored: it would have taken longer (it was stopped, reached its limit,
    or ran out of memory); attempts that failed by themselves are not records. ``memory_bytes`` is
    the peak; if ``memory_full``, it would have been more. ``cpu_seconds``: of all its processors
    together. ``tool`` is the executed program, if the source has it.
    """

    kind: str
    seconds: float
    finished: bool = True
    workflow: str = ""
    run: str = ""
    task: str = ""
    machine: str = ""
    procs: int = 1
    input_bytes: float | None = None
    cpu_seconds: float | None = None
    memory_bytes: float | None = None
    memory_full: bool = False
    tool: str = ""
    ended_at_s: float | None = None  # since the epoch, UTC
