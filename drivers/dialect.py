"""Dialect of a batch system, text in and text out: commands that submit, list and cancel, and the
parsing of their output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from vgrads.drivers.api import (
    QueuedJob,
    QueueLimits,
    SiteAccess,
    SiteFacts,
    SlotSpec,
    SlotState,
    Survey,
    mark,
)
from vgrads.drivers.every_node import Launch
from vgrads.kernel.closures import Closure
from vgrads.kernel.units import format_count


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """A job as its batch system reports it. ``ran_s``: run time so far, if reported.

    ``slot``: the slot id of vgrads, if the system stores it in addition to the name. ``ending``: it
    is being removed.
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
        """True if the job holds or waits for processors and is not being removed."""
        return not self.state.ended and not self.ending


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmission:
    """A job to be submitted, with times from now; a dialect converts it into options."""

    name: str
    slot: str
    queue: str
    procs: int
    nodes: int
    walltime_s: float
    every_node: bool = False
    begin_in_s: float = 0.0
    end_in_s: float | None = None


MARGIN_S = 30.0
"""The walltime of a job exceeds the slot by this: the job's script ends the slot and reports it.
The batch system's limit applies only if that fails."""


def order_of(spec: SlotSpec, now_s: float, margin_s: float, longest_s: float) -> JobSubmission:
    """Return the job that holds a slot. Its walltime has a margin, as far as the queue's limit
    (``longest_s``) and the end by which the slot must be over permit it."""
    begin_in_s = max(0.0, (spec.begin_s or 0.0) - now_s)
    end_in_s = None if spec.end_by_s is None else spec.end_by_s - now_s
    most_s = longest_s if end_in_s is None else min(longest_s, end_in_s - begin_in_s)
    return JobSubmission(
        name=mark(spec.id),
        slot=spec.id,
        queue=spec.queue,
        procs=spec.procs,
        nodes=spec.nodes,
        walltime_s=max(spec.duration_s, min(spec.duration_s + margin_s, most_s)),
        every_node=spec.every_node,
        begin_in_s=begin_in_s,
        end_in_s=end_in_s,
    )


def list_own_reservations(access: SiteAccess) -> frozenset[str]:
    """Return the reservations that our jobs name, in which they may run."""
    options = " ".join(access.options).replace("=", " ").split()
    named = [v for k, v in pairwise(options) if k in ("--reservation", "-ar")]
    return frozenset({access.reservation, *named} - {""})


_FEW = 0.01
"""Share of the lines of a queue that may be of no known form."""


def refuse_unread(unread: int, lines: int) -> None:
    """Raise ValueError where so many lines of a queue are no jobs that it is another queue."""
    if unread > _FEW * lines:
        raise ValueError(f"of {format_count(lines, 'line')} {unread} are no jobs")


class Dialect(Protocol):
    """Commands and output formats of one kind of batch system."""

    def submit(self, order: JobSubmission, access: SiteAccess) -> str:
        """Return the command that submits the script on its standard input and prints the job's
        id."""

    def job_id(self, printed: str) -> str:
        """Parse the job id from the output of that command."""

    def launch(self, spec: SlotSpec, exports: str) -> Launch:
        """Return how the script of a job of several nodes starts its pilot on each; ``exports``:
        the environment."""

    def listing(self) -> str:
        """Return commands that list all jobs of this user, including ended ones that are still
        known."""

    def jobs(self, printed: str) -> list[JobReport]:
        """Parse these jobs."""

    def past(self, names: Sequence[str]) -> str:
        """Return commands that report ended jobs that the listing omits; empty if the system has
        none."""

    def past_jobs(self, printed: str) -> list[JobReport]:
        """Parse these jobs."""

    def cancel(self, jobs: Sequence[str]) -> str:
        """Return the command that removes jobs; ended jobs are no error."""

    def transient(self, text: str) -> bool:
        """True if an error message means that the service does not answer, not that it refuses."""

    def survey(self, access: SiteAccess) -> str:
        """Return commands that print version, queues and limits."""

    def surveyed(self, printed: str) -> Survey:
        """Parse the survey from their output."""

    def facts(self) -> str:
        """Return commands that print who asks, whose jobs are shown, and the limits of queues."""

    def listed_facts(self, printed: str) -> SiteFacts:
        """Parse these."""

    def node_lists(self) -> str:
        """Return commands that print the nodes of all queues; empty if not supported."""

    def listed(self, printed: str) -> tuple[QueueLimits, ...]:
        """Parse the queues from their output."""

    def accounting(self, from_ago_s: float, until_ago_s: float) -> str:
        """Return commands that print the accounting between two instants before now; empty if not
        supported."""

    @property
    def accounting_header(self) -> str:
        """The line that names the columns of the accounting; empty if there is none."""

    def accounted(self, line: str) -> tuple[str, str] | None:
        """Parse (key of the job, its queue) from a line of accounting; None for a header."""

    def everybody(self) -> str:
        """Return commands that list the waiting and running jobs of all users."""

    def listed_jobs(self, printed: str) -> list[QueuedJob]:
        """Parse these jobs, one for each task of an array, also those that are held."""

    def closures_command(self) -> str:
        """Return commands that print the site's clock and its announced closures; empty if not
        supported."""
        return ""

    def closures(
        self,
        printed: str,  # noqa: ARG002 of a system that announces none
        now_s: float,  # noqa: ARG002
        access: SiteAccess,  # noqa: ARG002
    ) -> tuple[Closure, ...]:
        """Parse the closures; ``now_s``: seconds since 1970, here. Reservations that our jobs name
        (``access``) are none."""
        return ()

    def forecast(self, order: JobSubmission, access: SiteAccess) -> str:
        """Return commands that print the start estimate of such a job; empty if not supported."""

    def forecast_in_s(self, printed: str) -> float | None:
        """Parse the seconds until that start; None if there is no estimate."""
