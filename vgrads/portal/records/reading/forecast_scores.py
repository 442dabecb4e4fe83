"""Scores of stored forecasts, by queue, and of all promises: plain queries."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from vgrads.api.queues.forecast_scores import (
    ALARM_LEVEL,
    NO_RECORD,
    WATCHED,
    WINDOW,
    QueueRecord,
    ScoredForecast,
    WatchedBounds,
    pair_outcomes,
    pair_promises,
    score,
    watch,
)
from vgrads.kernel.errors import VgradsError
from vgrads.portal.records.reader import RecordReader, is_missing
from vgrads.portal.records.reading.opening import open_reader

Json = dict[str, Any]
QueueKey = tuple[str, str]
_ScoringJob = tuple[float | None, float | None, float | None]  # wait, observed time, submission
_SiteEstimate = tuple[str, float | None]  # whether the site was queried, and what it stated
_NO_PROMISE = "kind <> 'promise'"
_OF_QUEUE = f"site = :site AND queue = :queue AND {_NO_PROMISE}"
_UNKNOWN = "(job_submit_s IS NULL AND observed_s > 0)"
"""No job is known, though one that had started would be."""
_HAS_JOB = "(state = 'scored' OR job_submit_s IS NOT NULL)"
"""The job of a forecast is known: it has started, or has waited for some time."""
_MOST_OUTCOMES = 5000
_COUNTS = (
    "SELECT site, queue, state, retrospective, COUNT(*), SUM(times) FROM forecast "
    "WHERE {} GROUP BY site, queue, state, retrospective"
)


def queue_score(reader: RecordReader, site: str, queue: str) -> Json:
    """Return the score of a queue: of its newest forecasts, as issued."""
    counts = _count_records(reader, _OF_QUEUE, site=site, queue=queue)
    return _score(reader, (site, queue), counts.get((site, queue), _NO_COUNTS))


def read_all_scores(reader: RecordReader, files: bool = True) -> Json:
    """Return the score of every queue with records, and of all promises. ``files``: also of
    histories that belong to no site, whose names are paths."""
    counts = _count_records(reader, _NO_PROMISE if files else f"{_NO_PROMISE} AND history = ''")
    return {
        "queues": [_score(reader, key, entry) for key, entry in sorted(counts.items())],
        "promises": read_promise_score(reader),
    }


def _score(reader: RecordReader, key: QueueKey, counts: Mapping[str, int]) -> Json:
    site, queue = key
    return {
        "site": site,
        "queue": queue,
        "records": dict(counts),
        **score(_list_newest(reader, site, queue)),
        "watched": asdict(watched := read_watched_bounds(reader, site, queue)),
        "warning": watched.warning,
    }


def _list_newest(
    reader: RecordReader, site: str, queue: str, condition: str = _NO_PROMISE
) -> list[ScoredForecast]:
    """Return the newest scored forecasts of a queue, newest first, of those that fulfil a
    condition."""
    rows = reader.rows(
        "SELECT statements, view, wait_s, observed_s, job_submit_s, estimate, estimate_s "
        f"FROM forecast WHERE {_OF_QUEUE} AND {_HAS_JOB} AND {condition} "
        "ORDER BY issued_s DESC, id LIMIT :most",
        site=site,
        queue=queue,
        most=WINDOW,
    )
    return [_select_scored(row[0], row[1], row[2:5], row[5:]) for row in rows]


def read_promise_score(reader: RecordReader) -> Json:
    """Return how many promises of runs were kept, beside what was promised."""
    rows = reader.rows(
        "SELECT statements, covered FROM forecast WHERE kind = 'promise' AND state = 'scored' "
        "ORDER BY issued_s DESC, id LIMIT :most",
        most=WINDOW,
    )
    pairs = [(json.loads(statements)["probabilities"][0], kept) for statements, kept in rows]
    result = score(
        [
            ScoredForecast(probabilities=((within_s, p),), wait_s=within_s if kept else None)
            for (within_s, p), kept in pairs
        ]
    )
    opened = reader.rows("SELECT COUNT(*) FROM forecast WHERE kind = 'promise' AND state = 'open'")
    count = len(pairs)
    return {
        "promises": count,
        "kept": sum(bool(kept) for _, kept in pairs),
        "kept_share": sum(bool(kept) for _, kept in pairs) / count if count else None,
        "promised": sum(p for (_, p), _ in pairs) / count if count else None,
        "open": opened[0][0],
        "reliability": result["reliability"],
        "brier": result["brier"],
    }


def read_queue_record(reader: RecordReader, site: str, queue: str) -> QueueRecord:
    """Return what the scores of a queue say of its next answers."""
    return record_with(reader, site, queue, read_watched_bounds(reader, site, queue).warning)


def record_with(reader: RecordReader, site: str, queue: str, warning: str | None) -> QueueRecord:
    """Return the same, with a warning by the watched bounds that is known already."""
    recommended = _list_newest(reader, site, queue, "kind = 'trajectory'")
    return QueueRecord(
        warning=warning,
        submissions=tuple(pair_outcomes(recommended)),
        promises=tuple(pair_promises(recommended)),
    )


def read_watched_bounds(reader: RecordReader, site: str, queue: str) -> WatchedBounds:
    """Return the newest bounds of a queue at the watched probability, as far as they are known."""
    return watch(_list_outcomes(reader, site, queue))


def read_newest_coverage(reader: RecordReader, site: str, queue: str) -> list[Json]:
    """Return how many of a queue's newest bounds at the watched probability there are, and the
    share that was not exceeded: of the watched ones, and of all that are scored."""
    covered = [c for c in _list_outcomes(reader, site, queue) if c is not None][:WINDOW]
    counts = sorted({min(len(covered), most) for most in (WATCHED, WINDOW)} - {0})
    return [{"bounds": n, "share": sum(covered[:n]) / n} for n in counts]


def _list_outcomes(reader: RecordReader, site: str, queue: str) -> list[bool | None]:
    """Return whether the newest bounds of a queue were not exceeded, of those whose time has
    passed, newest first; None where no job is known."""
    rows = reader.rows(
        f"SELECT covered, observed_s, statements FROM forecast WHERE {_OF_QUEUE} AND "
        f"(covered IS NOT NULL OR {_UNKNOWN}) ORDER BY issued_s DESC, id LIMIT :most",
        site=site,
        queue=queue,
        most=_MOST_OUTCOMES,
    )
    return [
        None if covered is None else bool(covered)
        for covered, observed_s, statements in rows
        if covered is not None or _has_passed(statements, observed_s)
    ]


def _has_passed(statements: str, observed_s: float) -> bool:
    """Return whether the time of the watched bound has passed."""
    bound_s = dict(json.loads(statements)["bounds"]).get(ALARM_LEVEL)
    return bound_s is not None and bound_s <= observed_s


def read_records(queues: Iterable[QueueKey]) -> dict[QueueKey, QueueRecord]:
    """Return the records of queues; none where there is no database: answers do not depend on
    it."""
    if is_missing():
        return {}
    try:
        with open_reader() as reader:
            return records_in(reader, queues)
    except (VgradsError, OSError):
        return {}


def read_stored_record(site: str, queue: str) -> QueueRecord:
    """Return the record of a queue, as :func:`read_records`."""
    return read_records([(site, queue)]).get((site, queue), NO_RECORD)


def records_in(reader: RecordReader, queues: Iterable[QueueKey]) -> dict[QueueKey, QueueRecord]:
    """Return the records of queues."""
    return {key: read_queue_record(reader, *key) for key in queues}


_COUNTED = {
    "open": "open",
    "scored": "scored",
    "closed": "without_start",
}
_NO_COUNTS = dict.fromkeys(("issued", *_COUNTED.values(), "retrospective"), 0)


def _count_records(
    reader: RecordReader, condition: str, **values: object
) -> dict[QueueKey, dict[str, int]]:
    """Return the number of records of each queue; ``issued``: with repetitions of the same."""
    result: dict[QueueKey, dict[str, int]] = {}
    for site, queue, state, retrospective, count, times in reader.rows(
        _COUNTS.format(condition), **values
    ):
        entry = result.setdefault((site, queue), dict(_NO_COUNTS))
        entry["issued"] += int(times)
        entry["retrospective" if retrospective else _COUNTED[state]] += int(count)
    return result


def _select_scored(
    statements: str, view: str, job: _ScoringJob, site: _SiteEstimate
) -> ScoredForecast:
    document, (wait_s, observed_s, job_submit_s) = json.loads(statements), job
    estimate, estimate_s = site
    return ScoredForecast(
        bounds=tuple((level, bound_s) for level, bound_s in document["bounds"]),
        probabilities=tuple((within_s, p) for within_s, p in document["probabilities"]),
        wait_s=wait_s,
        observed_s=math.inf if observed_s is None else observed_s,
        estimate_s=estimate_s,
        was_queried=bool(estimate),
        view=view,
        job_submit_s=job_submit_s,
        promised=document.get("promised"),
    )
