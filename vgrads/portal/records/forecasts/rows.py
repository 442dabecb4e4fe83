"""Issued forecasts in the database: stored from the journal, scored, removed when they are old."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, delete, text, update
from sqlalchemy import Engine as SqlEngine
from sqlmodel import Session, col, select

from vgrads.api.queues.forecast_scores import ALARM_LEVEL, has_started_within
from vgrads.api.queues.issued import (
    PATIENCE_S,
    ForecastOutcome,
    IssuedForecast,
    issued_of,
    model_name,
)
from vgrads.portal.records.forecasts.journal import ForecastJournal, read_documents
from vgrads.portal.records.tables import ForecastRow

Json = dict[str, Any]
OPEN, SCORED, CLOSED = "open", "scored", "closed"
_AT_ONCE = 5000  # rows of a transaction
_PLAIN = tuple(
    name
    for name in ForecastRow.model_fields
    if name == "id" or (name in IssuedForecast.__slots__ and name != "model")
)
_NAMES = (*_PLAIN, "model", "statements", "times", "state", "estimate")
_ADD = text(
    f"INSERT INTO forecast ({', '.join(_NAMES)}) VALUES ({', '.join(f':{n}' for n in _NAMES)}) "
    "ON CONFLICT (id) DO UPDATE SET times = forecast.times + excluded.times"
)


class ForecastRecords:
    """Operations on issued forecasts."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def fold(self, journal: ForecastJournal) -> int:
        """Store what the journal has; return how many forecasts. A file is removed once all of it
        is stored: if this process dies before, some are counted as issued twice."""
        count = 0
        for path in journal.take():
            with journal.claimed(path) as is_ours:
                count += self._store_file(path) if is_ours else 0
        return count

    def _store_file(self, path: Path) -> int:
        count, batch = 0, list[IssuedForecast]()
        for document in read_documents(path):
            with suppress(TypeError, ValueError):
                batch.append(issued_of(document))
            if len(batch) == _AT_ONCE:
                count += self.add(batch)
                batch = []
        count += self.add(batch)
        path.unlink(missing_ok=True)
        return count

    def add(self, forecasts: Sequence[IssuedForecast]) -> int:
        """Store forecasts; the same statement, issued again, is counted."""
        rows: dict[str, Json] = {}
        for forecast in forecasts:
            row = rows.setdefault(forecast.id, {})
            if row:
                row["times"] += 1
            else:
                row.update(_make_row(forecast))
        if not rows:
            return 0
        with self._engine.begin() as connection:
            connection.execute(_ADD, list(rows.values()))
        return len(forecasts)

    def is_issued(self, job: str) -> bool:
        """Return whether a slot or run of ours has a record."""
        with Session(self._engine) as session:
            query = select(ForecastRow.id).where(ForecastRow.job == job).limit(1)
            return session.exec(query).first() is not None

    def queues(self) -> list[tuple[str, str, str]]:
        """Return site, queue and file of every queue whose forecasts may still be scored by
        others' jobs."""
        query = select(ForecastRow.site, ForecastRow.queue, ForecastRow.history).where(
            *_select_others()
        )
        with Session(self._engine) as session:
            return sorted({(s, q, h) for s, q, h in session.exec(query.distinct())})

    def matchable(self, site: str, queue: str, since_s: float) -> list[ForecastRow]:
        """Return the forecasts of a queue about submissions since an instant of its history: also
        scored ones, since an earlier job may become known later."""
        query = select(ForecastRow).where(
            *_select_others(),
            ForecastRow.site == site,
            ForecastRow.queue == queue,
            col(ForecastRow.instant_s) + col(ForecastRow.submit_in_s) >= since_s,
        )
        with Session(self._engine) as session:
            return list(session.exec(query))

    def put_waits(self, rows: Iterable[ForecastRow], waits: Mapping[str, ForecastOutcome]) -> int:
        """Store what is known of the waits that score forecasts; return how many are scored now.
        Scored is one whose job has started, or has waited for longer than all that was stated."""
        now_s, added = time.time(), 0
        with Session(self._engine) as session:
            for row in rows:
                # a job that was known stays so, also where the history no longer shows it
                observed = waits.get(row.id)
                if observed is None or (observed.submit_s is None and row.job_submit_s is not None):
                    continue
                values = _make_outcome(row, observed)
                if all(getattr(row, name) == value for name, value in values.items()):
                    continue
                added += row.state == OPEN and values["state"] == SCORED
                query = update(ForecastRow).where(col(ForecastRow.id) == row.id)
                session.execute(query.values(**values, scored_s=now_s))
            session.commit()
        return added

    def put_outcome(self, job: str, wait_s: float | None, covered: bool | None = None) -> None:
        """Store the outcome of a slot or run of ours. ``wait_s``: None where it never started."""
        with Session(self._engine) as session:
            for row in session.exec(select(ForecastRow).where(ForecastRow.job == job)):
                row.state, row.wait_s, row.scored_s = SCORED, wait_s, time.time()
                row.covered = covered_by(row, wait_s) if covered is None else covered
                session.add(row)
            session.commit()

    def close(self, site: str, queue: str, before_s: float) -> None:
        """Give up forecasts of a queue for which no start became known in a month after them."""
        self._close(
            *_select_others(),
            col(ForecastRow.site) == site,
            col(ForecastRow.queue) == queue,
            col(ForecastRow.instant_s) + col(ForecastRow.submit_in_s) < before_s - PATIENCE_S,
        )

    def close_job(self, job: str) -> None:
        """Give up the forecast of a slot that was never requested, or of a cancelled run."""
        self._close(col(ForecastRow.job) == job)

    def _close(self, *where: ColumnElement[bool]) -> None:
        query = update(ForecastRow).where(*where, col(ForecastRow.state) == OPEN)
        with self._engine.begin() as connection:
            connection.execute(query.values(state=CLOSED))

    def without_estimate(self, sites: Iterable[str], since_s: float) -> list[ForecastRow]:
        """Return recent forecasts of these sites that have no start estimate of the site yet."""
        query = select(ForecastRow).where(
            *_select_others(),
            col(ForecastRow.site).in_(list(sites)),
            ForecastRow.estimate == "",
            ForecastRow.submit_in_s == 0.0,
            col(ForecastRow.issued_s) >= since_s,
        )
        with Session(self._engine) as session:
            return list(session.exec(query.order_by(col(ForecastRow.issued_s).desc()).limit(1000)))

    def put_estimate(self, ids: Iterable[str], estimate_s: float | None) -> None:
        """Store the site's own start estimate; None: it stated none."""
        query = update(ForecastRow).where(col(ForecastRow.id).in_(list(ids)))
        name = "none" if estimate_s is None else "stated"
        with self._engine.begin() as connection:
            connection.execute(query.values(estimate=name, estimate_s=estimate_s))

    def remove_before(self, issued_s: float) -> int:
        """Remove forecasts that were issued before an instant; return how many."""
        gone = delete(ForecastRow).where(col(ForecastRow.issued_s) < issued_s)
        with Session(self._engine) as session:
            count = session.execute(gone).rowcount  # type: ignore[attr-defined]
            session.commit()
        return int(count)


