"""Questions about queues to a service, for programs. Standard library only."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class ForecastCalls:
    """Calls of :class:`vgrads.portal.client.Client` about queues. ``job``: ``procs``,
    ``walltime_s``, ``method``, ``confidence``, ``live``; answers are the JSON of the commands."""

    _ask: Callable[..., Any]

    def bound(self, site: str, queue: str, probability: float = 0.95, **job: Any) -> dict[str, Any]:
        """Return an upper bound on the wait of a job."""
        return self._ask_queue(site, queue, "bound", {"probability": probability, **job})

    def probability(self, site: str, queue: str, within_s: float, **job: Any) -> dict[str, Any]:
        """Return the probability that a job starts within a time."""
        return self._ask_queue(site, queue, "probability", {"within_s": within_s, **job})

    def trajectory(
        self, site: str, queue: str, start_by_s: float, probability: float = 0.9, **job: Any
    ) -> dict[str, Any]:
        """Return when to submit a job that must run in ``start_by_s``."""
        fields = {"start_by_s": start_by_s, "probability": probability, **job}
        return self._ask_queue(site, queue, "trajectory", fields)

    def forecasts(
        self, questions: Sequence[Mapping[str, Any]], **how: Sequence[float]
    ) -> list[dict[str, Any]]:
        """Return the answers to many questions, in their order; ``how``: ``quantiles``,
        ``within_s``."""
        document = {"questions": [dict(question) for question in questions], **how}
        return list(self._ask("POST", "/v1/forecasts", document)["forecasts"])

    def where(self, procs: int = 1, walltime_s: float = 3600.0) -> dict[str, Any]:
        """Return all queues by the expected start of a job, and the cheapest cloud."""
        query = urllib.parse.urlencode({"procs": procs, "walltime_s": walltime_s})
        return dict(self._ask("GET", f"/v1/where?{query}"))

    def _ask_queue(
        self, site: str, queue: str, question: str, fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        place = "/".join(urllib.parse.quote(name, safe="") for name in (site, "queues", queue))
        query = urllib.parse.urlencode(fields)
        return dict(self._ask("GET", f"/v1/sites/{place}/{question}?{query}"))
