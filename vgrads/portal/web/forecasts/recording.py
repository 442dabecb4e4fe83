"""Records of the answers that the service gives about queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vgrads.portal.records.access import Principal
from vgrads.portal.web.embedding.forecast_access import ANYBODY
from vgrads.portal.web.service import Service

if TYPE_CHECKING:
    from vgrads.api.queues.issued import IssuedForecast
    from vgrads.api.queues.issuing import Statement
    from vgrads.api.queues.queries import QueueQuery


def record(service: Service, who: Principal, forecasts: Iterable[IssuedForecast]) -> None:
    """Record the answers to a user; those to requests without a token are not recorded: anybody
    could fill the disk."""
    if who.user != ANYBODY:
        service.forecasts.journal.append(forecasts)


def record_answer(
    service: Service,
    who: Principal,
    query: QueueQuery,
    shape: tuple[str, str, int, float],
    stated: Statement,
) -> None:
    """Record an answer about a shape (site, queue, processors, requested time)."""
    if who.user == ANYBODY:  # and not computed either
        return
    # imported late: the service starts without forecasts
    from vgrads.api.queues.issuing import ForecastTarget, issue_answer
    from vgrads.api.wiring import is_real

    site, queue, procs, walltime_s = shape
    target = ForecastTarget(
        site=site, queue=queue, owner=who.user, is_live=is_real(service.catalog.site(site))
    )
    record(service, who, [issue_answer(query, target, (procs, walltime_s), stated)])


def record_bounds(
    service: Service,
    who: Principal,
    query: QueueQuery,
    shape: tuple[str, str, int, float],
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Record the bounds of a page."""
    # imported late, as above
    from vgrads.api.queues.issuing import Statement

    stated = Statement(bounds=tuple((row["probability"], row["bound_s"]) for row in rows))
    record_answer(service, who, query, shape, stated)
