"""Questions about sets that are not submitted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vgrads.portal.jobs import children
from vgrads.portal.jobs.children import Call
from vgrads.portal.records.access import Principal
from vgrads.portal.records.reading.sites import choose_usable_sites
from vgrads.portal.web.service import Service
from vgrads.portal.web.sets.questions import NewestQuestions, StillWaiting

Json = dict[str, Any]
_RATE = "60/minute"


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


class PromiseQuestions:
    """The newest question of each form of a set."""

    def __init__(self, service: Service) -> None:
        self._service, self._questions = service, NewestQuestions(service, _RATE)

    async def ask(
        self, who: Principal, form: str, written: WrittenSet, wait_s: float
    ) -> Json | StillWaiting:
        """Return the promise for a set, after at most ``wait_s``.

        ``form``: which of the user's forms. Raise InputError for a set that cannot be read,
        HTTPException as :meth:`NewestQuestions.ask`.
        """
        service = self._service

        def call() -> Call:
            catalog = choose_usable_sites(service.catalog, service.granted(who.user))[0]
            catalog = catalog.only(written.only_sites, "site")
            text = written.text.encode(), written.change
            most = service.bounds.max_tasks
            return children.promise_of_text, (service.store.url, catalog, who.user, text, most)

        return await self._questions.ask(who, form, written.digest, call, wait_s)
