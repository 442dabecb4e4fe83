"""Records of the answers that the service gives about queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vgrads.portal.records.access import Principal
from vgrads.portal.web.service import Service

if TYPE_CHECKING:
    from vgrads.api.queues.queries import QueueQuery


def record_answer(
    service: Service,
    who: Principal,
    query: QueueQuery,
    shape: tuple[str, str, int, float],
    **statements: Any,
) -> None:
    """Record an answer about a shape (site, queue, processors, requested time)."""
    # imported late: the service starts without forecasts
    from vgrads.api.queues.issued import Target, issue_answer
    from vgrads.api.wiring import is_real

    site, queue, procs, walltime_s = shape
    target = Target(
        site=site, queue=queue, owner=who.user, is_live=is_real(service.catalog.site(site))
    )
    forecast = issue_answer(query, target, (procs, walltime_s), **statements)
    service.forecasts.journal.append([forecast])
