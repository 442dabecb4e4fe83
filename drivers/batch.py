"""Slots as jobs of a real batch system: one driver, and a dialect for each system
(:mod:`vgrads.drivers.dialect`).

Contains the common part: names that make submission idempotent, states that only increase, and the
handling of jobs that the batch system forgot and of calls that ended without an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from vgrads.drivers.api import MarkedJob, SlotSpec, SlotState, SlotStatus, Survey, mark
from vgrads.drivers.batch_site import BatchSite
from vgrads.drivers.dialect import JobReport
from vgrads.drivers.every_node import Launch, only_node
from vgrads.drivers.ledger import LedgerDriver
from vgrads.drivers.pilot import (
    MARKS,
    Mark,
    parse_marks,
    write_exports,
    write_marks_command,
    write_pilot_command,
    write_slot_script,
)
from vgrads.drivers.shell import here_document
from vgrads.kernel.clock import Clock

_PASSING = re.compile(
    r"submit\w*[ _]?limit|QOSMax|policy|only \d+ jobs|per.user|would exceed|quota"
    r"|temporar|try again|not available now",
    re.IGNORECASE,
)
"""Matches refusals that time cures: too many jobs at once, a busy service."""
_PATIENCE = 3  # polls without a trace of a job until it counts as lost


class BatchDriver(LedgerDriver):
    """Driver of one batch site. ``may_look``: whether the states of slots may be asked now; if not,
    those of the last look count."""

    def __init__(
        self, site: BatchSite, clock: Clock, may_look: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(clock)
        self._may_look = may_look
        self._site, self._dialect, self._access = site, site.dialect, site.access
        self._jobs: dict[str, str] = {}  # job of each slot
        self._missing: dict[str, int] = {}  # polls in which the job of a slot was missing
        self._listed: set[str] = set()  # names of all our jobs at the last poll
        self._lingering: dict[str, str] = {}  # jobs that still run although their slot has ended
        self._uncertain = True  # jobs may be there that are not known here: see submit

    # driver interface

    def submit(self, spec: SlotSpec) -> None:
        """Submit a slot request. First check whether an earlier manager or a lost call submitted
        it."""
        if self._settled(spec.id):
            return
        if self._uncertain or mark(spec.id) in self._listed:
            self._look([spec.id])
            self._uncertain = False
        if self._settled(spec.id):
            return
        self._ledger.move(spec.id, SlotState.REQUESTED, self._clock.now())
        command = self._dialect.submit(
            self._site.make_submission(spec, self._clock.now()), self._access
        )
        launch = self._launch(spec)
        if launch and launch.tidy and not self._access.shared_home:
            problem = "a pilot on every node needs a home that all nodes share (access.shared_home)"
            self._ledger.move(spec.id, SlotState.FAILED, self._clock.now(), problem, True)
            return
        script = here_document(command, write_slot_script(spec, self._access.folder, launch))
        # until the call returns, the job may or may not exist: after an
        # error the next call looks first
        self._uncertain = True
        answer = self._site.call(script)
        self._uncertain = False
        if answer.code:
            problem, passing = f"refused: {answer.text}", bool(_PASSING.search(answer.text))
            self._ledger.move(spec.id, SlotState.FAILED, self._clock.now(), problem, not passing)
            return
        job = self._jobs[spec.id] = self._dialect.job_id(answer.out)
        self._ledger.move(spec.id, SlotState.QUEUED, self._clock.now(), f"job {job}")

    def status(self, slots: Sequence[str]) -> list[SlotStatus]:
        open_slots = [slot for slot in slots if not self._ended(slot)]
        if open_slots and self._may_look():
            self._look(open_slots)
        return self._ledger.status(slots, self._clock.now())

    def cancel(self, slot: str) -> None:
        if self._ended(slot):
            return
        if slot not in self._jobs:
            self._look([slot])
        if slot in self._jobs and not self._ended(slot):
            self._site.sweep([self._jobs[slot]])
        if slot in self._ledger:  # without a job: the submission never arrived
            self._ledger.move(slot, SlotState.RELEASED, self._clock.now(), "released")

    def close(self) -> None:
        """Release all open slots, and remove jobs that only the batch system still holds."""
        super().close()
        self._end(self._lingering)

    def survey(self) -> Survey:
        """Contact the site and report its features."""
        return self._site.survey()

    def marked_jobs(self) -> list[MarkedJob]:
        """Return the jobs that carry a mark of vgrads and are not terminal."""
        return self._site.marked_jobs()

    def sweep(self, handles: Sequence[str]) -> None:
        """Remove these jobs."""
        self._site.sweep(handles)

    # inside

    def _settled(self, slot: str) -> bool:
        """True if nothing needs to be submitted: the slot has its job, or is terminal."""
        return slot in self._jobs or self._ended(slot)

    def _launch(self, spec: SlotSpec) -> Launch | None:
        """Return how the pilot starts; None: once, the default."""
        if not spec.every_node or not spec.pilot:
            return None
        if spec.nodes == 1:
            return only_node(write_pilot_command(spec))
        return self._dialect.launch(spec, write_exports(spec))

    def _look(self, slots: Sequence[str]) -> None:
        """Update the ledger from this user's jobs and the marks of these slots, in one call."""
        listing = f"{self._dialect.listing()} || exit $?\n"
        answer = self._site.command(
            listing + write_marks_command(self._access.folder, [mark(s) for s in slots])
        )
        listed, _, marks_text = answer.out.partition(MARKS)
        marks = parse_marks(marks_text)
        by_name = _index_by_name(self._site.reports(listed))
        self._listed = set(by_name)
        forgotten = [n for n in map(mark, slots) if n not in by_name and n not in marks]
        by_name |= _index_by_name(self._site.past(forgotten))
        run = {r.job for reports in by_name.values() for r in reports if r.goes_on}
        # one poll after the end mark: a job that just ends has had time to leave the queue
        self._end({slot: job for slot, job in self._lingering.items() if job in run})
        self._lingering = {}
        for slot in slots:
            name = mark(slot)
            report = self._single(by_name.get(name, []), self._jobs.get(slot))
            self._note(slot, report, marks.get(name, Mark()))

    def _end(self, lingering: Mapping[str, str]) -> None:
        """Remove jobs that still run although their slots have ended. A batch system that lost
        track of a job's processes does not know that they are gone, and reserves the processors
        until the time limit."""
        self._site.sweep(list(lingering.values()))

    def _single(self, reports: list[JobReport], handle: str | None) -> JobReport | None:
        """Return the slot's job; remove duplicates that repeated calls submitted."""
        if not reports:
            return None
        # the same choice at each poll: one that has not ended, of these the lowest
        mine = [r for r in reports if r.job == handle] or sorted(
            reports, key=lambda r: (r.state.ended, r.job)
        )
        doubles = [r.job for r in reports if r.job != mine[0].job and not r.state.ended]
        self._site.sweep(doubles)
        return mine[0]

    def _note(self, slot: str, report: JobReport | None, noted: Mark) -> None:
        """Derive the state of a slot from its job report and its mark."""
        now = self._clock.now()
        if report is not None:
            self._jobs[slot] = report.job
            self._missing.pop(slot, None)
        # the mark decides: the batch system may have forgotten the job, or still show it as running
        if noted.outcome is not None:
            self._ledger.move(slot, *(noted.outcome[0], now, noted.outcome[1]), noted.permanent)
            if report is not None and report.goes_on:
                self._lingering[slot] = report.job
        elif report is None:
            self._note_absence(slot, now)
        elif report.state == SlotState.GRANTED:
            # from the duration, since the site's clock may differ from this one
            began_s = now - (report.ran_s or 0.0)
            self._ledger.move(slot, SlotState.GRANTED, began_s)
            # marks are written on nodes: without a shared home none is seen where commands run
            if noted.ready or not self._access.shared_home:
                self._ledger.move(slot, SlotState.READY, now)
        else:
            self._ledger.move(slot, report.state, now, report.reason)

    def _note_absence(self, slot: str, now: float) -> None:
        """Count a poll in which the job is neither listed nor has an end mark; after several, it is
        lost."""
        if slot not in self._ledger or slot not in self._jobs:
            return
        self._missing[slot] = self._missing.get(slot, 0) + 1
        if self._missing[slot] >= _PATIENCE:
            self._ledger.move(
                slot,
                SlotState.FAILED,
                now,
                f"job {self._jobs[slot]} disappeared from the queue",
            )


def _index_by_name(reports: Sequence[JobReport]) -> dict[str, list[JobReport]]:
    results: dict[str, list[JobReport]] = {}
    for report in reports:
        results.setdefault(report.name, []).append(report)
    return results
