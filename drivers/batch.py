"""Slots as jobs of a real batch system: one driver, and a dialect for each system
(:mod:`vgrads.drivers.dialect`).

What is common stands here: names that make submission idempotent, states that only go forward, and
what to believe when the batch system forgets a job or a call ends without an answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from vgrads.drivers.api import Held, SlotSpec, SlotState, SlotStatus, Survey, mark
from vgrads.drivers.batch_site import BatchSite
from vgrads.drivers.dialect import JobReport, order_of
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
from vgrads.drivers.shell import here_document
from vgrads.kernel.clock import Clock

_PASSING = re.compile(
    r"submit\w*[ _]?limit|QOSMax|policy|only \d+ jobs|per.user|would exceed|quota"
    r"|temporar|try again|not available now",
    re.IGNORECASE,
)
"""What refusals say that time mends: too many jobs at once, a service that is busy."""
_PATIENCE = 3  # looks without a trace of a job before it counts as lost


class BatchDriver(LedgerDriver):
    """The driver of one batch site."""

    def __init__(self, site: BatchSite, clock: Clock) -> None:
        super().__init__(clock)
        self._site, self._dialect, self._access = site, site.dialect, site.access
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
        command = self._dialect.submit(order_of(spec, self._clock.now()), self._access)
        launch = self._launch(spec)
        if launch and launch.tidy and not self._access.shared_home:
            said = "a pilot on every node needs a home that all nodes share (access.shared_home)"
            self._ledger.move(spec.id, SlotState.FAILED, self._clock.now(), said, True)
            return
        script = here_document(command, slot_script(spec, self._access.folder, launch))
        self._unsure = True
        answer = self._site.call(script)
        self._unsure = False
        if answer.code:
            said, passing = f"refused: {answer.said}", bool(_PASSING.search(answer.said))
            self._ledger.move(spec.id, SlotState.FAILED, self._clock.now(), said, not passing)
            return
        job = self._jobs[spec.id] = self._dialect.job_id(answer.out)
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
            self._site.sweep([self._jobs[slot]])
        if slot in self._ledger:  # without a job: its submission never arrived
            self._ledger.move(slot, SlotState.RELEASED, self._clock.now(), "released")

    def close(self) -> None:
        """Give back everything that is still held, and what is held by nobody but the batch
        system."""
        super().close()
        self._end(self._lingering)

    def survey(self) -> Survey:
        """Reach the site and say what it can do."""
        return self._site.survey()

    def held(self) -> list[Held]:
        """Jobs that bear our mark and have not ended."""
        return self._site.held()

    def sweep(self, handles: Sequence[str]) -> None:
        """Remove these jobs."""
        self._site.sweep(handles)

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
        return self._dialect.launch(spec, environment_exports(spec))

    def _look(self, slots: Sequence[str]) -> None:
        """One call: the jobs of this user and the marks of these slots, taken over into the
        ledger."""
        listing = f"{self._dialect.listing()} || exit $?\n"
        answer = self._site.command(
            listing + marks_command(self._access.folder, [mark(s) for s in slots])
        )
        listed, _, marks_text = answer.out.partition(MARKS)
        marks = parse_marks(marks_text)
        by_name = _by_name(self._site.reports(listed))
        self._listed = set(by_name)
        forgotten = [n for n in map(mark, slots) if n not in by_name and n not in marks]
        by_name |= _by_name(self._site.past(forgotten))
        run = {r.job for reports in by_name.values() for r in reports if r.goes_on}
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
        self._site.sweep(list(lingering.values()))

    def _single(self, reports: list[JobReport], known: str | None) -> JobReport | None:
        """The slot's job; a second one, from a call that was repeated unawares, is removed."""
        if not reports:
            return None
        mine = [r for r in reports if r.job == known] or sorted(
            reports, key=lambda r: (r.state.ended, r.job)
        )
        doubles = [r.job for r in reports if r.job != mine[0].job and not r.state.ended]
        self._site.sweep(doubles)
        return mine[0]

    def _note(self, slot: str, report: JobReport | None, noted: Mark) -> None:
        """The one place where what was heard becomes a state."""
        now = self._clock.now()
        if report is not None:
            self._jobs[slot] = report.job
            self._missing.pop(slot, None)
        if noted.outcome is not None:
            self._ledger.move(slot, *(noted.outcome[0], now, noted.outcome[1]), noted.permanent)
            if report is not None and report.goes_on:
                self._lingering[slot] = report.job
        elif report is None:
            self._note_absence(slot, now)
        elif report.state == SlotState.GRANTED:
            began_s = now - (report.ran_s or 0.0)
            self._ledger.move(slot, SlotState.GRANTED, began_s)
            if noted.ready or not self._access.shared_home:
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


def _by_name(reports: Sequence[JobReport]) -> dict[str, list[JobReport]]:
    found: dict[str, list[JobReport]] = {}
    for report in reports:
        found.setdefault(report.name, []).append(report)
    return found
