"""What one kind of batch system understands and says: text in and text out.

Which command submits, lists and cancels, and what its answers mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from vgrads.drivers.api import Access, QueuedJob, SlotSpec, SlotState, Survey, mark
from vgrads.drivers.every_node import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """A job as its batch system tells of it. ``ran_s``: how long it has run, where that is told.

    ``slot``: our own id, where the system keeps it beside the name. ``ending``: it is being
    removed.
    """

    job: str
    name: str
    state: SlotState
    reason: str = ""
    ran_s: float | None = None
    slot: str = ""
    ending: bool = False

    @property
    def goes_on(self) -> bool:
        """True where it holds processors, or waits for some, and nobody has ended it yet."""
        return not self.state.ended and not self.ending


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job to be submitted, with times from now: what a dialect turns into options."""

    name: str
    slot: str
    queue: str
    procs: int
    nodes: int
    duration_s: float
    every_node: bool = False
    begin_in_s: float = 0.0
    end_in_s: float | None = None


def order_of(spec: SlotSpec, now_s: float = 0.0) -> Order:
    """The job that holds a slot."""
    return Order(
        name=mark(spec.id),
        slot=spec.id,
        queue=spec.queue,
        procs=spec.procs,
        nodes=spec.nodes,
        duration_s=spec.duration_s,
        every_node=spec.every_node,
        begin_in_s=max(0.0, (spec.begin_s or 0.0) - now_s),
        end_in_s=None if spec.end_by_s is None else spec.end_by_s - now_s,
    )


class Dialect(Protocol):
    """What one kind of batch system understands and says."""

    def submit(self, order: Order, access: Access) -> str:
        """The command that submits the script on its standard input and prints the job's id."""

    def job_id(self, printed: str) -> str:
        """The id within what that command printed."""

    def launch(self, spec: SlotSpec, exports: str) -> Launch:
        """How the script of a job of several nodes starts its pilot on each; ``exports``: the
        environment."""

    def listing(self) -> str:
        """Commands that list all jobs of this user, ended ones as far as they are known."""

    def jobs(self, printed: str) -> list[JobReport]:
        """Those jobs."""

    def past(self, names: Sequence[str]) -> str:
        """Commands that tell of ended jobs that the listing forgot; empty where there is no such
        place."""

    def past_jobs(self, printed: str) -> list[JobReport]:
        """Those jobs."""

    def cancel(self, jobs: Sequence[str]) -> str:
        """The command that removes jobs; ones that have ended are no error."""

    def transient(self, said: str) -> bool:
        """True where a complaint means that the service does not answer, not that it refuses."""

    def survey(self, access: Access) -> str:
        """Commands that tell version, queues and limits."""

    def surveyed(self, printed: str) -> Survey:
        """What they told."""

    def accounting(self, from_ago_s: float, until_ago_s: float) -> str:
        """Commands that print accounting of what happened between two instants before now; empty:
        cannot."""

    def accounted(self, line: str) -> tuple[str, str] | None:
        """(key of the job, its queue) of a line of accounting; None for a header."""

    def everybody(self) -> str:
        """Commands that list the jobs of all users that wait or run."""

    def queued(self, printed: str) -> list[QueuedJob]:
        """Those jobs."""

    def forecast(self, order: Order, access: Access) -> str:
        """Commands that ask when such a job would start; empty where the system does not tell."""

    def forecast_in_s(self, printed: str) -> float | None:
        """Seconds until then; None where it did not say."""
