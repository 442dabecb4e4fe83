"""A batch system to talk to, through its dialect: what it tells whether or not slots of ours are
there."""

from __future__ import annotations

from collections.abc import Sequence

from vgrads.drivers.api import Access, Held, QueuedJob, SlotSpec, Survey
from vgrads.drivers.dialect import Dialect, JobReport, order_of
from vgrads.drivers.shell import Output, Shell
from vgrads.kernel.errors import SiteError


class BatchSite:
    """One batch site. ``shell`` reaches it, ``dialect`` speaks its language."""

    def __init__(
        self, name: str, dialect: Dialect, shell: Shell, access: Access | None = None
    ) -> None:
        self.name, self.dialect, self._shell = name, dialect, shell
        self.access = access or Access()

    def survey(self) -> Survey:
        """Reach the site and say what it can do."""
        return self.dialect.surveyed(self.command(self.dialect.survey(self.access)).out)

    def held(self) -> list[Held]:
        """Jobs that bear our mark and have not ended."""
        reports = self.reports(self.command(self.dialect.listing()).out)
        return [
            Held(
                handle=r.job, name=r.name, slot=r.slot, state=r.state, run=r.slot.partition(".")[0]
            )
            for r in reports
            if r.goes_on
        ]

    def sweep(self, handles: Sequence[str]) -> None:
        """Remove these jobs."""
        if handles:
            self._check(self.call(self.dialect.cancel(handles)))

    def accounting(self, from_ago_s: float, until_ago_s: float = 0.0) -> dict[str, tuple[str, str]]:
        """Jobs between two instants, in seconds before now: key → (queue, line as the site prints
        it).

        SiteError where the site has no accounting that can be read from here. The line under the
        empty key is the header, where there is one.
        """
        command = self.dialect.accounting(from_ago_s, until_ago_s)
        if not command:
            raise SiteError(
                "its accounting cannot be asked for",
                site=self.name,
                transient=False,
                fix="copy its accounting files and name them as the queue's history",
            )
        answer = self._check(self.call(command, timeout_s=max(600.0, self.access.timeout_s)))
        found: dict[str, tuple[str, str]] = {}
        for line in answer.out.splitlines():
            who = self.dialect.accounted(line)
            found[who[0] if who else ""] = (who[1] if who else "", line)
        return found

    def start_estimate_s(self, spec: SlotSpec) -> float | None:
        """Seconds until the site itself expects such a slot to start; None where it does not say.

        SiteError, not transient, in the site's words where it would refuse the slot.
        """
        command = self.dialect.forecast(order_of(spec), self.access)
        if not command:
            return None
        answer = self.call(command)
        found = self.dialect.forecast_in_s(answer.out)
        if answer.code and found is None:
            said = " ".join(line for line in answer.out.splitlines() if not line.isdigit())
            raise SiteError(
                f"would refuse a slot of {spec.procs} processors in '{spec.queue}': {said}",
                site=self.name,
                transient=False,
                fix=f"vgrads sites check {self.name} tells its queues and limits",
            )
        return found

    def queue(self) -> list[QueuedJob]:
        """Everybody's jobs that wait or run."""
        return self.dialect.queued(self.command(self.dialect.everybody()).out)

    def call(self, script: str, timeout_s: float | None = None) -> Output:
        """An answer that came; SiteError (transient) where the service did not answer."""
        answer = self._shell.command(script, timeout_s)
        if answer.code and self.dialect.transient(answer.err):
            raise SiteError(answer.said, site=self.name, transient=True, fix="asked again later")
        return answer

    def command(self, script: str) -> Output:
        """The same; SiteError also where the command failed."""
        return self._check(self.call(script))

    def _check(self, answer: Output) -> Output:
        if answer.code:
            raise SiteError(answer.said or "failed", site=self.name, transient=False)
        return answer

    def past(self, names: list[str]) -> list[JobReport]:
        """What accounting says of jobs that the batch system lists no more; nothing where there is
        none."""
        command = self.dialect.past(names) if names else ""
        if not command:
            return []
        answer = self.call(command)
        return [] if answer.code else self.dialect.past_jobs(answer.out)

    def reports(self, listed: str) -> list[JobReport]:
        """Jobs that bear our mark, of a listing."""
        return [r for r in self.dialect.jobs(listed) if r.name.startswith("vg-")]
