"""Questions about sets that are not submitted: one at a time of each form, the newest."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from starlette.exceptions import HTTPException

from vgrads.kernel.rate_limiter import RateLimiter
from vgrads.portal.jobs import children
from vgrads.portal.jobs.supervisor import result_of
from vgrads.portal.records.access import Principal
from vgrads.portal.records.reading.sites import usable
from vgrads.portal.web.guard import refuse_too_often
from vgrads.portal.web.service import Service

Json = dict[str, Any]
_RATE = "60/minute"  # of one user: each occupies a process for seconds
_REUSED_S = 60.0
"""How long an answer is there for a form that repeats its question."""


@dataclass
class _Question:
    digest: str
    task: asyncio.Task[Json] = field(init=False)
    computation: Future[Any] | None = None


@dataclass(frozen=True, slots=True)
class WrittenSet:
    """A set as a form states it: see :func:`vgrads.portal.jobs.worker.check_set`, and the sites
    that may be used, none: all."""

    text: str
    change: Mapping[str, Any]
    only_sites: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Equal for equal questions."""
        content = json.dumps([self.text, self.change, self.only_sites])
        return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class StillWaiting:
    """No answer yet: so many computations come ``ahead``; 0: it is being computed."""

    ahead: int


class PromiseQuestions:
    """The newest question of each form; an older one of the same form is given up."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._newest: dict[tuple[str, str], _Question] = {}
        self._limiter = RateLimiter()

    async def ask(
        self, who: Principal, form: str, written: WrittenSet, wait_s: float
    ) -> Json | StillWaiting:
        """Return the promise for a set, after at most ``wait_s``; a question that is repeated
        waits for the same answer.

        ``form``: which of the user's forms. Raise InputError for a set that cannot be read,
        HTTPException 409 for a question that a newer one has replaced, 429 for too many.
        """
        key, digest = (who.user, form), written.digest
        question = self._newest.get(key)
        if question is None or question.digest != digest:
            refuse_too_often(self._limiter, _RATE, who)
            if question is not None:
                question.task.cancel()
            question = self._begin(key, written)
        await asyncio.wait([question.task], timeout=wait_s)
        if question.task.cancelled():
            raise HTTPException(409, "a newer question of this form is answered instead")
        if question.task.done():
            return question.task.result()
        waiting = question.computation
        return StillWaiting(0 if waiting is None else self._service.supervisor.ahead_of(waiting))

    def _begin(self, key: tuple[str, str], written: WrittenSet) -> _Question:
        question = self._newest[key] = _Question(written.digest)
        question.task = asyncio.create_task(self._answer(question, key[0], written))

        def forget() -> None:
            if self._newest.get(key) is question:
                del self._newest[key]

        def end(task: asyncio.Task[Json]) -> None:
            if not task.cancelled():
                task.exception()  # whoever waits for it reads it, unless nobody does any more
            task.get_loop().call_later(_REUSED_S, forget)

        question.task.add_done_callback(end)
        return question

    async def _answer(self, question: _Question, owner: str, written: WrittenSet) -> Json:
        service = self._service
        catalog = usable(service.catalog, service.granted(owner))[0]
        catalog = catalog.only(written.only_sites, "site")
        question.computation = await service.supervisor.enqueue(
            children.promise_of_text,
            service.store.url,
            catalog,
            owner,
            (written.text.encode(), written.change),
            service.bounds.max_tasks,
        )
        answer: Json = await result_of(question.computation)
        return answer
