"""What one attempt of a task took where it ran: the one shape into which every source of run times
is read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One attempt of one task.

    ``kind`` is the program, rule, process or job name, by which tasks are taken for alike;
    ``workflow`` the workflow of which it is a step, ``run`` tells one run of it from another,
    ``task`` names the task in that run. ``seconds`` is execution by the wall clock, without waiting
    and staging. An attempt that is not ``finished`` is right-censored: it would have taken longer
    (it was stopped, ran into its limit, or out of memory); attempts that failed by themselves are
    no records. ``memory_bytes`` is the peak; where ``memory_full``, it would have been more.
    ``cpu_seconds``: of all its processors together. ``tool`` is what is really executed, where the
    source tells.
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
