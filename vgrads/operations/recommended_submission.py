"""The recommended instant to submit a job, by the forecast of its queue and the record of earlier
recommendations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vgrads.api.queues.forecast_scores import QueueRecord
from vgrads.api.queues.queries import QueueQuery, walk
from vgrads.vgrid.varq import Reservation, Trajectory
from vgrads.vgrid.varq_record import RequiredLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendedSubmission:
    """The instants of submission with their probabilities; the latest that reaches the ``required``
    level is chosen."""

    path: Trajectory
    required: RequiredLevel
    record: QueueRecord

    @property
    def probability(self) -> float:
        """That of the recommended instant."""
        return float(self.path.probabilities[self.path.recommended])

    @property
    def warning(self) -> str | None:
        """Why this probability is doubtful, by the record; None where an instant was chosen at a
        higher level than requested, because that level answers the same record."""
        if self.path.chosen is not None and self.required.reason is not None:
            return None
        return self.record.contradiction(self.probability)


def recommend(
    query: QueueQuery, record: QueueRecord, reservation: Reservation, step_s: float
) -> RecommendedSubmission:
    """Return the latest instant at which the start of a reservation has its probability, as far as
    the record of such recommendations lets the forecast be believed."""
    required = record.level(reservation.probability)
    path = walk(query, replace(reservation, probability=required.level), step_s)
    return RecommendedSubmission(path=path, required=required, record=record)
