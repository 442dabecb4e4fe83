"""Slots as jobs of a real batch system: one driver, and a dialect for each system.

A dialect is text in and text out: which command submits, lists and cancels, and what its answers
mean. What is common stands here: names that make submission idempotent, states that only go
forward, and what to believe when the batch system forgets a job or a call ends without an answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vgrads.drivers.api import (
    Access,
    Held,
    QueuedJob,
    SlotSpec,
    SlotState,
    SlotStatus,
    Survey,
    mark,
)
from vgrads.drivers.every_node import Launch, only_node
from vgrads.drivers.ledger import LedgerDriver
from vgrads.drivers.pilot import (
    MARKS,
    Mark,
    environment_exports,
    marks_command,
    parse_marks,
    slot_script,
)
from vgrads.drivers.shell import Output, Shell, here_document
from vgrads.kernel.clock import Clock
from vgrads.kernel.errors import SiteError

_PASSING = re.compile(
    r"submit\w*[ _]?limit|QOSMax|policy|only \d+ jobs|per.user|would exceed|quota"
    r"|temporar|try again|not available now",
    re.IGNORECASE,
)
"""What refusals say that time mends: too many jobs at once, a service that is busy."""
_PATIENCE = 3  # looks without a trace of a job before it counts as lost


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


class BatchDriver(LedgerDriver):
    """The driver of one batch site. ``shell`` reaches it, ``dialect`` speaks its language."""

    def __init__(
        self, site: str, dialect: Dialect, shell: Shell, clock: Clock, access: Access | None = None
    ) -> None:
        super().__init__(clock)
        self.site, self.dialect, self.shell = site, dialect, shell
        self.access = access or Access()
        self._jobs: dict[str, str] = {}  # slot → its job
        self._missing: dict[str, int] = {}  # slot → looks in which its job was not there
        self._listed: set[str] = set()  # names of all our jobs at the last look
        self._lingering: dict[str, str] = {}  # ended slot → its job, which runs on
        self._unsure = True  # jobs may be there that are not known here: see submit

    # the three verbs

    def submit(self, spec: SlotSpec) -> None:
        """Ask for a slot; look first where it may have been asked for, by an earlier manager or a
        lost call."""
        if self._settled(spec.id):
            return
        if self._unsure or mark(spec.id) in self._listed:
            self._look([spec.id])
            self._unsure = False
        if self._settled(spec.id):
            return
        self._ledger.move(spec.id, SlotState.REQUESTED, self._clock.now())
        command = self.dialect.submit(self._order(spec), self.access)
        launch = self._launch(spec)
        if launch and launch.tidy and not self.access.shared_home:
            said = "a pilot on every node needs a home that all nodes share (access.shared_home)"
            self._ledger.move(spec.id, SlotState.FAILED, self._clock.now(), said, True)
            return
        script = here_document(command, slot_script(spec, self.access.folder, launch))
        self._unsure = True
        answer = self._call(script)
        self._unsure = False
        if answer.code:
            said, passing = f"refused: {answer.said}", bool(_PASSING.search(answer.said))
            self._ledger.move(spec.id, SlotState.FAILED, self._clock.now(), said, not passing)
            return
        job = self._jobs[spec.id] = self.dialect.job_id(answer.out)
        self._ledger.move(spec.id, SlotState.QUEUED, self._clock.now(), f"job {job}")

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        open_slots = [slot for slot in slots if not self._ended(slot)]
        if open_slots:
            self._look(open_slots)
        return self._ledger.status(slots, self._clock.now())

    def cancel(self, slot: str) -> None:
        if self._ended(slot):
            return
        if slot not in self._jobs:
            self._look([slot])
        if slot in self._jobs and not self._ended(slot):
            self._check(self._call(self.dialect.cancel([self._jobs[slot]])))
        if slot in self._ledger:  # without a job: its submission never arrived
            self._ledger.move(slot, SlotState.RELEASED, self._clock.now(), "released")

    def close(self) -> None:
        """Give back everything that is still held, and what is held by nobody but the batch
        system."""
        super().close()
        self._end(self._lingering)

    # what else a real site can tell

    def survey(self) -> Survey:
        """Reach the site and say what it can do."""
        return self.dialect.surveyed(self._command(self.dialect.survey(self.access)).out)

    def held(self) -> list[Held]:
        """Jobs that bear our mark and have not ended."""
        reports = self._reports(self._command(self.dialect.listing()).out)
        return [
            Held(
                handle=r.job, name=r.name, slot=r.slot, state=r.state, run=r.slot.partition(".")[0]
            )
            for r in reports
            if _goes_on(r)
        ]

    def sweep(self, handles: Sequence[str]) -> None:
        """Remove these jobs."""
        if handles:
            self._check(self._call(self.dialect.cancel(handles)))

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
                site=self.site,
                transient=False,
                fix="copy its accounting files and name them as the queue's history",
            )
        answer = self._check(self._call(command, timeout_s=max(600.0, self.access.timeout_s)))
        found: dict[str, tuple[str, str]] = {}
        for line in answer.out.splitlines():
            who = self.dialect.accounted(line)
            found[who[0] if who else ""] = (who[1] if who else "", line)
        return found

    def start_estimate_s(self, spec: SlotSpec) -> float | None:
        """Seconds until the site itself expects such a slot to start; None where it does not say.

        SiteError, not transient, in the site's words where it would refuse the slot.
        """
        command = self.dialect.forecast(self._order(spec), self.access)
        if not command:
            return None
        answer = self._call(command)
        found = self.dialect.forecast_in_s(answer.out)
        if answer.code and found is None:
            said = " ".join(line for line in answer.out.splitlines() if not line.isdigit())
            raise SiteError(
                f"would refuse a slot of {spec.procs} processors in '{spec.queue}': {said}",
                site=self.site,
                transient=False,
                fix=f"vgrads sites check {self.site} tells its queues and limits",
            )
        return found

    def queue(self) -> list[QueuedJob]:
        """Everybody's jobs that wait or run."""
        return self.dialect.queued(self._command(self.dialect.everybody()).out)

    # inside

    def _settled(self, slot: str) -> bool:
        """True where there is nothing to ask for: the slot has its job, or has ended."""
        return slot in self._jobs or self._ended(slot)

    def _launch(self, spec: SlotSpec) -> Launch | None:
        """How the pilot starts; None: once, as ever."""
        if not spec.every_node or not spec.pilot:
            return None
        if spec.nodes == 1:
            return only_node(spec.pilot)
        return self.dialect.launch(spec, environment_exports(spec))

    def _order(self, spec: SlotSpec) -> Order:
        now = self._clock.now()
        return Order(
            name=mark(spec.id),
            slot=spec.id,
            queue=spec.queue,
            procs=spec.procs,
            nodes=spec.nodes,
            duration_s=spec.duration_s,
            every_node=spec.every_node,
            begin_in_s=max(0.0, (spec.begin_s or 0.0) - now),
            end_in_s=None if spec.end_by_s is None else spec.end_by_s - now,
        )

    def _call(self, script: str, timeout_s: float | None = None) -> Output:
        """An answer that came; SiteError (transient) where the service did not answer."""
        answer = self.shell.command(script, timeout_s)
        if answer.code and self.dialect.transient(answer.err):
            raise SiteError(answer.said, site=self.site, transient=True, fix="asked again later")
        return answer

    def _command(self, script: str) -> Output:
        return self._check(self._call(script))

    def _check(self, answer: Output) -> Output:
        if answer.code:
            raise SiteError(answer.said or "failed", site=self.site, transient=False)
        return answer

    def _look(self, slots: Sequence[str]) -> None:
        """One call: the jobs of this user and the marks of these slots, taken over into the
        ledger."""
        listing = f"{self.dialect.listing()} || exit $?\n"
        answer = self._command(
            listing + marks_command(self.access.folder, [mark(s) for s in slots])
        )
        listed, _, marks_text = answer.out.partition(MARKS)
        marks = parse_marks(marks_text)
        by_name = _by_name(self._reports(listed))
        self._listed = set(by_name)
        forgotten = [n for n in map(mark, slots) if n not in by_name and n not in marks]
        by_name |= _by_name(self._past(forgotten))
        run = {r.job for reports in by_name.values() for r in reports if _goes_on(r)}
        self._end({slot: job for slot, job in self._lingering.items() if job in run})
        self._lingering = {}
        for slot in slots:
            name = mark(slot)
            report = self._single(by_name.get(name, []), self._jobs.get(slot))
            self._note(slot, report, marks.get(name, Mark()))

    def _end(self, lingering: Mapping[str, str]) -> None:
        """Remove jobs that run on although their slots have ended: a batch system that lost sight
        of a job's processes does not know that they are gone, and keeps its processors for it up to
        its time limit."""
        if lingering:
            self._check(self._call(self.dialect.cancel(list(lingering.values()))))

    def _past(self, names: list[str]) -> list[JobReport]:
        """What accounting says of jobs that the batch system lists no more; nothing where there is
        none."""
        command = self.dialect.past(names) if names else ""
        if not command:
            return []
        answer = self._call(command)
        return [] if answer.code else self.dialect.past_jobs(answer.out)

    def _reports(self, listed: str) -> list[JobReport]:
        return [r for r in self.dialect.jobs(listed) if r.name.startswith("vg-")]

    def _single(self, reports: list[JobReport], known: str | None) -> JobReport | None:
        """The slot's job; a second one, from a call that was repeated unawares, is removed."""
        if not reports:
            return None
        mine = [r for r in reports if r.job == known] or sorted(
            reports, key=lambda r: (r.state.ended, r.job)
        )
        doubles = [r.job for r in reports if r.job != mine[0].job and not r.state.ended]
        if doubles:
            self._check(self._call(self.dialect.cancel(doubles)))
        return mine[0]

    def _note(self, slot: str, report: JobReport | None, noted: Mark) -> None:
        """The one place where what was heard becomes a state."""
        now = self._clock.now()
        if report is not None:
            self._jobs[slot] = report.job
            self._missing.pop(slot, None)
        if noted.outcome is not None:
            self._ledger.move(slot, *(noted.outcome[0], now, noted.outcome[1]), noted.permanent)
            if report is not None and _goes_on(report):
                self._lingering[slot] = report.job
        elif report is None:
            self._note_absence(slot, now)
        elif report.state == SlotState.GRANTED:
            began_s = now - (report.ran_s or 0.0)
            self._ledger.move(slot, SlotState.GRANTED, began_s)
            if noted.ready or not self.access.shared_home:
                self._ledger.move(slot, SlotState.READY, now)
        else:
            self._ledger.move(slot, report.state, now, report.reason)

    def _note_absence(self, slot: str, now: float) -> None:
        """A job that is neither listed nor has left an end mark: patience, then lost."""
        if slot not in self._ledger or slot not in self._jobs:
            return
        self._missing[slot] = self._missing.get(slot, 0) + 1
        if self._missing[slot] >= _PATIENCE:
            self._ledger.move(
                slot,
                SlotState.FAILED,
                now,
                f"job {self._jobs[slot]} left the queue without a trace",
            )


def _goes_on(report: JobReport) -> bool:
    """True where a job holds processors, or waits for some, and nobody has ended it yet."""
    return not report.state.ended and not report.ending


def _by_name(reports: Sequence[JobReport]) -> dict[str, list[JobReport]]:
    found: dict[str, list[JobReport]] = {}
    for report in reports:
        found.setdefault(report.name, []).append(report)
    return found
