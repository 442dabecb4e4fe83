"""Sets that several callers put together, a workflow each, at one service.

Whoever comes first says how many are expected; when all have come, or the first one has waited as
long as it said, the set is planned and run with those that are there. What is gathered lives as
long as the service: a caller whose ticket is not known any more hands its workflow over again.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field
from starlette.exceptions import HTTPException

from vgrads.kernel.documents import Document
from vgrads.kernel.errors import VgradsError
from vgrads.kernel.units import parse_duration, parse_fraction
from vgrads.portal.records.access import Principal
from vgrads.portal.web.service import PLANNING_S, Service
from vgrads.portal.web.set_routes import begin_run
from vgrads.workflows.sets import WorkflowDocument

_AGREED = ("of", "fraction", "deadline", "probability")
_MOST_WAIT_S = 86400.0
_KEPT_S = 86400.0


class GatherDocument(Document):
    """One workflow of a set that ``of`` callers put together; ``ticket``: tells this caller from
    the others.

    All say the same of the set; ``wait``: how long the first one lets the others be waited for.
    """

    ticket: Annotated[str, Field(min_length=8, max_length=100)]
    of: Annotated[int, Field(ge=1, le=1000)]
    fraction: str | float = 1.0
    deadline: str
    probability: Annotated[float, Field(gt=0, lt=1)] = 0.9
    wait: str = "10m"
    workflow: WorkflowDocument


@dataclass(slots=True)
class Gathering:
    """``came``: ticket → workflow, in the order in which they came; ``answer``: what all are told
    once it is decided."""

    first: GatherDocument
    until_s: float
    came: dict[str, WorkflowDocument] = field(default_factory=dict)
    answer: Mapping[str, Any] | None = None
    task: asyncio.Task[None] | None = None
    full: asyncio.Event = field(default_factory=asyncio.Event)


class Gatherings:
    """By owner and name."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: dict[tuple[str, str], Gathering] = {}

    def join(self, name: str, given: GatherDocument, who: Principal) -> dict[str, Any]:
        """Come to a gathering, or look how it stands; HTTPException 409 for who is late, or says
        something else."""
        self._forget_old()
        found = self._known.get((who.user, name))
        if found is None:
            wait_s = min(parse_duration(given.wait, "wait"), _MOST_WAIT_S)
            parse_fraction(given.fraction, "fraction")
            found = self._known[who.user, name] = Gathering(given, time.monotonic() + wait_s)
            found.task = asyncio.create_task(self._decide(name, found, who, wait_s))
        if given.ticket not in found.came:
            self._let_in(name, found, given)
        return self.look(name, given.ticket, who)

    def _let_in(self, name: str, found: Gathering, given: GatherDocument) -> None:
        if found.answer is not None or found.full.is_set():
            raise HTTPException(
                409,
                (
                    f"set '{name}' has begun with {len(found.came)} of {found.first.of}: too "
                    "late; run it alone, or under another name"
                ),
            )
        for one in _AGREED:
            if getattr(given, one) != getattr(found.first, one):
                raise HTTPException(
                    409,
                    (
                        f"{one}: is {getattr(given, one)} here and {getattr(found.first, one)} "
                        f"for who came first to set '{name}'"
                    ),
                )
        found.came[given.ticket] = given.workflow
        if len(found.came) == found.first.of:
            found.full.set()

    def look(self, name: str, ticket: str, who: Principal) -> dict[str, Any]:
        """How a gathering stands: waiting, begun (``set``, ``run``, ``workflow``) or failed
        (``reason``)."""
        found = self._known.get((who.user, name))
        if found is None or ticket not in found.came:
            raise HTTPException(404, f"nobody with this ticket is waiting for set '{name}'")
        told = {"came": len(found.came), "of": found.first.of}
        if found.answer is None:
            return {
                "state": "waiting",
                **told,
                "waits_s": max(0.0, found.until_s - time.monotonic()),
            }
        return {**found.answer, **told, "workflow": _names(found)[ticket]}

    async def _decide(self, name: str, found: Gathering, who: Principal, wait_s: float) -> None:
        try:
            await asyncio.wait_for(found.full.wait(), wait_s)
        except TimeoutError:
            found.full.set()
        try:
            found.answer = await self._begin(name, found, who)
        except VgradsError as error:
            found.answer = {"state": "failed", "reason": str(error)}
        except HTTPException as error:
            found.answer = {"state": "failed", "reason": str(error.detail)}

    async def _begin(self, name: str, found: Gathering, who: Principal) -> dict[str, Any]:
        first = found.first
        needed = max(1, math.ceil(parse_fraction(first.fraction, "fraction") * first.of - 1e-9))
        if len(found.came) < needed:
            return {
                "state": "failed",
                "reason": f"only {len(found.came)} of {first.of} came, {needed} are needed",
            }
        document = {
            "name": name,
            "deadline": first.deadline,
            "probability": first.probability,
            "at_least": needed,
            "released": True,
            "workflows": [
                one.model_dump(mode="json", exclude_unset=True) for one in found.came.values()
            ],
        }
        checked = await self._service.read_set(json.dumps(document).encode(), "json")
        answer, _ = await self._service.hand_over(checked, who, None, PLANNING_S)
        run_id = await begin_run(
            self._service, answer["id"], who, {"engine": "vgrads", "speed": None}, None, None
        )
        return {"state": "begun", "set": answer["id"], "run": run_id, "needed": needed}

    def _forget_old(self) -> None:
        old_s = time.monotonic() - _KEPT_S
        for key in [key for key, one in self._known.items() if one.answer and one.until_s < old_s]:
            del self._known[key]


def _names(found: Gathering) -> dict[str, str]:
    """Ticket → the name of its workflow in the set, which counts equal ones."""
    seen: Counter[str] = Counter()
    names = {}
    for ticket, workflow in found.came.items():
        seen[workflow.name] += 1
        names[ticket] = f"{workflow.name}-{seen[workflow.name]}"
    return names
