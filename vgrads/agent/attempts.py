"""One attempt of a task at an agent, and its result.

Shipped to nodes: the standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple

from .settings import BagSettings

Key = Tuple[int, int, int]
"""Bag, task, attempt."""


class AgentTask:
    """One attempt of a task at this agent, from its arrival to its end."""

    __slots__ = (
        "bag",
        "began_s",
        "came_s",
        "coming_s",
        "command",
        "fetched_s",
        "folder",
        "inputs",
        "key",
        "kill_s",
        "missing",
        "of_a_bag",
        "outputs",
        "pid",
        "process_key",
        "read",
        "ready_s",
        "signal",
        "streams",
        "why",
    )

    def __init__(self, values: list[Any], bag: BagSettings, now_s: float) -> None:
        self.key: Key = (values[0], values[1], values[2])
        self.command: str = values[3]
        self.inputs: dict[str, str] = values[4] if len(values) > 4 else {}
        self.outputs: list[str] = values[5] if len(values) > 5 else []
        self.of_a_bag = len(values) <= 6  # else it has settings of its own
        self.bag, self.came_s, self.ready_s = bag, now_s, now_s
        self.began_s = self.fetched_s = 0.0
        self.coming_s = float("inf")  # arrival time of the first byte of its missing inputs
        self.kill_s = 0.0  # when it is killed, if still running; 0: never
        self.pid, self.folder, self.why = 0, "", ""  # no process yet; it may be being started
        self.signal = 0  # sent to it, or to be sent as soon as it has started
        self.process_key = self.key  # of the mark of its processes
        self.streams: list[int] = []  # descriptors of its standard output and error
        self.read = [0, 0]  # up to where its output was reported while it runs
        self.missing: set[str] = set()

    @property
    def has_files(self) -> bool:
        """Return True where it runs in its own folder."""
        return bool(self.inputs or self.outputs)


class AttemptOutcome(NamedTuple):
    """Result of an attempt: exit code, −N for signal N, None where the node could not run it."""

    task: AgentTask
    code: int | None
    ran_s: float
    cpu_s: float
    peak_mib: float
    out: str
    err: str
    value: str = ""  # of a function, base64

    def to_wire(self, sent_s: float = 0.0) -> list[Any]:
        """Encode the result for the manager; ``sent_s``: how long the transfer of its outputs took,
        in seconds."""
        task = self.task
        waited_s = max(0.0, (task.began_s or task.ready_s) - task.came_s - task.fetched_s)
        times = [round(seconds, 4) for seconds in (waited_s, task.fetched_s, self.ran_s, sent_s)]
        used = [round(self.cpu_s, 4), round(self.peak_mib, 1)]
        value = (self.value,) if self.value else ()
        return [*task.key, self.code, times, *used, self.out, self.err, *value]


def could_not_run(task: AgentTask, why: str) -> AttemptOutcome:
    """Return the result of an attempt that cannot be started here."""
    return AttemptOutcome(task, None, 0.0, 0.0, 0.0, "", why)
