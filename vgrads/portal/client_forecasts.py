"""Questions about queues to a service, for programs. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class ForecastCalls:
    """Calls of :class:`vgrads.portal.client.Client` about many queues."""

    _ask: Callable[..., Any]

    def forecasts(
        self, questions: Sequence[Mapping[str, Any]], **how: Sequence[float]
    ) -> list[dict[str, Any]]:
        """Return the answers to many questions, in their order; ``how``: ``quantiles``,
        ``within_s``."""
        document = {"questions": [dict(question) for question in questions], **how}
        return list(self._ask("POST", "/v1/forecasts", document)["forecasts"])
