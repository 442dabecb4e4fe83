"""Access to a batch system through its dialect: requests that need no slot of ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from vgrads.drivers.api import (
    MarkedJob,
    QueuedJob,
    SiteAccess,
    SiteFacts,
    SlotSpec,
    Survey,
)
from vgrads.drivers.dialect import MARGIN_S, Dialect, JobReport, JobSubmission, order_of
from vgrads.drivers.machines import find_machines
from vgrads.drivers.shell import Output, Shell, quote
from vgrads.kernel.closures import Closure
from vgrads.kernel.errors import SiteError
from vgrads.kernel.units import format_count

Parsed = TypeVar("Parsed")
_OLDEST = (3, 8)  # of agents


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingLines:
    """What a site printed of its accounting: key of a job → (queue, line as printed; the header,
    if there is one, under the empty key), and lines that are none of these."""

    jobs: Mapping[str, tuple[str, str]]
    unread: tuple[str, ...] = ()


class BatchSite:
    """A batch site. ``shell`` reaches it, ``dialect`` builds its commands and parses their
    output. ``max_walltime_s``: of each of its queues."""

    def __init__(
        self,
        name: str,
        dialect: Dialect,
        shell: Shell,
        access: SiteAccess | None = None,
        max_walltime_s: Mapping[str, float] | None = None,
    ) -> None:
        self.name, self.dialect, self._shell = name, dialect, shell
        self.access = access or SiteAccess()
        self._max_walltime_s = max_walltime_s or {}

    def make_submission(self, spec: SlotSpec, now_s: float) -> JobSubmission:
        """Return the job that is to hold a slot."""
        return order_of(spec, now_s, MARGIN_S, self._max_walltime_s.get(spec.queue, math.inf))

    def survey(self) -> Survey:
        """Contact the site and report its features."""
        return self.dialect.surveyed(self.command(self.dialect.survey(self.access)).out)

    def python_problem(self, pythons: Sequence[str]) -> str:
        """Return why none of these interpreters can run an agent where jobs are submitted; empty if
        one can."""
        names = " ".join(quote(name) for name in pythons)
        text = (
            f"for python in {names}; do\n"
            '  "$python" -c "import sys; print(*sys.version_info[:2])" 2>/dev/null && break\n'
            "done\ntrue\n"
        )
        printed = self.command(text).out.split()
        if len(printed) != 2:
            return f"no {' or '.join(pythons)} there: set access.python"
        version = (int(printed[0]), int(printed[1]))
        if version < _OLDEST:
            stated = ".".join(printed)
            return f"Python {stated} there is older than 3.8: set access.python to a newer one"
        return ""

    def marked_jobs(self) -> list[MarkedJob]:
        """Return the jobs that carry a mark of vgrads and are not terminal."""
        reports = self.reports(self.command(self.dialect.listing()).out)
        return [
            MarkedJob(
                handle=r.job, name=r.name, slot=r.slot, state=r.state, run=r.slot.partition(".")[0]
            )
            for r in reports
            if r.goes_on
        ]

    def sweep(self, handles: Sequence[str]) -> None:
        """Remove these jobs."""
        if handles:
            self._check(self.call(self.dialect.cancel(handles)))

    def accounting(self, from_ago_s: float, until_ago_s: float = 0.0) -> AccountingLines:
        """Return the jobs between two instants, in seconds before now.

        SiteError if the site has no accounting that is readable from here.
        """
        command = self.dialect.accounting(from_ago_s, until_ago_s)
        if not command:
            raise SiteError(
                "its accounting cannot be queried",
                site=self.name,
                transient=False,
                fix="copy its accounting files and name them as the queue's history",
            )
        # accounting of a long time is slow to query
        answer = self._check(self.call(command, timeout_s=max(600.0, self.access.timeout_s)))
        jobs: dict[str, tuple[str, str]] = {}
        unread: list[str] = []
        for line in filter(None, answer.out.split("\n")):
            who = self.dialect.accounted(line)
            if who is not None:
                jobs[who[0]] = who[1], line
            elif line == self.dialect.accounting_header:
                jobs[""] = "", line
            else:
                unread.append(line)
        return AccountingLines(jobs=jobs, unread=tuple(unread))

    def machines(self) -> Mapping[str, frozenset[str]]:
        """Return for each queue those that share nodes with it, itself included; empty if the site
        does not list nodes."""
        command = self.dialect.node_lists()
        return find_machines(self.dialect.listed(self.command(command).out)) if command else {}

    def start_estimate_s(self, spec: SlotSpec) -> float | None:
        """Return the seconds until the site's own start estimate for such a slot; None if it
        reports none.

        SiteError, not transient, with the site's message if it would refuse the slot.
        """
        command = self.dialect.forecast(order_of(spec, 0.0, 0.0, math.inf), self.access)
        if not command:
            return None
        answer = self.call(command)
        value = self.dialect.forecast_in_s(answer.out)
        if answer.code and value is None:
            # lines of digits are the site's clock, not part of its message
            text = " ".join(line for line in answer.out.splitlines() if not line.isdigit())
            raise SiteError(
                f"would refuse a slot of {format_count(spec.procs, 'processor')} in "
                f"'{spec.queue}': {text}",
                site=self.name,
                transient=False,
                fix=f"show its queues and limits with 'vgrads sites check {self.name}'",
            )
        return value

    def facts(self) -> SiteFacts:
        """Return the limits of its queues, and whose jobs it shows."""
        return self._parsed(self.dialect.listed_facts, self.dialect.facts())

    def closures(self, now_s: float) -> tuple[Closure, ...]:
        """Return the closures that the site has announced: reservations of others, maintenance,
        calendars of queues; empty if it announces none. ``now_s``: seconds since 1970, here. For
        callers that remember the answer: a site is asked at most once in ten minutes."""
        command = self.dialect.closures_command()
        if not command:
            return ()
        return self._parsed(
            lambda printed: self.dialect.closures(printed, now_s, self.access), command
        )

    def listed_jobs(self) -> list[QueuedJob]:
        """Return the waiting and running jobs of all users, also those that are held."""
        return self._parsed(self.dialect.listed_jobs, self.dialect.everybody())

    def _parsed(self, parse: Callable[[str], Parsed], script: str) -> Parsed:
        """Return what a script prints, parsed; SiteError (transient) for output of another form."""
        printed = self.command(script).out
        try:
            return parse(printed)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise SiteError(
                f"its answer cannot be read ({error}): {printed[:80]!r}",
                site=self.name,
                transient=True,
            ) from error

    def call(self, script: str, timeout_s: float | None = None) -> Output:
        """Run a script and return its output; SiteError (transient) if the service did not
        answer."""
        answer = self._shell.command(script, timeout_s)
        if answer.code and self.dialect.transient(answer.err):
            raise SiteError(
                answer.text, site=self.name, transient=True, fix="the request is repeated later"
            )
        return answer

    def command(self, script: str) -> Output:
        """Run a script as :meth:`call` does; SiteError also if the command failed."""
        return self._check(self.call(script))

    def _check(self, answer: Output) -> Output:
        if answer.code:
            raise SiteError(answer.text or "failed", site=self.name, transient=False)
        return answer

    def past(self, names: list[str]) -> list[JobReport]:
        """Return accounting reports of jobs that the batch system no longer lists; empty if there
        is no accounting."""
        command = self.dialect.past(names) if names else ""
        if not command:
            return []
        answer = self.call(command)
        return [] if answer.code else self.dialect.past_jobs(answer.out)

    def reports(self, listed: str) -> list[JobReport]:
        """Return the jobs of a listing that carry a mark of vgrads."""
        return [r for r in self.dialect.jobs(listed) if r.name.startswith("vg-")]
