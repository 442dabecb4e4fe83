"""Joint submissions: sets that several callers put together, a workflow each, at one service.

The first caller states how many are expected; when all have arrived, or the first one has waited as
long as it stated, the set is planned and run with the present ones. Joint submissions are held in
memory: a caller whose ticket is no longer registered submits its workflow again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from vgrads.kernel.errors import VgradsError
from vgrads.kernel.units import format_count, needed_of, parse_duration, parse_fraction
from vgrads.portal.records.access import Principal
from vgrads.portal.web.service import PLANNING_S, Service
from vgrads.portal.web.set_routes import begin_run

if TYPE_CHECKING:
    from vgrads.portal.jobs.release_documents import JointSubmissionDocument
    from vgrads.workflows.sets import WorkflowDocument

_log = logging.getLogger("vgrads.web")
_AGREED = ("of", "fraction", "deadline", "probability")
_MOST_WAIT_S = 86400.0
_RETENTION_S = 86400.0


@dataclass(slots=True)
class JointSubmission:
    """``came``: ticket → workflow, in the order of arrival; ``answer``: the common answer once it
    is decided."""

    first: JointSubmissionDocument
    until_s: float
    came: dict[str, WorkflowDocument] = field(default_factory=dict)
    answer: Mapping[str, Any] | None = None
    task: asyncio.Task[None] | None = None
    full: asyncio.Event = field(default_factory=asyncio.Event)


class JointSubmissions:
    """Joint submissions by owner and name."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._submissions: dict[tuple[str, str], JointSubmission] = {}

    def join(self, name: str, document: JointSubmissionDocument, who: Principal) -> dict[str, Any]:
        """Join a joint submission, or poll it. HTTPException 409 for a late caller, or one with
        different options."""
        self._forget_old()
        submission = self._submissions.get((who.user, name))
        if submission is None:
            wait_s = min(parse_duration(document.wait, "wait"), _MOST_WAIT_S)
            parse_fraction(document.fraction, "fraction")
            submission = self._submissions[who.user, name] = JointSubmission(
                document, time.monotonic() + wait_s
            )
            # stored, because the event loop itself holds its tasks only weakly
            submission.task = asyncio.create_task(self._decide(name, submission, who, wait_s))
        if document.ticket not in submission.came:
            self._let_in(name, submission, document)
        return self.look(name, document.ticket, who)

    def _let_in(
        self, name: str, submission: JointSubmission, document: JointSubmissionDocument
    ) -> None:
        if submission.answer is not None or submission.full.is_set():
            raise HTTPException(
                409,
                (
                    f"set '{name}' has started with {len(submission.came)} of "
                    f"{format_count(submission.first.of, 'workflow')}: too "
                    "late; submit this workflow alone, or under another name"
                ),
            )
        for item in _AGREED:
            if getattr(document, item) != getattr(submission.first, item):
                raise HTTPException(
                    409,
                    (
                        f"{item}: is {getattr(document, item)} here and "
                        f"{getattr(submission.first, item)} in the first submission to set '{name}'"
                    ),
                )
        submission.came[document.ticket] = document.workflow
        if len(submission.came) == submission.first.of:
            submission.full.set()

    def look(self, name: str, ticket: str, who: Principal) -> dict[str, Any]:
        """Return the state of a joint submission: waiting, begun (``set``, ``run``, ``workflow``)
        or failed (``reason``)."""
        submission = self._submissions.get((who.user, name))
        if submission is None or ticket not in submission.came:
            raise HTTPException(404, f"no submission with this ticket is waiting for set '{name}'")
        payload = {"came": len(submission.came), "of": submission.first.of}
        if submission.answer is None:
            return {
                "state": "waiting",
                **payload,
                "waits_s": max(0.0, submission.until_s - time.monotonic()),
            }
        return {**submission.answer, **payload, "workflow": _list_names(submission)[ticket]}

    async def _decide(
        self, name: str, submission: JointSubmission, who: Principal, wait_s: float
    ) -> None:
        try:
            await asyncio.wait_for(submission.full.wait(), wait_s)
        except TimeoutError:
            # closed: who comes later would not be in the set that is planned now
            submission.full.set()
        try:
            submission.answer = await self._begin(name, submission, who)
        except VgradsError as error:
            submission.answer = {"state": "failed", "reason": str(error)}
        except HTTPException as error:
            submission.answer = {"state": "failed", "reason": str(error.detail)}
        except Exception:  # without an answer all callers would wait for ever
            _log.exception("joint submission '%s' of %s failed", name, who.user)
            submission.answer = {"state": "failed", "reason": "internal error: see the log"}

    async def _begin(
        self, name: str, submission: JointSubmission, who: Principal
    ) -> dict[str, Any]:
        first = submission.first
        needed = needed_of(parse_fraction(first.fraction, "fraction"), first.of)
        if len(submission.came) < needed:
            return {
                "state": "failed",
                "reason": f"only {len(submission.came)} of "
                f"{format_count(first.of, 'workflow', 'were')} submitted, {needed} are needed",
            }
        document = {
            "name": name,
            "deadline": first.deadline,
            "probability": first.probability,
            "at_least": needed,
            "released": True,
            "workflows": [
                document.model_dump(mode="json", exclude_unset=True)
                for document in submission.came.values()
            ],
        }
        checked = await self._service.read_set(json.dumps(document).encode(), "json")
        answer, _ = await self._service.submit_set(checked, who, None, PLANNING_S)
        run_id = await begin_run(
            self._service, answer["id"], who, {"engine": "vgrads", "speed": None}, None, None
        )
        return {"state": "begun", "set": answer["id"], "run": run_id, "needed": needed}

    def _forget_old(self) -> None:
        old_s = time.monotonic() - _RETENTION_S
        for key in [
            key
            for key, submission in self._submissions.items()
            if submission.answer and submission.until_s < old_s
        ]:
            del self._submissions[key]


def _list_names(submission: JointSubmission) -> dict[str, str]:
    """Return ticket → the name of its workflow in the set, of the first where it has several."""
    # imported late: the service starts without the documents of sets
    from vgrads.workflows.sets import number_name

    taken: Counter[str] = Counter()
    names = {}
    for ticket, workflow in submission.came.items():
        names[ticket], *_ = [number_name(workflow.name, taken) for _ in range(workflow.count)]
    return names
