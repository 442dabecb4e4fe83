"""Records of the answers that the service gives about queues."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vgrads.portal.records.access import Principal
from vgrads.portal.web.embedding.forecast_access import ANYBODY
from vgrads.portal.web.service import Service

if TYPE_CHECKING:
    from vgrads.api.queues.issued import IssuedForecast


def record(service: Service, who: Principal, forecasts: Iterable[IssuedForecast]) -> None:
    """Record the answers to a user; those to requests without a token are not recorded: anybody
    could fill the disk."""
    if who.user != ANYBODY:
        service.forecasts.journal.append(forecasts)