def _select_others() -> tuple[Any, ...]:
    """Return the condition for forecasts that may still be scored by jobs of others."""
    return (
        ForecastRow.job == "",
        col(ForecastRow.kind) != "promise",
        col(ForecastRow.retrospective).is_(False),
        col(ForecastRow.state).in_((OPEN, SCORED)),
    )


def stated_waits(row: ForecastRow) -> list[float]:
    """Return all waits about which a forecast stated anything, ascending."""
    statements = json.loads(row.statements)
    bounds_s = [bound_s for _, bound_s in statements.get("bounds", ()) if bound_s is not None]
    return sorted((*bounds_s, *(within_s for within_s, _ in statements.get("probabilities", ()))))


def _make_outcome(row: ForecastRow, observed: ForecastOutcome) -> Json:
    """Return the columns of what is known of a wait."""
    stated = stated_waits(row)
    observed_s = max((s for s in stated if s <= observed.observed_s), default=0.0)
    is_exceeded = observed.submit_s is not None and bool(stated) and observed_s == stated[-1]
    decided = observed.wait_s is not None or is_exceeded
    covered = None
    if observed.submit_s is not None:
        covered = covered_by(row, observed.wait_s, observed_s)
    return {
        "state": SCORED if decided else row.state,
        "wait_s": observed.wait_s,
        "job_submit_s": observed.submit_s,
        "observed_s": observed_s,
        "covered": covered,
    }


def covered_by(row: ForecastRow, wait_s: float | None, observed_s: float = math.inf) -> bool | None:
    """Return whether a wait did not exceed the bound at .95; None where none was stated, and while
    it is not known."""
    for level, bound_s in json.loads(row.statements).get("bounds", ()):
        if level == ALARM_LEVEL and bound_s is not None:
            return has_started_within(bound_s, wait_s, observed_s)
    return None


def _make_row(forecast: IssuedForecast) -> Json:
    """Return the columns of a forecast; not as a row, whose checks would take most of the time."""
    statements: Json = {"bounds": forecast.bounds, "probabilities": forecast.probabilities}
    if forecast.promised is not None:
        statements["promised"] = forecast.promised
    return {
        **{name: getattr(forecast, name) for name in _PLAIN},
        "model": model_name(forecast.model),
        "statements": json.dumps(statements),
        "times": 1,
        "state": OPEN,
        "estimate": "",
    }
