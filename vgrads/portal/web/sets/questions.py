"""Computations that pages wait for: one at a time of each form, the newest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from starlette.exceptions import HTTPException

from vgrads.kernel.rate_limiter import RateLimiter
from vgrads.portal.jobs.children import Call
from vgrads.portal.jobs.supervisor import result_of
from vgrads.portal.records.access import Principal
from vgrads.portal.web.guard import refuse_too_often
from vgrads.portal.web.service import Service

Json = dict[str, Any]
_REUSED_S = 60.0
"""How long an answer is there for a form that repeats its question."""


@dataclass
class _Question:
    digest: str
    task: asyncio.Task[Json] = field(init=False)
    computation: Future[Any] | None = None


@dataclass(frozen=True, slots=True)
class StillWaiting:
    """No answer yet: so many computations come ``ahead``; 0: it is being computed."""

    ahead: int


class NewestQuestions:
    """The newest question of each form; an older one of the same form is given up. ``rate``: of
    one user's new questions, since each occupies a process for seconds."""

    def __init__(self, service: Service, rate: str) -> None:
        self._service, self._rate = service, rate
        self._newest: dict[tuple[str, str], _Question] = {}
        self._limiter = RateLimiter()

    async def ask(
        self, who: Principal, form: str, digest: str, call: Callable[[], Call], wait_s: float
    ) -> Json | StillWaiting:
        """Return the result of a call, after at most ``wait_s``; a question that is repeated waits
        for the same answer.

        ``form``: which of the user's forms; ``digest``: the same for the same question. Raise what
        the call raises, HTTPException 409 for a question that a newer one has replaced, 429 for too
        many.
        """
        key = who.user, form
        question = self._newest.get(key)
        if question is None or question.digest != digest:
            # first, so that a refused question does not end the one that is being answered
            refuse_too_often(self._limiter, self._rate, who)
            if question is not None:
                question.task.cancel()
            question = self._begin(key, digest, call)
        # wait leaves the task running when a request ends, since others may wait for the same
        # answer
        await asyncio.wait([question.task], timeout=wait_s)
        if question.task.cancelled():
            raise HTTPException(409, "a newer question of this form is answered instead")
        if question.task.done():
            return question.task.result()
        waiting = question.computation
        return StillWaiting(0 if waiting is None else self._service.supervisor.ahead_of(waiting))

    def _begin(self, key: tuple[str, str], digest: str, call: Callable[[], Call]) -> _Question:
        question = self._newest[key] = _Question(digest)
        question.task = asyncio.create_task(self._answer(question, call))

        def forget() -> None:
            # a newer question may have taken its place
            if self._newest.get(key) is question:
                del self._newest[key]

        def end(task: asyncio.Task[Json]) -> None:
            if not task.cancelled():
                task.exception()  # whoever waits for it reads it, unless nobody does any more
            task.get_loop().call_later(_REUSED_S, forget)

        question.task.add_done_callback(end)
        return question

    async def _answer(self, question: _Question, call: Callable[[], Call]) -> Json:
        function, arguments = call()
        question.computation = await self._service.supervisor.enqueue(function, *arguments)
        answer: Json = await result_of(question.computation)
        return answer
